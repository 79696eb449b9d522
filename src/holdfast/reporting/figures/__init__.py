"""Figures of the report: charts as inline SVG."""
