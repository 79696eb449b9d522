"""Matplotlib: style, files, curves, SVG with tooltips, annotated images."""
