"""Answers under a class map, against brute force: wnid folders, restriction, aggregation, and what may be compared."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import holdfast
from holdfast import EvalProtocol
from holdfast.cli.main import main
from holdfast.data.class_maps import Outputs, open_class_map
from holdfast.data.imagenet_classes import wnids
from holdfast.errors import HoldfastError
from holdfast.evaluation.data import open_evaluation_data, with_model_labels
from holdfast.evaluation.mapped_classes import MappedClasses
from holdfast.evaluation.predictor import Predictor
from holdfast.gate import read_baseline
from holdfast.lab.opened_model import open_model
from holdfast.metrics import compare
from holdfast.records.records import load_records
from holdfast.reporting.export.tables import export as format_records

PIXELS = {"size": 32, "mean": (0, 0, 0), "std": (1, 1, 1)}
IMAGENETTE = (0, 217, 482, 491, 497, 566, 569, 571, 574, 701)
REAL = Path(__file__).parents[3] / "shared" / "data" / "imagenette128" / "test"


class Thousand(nn.Module):
    """A fixed random linear classifier of 1000 classes."""

    def __init__(self, outputs=1000):
        super().__init__()
        self.register_buffer("weight", torch.randn(outputs, 3 * 16, generator=torch.Generator().manual_seed(1)) * 20)

    def forward(self, images):
        return nn.functional.adaptive_avg_pool2d(images - 0.5, 4).flatten(1) @ self.weight.T


def thousand():
    return Thousand()


class Ten(Thousand):
    """The same, which answers with ten of its classes only."""

    def forward(self, images):
        return super().forward(images)[:, IMAGENETTE]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Ten wnid folders of eight noisy images each."""
    root, rng = tmp_path_factory.mktemp("wnids"), np.random.default_rng(0)
    for index in IMAGENETTE:
        (root / wnids()[index]).mkdir()
        for number in range(8):
            coarse = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
            Image.fromarray(coarse).resize((32, 32), 0).save(root / wnids()[index] / f"{number}.png")
    return root


def measured(data, model=None, **protocol):
    model = Thousand() if model is None else model
    return holdfast.evaluate(model, data, workers=0, protocol=EvalProtocol(**PIXELS, **protocol))


def logits_of(cell, root):
    """Float64 logits of a cell's images, computed apart."""
    images = np.stack([np.asarray(Image.open(root / id)) for id in cell.ids])
    with torch.no_grad():
        return Thousand().double()(torch.from_numpy(images).permute(0, 3, 1, 2).double() / 255).numpy()


def softmax(logits):
    found = np.exp(logits - logits.max(axis=1, keepdims=True))
    return found / found.sum(axis=1, keepdims=True)


def test_wnid_folders_restrict_a_thousand_class_model_to_their_classes(folder):
    records = measured(f"folder:{folder}")
    cell = records.cells["clean"]
    chosen = logits_of(cell, folder)[:, IMAGENETTE]
    truth = np.array([sorted(map(wnids().__getitem__, IMAGENETTE)).index(id.split("/")[0]) for id in cell.ids])
    np.testing.assert_array_equal(cell.predictions, chosen.argmax(axis=1))
    np.testing.assert_array_equal(cell.targets, truth)
    np.testing.assert_allclose(cell.nll, -np.log(softmax(chosen)[np.arange(len(truth)), truth]), atol=1e-4)
    assert records.summary()["clean"].value == pytest.approx(100 * (chosen.argmax(axis=1) == truth).mean(), abs=1e-9)
    assert records.header["labels"] == "wnid"
    assert records.header["class_names"][:2] == ["tench", "English springer"]


def test_all_outputs_may_be_answers_if_asked(folder):
    records = measured(f"folder:{folder}", classes="all")
    cell = records.cells["clean"]
    logits = logits_of(cell, folder)
    truth = np.array([wnids().index(id.split("/")[0]) for id in cell.ids])
    np.testing.assert_array_equal(cell.predictions, logits.argmax(axis=1))
    np.testing.assert_array_equal(cell.targets, truth)
    assert records.header["class_map"]["classes"] == "all"


