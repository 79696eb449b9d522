"""What commands print: everything fits 80 columns of a terminal, and is one line per row in a pipe."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.main import COMMANDS, main
from holdfast.gate.output import terminal
from holdfast.models import create_model
from tests.chaos.processes import start
from tests.training.helpers import run


def on_a_terminal(*words: str, code: int = 0) -> str:
    """What a command prints on a terminal of 80 columns, with its error if it fails."""
    master, slave = pty.openpty()
    terminal, elsewhere = Path(os.ttyname(slave)), None if code else Path(os.devnull)
    parts = []
    with start(words, output=terminal, errors=elsewhere, COLUMNS="80", TERM="dumb") as command:
        os.close(slave)
        try:
            while part := os.read(master, 65536):
                parts.append(part)
        except OSError:  # Linux ends a terminal this way
            pass
        assert command.wait() == code
    os.close(master)
    return b"".join(parts).decode().replace("\r\n", "\n")


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_80_columns_without_broken_words(command, monkeypatch, capsys):
    shown = {}
    for columns in (80, 2000):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main([*([command] if command else []), "--help"]) == 0
        shown[columns] = capsys.readouterr().out
    assert [line for line in shown[80].splitlines() if len(line) > 80] == []
    assert {*shown[80].split()} - {*shown[2000].split()} == set()


def test_names_keep_their_capitals(capsys):
    assert main(["gate", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Test that" in told
    assert "JUnit, Markdown." in told
    assert main(["list", "--help"]) == 0
    assert "with size and GMACs" in " ".join(capsys.readouterr().out.split())


def test_the_general_help_imports_no_package_but_holdfast():
    """Which keeps it below 0.15 s; rich, jsonargparse or numpy alone would take longer."""
    script = "import sys; from holdfast.cli.main import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert "evaluate" in done.stdout
    imported = {name.partition(".")[0] for name in done.stderr.split()}
    assert imported & {"rich", "jsonargparse", "yaml", "numpy", "torch", "timm"} == set()


def test_sentences_end_between_words_on_a_terminal():
    shown = on_a_terminal("evaluate", "demo/nope", code=2)
    assert shown.splitlines() == [
        "holdfast: error: model must be a run's folder or a spec such as timm:NAME, but",
        "'demo/nope' does not exist",
    ]


def test_warnings_end_between_words_on_a_terminal(runs, tmp_path):
    for number in range(7):
        (tmp_path / f"{number}.png").write_bytes(b"no image")
    shown = on_a_terminal("predict", str(tmp_path), "--model", str(runs / "a"), "--skip-bad", code=2)
    assert max(map(len, shown.splitlines())) <= max(80, len(f"({tmp_path}/0.png,"))
    assert {f"{tmp_path}/1.png,", f"{tmp_path}/4.png", "…)", "holdfast:"} <= {*shown.split()}


@pytest.mark.parametrize("what", ["suites", "corruptions", "data", "methods", "studies"])
def test_a_piped_list_has_a_line_per_name(what, capsys):
    assert main(["list", what]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert all(re.match(r" \S", row) for row in rows)  # no row goes on in a second line
    assert all(row == row.rstrip() for row in [head, *rows])


def test_a_piped_list_can_be_searched(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as CI does
    assert main(["list", "suites"]) == 0
    (row,) = [row for row in capsys.readouterr().out.splitlines() if row.split()[0] == "corruptions"]
    assert row.endswith("of label maps the 16 of Cityscapes-C)")


@pytest.mark.parametrize("words", [("list", "suites"), ("list", "recipes", "--cost"), ("list", "corruptions")])
def test_lists_fit_a_terminal_without_broken_words(words):
    shown = on_a_terminal(*words)
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert max(map(len, plain.splitlines())) <= 80
    assert "…" not in plain.replace(" …", "")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two finished runs, an unfinished one, and records of a model that is elsewhere."""
    root = tmp_path_factory.mktemp("runs")
    for seed, name in enumerate(("a", "b")):
        run(root / name, train={"epochs": 1}, seed=seed)
    run(root / "stopped", train={"epochs": 1})
    log = (root / "stopped" / "log.jsonl").read_text().splitlines()
    (root / "stopped" / "log.jsonl").write_text("\n".join(line for line in log if '"end"' not in line) + "\n")
    model = create_model("vit_nano", num_classes=10, depth=1)
    holdfast.evaluate(model, "digits:test", "clean", limit=20, out=root / "measured", workers=0)
    return root


