"""One decoder for training, evaluation and corruption: what it reads, what it refuses, what it never runs."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from holdfast.corruptions.corrupt_folder import FolderSettings, KindAtSeverity, corrupt_folder
from holdfast.data import open_data, turned_images
from holdfast.errors import HoldfastError
from holdfast.io.images import FORMATS, UnreadableFile, decode, turned_warning

EIGHT_BITS = np.arange(256, dtype=np.uint8).reshape(16, 16)
SIXTEEN_BITS = EIGHT_BITS.astype(np.uint16) * 257


def pixels(path, **options):
    return np.asarray(decode(path, **options).image)


@pytest.mark.parametrize("name", ["grey.png", "grey.tif"])
def test_sixteen_bits_become_the_upper_eight(tmp_path, name):
    Image.fromarray(SIXTEEN_BITS).save(tmp_path / name)
    assert np.array_equal(pixels(tmp_path / name), np.repeat(EIGHT_BITS[..., None], 3, axis=-1))


def test_sixteen_bits_of_a_pgm_become_the_upper_eight(tmp_path):
    (tmp_path / "grey.pgm").write_bytes(b"P5 16 16 65535\n" + SIXTEEN_BITS.astype(">u2").tobytes())
    assert np.array_equal(pixels(tmp_path / "grey.pgm")[..., 0], EIGHT_BITS)


def test_sixteen_bit_colour_and_grey_agree(tmp_path):
    """A 16-bit RGB PNG, written by hand: Pillow cannot."""
    values = np.random.default_rng(0).integers(0, 65536, (5, 7), dtype=np.uint16)
    rows = np.repeat(values[..., None], 3, axis=-1).astype(">u2")
    raw = b"".join(b"\0" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", 7, 5, 16, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(raw)), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    (tmp_path / "colour.png").write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    Image.fromarray(values).save(tmp_path / "grey.png")
    assert np.array_equal(pixels(tmp_path / "colour.png"), pixels(tmp_path / "grey.png"))


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_numbers_without_a_range_are_refused(tmp_path, kind):
    Image.fromarray(np.linspace(0, 1, 64).reshape(8, 8).astype(kind)).save(tmp_path / "x.tiff")
    with pytest.raises(UnreadableFile, match="expected 8 or 16 bits per channel"):
        decode(tmp_path / "x.tiff")


def test_training_evaluation_and_corrupt_see_the_same_pixels(tmp_path):
    (tmp_path / "in" / "a").mkdir(parents=True)
    Image.fromarray(SIXTEEN_BITS.repeat(2, 0).repeat(2, 1)).save(tmp_path / "in" / "a" / "0.png")
    source = open_data(f"folder:{tmp_path / 'in'}")
    cell = KindAtSeverity("brightness", 1)
    corrupt_folder(tmp_path / "in", tmp_path / "out", cells=[cell], settings=FolderSettings())
    from holdfast.corruptions import corrupt_batch

    expected = corrupt_batch([np.asarray(source.image(0))], "brightness", ids=["a/0.png"], severity=1)[0]
    assert np.array_equal(pixels(tmp_path / "out" / "brightness" / "1" / "a" / "0.png"), expected)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotations_are_counted_and_applied_only_when_asked(tmp_path, orientation):
    stored = np.random.default_rng(orientation).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    (tmp_path / "a").mkdir()
    Image.fromarray(stored).save(tmp_path / "a" / "x.png", exif=exif)
    # row 0 and column 0 of the stored pixels are, in the EXIF standard's order: top-left, top-right, …
    upright = {
        1: stored,
        2: stored[:, ::-1],
        3: stored[::-1, ::-1],
        4: stored[::-1],
        5: stored.swapaxes(0, 1),
        6: stored[::-1].swapaxes(0, 1),
        7: stored[::-1, ::-1].swapaxes(0, 1),
        8: stored.swapaxes(0, 1)[::-1],
    }[orientation]
    plain, turned = open_data(f"folder:{tmp_path}"), open_data(f"folder:{tmp_path}[0:1]", exif="apply")
    assert np.array_equal(np.asarray(plain.image(0)), stored)
    assert np.array_equal(np.asarray(turned.image(0)), upright)
    assert turned_images(plain) == turned_images(turned) == (orientation > 1)


def test_the_warning_has_the_count_and_vanishes_when_the_images_are_turned():
    assert turned_warning(3, exif="ignore").startswith("3 images have an EXIF rotation")
    assert turned_warning(3, exif="apply") == turned_warning(0, exif="ignore") == ""
    with pytest.raises(HoldfastError, match="exif must be ignore or apply, got 'rotate'"):
        open_data("folder:.", exif="rotate")


def test_postscript_is_never_run(tmp_path):
    """An endless program under the name of a photograph: Pillow would start Ghostscript and wait."""
    (tmp_path / "x.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n{} loop\n")
    with pytest.raises(UnreadableFile, match="not an image of the formats JPEG"):
        decode(tmp_path / "x.jpg")


@pytest.mark.parametrize("format", ["GIF", "ICO", "TGA", "DDS", "PCX", "SGI"])
def test_other_formats_are_refused_whatever_they_are_called(tmp_path, format):
    Image.new("RGB", (16, 16), (9, 9, 9)).save(tmp_path / "x.png", format=format)
    with pytest.raises(UnreadableFile, match="not an image of the formats"):
        decode(tmp_path / "x.png")


def test_large_images_and_files_are_refused_before_they_are_decoded(tmp_path, monkeypatch):
    Image.new("L", (300, 200)).save(tmp_path / "x.png")
    monkeypatch.setattr("holdfast.io.images.LARGEST_IMAGE", 59_999)
    with pytest.raises(UnreadableFile, match="at most 59999 pixels, got 300×200"):
        decode(tmp_path / "x.png")
    with (tmp_path / "huge.png").open("wb") as file:
        file.truncate(600 * 2**20)  # sparse
    with pytest.raises(UnreadableFile, match="at most 512 MiB, got 600"):
        decode(tmp_path / "huge.png")


def test_broken_files_are_unreadable_and_nothing_else(tmp_path):
    """Flipped bits and cut ends of every format: an image or one sentence, never another error."""
    rng, image = np.random.default_rng(0), Image.effect_noise((24, 20), 60)
    for format in FORMATS:
        buffer = io.BytesIO()
        image.save(buffer, format)
        for number in range(60):
            broken = bytearray(buffer.getvalue())
            for place in rng.integers(0, min(len(broken), 200 if number % 2 else len(broken)), 3):
                broken[place] = rng.integers(256)
            path = tmp_path / "x.png"
            path.write_bytes(broken[: rng.integers(1, len(broken) + 1)] if number % 3 == 0 else broken)
            told = mode_or_sentence(path)
            assert told == "RGB" or ("\n" not in told and str(tmp_path) not in told)


def mode_or_sentence(path):
    try:
        return decode(path).image.mode
    except UnreadableFile as error:
        return str(error)