@pytest.mark.parametrize("aggregation", ["mean", "sum", "max"])
@pytest.mark.parametrize("classes", ["restricted", "all"])
def test_many_outputs_are_one_class_by_each_aggregation(folder, aggregation, classes):
    rng = np.random.default_rng(3)
    places = rng.permutation(1000)[:300]
    splits = np.split(places, np.sort(rng.choice(np.arange(1, 300), 9, replace=False)))
    members = {wnids()[index]: part.tolist() for index, part in zip(IMAGENETTE, splits, strict=True)}
    given = {"aggregation": aggregation, "classes": members}
    records = measured(f"folder:{folder}", class_map=given, classes=classes)
    cell = records.cells["clean"]
    probabilities = softmax(logits_of(cell, folder))
    how = {"mean": np.mean, "sum": np.sum, "max": np.max}[aggregation]
    names = sorted(members)
    values = np.stack([how(probabilities[:, members[name]], axis=1) for name in names], axis=1)
    others = np.delete(probabilities, places, axis=1).max(axis=1)
    answer = [names[place] for place in values.argmax(axis=1)]
    if classes == "all":
        answer = [
            "other" if value.max() < other else name for name, value, other in zip(answer, values, others, strict=True)
        ]
    right = np.array([name == id.split("/")[0] for name, id in zip(answer, cell.ids, strict=True)])
    np.testing.assert_array_equal(cell.right, right)
    assert records.summary()["clean"].value == pytest.approx(100 * right.mean(), abs=1e-9)
    if classes == "restricted":
        wanted = values.max(axis=1) / values.sum(axis=1)
        np.testing.assert_allclose(cell.confidences, wanted, atol=1e-4)


def test_the_examples_of_the_facts(tmp_path):
    """Three decisions for p = (.25 | .14 .14 .14 .14 | .19) and (.30 | .05 .05 .04 .20 | .16 .20)."""
    members = {"a": [0], "b": [1, 2, 3, 4], "c": [5]}
    first = torch.tensor([[0.25, 0.14, 0.14, 0.14, 0.14, 0.19]]).log()
    for aggregation, answer in (("mean", 0), ("sum", 1), ("max", 0)):
        found = open_class_map({"aggregation": aggregation, "classes": members}, Outputs(6))
        assert int(MappedClasses(nn.Identity(), found).mapped(first).argmax()) == answer
    second = torch.tensor([[0.30, 0.05, 0.05, 0.04, 0.20, 0.16, 0.20]]).log()
    for aggregation, answer in (("mean", 0), ("sum", 2), ("max", 0)):
        given = {"aggregation": aggregation, "classes": {**members, "c": [5, 6]}}
        assert int(MappedClasses(nn.Identity(), open_class_map(given, Outputs(7))).mapped(second).argmax()) == answer


@pytest.mark.parametrize("aggregation", ["mean", "sum", "max"])
@pytest.mark.parametrize("restricted", [True, False])
def test_probabilities_of_a_map_are_those_of_brute_force(aggregation, restricted):
    rng = np.random.default_rng(4)
    members = {
        name: part.tolist() for name, part in zip("abc", np.split(rng.permutation(40)[:20], [1, 8]), strict=True)
    }
    given = {"aggregation": aggregation, "classes": members}
    found = open_class_map(given, Outputs(40), restricted=restricted)
    logits = 5 * rng.standard_normal((50, 40))
    mapped = MappedClasses(nn.Identity(), found)(torch.from_numpy(logits))
    how = {"mean": np.mean, "sum": np.sum, "max": np.max}[aggregation]
    values = np.stack([how(softmax(logits)[:, list(group)], axis=1) for group in found.groups], axis=1)
    np.testing.assert_allclose(mapped.softmax(dim=1), values / values.sum(axis=1, keepdims=True), rtol=0, atol=1e-9)
    assert len(found.groups) == (3 if restricted else 23)


def test_attacks_see_the_mapped_answers_and_views_are_mapped_too(folder):
    class Twice(Thousand):
        def views(self, images):
            logits = super().forward(images)
            return {"": logits, "minus": -logits}

    records = holdfast.evaluate(Twice(), f"folder:{folder}", "clean,fgsm", workers=0, protocol=EvalProtocol(**PIXELS))
    cell = records.view("minus").cells["clean"]
    logits = -logits_of(cell, folder)[:, IMAGENETTE]
    np.testing.assert_array_equal(cell.predictions, logits.argmax(axis=1))
    assert records.cells["fgsm"].accuracy <= records.cells["clean"].accuracy


