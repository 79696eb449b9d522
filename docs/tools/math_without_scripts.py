"""A hook of the documentation's build: formulas become MathML, which browsers draw by themselves, without a network."""

import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(html: str, **_: Any) -> str:
    """Every formula of a page."""
    return FORMULA.sub(lambda found: formula(unescape(found[3]), block=found[2] == "["), html)


def formula(latex: str, *, block: bool) -> str:
    """One formula, on a line of its own or within one."""
    return convert(" ".join(latex.split()), display="block" if block else "inline")
