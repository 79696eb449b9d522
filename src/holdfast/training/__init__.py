"""Training: ``holdfast.train(recipe)``. The loop itself is ``loop.py``."""
