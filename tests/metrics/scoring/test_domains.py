"""Scores of domains against brute force, with intervals, pairs, the gate, tables and the page."""

import numpy as np
import pytest
from PIL import Image

import holdfast
from holdfast import EvalProtocol
from holdfast.cli.main import main
from holdfast.metrics import compare
from tests.evaluation.toys import Brightest

PIXELS = {"size": 32, "mean": (0, 0, 0), "std": (1, 1, 1)}
SIZES = {"art": 6, "photo": 20, "sketch": 14}
NAMES = ("blue", "green", "red")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Three domains of different sizes, in which the brightest channel is right ever less often."""
    root, rng = tmp_path_factory.mktemp("domains"), np.random.default_rng(0)
    for (domain, count), noise in zip(SIZES.items(), (30, 5, 60), strict=True):
        for place, name in enumerate(NAMES):
            (root / domain / name).mkdir(parents=True)
            for number in range(count):
                colour = 100 + rng.normal(0, noise, 3)
                colour[place] += 20
                pixels = np.broadcast_to(colour.clip(0, 255).astype(np.uint8), (32, 32, 3))
                Image.fromarray(pixels.copy()).save(root / domain / name / f"{number}.png")
    return root


class Other(Brightest):
    """Right less often: it hardly sees the first channel."""

    def forward(self, images):
        return super().forward(images * images.new_tensor([0.9, 1.0, 1.0])[:, None, None])


def measured(tree, model=None, words="", **options):
    options = {"workers": 0, "protocol": EvalProtocol(**PIXELS), **options}
    return holdfast.evaluate(model or Brightest(), f"domains:{tree}{words}", **options)


def brute(records):
    """Accuracy of every domain in percent, from the predictions."""
    cell = records.cells["clean"]
    right = cell.predictions == cell.targets
    return {d: 100 * right[[str(id).startswith(f"{d}/") for id in cell.ids]].mean() for d in SIZES}


def test_scores_are_those_of_brute_force(tree):
    records = measured(tree, words=",train=photo")
    found, wanted = records.summary(), brute(records)
    assert len(set(wanted.values())) == 3
    for domain, value in wanted.items():
        score = found[f"domain/{domain}"]
        assert score.value == pytest.approx(value, abs=1e-9)
        assert score.low < value < score.high
        assert (score.family, score.kind) == ("domain", domain)
        assert 100 * records.domains[domain].accuracy == pytest.approx(value, abs=1e-9)
    others = (wanted["art"] + wanted["sketch"]) / 2
    assert found["mean_domain_accuracy"].value == pytest.approx(np.mean(list(wanted.values())), abs=1e-9)
    assert found["worst_domain_accuracy"].value == pytest.approx(min(wanted.values()), abs=1e-9)
    assert found["unseen_domain_accuracy"].value == pytest.approx(others, abs=1e-9)
    assert found["domain_gap"].value == pytest.approx(wanted["photo"] - others, abs=1e-9)
    assert records.domains["photo"].header["cell"] == "domain/photo"


def test_without_training_domains_there_is_no_gap(tree):
    found = measured(tree).summary()
    assert "domain_gap" not in found
    assert "unseen_domain_accuracy" not in found


def test_the_interval_of_a_domain_is_that_of_its_images_alone(tree):
    whole, alone = measured(tree).summary(), measured(tree, words=",photo").summary()
    one, other = whole["domain/photo"], alone["clean"]
    assert one.value == other.value
    assert (one.low, one.high) == pytest.approx((other.low, other.high), abs=0.6)


def test_models_are_compared_in_pairs(tree):
    one, other = measured(tree, words=",train=photo"), measured(tree, Other(), words=",train=photo")
    found, wanted = compare(one, other).differences, {d: brute(one)[d] - brute(other)[d] for d in SIZES}
    for domain, value in wanted.items():
        assert found[f"domain/{domain}"].interval.value == pytest.approx(value, abs=1e-9)
    gaps = [wanted["photo"] - (wanted["art"] + wanted["sketch"]) / 2]
    assert found["domain_gap"].interval.value == pytest.approx(gaps[0], abs=1e-9)
    apart = compare(one, measured(tree, Other(), words=",train=art")).differences
    assert "domain_gap" not in apart
    assert "domain/art" in apart


def test_a_subset_has_every_domain_and_class_in_proportion(tree):
    records = measured(tree, limit=40)
    counts = {name: len(cell) for name, cell in records.domains.items()}
    assert {name: round(counts[name] / 40 * 120) for name in counts} == pytest.approx(
        {name: 3 * size for name, size in SIZES.items()}, abs=5
    )


def test_the_gate_the_tables_and_the_page_know_domains(tree, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "colour_model.py").write_text("from tests.evaluation.toys import brightest\n")
    preprocessing = ["--size=32", "--mean", "0", "0", "0", "--std", "1", "1", "1"]
    for name in ("a", "b"):
        command = ["evaluate", "--model=python:colour_model:brightest", "--data", f"domains:{tree},train=photo"]
        assert main([*command, "--suite=clean", "--workers=0", f"--out=runs/{name}", *preprocessing]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "accuracy by domain" in text
    assert "domain gap" in text
    rules = [
        "domain/sketch no worse by more than 5",
        "worst_domain_accuracy no worse by more than 5",
        "domain_gap <= 60",
    ]
    (tmp_path / "rules.yaml").write_text("rules:\n" + "".join(f"  - {rule}\n" for rule in rules))
    assert main(["gate", "runs/b", "--against=runs/a", "--rules=rules.yaml"]) == 0
    assert main(["gate", "runs/a", "--save", "old.json"]) == 0
    assert main(["gate", "runs/b", "--against=old.json", "--rules=rules.yaml"]) == 0
    page = holdfast.report(["runs/a", "runs/b"])
    assert "worst domain" in page
    assert "Accuracy by domain" in page
    assert main(["card", "runs/a"]) == 0
    assert "| domain | value | 95 % interval |" in (tmp_path / "runs/a/README.md").read_text()
