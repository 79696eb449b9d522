"""Leave one domain out: rows of a study and ``holdfast train``, on three small domains of two colours."""

import numpy as np
import pytest
from PIL import Image

from holdfast.cli.main import main
from holdfast.records.records import load_records
from holdfast.studies.config import load_study
from holdfast.studies.results import all_results

DOMAINS = {"art": 3, "photo": 5, "sketch": 9}  # training images of each class
TEST, CLASSES = 4, ("blue", "red")
STUDY = """# Which domain is hardest to do without?
recipe: digits/fan_nano
common:
  data: {{train_subset: null, val_subset: null, workers: 0}}
  model: {{kwargs: {{embed_dim: 16, depth: 1, num_heads: 2}}}}
  train: {{epochs: 1, batch_size: 8}}
test: domains:{tree}
suites: [clean]
seeds: [0]
sweep: {{leave_out: [art, photo, {last}]}}
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    root, rng = tmp_path_factory.mktemp("domains"), np.random.default_rng(0)
    for domain, count in DOMAINS.items():
        for place, name in enumerate(CLASSES):
            for split, images in (("train", count), ("val", 2), ("test", TEST)):
                (root / domain / split / name).mkdir(parents=True)
                for number in range(images):
                    pixels = rng.integers(0, 200, (32, 32, 3), dtype=np.uint8)
                    pixels[..., 2 * (1 - place)] += 40
                    Image.fromarray(pixels).save(root / domain / split / name / f"{number}.png")
    return root


@pytest.fixture(scope="module")
def finished(tree, tmp_path_factory):
    """A study whose rows leave out one domain each."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "leave_one_out.yaml").write_text(STUDY.format(tree=tree, last="sketch"))
    assert main(["study", str(folder / "leave_one_out.yaml"), "--out", str(folder / "out")]) == 0
    return folder / "leave_one_out.yaml", folder / "out"


def test_every_row_of_a_study_leaves_out_its_domain(finished):
    file, out = finished
    results = all_results(out, load_study(file))
    for domain in DOMAINS:
        (result,) = results[f"without {domain}"]
        (records,) = load_records(out / "runs" / f"without-{domain}" / "seed0")
        assert records.header["train_domains"] == [name for name in DOMAINS if name != domain]
        rights = {name: 100 * cell.right.mean() for name, cell in records.domains.items()}
        assert list(rights) == list(DOMAINS)
        kept = np.mean([value for name, value in rights.items() if name != domain])
        assert result.measures["unseen_domain_accuracy"].mean() == pytest.approx(rights[domain], abs=1e-9)
        assert result.measures["domain_gap"].mean() == pytest.approx(kept - rights[domain], abs=1e-9)


def test_a_domain_that_does_not_exist_is_refused_before_the_first_run(tree, tmp_path, capsys):
    (tmp_path / "study.yaml").write_text(STUDY.format(tree=tree, last="sketches"))
    assert main(["study", str(tmp_path / "study.yaml"), "--out", str(tmp_path / "out")]) == 2
    assert "has art, photo, sketch, got 'sketches'; did you mean 'sketch'?" in " ".join(capsys.readouterr().err.split())
    assert not list((tmp_path / "out").glob("runs/*/*"))


def test_train_leaves_out_the_domain_that_the_spec_names(tree, finished, tmp_path, capsys):
    spec = f"domains:{tree},-sketch"
    small = ["--data.train_subset=null", "--data.val_subset=null", "--data.workers=0", "--train.batch_size=8"]
    small += ["--model.kwargs={embed_dim: 16, depth: 1, num_heads: 2}", "--train.epochs=1"]
    command = ["train", "digits/fan_nano", f"--data.train={spec}", f"--data.val={spec}", *small]
    assert main([*command, "--out", str(tmp_path / "run")]) == 0
    assert "16 images" in capsys.readouterr().err  # 2 × (3 + 5), without the 18 sketches
    assert main(["evaluate", str(tmp_path / "run"), "--data", f"domains:{tree}", "--workers=0"]) == 0
    assert "domain gap" in " ".join(capsys.readouterr().out.split())
    (own,) = load_records(tmp_path / "run")
    (row,) = load_records(finished[1] / "runs" / "without-sketch" / "seed0")
    assert own.header["train_domains"] == ["art", "photo"]
    assert len(own.domains["sketch"]) == len(CLASSES) * TEST
    np.testing.assert_array_equal(own.cells["clean"].predictions, row.cells["clean"].predictions)
