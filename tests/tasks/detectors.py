"""Small detectors and data for the tests of the task."""

import json
from collections import OrderedDict

import numpy as np
import torch
from PIL import Image
from torch import nn
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.ops import MultiScaleRoIAlign

from holdfast.data.scenes import open_scene_objects

IDS = (1, 3, 13)  # with gaps, as COCO's


class SmallMaps(nn.Module):
    """A backbone of two layers."""

    out_channels = 8

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 8, stride=8), nn.ReLU())

    def forward(self, images):
        return OrderedDict([("0", self.layers(images))])


def plain_mask_rcnn(classes: int = max(IDS)) -> MaskRCNN:
    """torchvision's own Mask R-CNN on random weights, that finds a few things everywhere."""
    torch.manual_seed(3)
    model = MaskRCNN(
        SmallMaps(),
        num_classes=1 + classes,
        min_size=64,
        max_size=96,
        rpn_anchor_generator=AnchorGenerator(((16, 32),), ((0.5, 1.0, 2.0),)),
        rpn_post_nms_top_n_test=20,
        box_roi_pool=MultiScaleRoIAlign(["0"], 3, 2),
        mask_roi_pool=MultiScaleRoIAlign(["0"], 6, 2),
        box_score_thresh=0.0,
        box_detections_per_img=12,
    )
    with torch.no_grad():
        model.roi_heads.box_predictor.cls_score.bias[torch.tensor(IDS)] += 1.0
    return model


class Finder(nn.Module):
    """Finds what the scenes hold, moved by as much as the picture is off the clean one; to be scored by hand."""

    num_classes = 10

    def __init__(self, source, *, shift: float = 60.0) -> None:
        super().__init__()
        self.source, self.shift = source, shift
        self.known = [torch.from_numpy(np.array(source.image(i))).permute(2, 0, 1) / 255 for i in range(len(source))]

    def forward(self, images):
        return [self.found(image) for image in images]

    def found(self, image):
        distances = [
            float((image.detach() - one).abs().mean()) if one.shape == image.shape else 9 for one in self.known
        ]
        best = int(np.argmin(distances))
        if distances[best] >= 9:
            return {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0).long(), "scores": torch.zeros(0)}
        objects = self.source.target(best)
        boxes = torch.from_numpy(objects.boxes).float() + self.shift * distances[best]
        masks = torch.from_numpy(objects.bitmaps())[:, None].float()
        scores = torch.linspace(0.9, 0.6, len(boxes))
        return {"boxes": boxes, "labels": torch.from_numpy(objects.labels) + 1, "scores": scores, "masks": masks}


def scenes(count: int = 3, split: str = "test"):
    return open_scene_objects(f"{split},64x80,{count}", split=split)


def coco_folder(folder, *, images: int = 3, ids=IDS) -> str:
    """A small data set in COCO's format, of pictures of several sizes; the last one is empty and grey."""
    rng = np.random.default_rng(0)
    rows, annotations = [], []
    for number in range(images):
        height, width = 40 + 8 * number, 64
        last = number == images - 1
        pixels = rng.integers(0, 256, (height, width) if last else (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        rows.append({"id": 10 + 7 * number, "file_name": f"{number}.png", "height": height, "width": width})
        for k in range(0 if last else 2):
            x, y, w, h = 5 + 20 * k, 6, 16, 20
            outline = [[x, y, x + w, y, x + w, y + h, x, y + h]]
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": rows[-1]["id"],
                    "category_id": ids[(number + k) % len(ids)],
                    "bbox": [x, y, w, h],
                    "area": w * h,
                    "iscrowd": 0,
                    "segmentation": outline,
                }
            )
    content = {"images": rows, "categories": [{"id": i, "name": f"c{i}"} for i in ids], "annotations": annotations}
    (folder / "instances.json").write_text(json.dumps(content))
    return f"coco:{folder},{folder / 'instances.json'}"
