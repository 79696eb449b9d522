"""Evaluation of each task: targets, preprocessing, and what is kept of a model's output."""
