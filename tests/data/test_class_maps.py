"""Class maps: YAML, CSV and mappings, by index, wnid or name; wrong and ambiguous entries are named."""

import pytest

from holdfast.data.class_maps import Outputs, open_class_map, shipped_map
from holdfast.errors import HoldfastError

THOUSAND = Outputs(1000)


def members(found):
    return {name: list(group) for name, group in zip(found.classes, found.members, strict=True)}


def test_indices_wnids_and_names_mean_the_same_outputs(tmp_path):
    (tmp_path / "map.yaml").write_text("aggregation: sum\nclasses:\n  b: [0, n01443537]\n  a: chain saw\n")
    (tmp_path / "map.csv").write_text("class,output\nb,tench\nb,1\na,chainsaw\n")
    found = open_class_map(tmp_path / "map.yaml", THOUSAND)
    assert (members(found), found.aggregation) == ({"a": [491], "b": [0, 1]}, "sum")
    again = open_class_map(tmp_path / "map.csv", THOUSAND)
    assert (members(again), again.aggregation) == (members(found), "mean")
    assert again.record()["digest"] == found.record()["digest"]


def test_a_models_own_names_are_found_before_imagenets():
    assert members(open_class_map({"x": "crane", "y": 1}, Outputs(2, ("crane", "dog")))) == {"x": [0], "y": [1]}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"bird": ["crane"]}, "'crane' of 'bird' may be 134 or 517"),
        ({"bird": [1000]}, "1000 of 'bird' is none of the 1000 classes"),
        ({"bird": ["n99999999", "n01440764"], "fish": [0]}, "'n99999999' of 'bird'.*, output 0 is in both 'bird' and"),
        ({"a": [1, 1], "b": [], "c": ["?"], "d": ["!"]}, "1 is in 'a' twice, 'b' has no output, .* and 1 more"),
        ({"aggregation": "median", "classes": {"a": 1}}, "aggregation must be one of mean, sum, max, got 'median'"),
        ({"aggregation": "max", "klasses": 1, "classes": {"a": 1}}, "must have the keys classes and aggregation"),
        ({"a": [1.5]}, "must hold classes with their outputs"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(given, words):
    with pytest.raises(HoldfastError, match=words):
        open_class_map(given, THOUSAND)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("m.yaml", "dog: [1]\ncat: [2]\ndog: [3]\n", "every class once, but has 'dog' twice"),
        ("m.yaml", "- 1\n", "must hold classes with their outputs"),
        ("m.csv", "dog,1,2\n", "rows of a class and an output, got dog,1,2"),
        ("m.csv", "class,output\n", "rows of a class and an output, got none"),
    ],
)
def test_damaged_files_are_one_sentence(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(HoldfastError, match=words):
        open_class_map(tmp_path / name, THOUSAND)


def test_a_missing_file_names_the_shipped_maps():
    with pytest.raises(HoldfastError, match="imagenet-16 or objectnet, got 'sixteen'"):
        open_class_map("sixteen", THOUSAND)


def test_the_shipped_maps_have_the_published_sizes():
    sixteen, objects = open_class_map("imagenet-16", THOUSAND), shipped_map("objectnet", THOUSAND)
    assert [len(each) for each in sixteen.members] == [1, 4, 2, 49, 5, 7, 3, 6, 4, 3, 109, 2, 2, 1, 1, 8]
    assert (sixteen.aggregation, sixteen.classes) == ("mean", tuple(sorted(sixteen.classes)))
    assert (len(objects.classes), sum(map(len, objects.members)), objects.aggregation) == (113, 125, "max")


def test_unrestricted_answers_are_the_classes_and_every_other_output():
    found = open_class_map({"pair": [5, 2], "one": 3}, Outputs(7), restricted=False)
    assert found.groups == ((0,), (1,), (2, 5), (3,), (4,), (6,))
    assert found.answers == ("0", "1", "pair", "one", "4", "6")
    assert found.labels_of(["one", "pair"]).tolist() == [3, 2]


def test_a_class_of_the_data_without_an_entry_is_named():
    with pytest.raises(
        HoldfastError, match="must have an entry for every class of the data, but lacks 'x', 'y', 'z' and 1 more"
    ):
        open_class_map({"a": 1}, THOUSAND).labels_of(["a", "x", "y", "z", "w"])
