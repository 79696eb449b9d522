"""Failures to look at: what is stored, that it is the image in question, and how all tasks show it."""

import base64
import io
import re

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import holdfast
from holdfast import ComputeConfig
from holdfast.cli.main import main
from holdfast.corruptions import corrupt_batch
from holdfast.errors import HoldfastError
from holdfast.records.examples import EXAMPLES, read_examples
from holdfast.records.records import load_records
from tests.evaluation.toys import Brightest, colours

QUICK = {"workers": 0, "show": False}


class Stubborn(nn.Module):
    """Always the same class, with the same confidence."""

    def forward(self, images):
        return torch.tensor([0.0, 2.0, 0.0]).expand(len(images), 3)


def stored(records):
    return read_examples(records.folder, fingerprint=records.header["fingerprint"])


def pixels(address: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))).convert("RGB"))


@pytest.fixture(scope="module")
def classified(tmp_path_factory):
    """Two classifiers on the same noisy images, one of which answers by the image."""
    root, data = tmp_path_factory.mktemp("classified"), colours(12)
    for name, model in (("bright", Brightest()), ("stubborn", Stubborn())):
        options = {"out": root / name, "compute": ComputeConfig(keep_examples=30), **QUICK}
        holdfast.evaluate(model, data, "clean,corruptions", **options)
    return root


def test_thumbnails_are_the_images_that_the_model_got_wrong(classified):
    (records,) = load_records(classified / "stubborn")
    examples, data = stored(records), colours(12)
    assert len(examples) == 30
    numbers = {data.id(number): number for number in range(12)}
    for example in examples[:6]:
        cell, number = records.cells[example.cell], numbers[example.id]
        assert not cell.right[list(cell.ids).index(example.id)]
        image = np.asarray(data.image(number))
        if cell.spec.family == "corruption":
            options = {"severity": cell.spec.severity, "preset": records.header["preset"], "seed": 0}
            (image,) = corrupt_batch([image], cell.spec.kind, ids=[example.id], **options)
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(example.picture))), image)


def test_every_kind_has_its_turn_and_no_image_comes_twice_in_one(classified):
    (records,) = load_records(classified / "stubborn")
    kinds = [(records.cells[each.cell].spec.kind, each.id) for each in stored(records)]
    assert len({kind for kind, _ in kinds}) == 16  # clean, and fifteen corruptions: eight of twelve are wrong in each
    assert len(set(kinds)) == len(kinds)


def test_examples_change_no_record_and_are_kept_only_when_asked(classified, tmp_path):
    data = colours(12)
    plain = holdfast.evaluate(Stubborn(), data, "clean", out=tmp_path, **QUICK)
    assert not (plain.folder / EXAMPLES).exists()
    files = {path.name: path.read_bytes() for path in plain.folder.iterdir()}
    asked = holdfast.evaluate(Stubborn(), data, "clean", out=tmp_path, compute=ComputeConfig(keep_examples=3), **QUICK)
    assert len(stored(asked)) == 3
    assert {name: (plain.folder / name).read_bytes() for name in files} == files
    assert [p.name for p in plain.folder.iterdir() if p.name not in files] == [EXAMPLES]
    (plain.folder / EXAMPLES).write_bytes(b"broken")
    assert 'class="example"' not in holdfast.report(tmp_path)


def test_the_page_shows_what_all_models_said_of_them(classified):
    text = holdfast.report([classified / "bright", classified / "stubborn"])
    figures = re.findall(r'<figure class="example".*?</figure>', text, re.S)
    assert 30 <= len(figures) <= 60
    assert all(figure.count("<li") == 2 for figure in figures)
    hard = [float(re.search(r'data-hard="([\d.]+)"', figure).group(1)) for figure in figures]
    assert hard == sorted(hard, reverse=True)
    (bright,), (stubborn,) = (load_records(classified / name) for name in ("bright", "stubborn"))
    first = figures[0]
    kind, severity = re.search(r"<figcaption>([a-z ]+?)( \d)?: <b>", first).groups()
    cell = f"{kind.replace(' ', '_')}/{int(severity)}" if severity else kind
    name = re.search(r'data-id="([^"]+)"', first).group(1)
    assert 'alt="clean image"' in first
    for records in (bright, stubborn):
        record = records.cells[cell]
        row = list(record.ids).index(name)
        said = ("red", "green", "blue")[record.predictions[row]]
        assert f"{said}, {100 * record.confidences[row]:.0f} %" in first
    assert any(float(re.search(r'data-split="([\d.]+)"', figure).group(1)) > 0 for figure in figures)
    assert "subject to its licence" in text


def test_a_task_that_cannot_draw_is_refused_and_so_are_negative_numbers(capsys):
    with pytest.raises(HoldfastError, match="keep_examples must be 0 or more, got -1"):
        ComputeConfig(keep_examples=-1)
    assert main(["evaluate", "--model", "timm:vit_nano", "--data", "digits", "--keep-examples", "-3"]) == 2
    assert "keep_examples must be 0 or more, got -3" in capsys.readouterr().err