def test_a_plain_evaluation_asks_the_model_itself(folder):
    opened = open_evaluation_data(f"folder:{folder}")
    with Predictor.open(Ten(), opened, EvalProtocol(**PIXELS), device="cpu") as predictor:
        found = with_model_labels(opened, None, predictor.normalized_model.probe)
        assert found.class_map is None
        assert predictor.with_class_map(found.class_map) is predictor


def test_a_stored_subset_of_imagenet_c_is_restricted_as_well(folder, tmp_path):
    (tmp_path / "c" / "fog").mkdir(parents=True)
    for index in IMAGENETTE[:2]:
        place = tmp_path / "c" / "fog" / "3" / wnids()[index]
        place.mkdir(parents=True)
        Image.new("RGB", (224, 224), (index % 255, 9, 30)).save(place / "a.png")
    options = {"workers": 0, "protocol": EvalProtocol(**PIXELS)}
    records = holdfast.evaluate(Thousand(), f"imagenet-c:{tmp_path / 'c'}", "imagenet-c", **options)
    assert (records.header["classes"], records.header["class_map"]["outputs"]) == (2, 1000)
    assert set(records.cells["fog/3"].predictions) <= {0, 1}


def test_numbers_under_different_protocols_are_never_compared(folder, tmp_path):
    members = {wnids()[index]: [index, index + 7] for index in IMAGENETTE}
    protocols = [
        {},
        {"classes": "all"},
        {"class_map": members},
        {"class_map": {"aggregation": "max", "classes": members}},
        {"class_map": members, "classes": "all"},
    ]
    found = [measured(f"folder:{folder}", **each) for each in protocols]
    for number, first in enumerate(found):
        for second in found[number + 1 :]:
            with pytest.raises(HoldfastError, match="must choose among the same answers"):
                compare(first, second)
    page = holdfast.report(found, format="html")
    assert page.count("answers restricted to them") >= 3
    said = ("· restricted", "· all 1000 outputs", "· mean of 20 outputs, restricted", "· max of 20 outputs, restricted")
    for format in ("terminal", "md", "latex"):
        table = format_records(found, format, width=400)
        assert all(words in table.replace(r"$\cdot$", "·") for words in said), format
        assert "textbf" not in table  # nothing is best among answers that are not compared
    assert r"\caption{Scores; in \%, nats; 10 of the model's 1000 classes, " in format_records(found[0], "latex")
    lines = list(csv.DictReader(format_records(found, "csv").splitlines()))
    assert len({line["classes"] for line in lines}) == len(protocols)
    notes = [entry["footnote"] for entry in json.loads(format_records(found, "robustbench"))]
    assert len(set(notes)) == len(protocols)
    assert "all outputs are answers" in page
    assert "--classes all" in page


def test_a_model_of_these_classes_alone_is_compared_with_a_restricted_one(folder):
    own, restricted = measured(f"folder:{folder}", Ten()), measured(f"folder:{folder}")
    assert "class_map" not in own.header
    assert compare(own, restricted).differences["clean"].interval.value == 0


def test_the_lab_asks_the_mapped_model_and_shows_names(folder):
    opened = open_model(Thousand(), f"folder:{folder}", protocol=EvalProtocol(**PIXELS))
    assert opened.classes[:2] == ("tench", "English springer")
    assert opened.judge.probe[""].shape == (1, 10)


def test_a_wrong_choice_or_map_is_refused_before_anything_is_measured(folder, tmp_path):
    with pytest.raises(HoldfastError, match="classes must be restricted or all, got 'some'"):
        EvalProtocol(classes="some")
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (32, 32)).save(tmp_path / name / "a.png")
    with pytest.raises(HoldfastError, match=r"the 2 classes of .*, got 1000; map its outputs .* with --class-map FILE"):
        measured(f"folder:{tmp_path}")
    with pytest.raises(HoldfastError, match="lacks 'n02102040', 'n02979186', 'n03000684' and 6 more"):
        measured(f"folder:{folder}", class_map={"n01440764": 0})


def test_an_official_set_needs_no_suite_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thousand_model.py").write_text("from tests.evaluation.test_mapped_classes import thousand\n")
    for index in IMAGENETTE[:2]:
        place = tmp_path / "c" / "fog" / "3" / wnids()[index]
        place.mkdir(parents=True)
        Image.new("RGB", (224, 224), (index % 255, 9, 30)).save(place / "a.png")
    command = ["evaluate", "--model=python:thousand_model:thousand", "--size=32", "--mean", "0", "0", "0"]
    command += ["--std", "1", "1", "1", "--workers=0", "--limit=10", "--data=imagenet-c:c"]
    assert main([*command, "--out=alone"]) == 0
    (records,) = load_records(Path("alone"))
    assert list(records.cells) == ["fog/3"]


