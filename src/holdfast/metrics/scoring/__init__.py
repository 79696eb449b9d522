"""Definitions of the scores of each task, from means over images; no torch."""
