"""The embedded scenes as objects to be found: ``scene-objects``, the digits with their boxes and masks."""

import numpy as np

from holdfast.data.objects import Objects, run_lengths
from holdfast.data.scenes import CLASSES, SceneSource, open_scenes


class SceneObjectSource:
    """The pictures of :class:`~holdfast.data.scenes.SceneSource`; a digit's box and mask are what is seen of it."""

    task = "detection"
    classes = CLASSES[1:]
    category_ids = tuple(range(1, len(CLASSES)))

    def __init__(self, scenes: SceneSource) -> None:
        self.scenes, self.name = scenes, f"scene-objects-{scenes.split}" + ("-plain" if scenes.plain else "")
        self.id, self.image = scenes.id, scenes.image

    def __len__(self) -> int:
        return len(self.scenes)

    def target(self, index: int) -> Objects:
        """Every digit that is seen."""
        scene = self.scenes.scene(index)
        numbers = np.arange(1, len(scene.digits) + 1)
        masks = scene.instances == numbers[:, None, None]
        return Objects(
            scene.instances.shape,
            scene.boxes().astype(np.float64),
            np.array(scene.digits, np.int64),
            masks.sum(axis=(1, 2)).astype(np.float64),
            np.zeros(len(numbers), bool),
            run_lengths(masks),
        )


def open_scene_objects(rest: str, *, split: str) -> SceneObjectSource:
    """``scene-objects``, or with a split, a size, a count and ``plain`` as ``scenes`` takes them."""
    return SceneObjectSource(open_scenes(rest, split=split))
