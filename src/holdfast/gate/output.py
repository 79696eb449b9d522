"""Verdicts of a gate as a text table, as Markdown for a summary page, and as JUnit XML for CI."""

import textwrap
from collections.abc import Sequence
from math import isnan
from xml.etree import ElementTree

from holdfast.gate.rules import SHOWN
from holdfast.gate.verdicts import RuleVerdict, all_passed
from holdfast.io.markdown import escape, printable, table
from holdfast.metrics.summary import some
from holdfast.reporting.formatting import NOT_MEASURED, number, signed, span

_COLUMNS = ("rule", "baseline", "now", "difference", "95 % interval", "verdict", "")


def terminal(answers: Sequence[RuleVerdict], *, width: int | None = None) -> str:
    """Format a table for every data set, the reasons below it, and the outcome.

    Where the table is wider than ``width`` characters, every rule is a sentence instead.
    """
    lines = []
    for held in _by_data(answers).values():
        aligned = _align_columns([_columns(held), *map(_row, held)])
        reasons = [f"  {printable(f'{answer.rule.text}: {answer.reason}')}" for answer in held if answer.reason]
        if width is not None and max(map(len, aligned)) > width:
            aligned, reasons = [f"{_passed(answer):<6}{printable(sentence(answer))}" for answer in held], []
        notes = [f"  {printable(line)}" for line in (*unreadable(held[0]), *carried(held[0]))]
        lines += [printable(_heading(held[0])), *aligned, *reasons, *notes]
    return "\n".join(wrapped for line in [*lines, outcome(answers)] for wrapped in _wrap(line, width))


def _wrap(text: str, width: int | None) -> list[str]:
    """Lines of at most ``width`` characters; continued ones are indented."""
    if width is None or len(text) <= width:
        return [text]
    return textwrap.wrap(text, width, subsequent_indent=" " * 6, break_on_hyphens=False)


def markdown(answers: Sequence[RuleVerdict]) -> str:
    """Format the verdicts and the outcome as Markdown."""
    lines = ["## Robustness gate", "", f"**{outcome(answers)}**", ""]
    for held in _by_data(answers).values():
        lines += [escape(_heading(held[0])), ""]
        lines += [table(_columns(held), [[escape(cell) for cell in _row(answer)] for answer in held]), ""]
        lines += [f"- {escape(answer.rule.text)}: {answer.reason}" for answer in held if answer.reason]
        lines += [f"- {escape(line)}" for line in (*unreadable(held[0]), *carried(held[0]))]
    return "\n".join(lines).rstrip() + "\n"


def junit(answers: Sequence[RuleVerdict]) -> str:
    """Format the verdicts as JUnit XML: a test suite per data set, a test case per rule."""
    root = ElementTree.Element("testsuites", {"name": "holdfast gate", **_counts(answers)})
    for data, held in _by_data(answers).items():
        suite = ElementTree.SubElement(root, "testsuite", {"name": printable(data), **_counts(held)})
        for answer in held:
            case = ElementTree.SubElement(
                suite, "testcase", classname=f"holdfast.gate.{printable(data)}", name=printable(answer.rule.text)
            )
            if answer.verdict == SHOWN:
                ElementTree.SubElement(case, "skipped", message=printable(sentence(answer)))
            elif not answer.passed:
                ElementTree.SubElement(case, "failure", message=printable(sentence(answer)), type=answer.verdict)
            else:
                ElementTree.SubElement(case, "system-out").text = printable(sentence(answer))
        used = [text for text in (held[0].answers, held[0].passes) if text]
        if lines := [*used, *unreadable(held[0]), *carried(held[0])]:
            ElementTree.SubElement(suite, "system-out").text = printable("; ".join(lines))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def sentence(answer: RuleVerdict) -> str:
    """One verdict in words."""
    _, old, new, difference, bounds, verdict, _ = _row(answer)
    values = f"{new}" if isnan(answer.old) else f"{old} before, {new} now, {difference}"
    text = f"{answer.rule.text}: {verdict} ({values} [{bounds}] {answer.unit})"
    return f"{text}; {answer.reason}" if answer.reason else text


def unreadable(answer: RuleVerdict) -> list[str]:
    """Images that are excluded from both models, because one evaluation could not read them."""
    names_by_model = {"unreadable in the baseline": answer.unreadable_before, "unreadable now": answer.unreadable}
    return [f"{where}: {some(names)}" for where, names in names_by_model.items() if names]


def carried(answer: RuleVerdict) -> list[str]:
    """Whether a gain on C carries over to C-bar, where the data have both."""
    return [str(answer.carry_over)] if answer.carry_over is not None else []


def outcome(answers: Sequence[RuleVerdict]) -> str:
    """The outcome of all tested rules in one line."""
    tested = [answer for answer in answers if answer.verdict != SHOWN]
    failed = [answer for answer in tested if not answer.passed]
    if all_passed(answers):
        return f"PASS: all {len(tested)} rules passed" if len(tested) != 1 else "PASS: the rule passed"
    return f"FAIL: {len(failed)} of {len(tested)} rules failed"


def _row(answer: RuleVerdict) -> list[str]:
    digits = 2 if answer.unit.startswith("%") else 4
    bound = isnan(answer.old)
    low, high = answer.interval.low, answer.interval.high
    bounds = NOT_MEASURED if isnan(low) else span(low, high, digits=digits)
    return [
        printable(answer.rule.text),
        NOT_MEASURED if bound else number(answer.old, digits=digits),
        number(answer.new, digits=digits),
        NOT_MEASURED if bound else signed(answer.interval.value, digits=digits),
        bounds,
        answer.verdict,
        _passed(answer),
    ]


def _columns(answers: Sequence[RuleVerdict]) -> tuple[str, ...]:
    """Headings; the interval of a gate that stops early is wider, because it is looked at after every round."""
    wider = any(answer.interval.level != 0.95 for answer in answers)
    return tuple("interval" if wider and "interval" in name else name for name in _COLUMNS)


def _heading(answer: RuleVerdict) -> str:
    used = f", {answer.passes} of the new model" if answer.passes else ""
    answers = f", {answer.answers}" if answer.answers else ""
    return f"{answer.data}, {answer.images} images{answers}{used}"


def _passed(answer: RuleVerdict) -> str:
    return "" if answer.verdict == SHOWN else "ok" if answer.passed else "FAIL"


def _by_data(answers: Sequence[RuleVerdict]) -> dict[str, list[RuleVerdict]]:
    found: dict[str, list[RuleVerdict]] = {}
    for answer in answers:
        found.setdefault(answer.data, []).append(answer)
    return found


def _counts(answers: Sequence[RuleVerdict]) -> dict[str, str]:
    failures = sum(not answer.passed for answer in answers)
    shown = sum(answer.verdict == SHOWN for answer in answers)
    return {"tests": str(len(answers)), "failures": str(failures), "errors": "0", "skipped": str(shown)}


def _align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    right = (1, 2, 3)
    return [
        "  ".join(
            cell.rjust(w) if place in right else cell.ljust(w)
            for place, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
