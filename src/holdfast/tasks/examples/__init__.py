"""Example images of each task, as a report shows them."""
