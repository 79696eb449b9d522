"""The GitHub action: its steps run here, with a stand-in for GitHub's own command."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from PIL import Image

import holdfast
from holdfast.cli.main import main
from holdfast.lab.shipped import SHIPPED

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = {step.get("name", step.get("uses")): step for step in ACTION["runs"]["steps"]}
GH = f"""#!{sys.executable}
import os, sys
open(os.environ["CALLS"], "a").write(" ".join(sys.argv[1:]) + chr(10))
if "--paginate" in sys.argv:
    print(os.environ.get("EARLIER", ""))
sys.exit(1 if "git/ref/heads" in " ".join(sys.argv) else 0)
"""
HOLDFAST = f"""#!{sys.executable}
from holdfast.cli.main import entry_point
entry_point()
"""

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="the action's steps are scripts of bash")


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    """A folder with the commands that the steps call."""
    root = tmp_path_factory.mktemp("repository")
    (root / "bin").mkdir()
    for name, text in (("gh", GH), ("holdfast", HOLDFAST)):
        (root / "bin" / name).write_text(text)
        (root / "bin" / name).chmod(0o755)
    return root


@pytest.fixture(scope="module")
def place(tools):
    """A repository with a baseline and two models, one as good as it, one that knows nothing."""
    root = tools
    shutil.copytree(SHIPPED, root / "good")
    holdfast.evaluate(root / "good", "digits:test", "quick", limit=40, workers=0)
    assert main(["gate", str(root / "good"), "--save", str(root / "baseline.json")]) == 0
    shutil.copytree(root / "good", root / "worse", ignore=shutil.ignore_patterns("records"))
    from safetensors.torch import load_file, save_file

    state = load_file(root / "good" / "model.safetensors")
    save_file({name: value * 0 for name, value in state.items()}, root / "worse" / "model.safetensors")
    return root


def step(name, place, folder, **variables):
    environment = {**os.environ, "PATH": f"{place / 'bin'}:{os.environ['PATH']}", "FOLDER": str(folder), **variables}
    environment |= {"GITHUB_OUTPUT": str(folder / "output"), "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    environment |= {"CALLS": str(folder / "calls"), "GITHUB_RUN_ID": "7", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]["run"]]  # as GitHub runs bash
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)


GATE = {"AGAINST": "baseline.json", "DATA": "", "RULES": "", "OPTIONS": "--margin 5 --workers 0 --unresolved pass"}
COMMENT = {"REPOSITORY": "me/mine", "NUMBER": "3", "COMMIT": "abc", "RUN": "https://x/run", "SERVER": "https://x"}


@pytest.mark.full
@pytest.mark.parametrize(("model", "passed", "code"), [("good", "true", "0"), ("worse", "false", "1")])
def test_the_gate_writes_verdict_table_pictures_and_report(place, tmp_path, model, passed, code):
    done = step("Gate", place, tmp_path, MODEL=f"run:{model}", **GATE)
    assert done.returncode == 0, done.stderr  # the last step fails, after the comment
    output = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines())
    assert (output["passed"], output["code"], output["folder"]) == (passed, code, str(tmp_path))
    table = (tmp_path / "gate.md").read_text()
    assert ("**PASS" if passed == "true" else "**FAIL") in table
    assert "| clean no worse |" in table
    assert table in (tmp_path / "summary.md").read_text()
    suites = ElementTree.parse(tmp_path / "gate.xml").getroot()
    assert (int(suites.get("failures")) == 0) == (passed == "true")
    assert "<html" in (tmp_path / "report.html").read_text()
    with Image.open(tmp_path / "failures.png") as picture:
        assert picture.width > 500
    assert step("Verdict", place, tmp_path, CODE=code).returncode == int(code)


def test_the_comment_has_verdict_table_and_pictures(tools, tmp_path):
    (tmp_path / "gate.md").write_text("## Robustness gate\n\n**FAIL: 1 of 2 rules failed**\n")
    Image.new("RGB", (8, 8)).save(tmp_path / "failures.png")
    done = step("Comment", tools, tmp_path, BRANCH="pictures", **COMMENT)
    assert done.returncode == 0, done.stderr
    comment = (tmp_path / "comment.md").read_text()
    assert comment.startswith("## Robustness gate\n\n**FAIL")
    assert (
        "![Failures: condition, true class → prediction](https://x/me/mine/raw/pictures/gate/3-abc-7-1.png)" in comment
    )
    assert "[artifacts of this run](https://x/run)" in comment
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[1] == "api repos/me/mine/git/refs -f ref=refs/heads/pictures -f sha=abc"
    assert re.match(r"api --method PUT repos/me/mine/contents/gate/3-abc-7-1.png --input ", calls[2])
    assert calls[3].startswith("api --paginate repos/me/mine/issues/3/comments --jq ")
    assert calls[4].startswith("pr comment 3 --repo me/mine --body-file")
    assert set(json.loads((tmp_path / "upload.json").read_text())) == {"message", "branch", "content"}


def test_without_a_branch_the_comment_points_to_the_artifact(tools, tmp_path):
    (tmp_path / "gate.md").write_text("## Robustness gate\n")
    done = step("Comment", tools, tmp_path, BRANCH="", **COMMENT)
    assert done.returncode == 0, done.stderr
    assert "![" not in (tmp_path / "comment.md").read_text()
    assert len((tmp_path / "calls").read_text().splitlines()) == 2


def test_the_action_edits_its_own_comment_and_no_other(tools, tmp_path):
    (tmp_path / "gate.md").write_text("## Robustness gate\n")
    done = step("Comment", tools, tmp_path, BRANCH="", EARLIER="17\n42", **COMMENT)
    assert done.returncode == 0, done.stderr
    search, edit = (tmp_path / "calls").read_text().splitlines()
    mark = re.search(r'contains\("(.+)"\)', search)[1]
    assert (tmp_path / "comment.md").read_text().rstrip().endswith(mark)
    assert edit == f"api --method PATCH repos/me/mine/issues/comments/42 -F body=@{tmp_path}/comment.md"


@pytest.mark.full
def test_a_gate_that_cannot_be_run_says_so_in_the_comment(place, tmp_path):
    done = step("Gate", place, tmp_path, MODEL="run:nowhere", **GATE)
    assert done.returncode == 0, done.stderr
    assert "code=2" in (tmp_path / "output").read_text()
    told = (tmp_path / "gate.md").read_text()
    assert "**ERROR**" in told
    assert "nowhere" in told


def test_every_input_is_used_and_documented():
    text, page = (ROOT / "action.yml").read_text(), (ROOT / "docs" / "production.md").read_text()
    for name in ACTION["inputs"]:
        assert f"inputs.{name}" in text
        assert f"`{name}`" in page
    workflow = yaml.safe_load(re.search(r"```yaml\n(name: robustness.*?)```", page, re.DOTALL)[1])
    (job,) = workflow["jobs"].values()
    first = (ROOT / "docs" / "first-ci-check.md").read_text()
    short = yaml.safe_load(re.search(r"```yaml\n(name: robustness.*?)```", first, re.DOTALL)[1])
    for step in (job["steps"][1], short["jobs"]["gate"]["steps"][1]):
        assert {name for name, about in ACTION["inputs"].items() if about.get("required")} <= set(step["with"])
        assert set(step["with"]) <= set(ACTION["inputs"])
    assert yaml.safe_load(re.search(r"```yaml\n(robustness:.*?)```", page, re.DOTALL)[1])
    assert len(re.search(r"```yaml\n(robustness:.*?)```", page, re.DOTALL)[1].splitlines()) <= 5
