"""Jinja templates of the lab, with autoescaping."""

from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


@cache
def _environment() -> Environment:
    loader = PackageLoader("holdfast.lab", "pages")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["percent"] = lambda share: f"{100 * share:.1f} %"
    return environment


def fragment(template: str, /, **values: Any) -> str:
    """Render a template with its values."""
    return _environment().get_template(template).render(**values)


def asset(name: str) -> str:
    """Read a script or style sheet of the page."""
    return (files("holdfast.lab") / "pages" / name).read_text(encoding="utf-8")
