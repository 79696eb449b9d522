"""Scores of domains go into the decision, the terminal and the report; other data have none."""

import numpy as np
import pytest
from PIL import Image

import holdfast
from holdfast import EvalProtocol
from holdfast.improvement.decide import plain_domains
from holdfast.improvement.scores import measured
from tests.evaluation.toys import Brightest


def records_of(root, spec):
    rng = np.random.default_rng(0)
    for domain, noise in (("photo", 5), ("sketch", 60)):
        for place, name in enumerate(("blue", "green", "red")):
            (root / domain / name).mkdir(parents=True)
            for number in range(6):
                colour = 100 + rng.normal(0, noise, 3)
                colour[place] += 20
                pixels = np.broadcast_to(colour.clip(0, 255).astype(np.uint8), (32, 32, 3))
                Image.fromarray(pixels.copy()).save(root / domain / name / f"{number}.png")
    protocol = EvalProtocol(size=32, mean=(0, 0, 0), std=(1, 1, 1))
    return holdfast.evaluate(Brightest(), spec.format(root), ["quick"], workers=0, protocol=protocol, limit=30)


def test_every_domain_has_its_accuracy_from_its_own_images(tmp_path):
    records = records_of(tmp_path, "domains:{}")
    cell, found = records.cells["clean"], measured(records).domains
    right = cell.predictions == cell.targets
    wanted = {name: 100 * right[[str(id).startswith(name) for id in cell.ids]].mean() for name in ("photo", "sketch")}
    assert found == pytest.approx(wanted)
    assert found["photo"] > found["sketch"]


def test_data_without_domains_have_no_scores_of_them(tmp_path):
    one = measured(records_of(tmp_path, "folder:{}/photo"))
    assert one.domains == {}
    assert plain_domains({"plain": [one]}) == {}
