"""Why a model holds or fails: attention stability, overfocusing, head diversity, noise decay, grouping.

Results (`holdfast.analysis.results`) are read without torch; the measures are imported from their own files.
"""