def test_runs_knows_unfinished_and_evaluated_folders(runs, capsys):
    assert main(["runs", str(runs)]) == 0
    rows = {row.split()[0]: row for row in capsys.readouterr().out.splitlines()[1:]}
    assert set(rows) == {"a", "b", "measured", "stopped"}
    assert " finished " in rows["a"]
    assert "unfinished, step 4" in rows["stopped"]
    assert re.search(
        r"vit_nano .*digits:test .*evaluated only .*clean \d+\.\d\d .*digits-test \(1 cell\)", rows["measured"]
    )


def test_several_runs_are_evaluated_in_one_command(runs, capsys):
    command = ["evaluate", str(runs / "a"), str(runs / "b"), "--suite=clean", "--limit=20", "--workers=0"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    for name in ("a", "b"):
        (records,) = holdfast.load_records(runs / name)
        assert f"{records.summary()['clean'].value:.1f} (" in printed
        assert f"records: {records.folder}" in printed
    assert main([*command, "--out=elsewhere"]) == 2
    assert "--out is the folder of one model's records, got several runs" in capsys.readouterr().err


def test_the_gate_fits_80_columns_and_is_a_line_per_rule_in_a_pipe(runs, capsys):
    for name in ("a", "b"):
        assert main(["evaluate", str(runs / name), "--suite=clean", "--limit=20", "--workers=0"]) == 0
    capsys.readouterr()
    from holdfast.gate import decide, paired_scores_of, read_rules

    rules = runs / "rules.yaml"
    rules.write_text("rules: [clean no worse by more than 0.25, clean >= 5]\n")
    verdicts = decide(paired_scores_of(runs / "a"), paired_scores_of(runs / "b"), read_rules(rules))
    piped, narrow = terminal(verdicts), terminal(verdicts, width=80)
    assert max(map(len, piped.splitlines())) > 80
    assert max(map(len, narrow.splitlines())) <= 80
    assert [line for line in piped.splitlines() if line.startswith("clean")]
    words = narrow.split()
    assert all(word in words for verdict in verdicts for word in verdict.reason.split())
    assert "nan" not in narrow


def test_predictions_have_labelled_columns_and_leave_bad_images_out(runs, tmp_path, capsys, caplog):
    from PIL import Image

    (tmp_path / "bad.png").write_bytes(b"no image")
    Image.new("RGB", (32, 32)).save(tmp_path / "good.png")
    command = ["predict", str(tmp_path), "--model", str(runs / "a"), "--top=2"]
    assert main(command) == 2
    assert "bad.png' cannot be read" in capsys.readouterr().err
    assert main([*command, "--skip-bad"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["image", "rank", "class", "probability"]
    assert [row.split()[:2] for row in rows] == [[str(tmp_path / "good.png"), rank] for rank in ("1", "2")]
    assert "unreadable images, left out: 1" in caplog.text
    (tmp_path / "good.png").unlink()
    assert main([*command, "--skip-bad"]) == 2
    assert "at least one that can be read, got 1 unreadable" in capsys.readouterr().err


def test_limit_and_size_mean_the_same_in_python_and_on_the_command_line(runs, tmp_path):
    model = create_model("vit_nano", num_classes=10, depth=1)
    size = holdfast.EvalProtocol(size="32x32")
    assert size == holdfast.EvalProtocol(size=(32, 32))
    assert holdfast.EvalProtocol(size="32") == holdfast.EvalProtocol(size=32)
    for wrong in ("32x", "0x3x2", "wide", (1, 2, 3), 1.5):
        with pytest.raises(holdfast.HoldfastError, match="size must be a number of pixels, or HEIGHTxWIDTH"):
            holdfast.EvalProtocol(size=wrong)
    whole = holdfast.evaluate(model, "digits:test[0:30]", "clean", limit=0, protocol=size, workers=0)
    assert len(whole.cells["clean"]) == 30
    assert (
        main(["evaluate", str(runs / "a"), "--data=digits:test[0:30]", "--suite=clean", "--limit=0", "--size=32x32"])
        == 0
    )
    (records,) = [each for each in holdfast.load_records(runs / "a") if each.header["data"] == "digits:test[0:30]"]
    assert records.header["limit"] == whole.header["limit"] is None
    assert records.header["preprocessing"] == whole.header["preprocessing"]
