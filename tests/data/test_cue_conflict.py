"""The stimuli on disk: the 16 folders, and names that tell both cues."""

import pytest
from PIL import Image

from holdfast.data.cue_conflict import open_cue_conflict
from holdfast.data.official_sets import open_official
from holdfast.errors import HoldfastError
from holdfast.published import published

CLASSES = tuple(published("imagenet_16")["classes"])


def stimuli(root, pairs, *, size=32):
    """Stimuli of these (content, texture) pairs, and the 16 folders."""
    for name in CLASSES:
        (root / name).mkdir(parents=True)
    for number, (content, texture) in enumerate(pairs):
        folder = content.rstrip("0123456789")
        Image.new("RGB", (size, size), (number % 256, number // 256, 7)).save(
            root / folder / f"{content}-{texture}.png"
        )
    return root


def test_labels_are_shapes(tmp_path):
    root = stimuli(tmp_path, [("bear1", "cat2"), ("airplane3", "dog1")])
    found = open_official(f"cue-conflict:{root}")
    assert (found.suite, found.restricted_to, found.names) == ("cue-conflict", "imagenet_16", ("cue-conflict",))
    source = found.open("cue-conflict")
    assert [source.classes[label] for label in source.targets] == ["airplane", "bear"]


def test_other_folders_and_names_are_refused(tmp_path):
    root = stimuli(tmp_path, [("bear1", "cat2")])
    Image.new("RGB", (8, 8)).save(root / "bear" / "holiday.png")
    with pytest.raises(HoldfastError, match="got 'bear/holiday"):
        open_cue_conflict(root)
    (root / "bear" / "holiday.png").rename(root / "cat" / "bear1-cat1.png")
    with pytest.raises(HoldfastError, match="got 'cat/bear1-cat1"):
        open_cue_conflict(root)
    (root / "zebra").mkdir()
    with pytest.raises(HoldfastError, match="folders of the 16 categories, but zebra is missing or too many"):
        open_cue_conflict(root)
