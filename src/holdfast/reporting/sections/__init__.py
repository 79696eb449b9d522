"""Sections of the report, one module each, built from runs or data sets."""
