"""Model cards for the Hugging Face Hub from a run's files: scores with definitions, training and limitations.

The header (``model-index``) is written and checked by the classes of huggingface_hub.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import isnan
from pathlib import Path
from typing import Any

import matplotlib
import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from matplotlib.figure import Figure

from holdfast.errors import HoldfastError
from holdfast.io import atomic
from holdfast.io.markdown import escape, table
from holdfast.metrics.comparison import compare
from holdfast.metrics.multiple_tests import IMAGES, NOT_RESOLVED, WORSE, verdicts
from holdfast.metrics.scoring.registry import scoring_of
from holdfast.metrics.summary import Score
from holdfast.plotting.style import colour
from holdfast.records.class_map import class_map_words
from holdfast.registry import model_spec
from holdfast.reporting.comparable import DataSet, data_sets
from holdfast.reporting.figures import charts
from holdfast.reporting.figures.severity import severity_curve
from holdfast.reporting.formatting import (
    NOT_MEASURED,
    clean_name,
    difference_text,
    kind_label,
    list_names,
    number,
    span,
    title_of,
)
from holdfast.reporting.quantities import is_headline, is_tested, words_of
from holdfast.reporting.runs import Run, read_runs


def card_figures(data: DataSet, folder: Path) -> dict[str, str]:
    """Write the figures as PNG and return their captions by file name; none without corrupted images."""
    entry = data.baseline
    found: dict[str, str] = {}
    curve = severity_curve(entry) if scoring_of(entry.records.task).one_class else None
    if curve is not None:
        caption = "Mean accuracy over 15 corruptions by severity; the band is a 95 % interval."
        found[
            _write_figure(charts.severity_curves([curve.line("proportion")]), folder / "robustness-by-severity.png")
        ] = caption
    kinds = [score for score in entry.summary if score.family == "corruption" and score.table and not score.partial]
    kinds = [score for score in kinds if score.table == kinds[0].table and not isnan(score.value)]
    if kinds:
        words = title_of(words_of(entry.records.task))
        caption = f"{words} per corruption, mean over severities, with 95 % intervals."
        found[_write_figure(_by_kind(kinds), folder / "robustness-by-kind.png")] = caption
    return found


def _by_kind(scores: list[Score]) -> Figure:
    figure = Figure(figsize=(5.2, 0.8 + 0.24 * len(scores)), layout="constrained")
    axes = figure.subplots()
    for place, score in enumerate(scores):
        axes.plot([score.low, score.high], [place, place], color=colour(0), linewidth=1.6)
        axes.plot(score.value, place, marker="o", markersize=5, color=colour(0))
    axes.set_yticks(range(len(scores)), [kind_label(score.kind) for score in scores])
    axes.set_ylim(len(scores) - 0.4, -0.6)
    axes.set_xlabel(f"{scores[0].table}, {scores[0].unit}")
    axes.grid(visible=True, axis="x", alpha=0.3)
    return figure


def _write_figure(figure: Figure, path: Path) -> str:
    with matplotlib.rc_context({"text.parse_math": False}), atomic.replace_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150, facecolor="white")
    return path.name


FILE = "README.md"
MARK = "<!-- written by `holdfast card` -->"
PIPELINES = {
    "classification": "image-classification",
    "segmentation": "image-segmentation",
    "detection": "object-detection",
}
BY_KIND = ("domain", "shape_bias")  # tables with a row per kind, beside those of corruptions
WEIGHTS = ("config.json", "model.safetensors")
_FOLDERS = re.compile(
    r"(?<![\w.])(?:~|\.{1,2})?/(?:[^\s,'\"+:]*/)?"
)  # the folders of a path, which are private and useless to readers of a card


def write_card(
    run: Path | str, out: Path | str | None = None, *, name: str | None = None, license: str | None = None
) -> tuple[Path, str]:
    """Write ``README.md`` and its figures; return the file and the command that uploads it.

    Args:
        run: a run's folder with records.
        out: the folder to write to; by default the run's.
        name: the model's name in the card; by default the folder's name.
        license: licence identifier of the Hub, such as ``apache-2.0``.
    """
    read, *others = read_runs([run], names=[name] if name else ())
    if others:
        raise HoldfastError(f"a card needs one run, but {str(run)!r} holds {1 + len(others)}; give one of them")
    sets = data_sets([read])
    if not sets:
        raise HoldfastError(f"a card needs records, but {str(run)!r} has none; run `holdfast evaluate` first")
    folder = Path(out if out is not None else run).expanduser()
    path = folder / FILE
    if path.exists() and MARK not in path.read_text(encoding="utf-8", errors="replace"):
        raise HoldfastError(f"{str(path)!r} exists and was not written by `holdfast card`; move it or choose --out")
    folder.mkdir(parents=True, exist_ok=True)
    figures = card_figures(sets[0], folder)
    text = card_text(read, sets, figures=figures, license=license)
    atomic.write_text(path, text)
    return path, _upload(read, folder, figures)


def card_text(
    run: Run, sets: Sequence[DataSet], *, figures: Mapping[str, str] | None = None, license: str | None = None
) -> str:
    """Render the card and check its header by parsing it."""
    data = ModelCardData(
        model_name=run.name,
        license=license,
        library_name="timm" if _is_timm(run) else None,
        pipeline_tag=PIPELINES.get(sets[0].task),
        tags=["holdfast", "robustness", "vision"],
        eval_results=[result for each in sets for result in _results(each)],
    )
    body = "\n\n".join(part for part in _parts(run, sets, figures or {}) if part)
    text = f"---\n{data.to_yaml()}\n---\n{MARK}\n\n{body}\n"
    read: Any = ModelCard(text).data
    if read.eval_results != data.eval_results:
        raise HoldfastError("the card's results must be parsed as written, but huggingface_hub reads other values")
    return text


def _results(data: DataSet) -> list[EvalResult]:
    """The headline scores of a data set, each with its definition and its interval."""
    entry = data.baseline
    header = entry.records.header
    return [
        EvalResult(
            task_type=PIPELINES.get(data.task, data.task),
            dataset_type=str(header.get("data_label", _plain(data.spec))),
            dataset_name=_plain(data.spec),
            dataset_config=_config(data),
            dataset_args={"images": entry.summary.images, "seed": header.get("seed")},
            metric_type=score.name,
            metric_name=score.label,
            metric_value=round(score.value, 2),
            metric_args={"unit": score.unit, "definition": score.definition, **_bounds(score)},
        )
        for score in entry.summary
        if is_headline(score, data.task) and not isnan(score.value)
    ]


def _config(data: DataSet) -> str:
    """What tells this record set from others on the same data: the Hub merges results of equal configurations."""
    header = data.baseline.records.header
    measured = f"{data.baseline.summary.images} images, seed {header.get('seed')}, records {header['fingerprint'][:8]}"
    parts = (f"{data.protocol}, preset {data.preset}", class_map_words(header), measured)
    return ", ".join(filter(None, parts))


def _bounds(score: Score) -> dict[str, float]:
    if isnan(score.low):
        return {}
    return {"low": round(score.low, 2), "high": round(score.high, 2)}


def _parts(run: Run, sets: Sequence[DataSet], figures: Mapping[str, str]) -> list[str]:
    size = f"{run.parameters / 1e6:.1f} million parameters" if run.parameters else ""
    description = ", ".join(part for part in (run.architecture or "", size) if part)
    return [
        f"# {escape(run.name)}",
        f"{escape(description)}. Its robustness was measured with Holdfast." if description else "",
        _usage(run),
        "## Intended use",
        _intended_use(sets),
        *_against_start(run, sets),
        "## Training",
        _training_text(run),
        *(part for data in sets for part in _results_text(data)),
        *(f"![{caption}]({file})\n\n{caption}" for file, caption in figures.items()),
        "## Limitations",
        _limits(run, sets),
    ]


def _intended_use(sets: Sequence[DataSet]) -> str:
    """What the model was measured for, and what these numbers do not support."""
    words = {
        "classification": "one class per image",
        "segmentation": "a class per pixel",
        "detection": "objects with boxes",
    }
    data = list_names([escape(_plain(each.spec)) for each in sets])
    what = words.get(sets[0].task, "what its task asks for")
    return (
        f"Predicting {what} on images like those of {data}, clean or disturbed as measured below. Other images, "
        "disturbances and attacks need a measurement of their own; a decision that matters for people needs more than "
        "these scores."
    )


def _against_start(run: Run, sets: Sequence[DataSet]) -> list[str]:
    """The gate's question against the run it started from: a verdict per quantity, corrected for their number."""
    start = _start(run)
    if start is None:
        return []
    tables = []
    for data in sets:
        old = next((each for each in data_sets([start]) if each.fingerprint == data.fingerprint), None)
        if old is None or not set(old.baseline.records.cells) & set(data.baseline.records.cells):
            continue
        comparison = compare(data.baseline.records, old.baseline.records)
        found = verdicts([each for each in comparison.differences.values() if is_tested(each, data.task)])
        rows = [
            [each.difference.label, number(each.difference.first), difference_text(each.difference.interval), each.word]
            for each in found
        ]
        passed = not any(each.word in (WORSE, NOT_RESOLVED) for each in found)
        said = "PASS: no worse in any of them." if passed else "Not shown to be no worse in all of them."
        if comparison.images < IMAGES:
            said = f"No verdict of a gate: {comparison.images} images, at least {IMAGES} are needed."
        head = ["score", "value", "difference (95 % interval)", "verdict"]
        tables += [f"On {escape(_plain(data.spec))}: {said}", _table(head, rows)] if found else []
    text = (
        f"Fine-tuned from `{escape(start.name)}`, on the same images. Verdicts are corrected for their number (Holm)."
    )
    return ["## Compared with its start", text, *tables] if tables else []


