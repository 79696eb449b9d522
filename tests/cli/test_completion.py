"""Completion scripts hold the commands, options and names of today."""

import shutil
import subprocess

import pytest

from holdfast.cli.main import COMMANDS, main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_its_options_and_recipes_are_completed(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(command in script for command in COMMANDS)
    assert "--suite" in script
    assert "digits/fan_nano" in script


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_offers_what_begins_like_the_word(tmp_path, capsys):
    main(["completion", "bash"])
    lines = "COMP_WORDS=(holdfast train digits/fan_na) COMP_CWORD=2", "_holdfast", 'echo "${COMPREPLY[@]}"'
    script = "\n".join([capsys.readouterr().out, *lines])
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    found = done.stdout.split()
    assert "digits/fan_nano_afat" in found
    assert all(each.startswith("digits/fan_na") for each in found)
