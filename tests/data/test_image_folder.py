"""Class folders: ids, labels, and what is no image."""

import pytest
from PIL import Image

from holdfast.data import UnreadableImage, open_data
from tests.data.test_source import write_folder


def test_folder_ids_do_not_change_when_files_are_added(tmp_path):
    root = write_folder(tmp_path / "set")
    before = {open_data(f"folder:{root}").id(i) for i in range(6)}
    Image.new("RGB", (4, 4)).save(root / "cat" / "00.png")
    (root / "cat" / "notes.txt").write_text("not an image")
    after = open_data(f"folder:{root}")
    assert before < {after.id(i) for i in range(len(after))}
    assert len(after) == 7


def test_an_unreadable_image_is_named(tmp_path):
    root = write_folder(tmp_path / "set")
    (root / "dog" / "1.png").write_bytes(b"\x89PNG nothing")
    source = open_data(f"folder:{root}")
    with pytest.raises(UnreadableImage, match=r"'dog/1.png' cannot be read") as caught:
        source.image(4)
    assert caught.value.id == "dog/1.png"


def write_image(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8)).save(path)


def test_what_a_mac_packs_into_an_archive_is_no_class(tmp_path):
    root = write_folder(tmp_path / "set")
    write_image(root / "__MACOSX" / "cat" / "0.png")
    source = open_data(f"folder:{root}")
    assert source.classes == ("cat", "dog")
    assert len(source) == 6


def test_skipped_gifs_and_empty_classes_are_said_once(tmp_path, caplog):
    root = write_folder(tmp_path / "set")
    write_image(root / "cat" / "a.gif")
    write_image(root / "dog" / "B.GIF")
    (root / "fox").mkdir()
    for _ in range(2):
        source = open_data(f"folder:{root}")
    assert len(source) == 6
    assert source.classes == ("cat", "dog", "fox")
    assert caplog.messages == [
        f"folder:{root}: 2 GIF files are skipped, such as 'cat/a.gif'; convert them to PNG to use them",
        f"folder:{root}: 1 of 3 classes has no image: 'fox'",
    ]
