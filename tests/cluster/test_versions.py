"""A driver and workers with different versions of Holdfast: one sentence, never an error of unpickling."""

import importlib
import subprocess
import sys

import pytest

from holdfast._version import __version__

pickle = pytest.importorskip("ray.cloudpickle", reason="the extra ray is not installed: pip install ray")
WORKER = """
import pickle, sys
run, arguments = pickle.load(open(sys.argv[1], "rb"))
print(run(*arguments))
"""


def answer_of_a_worker(tmp_path, files):
    """What a worker with these modules of Holdfast returns for a task that is handed over here."""
    from holdfast.corruptions.corrupt_folder_ray import corrupt_files
    from holdfast.runtime.ray import Cluster, worker_function, worker_setup

    package = tmp_path / "site" / "holdfast"
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    task = tmp_path / "task.pkl"
    here = pickle.dumps(worker_setup(Cluster()))
    task.write_bytes(pickle.dumps((worker_function(), (__version__, here, pickle.dumps((corrupt_files, ()))))))
    environment = {"PYTHONPATH": str(tmp_path / "site"), "PATH": "/usr/bin"}
    done = subprocess.run(
        [sys.executable, "-c", WORKER, str(task)], check=False, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_worker_of_another_version_says_which_it_has_and_which_it_needs(tmp_path):
    answer = answer_of_a_worker(tmp_path, {"__init__.py": "", "_version.py": "__version__ = '9.8.7'\n"})
    assert answer.startswith("driver and workers must have the same version of Holdfast: 9.8.7 is installed on ")
    assert answer.endswith(f", and the driver has {__version__}")


def test_a_worker_of_the_same_version_with_other_modules_is_named(tmp_path):
    answer = answer_of_a_worker(tmp_path, {"__init__.py": "", "_version.py": f"__version__ = {__version__!r}\n"})
    assert answer.startswith(f"driver and workers must have the same version of Holdfast: another {__version__} is ")
    assert "holdfast.runtime" in answer


def test_a_worker_with_the_same_holdfast_does_the_task():
    from holdfast.runtime.ray import Cluster, worker_function, worker_setup

    here, packed = pickle.dumps(worker_setup(Cluster())), pickle.dumps((len, ("abc",)))
    assert worker_function()(__version__, here, packed).result == 3


def test_a_task_that_needs_a_module_which_the_worker_lacks_is_a_sentence(tmp_path, monkeypatch):
    from holdfast.runtime.ray import Cluster, worker_function, worker_setup

    (tmp_path / "only_here.py").write_text("def work():\n    return 1\n")
    here = pickle.dumps(worker_setup(Cluster()))
    with monkeypatch.context() as there:
        there.syspath_prepend(str(tmp_path))
        packed = pickle.dumps((importlib.import_module("only_here").work, ()))
    monkeypatch.delitem(sys.modules, "only_here")
    done = worker_function()(__version__, here, packed)
    assert done.sentence.startswith("driver and workers must have the same version of Holdfast and of all that a task ")
    assert "only_here" in done.sentence