def _start(run: Run) -> Run | None:
    """The run whose weights this one started from, if its records are here."""
    model = run.recipe.get("model")
    spec = model_spec(str(model.get("init") or "")) if isinstance(model, Mapping) else None
    if spec is None or spec.kind != "run" or spec.folder is None or not spec.folder.is_dir():
        return None
    with suppress(HoldfastError):
        return read_runs([spec.folder])[0]
    return None


def _usage(run: Run) -> str:
    if not _is_timm(run):
        return ""
    lines = ["import holdfast, timm", 'model = timm.create_model("hf_hub:USER/NAME", pretrained=True).eval()']
    return "```python\n" + "\n".join(lines) + "\n```"


def _training_text(run: Run) -> str:
    if not run.recipe:
        return "Unknown: the run has no recipe."
    recipe = yaml.safe_dump(dict(run.recipe), sort_keys=False, allow_unicode=True)
    epochs = (run.recipe.get("train") or {}).get("epochs")
    line = f"Trained with `holdfast train` and this recipe{f', {epochs} epochs' if epochs else ''}:"
    return f"{line}\n\n<details><summary>recipe.yaml</summary>\n\n```yaml\n{_plain(recipe)}```\n\n</details>"


def _results_text(data: DataSet) -> list[str]:
    entry = data.baseline
    scores = [score for score in entry.summary if not score.table]
    kinds = [score for score in entry.summary if score.family == "corruption" and score.table and not score.partial]
    tables = dict.fromkeys(score.table for score in kinds)
    first = [score for score in kinds if score.table == next(iter(tables), "")]
    seed = entry.records.header.get("seed")
    passes = f"{entry.summary.passes}, " if entry.summary.passes is not None else ""
    answers = f"{words}, " if (words := class_map_words(entry.records.header)) else ""
    how = f"{entry.summary.images} images, {passes}{answers}{data.protocol}, preset {data.preset}, seed {seed}"
    title = f"## Robustness on {escape(_plain(data.spec))}\n\n{how}"
    by_kind = [[kind_label(score.kind), *_value(score)] for score in first]
    rows = [[score.label, *_value(score), score.definition] for score in scores]
    others = [
        _table([table.replace("_", " "), "value", "95 % interval"], [[kind_label(s.kind), *_value(s)] for s in held])
        for table in BY_KIND
        if (held := [score for score in entry.summary if score.table == table and not isnan(score.value)])
    ]
    return [
        f"{title}.",
        _table(["score", "value", "95 % interval", "definition"], rows),
        _table(["kind", "value", "95 % interval"], by_kind) if first else "",
        *others,
    ]


