"""What a stranger gets: lazy imports, registration with timm, and a wheel that has everything in it."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.reporting.helpers import make_records

ROOT = Path(__file__).parents[2]


def python(script: str, *, interpreter: str = sys.executable, cwd: Path | None = None) -> subprocess.CompletedProcess:
    return subprocess.run([interpreter, "-c", script], capture_output=True, text=True, check=False, cwd=cwd)


@pytest.mark.parametrize("order", ["import timm, holdfast", "import holdfast, timm", "import holdfast.models, timm"])
def test_import_registers_the_models_in_any_order(order):
    done = python(f"{order}; assert timm.is_model('fan_nano'); print(timm.create_model('fan_nano').num_classes)")
    assert (done.stdout.strip(), done.returncode) == ("10", 0), done.stderr


def test_import_alone_loads_no_torch():
    check = "assert not {'torch', 'timm'} & set(sys.modules); print(dir(holdfast))"
    script = f"import sys, holdfast, holdfast.corruptions; {check}"
    done = python(script)
    assert done.returncode == 0, done.stderr
    assert "watch" in done.stdout


def test_the_packages_are_attributes_and_nothing_else_leaks():
    import holdfast

    assert holdfast.corruptions.corrupt
    assert holdfast.tasks.register_task
    assert holdfast.metrics.compare
    assert not {"Any", "importlib", "register_models", "TYPE_CHECKING"} & set(dir(holdfast))


def test_what_the_api_promises_is_there():
    import holdfast
    from holdfast.models import model_names

    assert all(getattr(holdfast, name) is not None for name in dir(holdfast))
    assert holdfast.list_models() == model_names()
    assert holdfast.list_models("tap_rvt_*_plus") == ["tap_rvt_tiny_plus", "tap_rvt_small_plus", "tap_rvt_base_plus"]
    assert holdfast.corrupt is holdfast.corruptions.corrupt
    assert holdfast.compare is holdfast.metrics.compare
    assert holdfast.load_records is holdfast.records.load_records


@pytest.mark.parametrize("what", ["models", "suites", "corruptions", "data", "recipes", "studies", "methods"])
def test_lists_need_no_torch(what):
    script = f"""
import sys
from holdfast.cli.main import main
assert main(["list", {what!r}]) == 0
assert not {{"torch", "timm"}} & set(sys.modules), "torch was imported"
"""
    done = python(script)
    assert done.returncode == 0, done.stderr


def test_lines_of_methods_are_those_of_the_methods():
    from holdfast.methods import methods
    from holdfast.registry import METHOD_LINES

    assert methods() == METHOD_LINES


def test_reading_records_and_their_scores_needs_no_torch(tmp_path):
    folder = make_records(tmp_path, hold=1.0, cells=("clean", "fog/3"))
    script = f"""
import sys
from holdfast.records import load_records
from holdfast.reporting.export import export
records = load_records({str(folder)!r})
assert "clean" in export(records, "md")
assert records[0].cells["clean"].accuracy > 0.9
assert not {{"torch", "timm"}} & set(sys.modules)
"""
    done = python(script)
    assert done.returncode == 0, done.stderr


def test_models_are_registered_also_if_somebody_only_looked_whether_timm_is_there():
    done = python(
        "import importlib.util, holdfast; assert all(importlib.util.find_spec('timm') for _ in range(2)); "
        "import timm, sys; assert timm.is_model('fan_nano'); "
        "assert not [finder for finder in sys.meta_path if type(finder).__name__ == '_AfterTimm']"
    )
    assert done.returncode == 0, done.stderr


def test_unknown_attribute_is_an_attribute_error():
    import holdfast

    with pytest.raises(AttributeError, match="no attribute 'wach'"):
        holdfast.wach  # noqa: B018


def test_somebody_elses_holdfast_in_the_same_folder_is_named_in_one_sentence(tmp_path):
    """Both write into holdfast/: neither can be trusted then."""
    (tmp_path / "holdfast").symlink_to(ROOT / "src" / "holdfast")
    (tmp_path / "holdfast_vision-0.1.0.dist-info").mkdir()
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import holdfast; print(holdfast.__version__)"
    assert python(script).stderr == ""
    (tmp_path / "holdfast-1.4.2.dist-info").mkdir()
    done = python(script)
    assert done.returncode == 0
    assert "holdfast 1.4.2 from PyPI, an unrelated package, is installed over holdfast-vision" in done.stderr
    assert "`pip uninstall holdfast`" in done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def test_wheel_holds_all_files_of_the_package(wheel):
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("holdfast/")}
    source = ROOT / "src"
    expected = {
        path.relative_to(source).as_posix()
        for path in (source / "holdfast").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert expected <= shipped


def test_wheel_works_in_another_environment(wheel, tmp_path):
    """Installed elsewhere, with the heavy packages of this environment within reach but not our source tree."""
    venv.create(tmp_path / "env", with_pip=True)
    interpreter = str(tmp_path / "env" / "bin" / "python")
    pip = [interpreter, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    here = python("import sysconfig; print(sysconfig.get_paths()['purelib'])").stdout.strip()
    there = Path(
        python("import sysconfig; print(sysconfig.get_paths()['purelib'])", interpreter=interpreter).stdout.strip()
    )
    # a plain path file, read without running the editable install's own one
    (there / "heavy.pth").write_text(here + "\n")

    location = python("import holdfast; print(holdfast.__file__)", interpreter=interpreter, cwd=tmp_path)
    assert Path(location.stdout.strip()).is_relative_to(there), location.stderr
    listed = {"models": "fan_nano_hybrid", "recipes": "digits/fan_nano", "corruptions": "glass_blur"}
    for what, name in listed.items():
        command = [str(tmp_path / "env" / "bin" / "holdfast"), "list", what]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert name in done.stdout
