"""Training augmentations, by task."""
