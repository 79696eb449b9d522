"""Folders of tasks on other machines."""

import pytest

from holdfast.errors import HoldfastError
from holdfast.runtime.gather import read_files, task_folder, write_files


def test_files_go_into_a_temporary_folder_and_come_home(tmp_path):
    with task_folder(None, {"records/a/header.json": b"{}", "log": b"1"}) as there:
        (there / "records/a/unit").write_bytes(b"new")
        found = read_files(there, there.rglob("*"))
    assert not there.exists()
    assert found == {"records/a/header.json": b"{}", "log": b"1", "records/a/unit": b"new"}
    write_files(tmp_path, found)
    assert (tmp_path / "records/a/unit").read_bytes() == b"new"
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["header.json", "log", "unit"]


def test_a_shared_folder_is_used_as_it_is_and_must_be_there(tmp_path):
    with task_folder(tmp_path) as there:
        assert there == tmp_path
    with (
        pytest.raises(HoldfastError, match="must be a folder that all nodes share, or use --gather"),
        task_folder(tmp_path / "elsewhere"),
    ):
        pass


@pytest.mark.parametrize("name", ["../outside", "/outside", "a/../../outside"])
def test_nothing_is_written_outside_the_folder(tmp_path, name):
    with pytest.raises(HoldfastError, match="must send files within its folder"):
        write_files(tmp_path / "run", {name: b""})
    assert not (tmp_path / "outside").exists()
