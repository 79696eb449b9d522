"""Every registry is after a test as it was before."""

import pytest

from holdfast.corruptions.apply import FUNCTIONS
from holdfast.corruptions.severities import KINDS
from holdfast.data import OFFICIAL
from holdfast.evaluation.suites import ATTACKS, STORED, SUITES
from holdfast.metrics import METRICS
from holdfast.runtime.plugins import PLUGINS


@pytest.fixture(autouse=True)
def registries_as_before():
    registries = (KINDS, FUNCTIONS, OFFICIAL, ATTACKS, STORED, SUITES, METRICS, PLUGINS)
    before = [dict(registry) for registry in registries]
    yield
    for registry, held in zip(registries, before, strict=True):
        registry.clear()
        registry.update(held)


@pytest.fixture
def pictures(tmp_path):
    """Twelve plain pictures in three folders: the class is the brighter channel, by 8 levels or by 120."""
    from PIL import Image

    from tests.evaluation.toys import plain

    source = plain([0, 1, 2] * 4, margin=[8] * 6 + [120] * 6)
    for index in range(len(source)):
        folder = tmp_path / "pictures" / str(source.targets[index])
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(source.images[index]).save(folder / f"{index:02d}.png")
    return tmp_path / "pictures"
