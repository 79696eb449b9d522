"""A corruption model for large or changing grids: AFAT's game with convolutions instead of a matrix. Ours, no paper's.

AFAT's own (:mod:`holdfast.models.corruptor`) has patches² weights: 67 M for 1024×2048 pixels in patches of 16, and it
belongs to one grid. Here every patch is scored from its own pixels and its neighbourhood, so that one small model reads
images of any size.
"""

from torch import Tensor, nn

from holdfast.errors import HoldfastError
from holdfast.models.backbone import check_image
from holdfast.models.corruptor import keep_straight_through

WIDTH = 16
NEIGHBOURHOOD = 7  # patches


class ConvCorruptor(nn.Module):
    """scores = w · GELU(depthwise 7×7(GELU(conv(x)))), one per patch; 13 k weights for patches of 16×16."""

    def __init__(self, *, patch_size: int = 16, channels: int = 3) -> None:
        super().__init__()
        if patch_size < 1:
            raise HoldfastError(f"patch_size must be positive, got {patch_size}")
        self.patch_size = patch_size
        self.patch_embed = nn.Conv2d(channels, WIDTH, patch_size, stride=patch_size, bias=False)
        self.near = nn.Conv2d(WIDTH, WIDTH, NEIGHBOURHOOD, padding=NEIGHBOURHOOD // 2, groups=WIDTH, bias=False)
        self.score = nn.Conv2d(WIDTH, 1, 1, bias=False)
        self.act = nn.GELU()

    def grid_of(self, images: Tensor) -> tuple[int, int]:
        """How many patches these images have, down and across."""
        check_image(images, channels=self.patch_embed.in_channels, stride=self.patch_size)
        return images.shape[-2] // self.patch_size, images.shape[-1] // self.patch_size

    def forward(self, images: Tensor) -> Tensor:
        """One score per patch, (B, N); the lowest are to be occluded."""
        self.grid_of(images)
        return self.score(self.act(self.near(self.act(self.patch_embed(images))))).flatten(1)

    def keep(self, images: Tensor, ratio: float = 0.1) -> Tensor:
        """The mask of kept patches, (B, 1, rows, columns), with a straight-through gradient."""
        return keep_straight_through(self(images), ratio).unflatten(1, (1, *self.grid_of(images)))
