"""``holdfast corrupt`` and ``holdfast list corruptions`` through the real command line, in process."""

import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holdfast.cli.main import main
from holdfast.corruptions import corrupt_batch
from tests.corruptions.oracle import photograph


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "photos"
    for number, path in enumerate(["a.png", "deep/er/b.png", "deep/c.jpg", "deep/ä 1.bmp"]):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(photograph(40 + number, 48)).save(folder / path)
    return folder


def digests(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json")
    return {path.relative_to(folder).as_posix(): hashlib.md5(path.read_bytes()).hexdigest() for path in files}


def run(source, target, *options):
    return main(["corrupt", str(source), str(target), "--kinds=fog,gaussian_noise", "--severity=2,4", *options])


def test_tree_is_mirrored_and_bytes_are_those_of_the_python_api(source, tmp_path, capsys):
    assert run(source, tmp_path / "out", "--workers=1", "--seed=3") == 0
    made = digests(tmp_path / "out")
    expected = {"a.png", "deep/er/b.png", "deep/c.png", "deep/ä 1.png"}
    assert set(made) == {f"{k}/{s}/{p}" for k in ("fog", "gaussian_noise") for s in (2, 4) for p in expected}
    image = np.asarray(Image.open(source / "deep/er/b.png"))
    ours = corrupt_batch([image], "fog", ids=["deep/er/b.png"], severity=4, seed=3)[0]
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "out/fog/4/deep/er/b.png")), ours)
    assert "16 files written" in capsys.readouterr().out


def test_workers_and_other_files_change_nothing(source, tmp_path):
    assert run(source, tmp_path / "one", "--workers=1") == 0
    Image.fromarray(photograph(64, 64)).save(source / "0-new.png")
    assert run(source, tmp_path / "two", "--workers=2") == 0
    one, two = digests(tmp_path / "one"), digests(tmp_path / "two")
    assert {path: digest for path, digest in two.items() if "0-new" not in path} == one
    assert len(two) == len(one) + 4


def test_finished_files_are_not_redone(source, tmp_path, capsys):
    target = tmp_path / "out"
    assert run(source, target, "--workers=1") == 0
    before = {path: path.stat().st_mtime_ns for path in target.rglob("*.png")}
    lost = target / "fog/2/a.png"
    lost.unlink()
    assert run(source, target, "--workers=1") == 0
    after = {path: path.stat().st_mtime_ns for path in target.rglob("*.png")}
    assert {path for path in after if after[path] != before[path]} == {lost}
    assert "1 files written" in capsys.readouterr().out.splitlines()[-1]


def test_a_killed_run_ends_with_the_bytes_of_an_undisturbed_one(source, tmp_path):
    for number in range(20):
        Image.fromarray(photograph(200, 200 + number)).save(source / f"more-{number}.png")
    command = [sys.executable, "-m", "holdfast.cli.main", "corrupt", str(source), str(tmp_path / "killed")]
    options = ["--kinds=standard", "--severity=3", "--workers=1"]
    code = "import sys; from holdfast.cli.main import main; sys.exit(main(sys.argv[1:]))"
    process = subprocess.Popen([sys.executable, "-c", code, *command[3:], *options], stdout=subprocess.DEVNULL)
    limit = time.monotonic() + 60
    while len(list((tmp_path / "killed").rglob("*.png"))) < 40 and time.monotonic() < limit:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    part = len(digests(tmp_path / "killed"))
    assert 40 <= part < 24 * 15
    stale = tmp_path / "killed/fog/3/.a.png.1.tmp"
    stale.parent.mkdir(parents=True, exist_ok=True)
    stale.write_bytes(b"half")
    os.utime(stale, (0, 0))
    machine = re.sub(r"\W", "_", platform.node())
    abandoned, alive = (stale.with_name(f".a.png.{machine}-{pid}.tmp") for pid in (process.pid, os.getppid()))
    for part in (abandoned, alive):
        part.write_bytes(b"half")
    assert main(["corrupt", str(source), str(tmp_path / "killed"), *options]) == 0
    assert (abandoned.exists(), alive.exists()) == (False, True)
    alive.unlink()
    for name in ("killed", "whole"):
        assert main(["corrupt", str(source), str(tmp_path / name), *options]) == 0
    assert digests(tmp_path / "killed") == digests(tmp_path / "whole")
    assert len(digests(tmp_path / "whole")) == 24 * 15
    assert json.loads((tmp_path / "killed/manifest.json").read_text())["finished"] is True


