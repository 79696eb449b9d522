"""How models are trained: ``holdfast.train(recipe)``. The loop itself is loop.py."""
