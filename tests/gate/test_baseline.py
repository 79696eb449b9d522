"""The baseline as a file: small, exact, and refused when it is not what was written."""

import base64
import json
import zlib

import numpy as np
import pytest

from holdfast.corruptions import SEVERITIES, STANDARD
from holdfast.errors import HoldfastError
from holdfast.gate.baseline import content_checksum, read_baseline, save_baseline
from holdfast.gate.paired_scores import make_paired_scores, paired_scores_of
from holdfast.gate.rules import Rules, parse_rule
from holdfast.gate.verdicts import decide
from tests.gate.test_verdicts import KNOWN, benchmark, verdicts
from tests.records.making_records import cell, records


def random_benchmark(count, *, seed=0, **header):
    rng = np.random.default_rng(seed)
    names = ["clean", *(f"{kind}/{severity}" for kind in STANDARD for severity in SEVERITIES)]
    cells = {name: cell(rng.random(count) < 0.5) for name in names}
    return records(cells, **{**KNOWN, **header})


def test_fifty_thousand_images_and_76_cells_take_less_than_a_megabyte(tmp_path):
    side = make_paired_scores(random_benchmark(50_000))
    assert len(side.cells) == 76
    size = save_baseline([side], tmp_path / "baseline.json")
    assert size == (tmp_path / "baseline.json").stat().st_size
    assert size <= 1_000_000  # of answers that no compression can shorten
    (read,) = read_baseline(tmp_path / "baseline.json")
    assert all(np.array_equal(read.columns[name], side.columns[name]) for name in read.columns)


def test_a_file_gives_the_verdicts_of_the_records(tmp_path):
    new, old = random_benchmark(200, seed=1), random_benchmark(200)
    save_baseline(paired_scores_of(old), tmp_path / "b.json")
    from_file = decide(paired_scores_of(new), read_baseline(tmp_path / "b.json"), Rules())
    assert from_file == verdicts(new, old)
    assert {answer.verdict for answer in from_file} >= {"not resolved"}


def test_images_that_one_of_the_two_could_not_read_are_left_out(tmp_path):
    old, new = benchmark(), benchmark(fog=0.6)

    def without(held, lost):
        keep = [number for number in range(100) if f"image {number}" not in lost]
        cells = {}
        for name, one in held.cells.items():
            fields = {key: values[keep] for key, values in one.fields.items()}
            cells[name] = type(one)(one.ids[keep], one.targets[keep], fields, header=one.header, excluded=tuple(lost))
        return records(cells, **KNOWN)

    old, new = without(old, ["image 3", "image 50"]), without(new, ["image 7"])
    save_baseline(paired_scores_of(old), tmp_path / "b.json")
    answers = decide(paired_scores_of(new), read_baseline(tmp_path / "b.json"), Rules((parse_rule("fog/5 no worse"),)))
    assert answers[0].images == 97
    assert answers == verdicts(new, old, "fog/5 no worse")
    assert answers[0].new == pytest.approx(100 * 40 / 97)  # 60 of 100 are wrong, three of which are left out


def test_scores_that_a_file_does_not_keep_say_so(tmp_path):
    rng = np.random.default_rng(0)
    held = records({"clean": cell(rng.random(300) < 0.5, nll=rng.random(300))}, **KNOWN)
    save_baseline(paired_scores_of(held), tmp_path / "b.json")
    (read,) = read_baseline(tmp_path / "b.json")
    assert ("clean", "nll") in read.left_out
    with pytest.raises(HoldfastError, match="use --against with the records themselves"):
        decide(paired_scores_of(held), [read], Rules((parse_rule("nll no worse"),)))
    assert verdicts(held, held, "nll no worse")[0].passed


def test_whole_numbers_are_kept_as_they_are(tmp_path):
    from holdfast.gate.baseline import pack_column, unpack_column

    for values in (
        np.full(7, 0.25),
        np.array([0.0, 1.0, 1.0]),
        np.linspace(0, 1, 31)[np.arange(60) % 31],
        np.arange(5000.0) * 7,
        np.arange(300.0) + 2**31,
    ):
        packed = pack_column(values)
        assert np.array_equal(unpack_column(json.loads(json.dumps(packed)), len(values)), values)
    assert pack_column(np.random.default_rng(0).random(300)) is None


def damaged(content, path):
    path.write_text(json.dumps({"checksum": content_checksum(content), **content}))
    return path


def test_files_that_are_not_what_was_written_are_refused(tmp_path):
    path = tmp_path / "b.json"
    save_baseline(paired_scores_of(benchmark()), path)
    text = path.read_text()
    content = {key: value for key, value in json.loads(text).items() if key != "checksum"}
    path.write_text(text.replace('"seed": 0', '"seed": 1'))
    with pytest.raises(HoldfastError, match="does not match its checksum"):
        read_baseline(path)
    for wrong in ("", "[]", "3", "{}", '{"checksum": 1}', text[:-100]):
        path.write_text(wrong)
        with pytest.raises(HoldfastError):
            read_baseline(path)
    with pytest.raises(HoldfastError, match="another version of Holdfast"):
        read_baseline(damaged({**content, "holdfast_baseline": 1}, path))
    (only,) = content["sets"]
    bomb = base64.b64encode(zlib.compress(bytes(10**7))).decode()
    column = {"one_of": [0, 1], "bits": bomb}
    with pytest.raises(HoldfastError, match="is damaged: a column holds"):
        read_baseline(
            damaged({**content, "sets": [{**only, "columns": {**only["columns"], "clean|right": column}}]}, path)
        )
    bare = {name: column for name, column in only["columns"].items() if not name.startswith("fog/1|")}
    with pytest.raises(HoldfastError, match="has none of 'fog/1'"):
        read_baseline(damaged({**content, "sets": [{**only, "columns": bare}]}, path))
    for wrong in ({"count": 0}, {"count": "x"}, {"columns": {"clean|right": {}}}, {"order": ["nobody"]}):
        with pytest.raises(HoldfastError):
            read_baseline(damaged({**content, "sets": [{**only, **wrong}]}, path))


def test_a_baseline_without_data_sets_is_refused(tmp_path):
    path = damaged({"holdfast_baseline": 2, "sets": []}, tmp_path / "b.json")
    with pytest.raises(HoldfastError, match="must have a data set, got none"):
        read_baseline(path)
    with pytest.raises(HoldfastError, match="must have a data set, got none"):
        decide(paired_scores_of(benchmark()), [], Rules())


def test_segmentation_and_detection_have_gates_of_their_own(tmp_path):
    from tests.gate.other_tasks import detection, segmentation

    for made, name in ((segmentation, "clean"), (detection, "clean")):
        good, bad = made(right=0.9), made(right=0.5)
        save_baseline(paired_scores_of(good), tmp_path / "b.json")
        answers = {a.rule.name: a for a in decide(paired_scores_of(bad), read_baseline(tmp_path / "b.json"), Rules())}
        assert answers[name].verdict == "worse"
        assert not answers[name].passed
        assert answers[name].interval.low < answers[name].interval.value < answers[name].interval.high < 0
        assert answers[name].reason == ""
        assert all(
            answer.passed for answer in decide(paired_scores_of(good), read_baseline(tmp_path / "b.json"), Rules())
        )
