"""What README and docs promise is there."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from holdfast.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SUMMARIES = sorted((ROOT / "studies").glob("*/summary.md"))


def test_the_ten_lines_of_the_home_page_print_what_they_say(capsys):
    page = (ROOT / "docs" / "index.md").read_text()
    code = re.search(r"## Ten lines of Python\n+```python\n(.*?)```", page, re.DOTALL)[1]
    exec(compile(code, "index.md", "exec"), {})
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
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text().replace("!ENV ", ""))["nav"]
    named = set(re.findall(r"[\w/-]+\.md", str(navigation)))
    assert named == {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_examples_are_valid_python(page):
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)):
        assert compile(code, f"{page.name}[{number}]", "exec").co_filename


GOALS = ["Measure my model", "Make it hold", "See why it fails", "Compare and ship", "Bring your own"]


def test_the_readme_is_short_and_has_five_goals_with_a_command_each():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    goals = re.findall(
        r"^\*\*([\w ]+)\.\*\*(?:(?!^\*\*|^## ).)*?```bash\nholdfast (\w+)", text, re.MULTILINE | re.DOTALL
    )
    assert [goal for goal, _ in goals] == GOALS
    assert {command for _, command in goals} <= set(COMMANDS)


def test_the_home_page_has_the_goals_of_the_readme():
    text = (ROOT / "docs" / "index.md").read_text()
    assert re.findall(r"^### (.+)$", text, re.MULTILINE) == GOALS
    for section in text.split("\n### ")[1:]:
        assert re.search(r"```bash\nholdfast \w+", section), section.splitlines()[0]


def test_every_install_line_works_from_a_clone():
    lines = [line for page in PAGES for line in re.findall(r"pip install .*", page.read_text())]
    assert [line for line in lines if "holdfast-vision" in line] == []


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_a_page_has_at_most_2500_words_of_prose(page):
    """Tables, code and comments do not count."""
    text = re.sub(r"```.*?```|<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    prose = [line for line in text.splitlines() if not line.lstrip().startswith(("|", "!["))]
    assert len(" ".join(prose).split()) <= 2500


def test_the_navigation_has_six_groups():
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text().replace("!ENV ", ""))["nav"]
    assert [next(iter(group)) for group in navigation] == [
        "Start",
        "Guides",
        "Methods",
        "Results",
        "Extend",
        "Reference",
    ]


def test_the_table_of_extras_is_complete():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "install.md").read_text(), re.MULTILINE)
    assert rows == sorted(extras)


def test_docstrings_are_markdown_as_the_reference_pages_show_them():
    """The site would print a role of Sphinx, such as :func:, as it stands."""
    role = re.compile(r":(func|class|meth|mod|attr|data|exc):`")
    assert [str(path) for path in sorted((ROOT / "src").rglob("*.py")) if role.search(path.read_text())] == []
