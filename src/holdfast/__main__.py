"""``python -m holdfast``, which launchers such as torchrun and accelerate can start."""

from holdfast.cli.main import entry_point

if __name__ == "__main__":
    entry_point()
