"""Which code is the user's: files beside each other, imported or not, not packages, the standard library, Holdfast."""

import json
import subprocess

import pytest
import torch

import holdfast
import tests
from holdfast.runtime.own_code import is_own, own_files, package_version


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    texts = {
        "own_main.py": "import json\nimport torch\nimport no_such_module\nfrom mine import first\nimport own_main\n",
        "mine/__init__.py": "",
        "mine/first.py": "def late():\n    from .second import value\n    return value\n",
        "mine/second.py": "value = 1  # one\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_modules_are_followed_through_their_imports_without_running_them(folder):
    found = own_files(["own_main"], seen=set())
    assert set(found) == {"own_main", "mine", "mine.first", "mine.second"}
    (folder / "mine/second.py").write_text("value = 1\n\n")
    assert own_files(["own_main"], seen=set()) == found  # comments and layout do not count
    (folder / "mine/second.py").write_text("value = 2\n")
    changed = own_files(["own_main"], seen=set())
    assert {name for name in found if changed[name] != found[name]} == {"mine.second"}


def test_what_was_seen_is_not_told_again(folder):
    seen = {"mine.first"}
    assert set(own_files(["own_main"], seen=seen)) == {"own_main", "mine"}
    assert own_files(["own_main"], seen=seen) == {}


@pytest.mark.parametrize(
    ("thing", "own"),
    [(tests, True), (package_version, False), (json, False), (subprocess.Popen, False), (torch.nn.Linear, False)],
)
def test_packages_the_standard_library_and_holdfast_are_not_the_users(thing, own):
    assert is_own(thing) == own
    assert own_files([holdfast.__name__, "torch.nn", "json"], seen=set()) == {}


def test_a_package_has_a_version_and_a_module_of_the_standard_library_none():
    assert package_version("torch").split("+")[0] == torch.__version__.split("+")[0]
    assert package_version("json") == ""
