"""What people see: pages, figures and tables, made from stored results alone."""