@pytest.mark.parametrize("options", [["--format=png"], ["--format=jpeg:85"]])
def test_files_that_a_power_cut_left_empty_or_short_are_done_again(source, tmp_path, options):
    for name in ("out", "whole"):
        assert run(source, tmp_path / name, "--workers=1", *options) == 0
    first, second, *_ = sorted(path for path in (tmp_path / "out").rglob("*.*") if path.name != "manifest.json")
    first.write_bytes(b"")
    second.write_bytes(second.read_bytes()[:-5])
    assert run(source, tmp_path / "out", "--workers=1", *options) == 0
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")


@pytest.mark.parametrize("workers", ["--workers=1", "--workers=2"])
def test_a_full_disk_is_one_sentence_and_leaves_no_unfinished_file(source, tmp_path, capfd, workers):
    """No file may grow beyond 4 kB, as if the disk were full then."""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000)); "
        "from holdfast.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    command = ["corrupt", str(source), str(tmp_path / "out"), "--kinds=gaussian_noise", workers]
    assert subprocess.run([sys.executable, "-c", code, *command], check=False).returncode == 2
    told = capfd.readouterr().err
    assert [line.partition(" ")[0] for line in told.splitlines()] == [
        "corrupting",
        "holdfast:",
    ]
    assert "cannot be written (File too large); solve that and rerun to resume" in told
    assert not list((tmp_path / "out").rglob(".*.tmp"))
    assert main(command) == 0


