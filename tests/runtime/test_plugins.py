"""Plug-ins are found by file or name, and digests of their code change with what they use and with nothing else."""

import pytest

from holdfast.errors import HoldfastError
from holdfast.runtime.plugins import PLUGIN_FILES, PLUGINS, VARIABLE, code_fingerprint, load_plugins, plugins_header


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_options_are_taken_out_and_their_files_imported(folder):
    for name in ("first_toy", "second_toy", "third_toy"):
        (folder / f"{name}.py").write_text("")
    rest = load_plugins(["evaluate", "--plugin", "first_toy.py", "run", "--plugin=second_toy.py", "--limit", "3"])
    assert rest == ["evaluate", "run", "--limit", "3"]
    assert PLUGIN_FILES["first_toy"] == folder / "first_toy.py"
    assert list(plugins_header()["plugins"]) == ["first_toy", "second_toy"]


def test_the_environment_names_plug_ins_too(folder, monkeypatch):
    (folder / "named_toy.py").write_text("VALUE = 1\n")
    monkeypatch.setenv(VARIABLE, "named_toy")
    assert plugins_header() == {}
    assert load_plugins(["list"]) == ["list"]
    assert "named_toy" in PLUGINS


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--plugin", "nowhere.py"], "must be a Python file, but 'nowhere.py' does not exist"),
        (["--plugin"], "must be followed by a Python file or a module name"),
        (["--plugin=a/b"], "must be a Python file or a module name, got 'a/b'"),
        (["--plugin=no_such_toy"], "'no_such_toy' cannot be imported"),
        (["--plugin=raises_toy.py"], r"failed while loading \(KeyError: 'x'\)"),
    ],
)
def test_what_is_no_plug_in_is_one_sentence(folder, words, sentence):
    (folder / "raises_toy.py").write_text("{}['x']\n")
    with pytest.raises(HoldfastError, match=sentence):
        load_plugins(words)


LEVEL = 3


def helper(value):
    return value + LEVEL


def uses_helper(value):
    return helper(value)


def uses_nothing(value):
    return value


def test_a_fingerprint_follows_the_values_and_functions_that_are_used(monkeypatch):
    before, other = code_fingerprint(uses_helper), code_fingerprint(uses_nothing)
    monkeypatch.setitem(globals(), "LEVEL", 4)
    assert code_fingerprint(uses_helper) != before
    assert code_fingerprint(uses_nothing) == other
    monkeypatch.setitem(globals(), "LEVEL", 3)
    assert code_fingerprint(uses_helper) == before
