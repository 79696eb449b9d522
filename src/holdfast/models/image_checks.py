"""What every backbone says about images that do not fit it."""

from torch import Tensor

from holdfast.errors import HoldfastError


def check_image(images: Tensor, *, channels: int, stride: int) -> None:
    """Refuse images of the wrong shape in one sentence, before a convolution does it in ten."""
    if images.ndim != 4:
        raise HoldfastError(f"images must have shape (batch, {channels}, height, width), got {tuple(images.shape)}")
    if images.shape[1] != channels:
        raise HoldfastError(f"images must have {channels} channels, got {images.shape[1]}")
    height, width = images.shape[-2:]
    if height % stride or width % stride:
        raise HoldfastError(f"image height and width must be divisible by {stride}, got {height}×{width}")