def test_a_target_that_cannot_be_written_or_read_is_one_sentence(source, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for target, reason in [(tmp_path / "file", "File exists"), (tmp_path / "file" / "x", "Not a directory")]:
        assert run(source, target, "--workers=1") == 2
        assert f"cannot be written ({reason})" in capsys.readouterr().err
    for number, content in enumerate([b"", b"[]", b'{"cells": 3}', b"\xff", b"[" * 100_000]):
        target = tmp_path / str(number)
        target.mkdir()
        (target / "manifest.json").write_bytes(content)
        assert run(source, target, "--workers=1") == 2
        assert "manifest" in capsys.readouterr().err
        assert [path.name for path in target.iterdir()] == ["manifest.json"]


def test_rotated_photographs_are_counted_once_and_turned_when_asked(source, tmp_path, capsys):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(photograph(40, 60)).save(source / "turned.jpg", exif=exif)
    assert run(source, tmp_path / "out", "--workers=2") == 0
    assert "1 image has an EXIF rotation" in capsys.readouterr().err
    assert Image.open(tmp_path / "out/fog/2/turned.png").size == (60, 40)
    assert run(source, tmp_path / "upright", "--workers=1", "--exif=apply") == 0
    assert Image.open(tmp_path / "upright/fog/2/turned.png").size == (40, 60)
    assert run(source, tmp_path / "upright", "--workers=1") == 2
    assert "was made with exif apply, not ignore" in capsys.readouterr().err


def test_unreadable_images_are_listed_and_the_rest_is_done(source, tmp_path, capsys):
    (source / "broken.png").write_bytes(b"\x89PNG not really")
    (source / "cut.jpg").write_bytes((source / "deep/c.jpg").read_bytes()[:300])
    Image.fromarray(photograph(64, 64)[:20]).save(source / "small.png")
    Image.fromarray(np.zeros((40, 40), np.float32)).save(source / "floats.tiff")
    for workers in ("--workers=1", "--workers=2"):
        assert run(source, tmp_path / "out", workers) == 1
        told = capsys.readouterr()
        assert "4 of 8 images could not be corrupted" in told.err
        assert "  small.png: image: expected at least 32 pixels on each side, got 20×64" in told.err
        assert "  floats.tiff: expected 8 or 16 bits per channel, got floats" in told.err
        assert "  broken.png: not an image of the formats JPEG, PNG" in told.err
        assert len(list((tmp_path / "out").rglob("*.png"))) == 16
    failed = json.loads((tmp_path / "out/manifest.json").read_text())["failed"]
    assert set(failed) == {"broken.png", "cut.jpg", "small.png", "floats.tiff"}


def test_manifest_says_how_the_folder_was_made(source, tmp_path, capsys):
    target = tmp_path / "out"
    assert run(source, target, "--workers=1", "--seed=5", "--format=jpeg:85") == 0
    manifest = json.loads((target / "manifest.json").read_text())
    assert (manifest["seed"], manifest["preset"], manifest["quality"]) == (5, "any", 85)
    assert {"holdfast", "numpy", "opencv", "pillow", "scipy"} <= set(manifest["versions"])
    assert manifest["cells"] == ["fog/2", "fog/4", "gaussian_noise/2", "gaussian_noise/4"]
    assert run(source, target, "--workers=1", "--seed=6", "--format=jpeg:85") == 2
    assert "was made with seed 5, not 6; name another folder" in capsys.readouterr().err
    assert main(["corrupt", str(source), str(target), "--kinds=snow", "--seed=5", "--format=jpeg:85"]) == 0
    assert "snow/1" in json.loads((target / "manifest.json").read_text())["cells"]
    assert (target / "fog/2/deep/c.jpg").exists()


def test_procedural_frost_has_its_own_folder(source, tmp_path):
    options = ["--kinds=frost", "--severity=3", "--workers=1", "--frost=procedural"]
    assert main(["corrupt", str(source), str(tmp_path / "out"), *options]) == 0
    assert {path.split("/")[0] for path in digests(tmp_path / "out")} == {"frost(procedural)"}
    assert json.loads((tmp_path / "out/manifest.json").read_text())["frost"] == "frost(procedural)"


@pytest.mark.parametrize(("preset", "side"), [("imagenet", 224), ("inception", 299), ("tiny", 64)])
def test_presets_bring_photographs_to_their_size(preset, side, tmp_path):
    (tmp_path / "in").mkdir()
    Image.fromarray(photograph(300, 420)).save(tmp_path / "in/a.png")
    options = ["--kinds=contrast", "--severity=1", f"--preset={preset}", "--workers=1"]
    assert main(["corrupt", str(tmp_path / "in"), str(tmp_path / "out"), *options]) == 0
    assert Image.open(tmp_path / "out/contrast/1/a.png").size == (side, side)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--kinds=fogg"], "kinds: unknown corruption 'fogg'; did you mean 'fog'"),
        (["--severity=0-5"], "severity: expected whole numbers from 1 to 5 such as 3, 1-5 or 1,3,5, got '0-5'"),
        (["--severity=4-2"], "severity: expected whole numbers from 1 to 5"),
        (["--preset=imagnet"], "preset: expected one of imagenet, tiny, cifar, inception, any, got 'imagnet'"),
        (["--format=gif"], "format: expected png or jpeg:QUALITY with a quality from 1 to 100, got 'gif'"),
        (["--format=jpeg:101"], "format: expected png or jpeg:QUALITY"),
        (["--workers=-1"], "workers: expected 1 or more, got -1"),
        (["--kinds=frost", "--frost=nowhere"], "frost textures: expected the published frost1.png"),
        (["--seed=x"], "seed"),
        (["--exif=rotate"], "exif must be ignore or apply, got 'rotate'"),
    ],
)
def test_bad_options_are_one_sentence_and_exit_code_2(options, sentence, source, tmp_path, capsys):
    assert main(["corrupt", str(source), str(tmp_path / "out"), *options]) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert "Traceback" not in told
    assert not (tmp_path / "out").exists()


def test_bad_folders_are_one_sentence(source, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    shutil.copy(source / "a.png", source / "deep/c.png")
    for arguments, sentence in [
        ([tmp_path / "missing", tmp_path / "out"], "source: expected a folder of images"),
        ([tmp_path / "empty", tmp_path / "out"], "found none"),
        ([source, source / "out"], "target: expected a folder outside of"),
        ([source, tmp_path / "out"], "'deep/c.jpg' and 'deep/c.png' would both be written as 'deep/c.png'"),
    ]:
        assert main(["corrupt", *map(str, arguments)]) == 2
        assert sentence in capsys.readouterr().err


def test_help_and_listing_need_no_torch():
    code = (
        "import sys; from holdfast.cli.main import main; a = main(['corrupt', '--help']); "
        "b = main(['list', 'corruptions']); sys.exit(a or b or 'torch' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert "--severity" in told.stdout
    assert "jpeg_compression" in told.stdout


def test_listing_can_be_narrowed(capsys):
    assert main(["list", "corruptions", "*_noise"]) == 0
    told = capsys.readouterr().out
    assert "speckle_noise" in told
    assert "fog" not in told


def test_source_is_left_alone(source, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in Path(source).rglob("*")}
    assert run(source, tmp_path / "out", "--workers=1") == 0
    assert {path: path.stat().st_mtime_ns for path in Path(source).rglob("*")} == before
