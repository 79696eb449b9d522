"""What stands on the page, a file per section or per part of one; each is made from runs or data sets alone."""
