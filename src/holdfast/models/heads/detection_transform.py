"""Detection transform: torchvision's preprocessing and postprocessing with the published rounding and mask pasting."""

import torch
from torch import Tensor
from torch.nn import functional as F
from torchvision.models.detection.transform import GeneralizedRCNNTransform, resize_boxes

Target = dict[str, Tensor]
Size = tuple[int, int]  # height, width


class Scaling(GeneralizedRCNNTransform):
    """Normalise, resize, pad with zeros; sizes are rounded (480×640 → 800×1067), masks sampled at pixel centres."""

    square = False  # whether images are brought to squares of the sides in ``min_size``, whatever their shape

    def resize(self, image: Tensor, target: Target | None = None) -> tuple[Tensor, Target | None]:
        """The image and its target at the network's size; in training, one of the short sides in ``min_size``."""
        old = (image.shape[-2], image.shape[-1])
        short = self.torch_choice(self.min_size) if self.training else self.min_size[-1]
        new = (short, short) if self.square else scaled_size(old, short, self.max_size)
        new = (self.fixed_size[1], self.fixed_size[0]) if self.fixed_size else new
        if new == old:
            return image, target
        image = F.interpolate(image[None], size=new, mode="bilinear", align_corners=False)[0]
        if target is not None:
            target["boxes"] = resize_boxes(target["boxes"], list(old), list(new))
            if "masks" in target:
                target["masks"] = F.interpolate(target["masks"][:, None].float(), size=new)[:, 0].byte()
        return image, target

    def postprocess(
        self, result: list[Target], image_shapes: list[Size], original_image_sizes: list[Size]
    ) -> list[Target]:
        """Boxes and masks at the original image size."""
        if self.training:
            return result
        for found, network, native in zip(result, image_shapes, original_image_sizes, strict=True):
            found["boxes"] = resize_boxes(found["boxes"], list(network), list(native))
            if "masks" in found:
                found["masks"] = paste_masks(found["masks"], found["boxes"], native)
        return result


def scaled_size(size: Size, short: int, long: int) -> Size:
    """The largest size of that aspect ratio with a short side ≤ ``short`` and a long side ≤ ``long``."""
    factor = min(short / min(size), long / max(size))
    return int(size[0] * factor + 0.5), int(size[1] * factor + 0.5)


def paste_masks(masks: Tensor, boxes: Tensor, size: Size) -> Tensor:
    """Probabilities (N, 1, m, m) within boxes → (N, 1, H, W), bilinear at the centres of the image's pixels."""
    height, width = size
    if not len(boxes):
        return masks.new_zeros((0, 1, height, width))
    left, top, right, bottom = (edge[:, None] for edge in boxes.unbind(1))
    x = (torch.arange(width, device=boxes.device) + 0.5 - left) / (right - left) * 2 - 1  # N W
    y = (torch.arange(height, device=boxes.device) + 0.5 - top) / (bottom - top) * 2 - 1  # N H
    grid = torch.stack([x[:, None].expand(-1, height, -1), y[:, :, None].expand(-1, -1, width)], dim=-1)  # N H W 2
    return F.grid_sample(masks, grid.to(masks.dtype), align_corners=False)
