"""``domains:DIR``: domains, splits and classes of a tree, and what is refused."""

from pathlib import Path

import pytest
from PIL import Image

from holdfast.data import open_data
from holdfast.data.domains import domain_of, domains_of, strata_of_domains, trained_domains
from holdfast.data.subsets import Subset
from holdfast.errors import HoldfastError

PACS = Path(__file__).parents[3] / "shared" / "data" / "pacs128"


def tree(root, *paths, count=1):
    for path in paths:
        (root / path).mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", (8, 8)).save(root / path / f"{number}.png")
    return f"domains:{root}"


@pytest.fixture
def split(tmp_path):
    return tree(
        tmp_path, *(f"{part}/{name}" for part in ("a/train", "a/test", "b/test", "c/test") for name in ("x", "y"))
    )


def test_every_domain_has_the_same_classes_and_ids_name_domain_split_and_class(split):
    source = open_data(split, split="test")
    assert (source.classes, source.domains) == (("x", "y"), ("a", "b", "c"))
    assert [source.id(row) for row in range(2)] == ["a/test/x/0.png", "a/test/y/0.png"]
    assert source.targets.tolist() == [0, 1] * 3
    assert [domain_of(source.id(row)) for row in range(6)] == list("aabbcc")
    assert source.image(5).size == (8, 8)


def test_domains_are_chosen_left_out_and_have_a_split(split):
    assert open_data(f"{split},b,a", split="test").domains == ("a", "b")
    assert open_data(f"{split},-b", split="test").domains == ("a", "c")
    assert open_data(f"{split},a,split=train", split="test").id(0) == "a/train/x/0.png"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (",a,fotos", "has a, b, c, got 'fotos'"),
        (",split=dev", "must be one of train, val, test, got 'dev'"),
        (",sets=3", "takes split=… and train=…, got 'sets'"),
        (",split=train", "must have the split train of every domain, but 'b' has test: name other domains"),
        (",-a,-b,-c", "got none to take"),
    ],
)
def test_what_does_not_exist_is_refused(split, words, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        open_data(split + words, split="test")


def test_other_classes_in_one_domain_are_named(tmp_path):
    spec = tree(tmp_path, "a/x", "a/y", "b/x", "b/z")
    with pytest.raises(HoldfastError, match="but 'a' and 'b' differ in 'y', 'z'"):
        open_data(spec)


def test_data_without_splits_are_split_by_their_ids(tmp_path):
    spec = tree(tmp_path, *(f"{domain}/{name}" for domain in "ab" for name in "xy"), count=25)
    ids = {}
    for part in ("train", "val", "test"):
        source = open_data(spec, split=part)
        ids[part] = {source.id(row) for row in range(len(source))}
    assert ids["train"] | ids["val"] == ids["test"]
    assert not ids["train"] & ids["val"]
    assert 10 <= len(ids["val"]) <= 30  # a fifth of 100, give or take two standard deviations


def test_a_domain_without_a_folder_val_holds_out_a_fifth_of_train(tmp_path):
    spec = tree(tmp_path, *(f"a/train/{name}" for name in "xy"), "a/test/x", "a/test/y", count=50)
    ids = {}
    for words, part in (("", "train"), ("", "val"), ("", "test"), (",split=train", "val"), (",split=val", "test")):
        source = open_data(spec + words, split=part)
        ids[words + part] = {source.id(row) for row in range(len(source))}
    assert ids["train"] | ids["val"] == ids[",split=trainval"]
    assert not ids["train"] & ids["val"]
    assert 10 <= len(ids["val"]) == len(ids[",split=valtest"]) <= 30
    assert len(ids[",split=trainval"]) == len(ids["test"]) == 100
    (tmp_path / "a/val/x").mkdir(parents=True)
    (tmp_path / "a/val/y").mkdir(parents=True)
    assert len(open_data(spec, split="train")) == 100


def test_a_class_may_be_called_train_if_others_are_not_splits(tmp_path):
    assert open_data(tree(tmp_path, "a/train", "a/car", "b/train", "b/car"), split="test").classes == ("car", "train")


def test_a_subset_keeps_its_domains_and_strata_are_domains_by_class(split):
    source = open_data(split, split="test")
    assert domains_of(Subset(source, [0, 3])) == ("a", "b", "c")
    assert strata_of_domains(source, source.targets).tolist() == [[n // 2, n] for n in range(6)]


def test_training_domains_are_those_of_the_spec_or_of_the_runs_recipe(split, tmp_path_factory):
    run = tmp_path_factory.mktemp("run")
    (run / "recipe.yaml").write_text(f"data:\n  train: '{split},-b[0:3]'\n")
    assert trained_domains(open_data(split, split="test"), run) == ("a", "c")
    assert trained_domains(open_data(f"{split},train=b|c", split="test"), run) == ("b", "c")
    assert trained_domains(open_data(split, split="test"), None) == ()
    (run / "recipe.yaml").write_text(f"data:\n  train: '{split},a+{split},c[0:2]'\n")
    assert trained_domains(open_data(split, split="test"), run) == ("a", "c")
    other = tree(tmp_path_factory.mktemp("other"), "b/x", "b/y", "d/x", "d/y")
    (run / "recipe.yaml").write_text(f"data:\n  train: '{other}'\n")
    assert trained_domains(open_data(split, split="test"), run) == ("b",)
    (run / "recipe.yaml").write_text("data: {train: digits}")
    assert trained_domains(open_data(split, split="test"), run) == ()


@pytest.mark.skipif(not PACS.is_dir(), reason="PACS is not part of the project")
def test_pacs_works_as_it_is():
    assert len(open_data(f"domains:{PACS}", split="test")) == 280 + 3 * 420
    assert len(open_data(f"domains:{PACS},photo,split=train", split="train")) == 980
    assert sum(len(open_data(f"domains:{PACS},photo", split=part)) for part in ("train", "val")) == 980