@pytest.mark.parametrize("choice", [{"class_map": {"sky": 0}}, {"classes": "all"}])
def test_label_maps_have_no_class_map(choice):
    model = nn.Conv2d(3, 11, 1)
    with pytest.raises(HoldfastError, match="apply to classification only, but 'scenes:test' is segmentation"):
        holdfast.evaluate(model, "scenes:test", workers=0, limit=2, protocol=EvalProtocol(**choice))


def test_the_command_line_takes_a_file_says_the_map_and_the_gate_repeats_it(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thousand_model.py").write_text("from tests.evaluation.test_mapped_classes import thousand\n")
    rows = [f"{wnids()[index]},{output}" for index in IMAGENETTE for output in (index, index + 7)]
    (tmp_path / "pairs.csv").write_text("class,output\n" + "\n".join(rows) + "\n")
    preprocessing = ["--size=32", "--mean", "0", "0", "0", "--std", "1", "1", "1"]
    command = ["evaluate", "--model=python:thousand_model:thousand", "--data", f"folder:{folder}", "--suite=clean"]
    assert main([*command, *preprocessing, "--workers=0", "--class-map=pairs.csv", "--out=runs/a"]) == 0
    assert "10 classes from 20 of the model's 1000 outputs (pairs.csv)" in " ".join(capsys.readouterr().out.split())
    header = json.loads(next((tmp_path / "runs/a/records").glob("*/evaluation.json")).read_text())
    assert header["class_map"]["aggregation"] == "mean"
    assert len(header["class_map"]["members"]["n01440764"]) == 2
    assert main(["runs"]) == 0
    assert ", mean of 20 outputs, restricted" in capsys.readouterr().out
    gate = ["gate", "--model=python:thousand_model:thousand", *preprocessing, "--against=runs/a", "--workers=0"]
    capsys.readouterr()
    assert main(gate) == 0
    assert "10 classes from 20 of the model's 1000 outputs" in " ".join(capsys.readouterr().out.split())
    assert main([*gate, "--class-map=pairs.csv"]) == 0
    (tmp_path / "firsts.csv").write_text("\n".join(rows[::2]) + "\n")
    for other in (["--class-map=firsts.csv"], ["--classes=all"]):
        capsys.readouterr()
        assert main([*gate, *other, "--out=runs/other"]) == 2
        told = " ".join(capsys.readouterr().err.split())
        assert "the new model's answers must be the baseline's" in told
        assert "10 classes from 20 of the model's 1000 outputs (pairs.csv), the mean" in told
        assert not list((tmp_path / "runs/other").glob("**/*.*"))  # before anything is measured


def test_the_gate_takes_the_candidates_map_where_the_baseline_needs_none(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thousand_model.py").write_text("from tests.evaluation.test_mapped_classes import thousand\n")
    (tmp_path / "ten.csv").write_text("".join(f"{wnids()[index]},{index}\n" for index in IMAGENETTE))
    old = holdfast.evaluate(Ten(), f"folder:{folder}", out="runs/ten", workers=0, protocol=EvalProtocol(**PIXELS))
    assert "class_map" not in old.header
    preprocessing = ["--size=32", "--mean", "0", "0", "0", "--std", "1", "1", "1"]
    gate = ["gate", "--model=python:thousand_model:thousand", *preprocessing, "--workers=0", "--save=new.json"]
    assert main([*gate, "--margin=10", "--against=runs/ten", "--class-map=ten.csv", "--out=runs/new"]) == 0
    header = read_baseline(Path("new.json"))[0].header
    assert (header["labels"], header["class_map"]["mapped"]) == ("map", 10)
    assert (
        main([*gate, "--margin=10", "--against=new.json", "--until=decided", "--class-map=ten.csv", "--out=runs/again"])
        == 0
    )


@pytest.mark.skipif(not REAL.is_dir(), reason="the photographs of Imagenette are not part of the project")
def test_imagenette_needs_no_option(tmp_path):
    records = holdfast.evaluate(Thousand(), f"folder:{REAL}", limit=20, workers=0, protocol=EvalProtocol(**PIXELS))
    assert records.header["class_names"][-1] == "parachute"
    assert records.header["class_map"]["mapped"] == 10
