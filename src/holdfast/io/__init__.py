"""Files: atomic writing, YAML, images, folder indices, validation."""
