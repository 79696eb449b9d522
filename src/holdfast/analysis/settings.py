"""What can be chosen about an analysis."""

from dataclasses import dataclass

from holdfast.errors import HoldfastError


@dataclass(frozen=True)
class Settings:
    """Settings of all analyses; each takes what concerns it.

    Attributes:
        cells: corruption cells for stability; the first one is also shown in pictures.
        masks: random occlusion masks per image.
        occlusion_images: images that are occluded so often.
        ratio: share of the patches that a mask occludes.
        patch_size: side of an occluded patch in pixels; None: 16, or an eighth of a small image.
        top: how many tokens count as the most attended ones.
        epsilon: eigenvalues above this share of the largest are significant.
        noise_std: deviation of the noise added to normalised images for noise decay.
        modules: modules for noise decay and grouping by name; none: the model's blocks.
        clusters: groups of tokens.
        pictures: images that pictures show.
        query: row and column, as shares of the image, of the token whose attention is drawn.
    """

    cells: tuple[str, ...] = ("gaussian_noise/3",)
    masks: int = 100
    occlusion_images: int = 64
    ratio: float = 0.1
    patch_size: int | None = None
    top: int = 5
    epsilon: float = 0.01
    noise_std: float = 1.0
    modules: tuple[str, ...] = ()
    clusters: int = 4
    pictures: int = 4
    query: tuple[float, float] = (0.5, 0.5)

    def __post_init__(self) -> None:
        for name in ("masks", "occlusion_images", "top", "pictures"):
            if getattr(self, name) < 1:
                raise HoldfastError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.cells:
            raise HoldfastError("cells must name at least one corruption cell such as gaussian_noise/3, got none")
        if not self.noise_std > 0:
            raise HoldfastError(f"noise_std must be positive, got {self.noise_std}")
        if not 0 < self.epsilon < 1:
            raise HoldfastError(f"epsilon must lie between 0 and 1, got {self.epsilon}")
        if not 0 <= self.ratio <= 1:
            raise HoldfastError(f"ratio must lie in [0, 1], got {self.ratio}")
        if not 2 <= self.clusters <= 8:
            raise HoldfastError(f"clusters must lie between 2 and 8, which can be told apart, got {self.clusters}")
        if len(self.query) != 2 or not all(0 <= place <= 1 for place in self.query):
            raise HoldfastError(f"query must be two shares in [0, 1], row and column, got {self.query}")
