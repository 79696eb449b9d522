"""What README and docs promise is there."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SUMMARIES = sorted((ROOT / "studies").glob("*/summary.md"))


def test_the_readmes_ten_lines_print_what_they_say(capsys):
    code = re.search(r"## Ten lines\n+```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]
    exec(compile(code, "README.md", "exec"), {})
    said = re.findall(r"print\(.*\)\s+# (.+)", code)
    assert len(said) == 3
    assert capsys.readouterr().out.splitlines() == said


@pytest.mark.parametrize("page", [*PAGES, *SUMMARIES], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_to_files_lead_somewhere(page):
    prose = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)
    targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", prose)
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []


def test_every_page_of_the_docs_is_in_the_navigation():
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    named = set(re.findall(r"[\w/-]+\.md", str(navigation)))
    assert named == {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_examples_are_valid_python(page):
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)):
        compile(code, f"{page.name}[{number}]", "exec")


def test_commands_in_the_readme_exist():
    from holdfast.cli.main import COMMANDS

    named = set(re.findall(r"^holdfast (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert named == set(COMMANDS)
