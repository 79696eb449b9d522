"""Analyses of robustness: attention stability, overfocusing, head diversity, noise decay, token grouping.

Results (`holdfast.analysis.results`) are read without torch; the measures are imported from their own files.
"""