def _value(score: Score) -> list[str]:
    digits = 1 if score.unit.startswith("%") else 3
    bounds = NOT_MEASURED if isnan(score.low) else span(score.low, score.high, digits=digits)
    return [f"{number(score.value, digits=digits)} {score.unit}", bounds]


def _limits(run: Run, sets: Sequence[DataSet]) -> str:
    lines = ["Intervals cover the choice of images; training with another seed changes the scores more."]
    for data in sets:
        entry, where = data.baseline, _plain(data.spec)
        cells = [cell.spec for cell in entry.records.cells.values()]
        families = {"corruption": "corrupted images", "attack": "attacks", "sequence": "perturbation sequences"}
        missing = [words for family, words in families.items() if family not in {cell.family for cell in cells}]
        lines += [f"{where}: not measured: {', '.join(missing)}."] if missing else []
        partial = [score.label for score in entry.summary if score.partial and not score.table]
        lines += [f"{where}: partial scores: {', '.join(partial)}."] if partial else []
        lines += [f"{where}: {entry.summary.excluded} images could not be read."] if entry.summary.excluded else []
        if data.protocol == "on-the-fly" and "corruption" in {cell.family for cell in cells}:
            lines.append(f"{where}: images were corrupted on the fly, not read from the distributed set.")
        if "procedural" in str(entry.records.header.get("frost", "")):
            lines.append(f"{where}: frost uses a procedural texture, not the published photographs.")
        lines += [f"{where}: {score.label}: {score.note}." for score in entry.summary if score.note and not score.table]
    lines.append("The corruptions and attacks above do not cover everything that can happen to an image.")
    return "\n".join(f"- {escape(line)}" for line in lines)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return table(head, [[escape(cell) for cell in row] for row in rows])


def _plain(text: str) -> str:
    """Remove the folders of paths."""
    return _FOLDERS.sub("", text)


def _is_timm(run: Run) -> bool:
    return run.folder is not None and all((run.folder / name).is_file() for name in WEIGHTS)


def _upload(run: Run, folder: Path, figures: Mapping[str, str]) -> str:
    files: list[Any] = [FILE, *figures]
    if run.folder is not None and folder.resolve() == run.folder.resolve() and _is_timm(run):
        files += WEIGHTS
    return shlex.join(["hf", "upload", f"USER/{clean_name(run.name)}", str(folder), ".", "--include", *files])
