"""Training of each task: loss, validation, transforms, models."""
