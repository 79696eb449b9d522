"""The gate as people use it: two runs that were trained and measured, the command line, a test of one's own."""

import json
import shutil
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from holdfast import Until, evaluate, gate
from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.gate import Rules, paired_scores_of
from holdfast.gate.rules import parse_rule
from holdfast.gate.scores import check_rules
from holdfast.records.records import load_records
from holdfast.testing import assert_no_worse
from tests.training.helpers import run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs on the digits: one that has learnt something, one that has hardly begun."""
    folder = tmp_path_factory.mktemp("runs")
    run(folder / "good", data={"train_subset": 512}, augment={"pad": 0}, optimizer={"lr": 0.002}, train={"epochs": 4})
    run(folder / "poor")
    for name in ("good", "poor"):
        evaluate(f"run:{folder / name}", "digits:test", "clean,occlusion-random", limit=150, workers=0, show=False)
    return folder


def test_a_worse_run_shuts_the_gate_and_a_better_one_opens_it(runs, tmp_path, capsys):
    files = ["--junit", str(tmp_path / "gate.xml"), "--markdown", str(tmp_path / "gate.md")]
    assert main(["gate", str(runs / "poor"), "--against", str(runs / "good"), *files]) == 1
    out = capsys.readouterr().out
    assert "FAIL: 2 of 2 rules failed" in out
    assert "worse" in out
    assert ElementTree.parse(tmp_path / "gate.xml").getroot().attrib["failures"] == "2"
    assert "FAIL" in (tmp_path / "gate.md").read_text()
    (tmp_path / "gate.yaml").write_text("- clean better\n- clean >= 15\n")
    assert (
        main(["gate", str(runs / "good"), "--against", str(runs / "poor"), "--rules", str(tmp_path / "gate.yaml")]) == 0
    )
    assert main(["gate", str(runs / "good"), "--against", str(runs / "good" / "records"), "--margin", "0"]) == 0


def test_a_gate_until_decided_says_beforehand_what_stays_open_and_how_many_passes_it_took(runs, tmp_path, capsys):
    (tmp_path / "gate.yaml").write_text("- clean no worse\n")
    rules = ["--rules", str(tmp_path / "gate.yaml"), "--until", "decided", "--workers", "0"]
    files = ["--junit", str(tmp_path / "gate.xml"), "--markdown", str(tmp_path / "gate.md")]
    assert main(["gate", str(runs / "poor"), "--against", str(runs / "good"), *rules, *files]) == 1
    out = capsys.readouterr().out
    assert "clean no worse: an equally good model stays unresolved in most runs on 150 images" in out
    for text in (out, (tmp_path / "gate.md").read_text(), (tmp_path / "gate.xml").read_text()):
        assert "300 of 300 passes" in text
        assert "worse" in text
    assert main(["gate", str(runs / "good"), "--save", str(tmp_path / "baseline.json")]) == 0
    assert main(["gate", str(runs / "poor"), "--against", str(tmp_path / "baseline.json"), *rules]) == 1
    assert main(["gate", str(runs / "good"), "--against", str(runs / "poor"), *rules[:-2], "--budget", "x"]) == 2
    assert main(["gate", str(runs / "good"), "--against", str(runs / "poor"), "--budget", "5m"]) == 2
    assert main(["gate", str(runs / "good"), "--against", str(runs / "poor"), "--on", "ray"]) == 2
    assert main(["gate", str(runs / "good"), "--against", str(runs / "poor"), "--until", "0.5"]) == 2
    assert "--until must be decided, got '0.5'" in " ".join(capsys.readouterr().err.split())


def test_a_gate_in_python_measures_both_runs_further(runs, tmp_path, capsys):
    for name in ("good", "poor"):
        shutil.copytree(runs / name, tmp_path / name, ignore=shutil.ignore_patterns("records"))
    first = {"limit": 30, "until": Until(budget=150), "workers": 0, "show": False}
    good, poor = (evaluate(f"run:{tmp_path / name}", "digits:test", "quick", **first) for name in ("good", "poor"))
    assert main(["gate", str(tmp_path / "good"), "--save", str(tmp_path / "baseline.json")]) == 0
    assert "(30 images × 16 cells, 150 of 480 passes)" in " ".join(capsys.readouterr().out.split())
    mean = "mean_corruption_accuracy_partial"
    margin = abs(good.summary()[mean].value - poor.summary()[mean].value)  # which no few images can decide
    rules = [f"{mean} no worse by more than {margin:.2f}"]
    found = gate(tmp_path / "poor", tmp_path / "good", rules=rules, until="decided", workers=0, show=False)
    passes = [load_records(tmp_path / name)[0].passes for name in ("good", "poor")]
    assert passes[0] == passes[1]
    assert found.verdicts[0].passes == (str(passes[0]) if passes[0] is not None else "480 of 480 passes")
    assert passes[0] is None or passes[0].done > 150


def test_a_saved_baseline_stands_for_its_run(runs, tmp_path, capsys):
    path = tmp_path / "baseline.json"
    assert main(["gate", str(runs / "good"), "--save", str(path)]) == 0
    assert "150 images × 2 cells" in capsys.readouterr().out
    assert path.stat().st_size < 30_000
    assert main(["gate", str(runs / "good"), "--against", str(path)]) == 0
    before = path.read_bytes()
    assert main(["gate", str(runs / "poor"), "--against", str(path), "--save", str(path)]) == 1
    assert path.read_bytes() == before  # a model that does not pass is no baseline
    (tmp_path / "gate.yaml").write_text(
        "unresolved: pass\nrules:\n  - clean >= 1\n  - occlusion-random no worse by more than 99\n"
    )
    assert main(["gate", str(runs / "poor"), "--against", str(path), "--rules", str(tmp_path / "gate.yaml")]) == 0


def test_stale_baselines_and_bad_input_end_with_2_and_one_sentence(runs, tmp_path, capsys):
    stale, empty = tmp_path / "stale", tmp_path / "empty"
    empty.mkdir()
    shutil.copytree(runs / "good", stale)
    (header,) = stale.glob("records/*/evaluation.json")
    values = json.loads(header.read_text())
    header.write_text(json.dumps({**values, "versions": {**values["versions"], "holdfast": "0.0.1"}}))
    good = str(runs / "good")
    for arguments, sentence in (
        ([good, "--against", str(stale)], "these differ: version"),
        ([good, "--against", str(tmp_path / "nowhere")], "does not exist"),
        ([good, "--against", str(header)], "baseline must be"),
        ([good], "needs --against"),
        (["--against", good], "needs either a run's folder or --model"),
        ([good, "--against", good, "--unresolved", "perhaps"], "fail or pass"),
        ([good, "--against", good, "--junit", str(tmp_path / "no" / "x.xml")], "--junit must be a file"),
        ([str(empty), "--against", good], "must contain records"),
        ([good, "--against", good, "--rules", good], "rules must be a readable YAML file"),
    ):
        assert main(["gate", *arguments]) == 2, arguments
        assert sentence in capsys.readouterr().err


def test_a_model_is_measured_as_the_baseline_was(runs, tmp_path, capsys):
    path = tmp_path / "baseline.json"
    assert main(["gate", str(runs / "good"), "--save", str(path)]) == 0
    model = f"local-dir:{runs / 'poor'}"
    assert (
        main(["gate", "--model", model, "--against", str(path), "--out", str(tmp_path / "new"), "--workers", "0"]) == 1
    )
    answers = assert_no_worse(f"local-dir:{runs / 'good'}", baseline=path, margin=0, workers=0, show=False)
    assert [(answer.rule.name, answer.verdict) for answer in answers] == [
        ("clean", "no worse"),
        ("attack/occlusion-random", "no worse"),
    ]
    with pytest.raises(AssertionError, match=r"not as robust as the baseline\n(.|\n)*FAIL"):
        assert_no_worse(model, "digits:test", baseline=runs / "good", rules=["clean no worse"], workers=0, show=False)
    with pytest.raises(HoldfastError, match="these differ: data"):
        assert_no_worse(model, "digits:train", baseline=path, workers=0, show=False)


def test_what_cannot_be_compared_is_refused_before_anything_is_measured(runs, tmp_path, capsys):
    shutil.copytree(runs / "good", tmp_path / "two")
    evaluate(f"run:{tmp_path / 'two'}", "digits:train", "clean", limit=60, workers=0, show=False)
    for run_folder, path in ((runs / "good", "one.json"), (tmp_path / "two", "two.json")):
        assert main(["gate", str(run_folder), "--save", str(tmp_path / path)]) == 0
    model = ["--model", f"local-dir:{runs / 'poor'}", "--out", str(tmp_path / "new"), "--workers=0"]
    for rule, options, sentence in (
        ("clean no worse", ["--against=one.json", "--data", "digits:train"], "these differ: data"),
        ("clean no worse", ["--against=two.json", "--data", "digits:test", "digits:test"], "these differ: data"),
        ("claen no worse", ["--against=one.json"], "must name a score, a cell or a kind"),
    ):
        (tmp_path / "rules.json").write_text(json.dumps([rule]))
        files = [f"--rules={tmp_path / 'rules.json'}", options[0].replace("=", f"={tmp_path}/"), *options[1:]]
        assert main(["gate", *model, *files]) == 2, rule
        assert sentence in " ".join(capsys.readouterr().err.split())
        assert not list(tmp_path.glob("new/**/*.safetensors"))


def test_a_score_that_a_baseline_file_does_not_store_is_refused_beforehand(runs):
    (side,) = paired_scores_of(runs / "good")
    check_rules([side], Rules((parse_rule("nll no worse"),)))
    stored = {key: values for key, values in side.columns.items() if key[1] != "nll"}
    left_out = tuple(key for key in side.columns if key[1] == "nll")
    with pytest.raises(HoldfastError, match="a baseline file does not store it"):
        check_rules([replace(side, columns=stored, left_out=left_out)], Rules((parse_rule("nll no worse"),)))


def test_a_baseline_that_lacks_cells_says_which(runs, tmp_path, capsys):
    shutil.copytree(runs / "poor", tmp_path / "part")
    evaluate(f"run:{tmp_path / 'part'}", "digits:test", "clean,corruptions", limit=20, workers=0, show=False)
    for path in tmp_path.glob("part/records/*/snow.[45]*.safetensors"):
        path.rename(path.with_suffix(".gone")) if path.name.startswith("snow.4") else path.write_bytes(b"")
    assert main(["gate", str(tmp_path / "part"), "--save", str(tmp_path / "b.json")]) == 0
    out = capsys.readouterr().out
    assert "mean_corruption_accuracy and retention incomplete, without snow/4, snow/5" in out
    assert "only partly measured: snow/5" in out


def test_a_baseline_of_nothing_is_refused(runs, tmp_path, capsys):
    from tests.gate.test_baseline import damaged

    empty = damaged({"holdfast_baseline": 2, "sets": []}, tmp_path / "b.json")
    assert main(["gate", str(runs / "poor"), "--against", str(empty)]) == 2
    assert "must have a data set" in capsys.readouterr().err
