"""Layers of the models, one concept per file under its paper's name."""
