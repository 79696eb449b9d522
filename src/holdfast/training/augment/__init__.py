"""Augmentation for training, by task."""
