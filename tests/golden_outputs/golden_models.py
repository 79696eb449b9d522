"""Models whose answers follow from the pixels: two for each task, the second one worse."""

import numpy as np
import torch
from torch import nn

from holdfast.data import open_data


class NearestMean(nn.Module):
    """Classifies a digit by its nearest class mean, after averaging over ``window`` pixels."""

    def __init__(self, window: int) -> None:
        super().__init__()
        source = open_data("digits:train")
        images = torch.stack([torch.tensor(np.array(source.image(i))) for i in range(400)]).permute(0, 3, 1, 2) / 255
        self.pool = nn.AvgPool2d(window)
        labels = torch.as_tensor(np.asarray(source.targets[:400]))
        means = torch.stack([self.pool(images[labels == label]).mean(0).flatten() for label in range(10)])
        self.register_buffer("means", means)

    def forward(self, images):
        return -(self.pool(images).flatten(1)[:, None] - self.means).square().sum(-1) / 8


class RecallingMaps(nn.Module):
    """Segments a scene as the most similar known one, but for pixels that differ by more than ``most``."""

    num_classes = 11

    def __init__(self, most: float) -> None:
        super().__init__()
        self.most, source = most, open_data("scenes:test,64x80,4")
        self.known = torch.stack([torch.tensor(np.array(source.image(i))).permute(2, 0, 1) / 255 for i in range(4)])
        self.maps = torch.stack([torch.tensor(np.array(source.target(i))).long() for i in range(4)])

    def forward(self, images):
        height, width = self.maps.shape[1:]
        seen = nn.functional.interpolate(images, (height, width), mode="nearest")
        differences = (seen[:, None] - self.known).abs().mean(2)
        best = differences.mean((2, 3)).argmin(1)
        same = differences[torch.arange(len(images)), best] <= self.most
        classes = torch.where(same & (self.maps[best] < self.num_classes), self.maps[best], 0)
        logits = 4.0 * nn.functional.one_hot(classes, self.num_classes).permute(0, 3, 1, 2)
        return nn.functional.interpolate(logits + 0 * seen.mean(1, keepdim=True), images.shape[2:], mode="nearest")


class Recalling(nn.Module):
    """Detects the objects of the most similar known scene, displaced by the distance from it."""

    num_classes = 10

    def __init__(self, shift: float) -> None:
        super().__init__()
        self.shift, self.source = shift, open_data("scene-objects:test,64x80,4")
        self.known = [torch.tensor(np.array(self.source.image(i))).permute(2, 0, 1) / 255 for i in range(4)]

    def forward(self, images):
        return [self.detections(image) for image in images]

    def detections(self, image):
        if image.shape != self.known[0].shape:
            return {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0).long(), "scores": torch.zeros(0)}
        distances = [float((image.detach() - scene).abs().mean()) for scene in self.known]
        best = int(np.argmin(distances))
        objects = self.source.target(best)
        boxes = torch.from_numpy(objects.boxes).float() + self.shift * distances[best]
        masks = torch.from_numpy(objects.bitmaps())[:, None].float()
        scores = torch.linspace(0.9, 0.6, len(boxes))
        return {"boxes": boxes, "labels": torch.from_numpy(objects.labels) + 1, "scores": scores, "masks": masks}


def classifier():
    return NearestMean(1)


def worse_classifier():
    return NearestMean(8)


def segmenter():
    return RecallingMaps(0.2)


def worse_segmenter():
    return RecallingMaps(0.1)


def detector():
    return Recalling(30.0)


def worse_detector():
    return Recalling(60.0)
