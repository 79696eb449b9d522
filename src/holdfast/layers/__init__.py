"""Parts of models: each file holds one concept under its paper's name."""
