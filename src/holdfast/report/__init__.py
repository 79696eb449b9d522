"""What people see: figures and tables, drawn from stored results alone."""
