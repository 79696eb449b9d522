"""The command line: quick help, one sentence for bad input."""

import re
import subprocess
import sys

import pytest

import holdfast
from holdfast.cli.main import COMMANDS, main


@pytest.mark.parametrize("arguments", [["--help"], *([command, "--help"] for command in COMMANDS)])
def test_help_imports_neither_torch_nor_timm(arguments):
    script = (
        "import sys; from holdfast.cli.main import main; code = main(sys.argv[1:]);"
        "heavy = {'torch', 'timm', 'torchvision', 'matplotlib'} & set(sys.modules);"
        "assert not heavy, heavy; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "usage: holdfast" in done.stdout


def test_help_names_every_command(capsys):
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n  {command} " in printed for command in COMMANDS)


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"holdfast {holdfast.__version__}\n"


BAD_INPUT = {
    "unknown command": (["trian"], "unknown command 'trian'; did you mean 'train'?"),
    "unknown list": (["list", "modls"], "modls"),
    "unknown option": (["list", "models", "--costs"], "--costs"),
    "no model of that name": (["list", "models", "fan_nno"], "nothing matches 'fan_nno'; did you mean 'fan_nano'"),
    "unwritable folder": (["demo", "--out", "/proc/nowhere"], "--out must be a writable folder"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_gets_one_sentence_and_exit_code_2(case, capsys):
    arguments, sentence = BAD_INPUT[case]
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("holdfast: error: ")
    assert sentence in printed.err
    assert len(printed.err.strip().splitlines()) == 1


def test_list_models_with_cost_puts_the_papers_figures_beside_ours(capsys):
    assert main(["list", "models", "fan_tiny*", "--cost"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    rows = {line[0]: line[1:] for line in lines if line}
    assert rows["fan_tiny_12_p16_224"] == ["224", "7.32", "1.47", "7.3", "1.3"]
    assert rows["fan_tiny_8_p4_hybrid"] == ["224", "7.47", "3.64", "7.4", "3.5"]


def test_the_general_help_imports_next_to_nothing():
    script = "import sys; from holdfast.cli.main import main; main(['--help']); sys.exit('jsonargparse' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "completion"])
def test_help_says_no_empty_defaults_and_no_classes_of_python(command, capsys):
    assert main([command, "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "<class" not in said
    assert "null" not in said
    assert not re.search(r"\(default: ?\)|%\(", said)


def test_the_help_of_training_is_short_and_the_long_one_is_whole(capsys):
    assert main(["train", "--help"]) == 0
    short = capsys.readouterr().out
    assert main(["train", "--help-all"]) == 0
    whole = capsys.readouterr().out
    assert len(short.splitlines()) < 40
    assert "--help-all" in short
    assert "--optimizer.layer_decay" not in short
    assert "--optimizer.layer_decay" in whole


def test_the_shell_completes_commands_recipes_and_options(tmp_path, capsys):
    assert main(["completion", "bash"]) == 0
    (tmp_path / "complete.sh").write_text(capsys.readouterr().out)
    words = "COMP_WORDS=(holdfast {}); COMP_CWORD={}; _holdfast; echo ${{COMPREPLY[@]}}"
    script = f"source {tmp_path}/complete.sh; {words}"
    for words, place, expected in [
        ("tr", 1, "train"),
        ("train digits/fan_nano_af", 2, "digits/fan_nano_afat"),
        ("evaluate --att", 2, "--attack --attack-batch-size"),
    ]:
        done = subprocess.run(["bash", "-c", script.format(words, place)], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected
