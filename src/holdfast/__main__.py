"""Entry point of ``python -m holdfast``, for launchers such as torchrun and accelerate."""

from holdfast.cli.main import entry_point

if __name__ == "__main__":
    entry_point()
