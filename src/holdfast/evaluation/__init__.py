"""Measuring: suites of cells, run on any model and any data, become records."""
