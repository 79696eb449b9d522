"""The published corruption benchmarks, as data: a new benchmark is one row of `BENCHMARKS`.

Its suite, its completeness, its mean and retention (called ``…_partial`` while kinds are missing), the groups of the
papers' tables and all labels follow from the row. Imports no torch.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from holdfast.corruptions.c_bar_severities import C_BAR_PRESETS, C_BAR_SUITES
from holdfast.corruptions.severities import GROUPS, SEVERITIES, STANDARD
from holdfast.registry import SUITES, Registry, add_row

Cells = Mapping[str, tuple[int, ...]]
ROUNDED = "each cell rounded to 0.01 before severities are averaged, as the released testers do"
FAN_NOTE = "16 kinds: flatters rPC by about 6 points against COCO-C's 15, never compare the two"
FAN_LABEL = "16-kind, does not reproduce the print exactly"


@dataclass(frozen=True)
class ScoreText:
    """Name, label, definition and note of a score; ``{m.name}`` and so on are filled in with the score of a cell."""

    name: str
    label: str
    definition: str
    note: str = ""


@dataclass(frozen=True)
class Benchmark:
    """One published benchmark.

    Attributes:
        name: name of the row, and of its suite.
        task: task of its models.
        cells: severities of every kind that is averaged.
        source: where it is defined.
        mean: its mean over severities, then over kinds; None if only its kinds are used.
        kept: its retention, the mean divided by the clean score.
        rounded: whether each cell is rounded to 0.01 % first.
        reference: model whose errors divide those of a kind (CE), if its papers do so.
        divided: the mean of these CEs (mCE); ``{reference}`` in its definition is the name of the reference.
        added: the same of what corruption adds to the clean error (relative mCE).
        groups: groups of kinds in the papers' tables.
        grouped: the mean of every group, if it is a score; ``{group}`` and ``{members}`` are its name and its kinds.
        suite: one line on its suite for ``holdfast list suites``; empty if other suites measure its cells.
        partial: whether its scores over some of its kinds are given, as ``…_partial``.
        rivals: names of benchmarks with other kinds: a partial score is given only for measured kinds of its own.
        headline: whether reports show its mean in the first table, beside the task's headline scores.
        presets: presets of the corruptions that it is defined for; empty for all.
    """

    name: str
    task: str
    cells: Cells
    source: str
    mean: ScoreText | None = None
    kept: ScoreText | None = None
    rounded: bool = False
    reference: str = ""
    divided: ScoreText | None = None
    added: ScoreText | None = None
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    grouped: ScoreText | None = None
    suite: str = ""
    partial: bool = True
    rivals: tuple[str, ...] = ()
    headline: bool = False
    presets: tuple[str, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that are averaged, in order."""
        return tuple(self.cells)


def _all_severities(kinds: Iterable[str]) -> Cells:
    return dict.fromkeys(kinds, SEVERITIES)


_FAN_GROUPS = {  # FAN's and TAP+ADL's 16 kinds, in the groups of their tables
    "blur": ("motion_blur", "defocus_blur", "glass_blur", "gaussian_blur"),
    "noise": ("gaussian_noise", "impulse_noise", "shot_noise", "speckle_noise"),
    "digital": ("brightness", "contrast", "saturate", "jpeg_compression"),
    "weather": ("snow", "spatter", "fog", "frost"),
}
_DENSE_KINDS = tuple(kind for kinds in _FAN_GROUPS.values() for kind in kinds)
_FAN_KINDS = (
    *(kind for kind in STANDARD if kind not in ("zoom_blur", "elastic_transform")),
    *("gaussian_blur", "speckle_noise", "saturate"),
)
_COCO = "mean {m.label} over {kinds} kinds"


def _c_bar(name: str, title: str, rival: str) -> Benchmark:
    """A benchmark of Mintun et al. 2021: a plain mean without a reference model, 100 minus the error they print."""
    definition = f"mean {{m.label}} over the 10 kinds of {title} × 5 severities"
    return Benchmark(
        name,
        "classification",
        _all_severities(C_BAR_SUITES[name]),
        "Mintun et al. 2021",
        mean=ScoreText("mean_c_bar_{m.name}", "C-bar {m.mean_label}", definition),
        suite=SUITES[name],
        rivals=(rival,),
        presets=tuple(C_BAR_PRESETS[name]),
    )


_ROWS = (
    Benchmark(
        "imagenet-c",  # CIFAR-10-C and CIFAR-100-C have the same cells
        "classification",
        _all_severities(STANDARD),
        "Hendrycks & Dietterich 2019",
        mean=ScoreText("mean_corruption_{m.name}", "{m.mean_label}", "mean {m.label} over 15 kinds × 5 severities"),
        kept=ScoreText("retention", "retention", "mean corruption {m.name} over 15 kinds by clean {m.name}"),
        reference="AlexNet",
        divided=ScoreText("mce", "mCE", "mean over the 15 kinds of the error by that of {reference}"),
        added=ScoreText(
            "relative_mce",
            "relative mCE",
            "mean over the 15 kinds of what corruption adds to the clean error, by what it adds to {reference}'s",
        ),
    ),
    Benchmark(
        "imagenet-c-without-noise",
        "classification",
        _all_severities(kind for kind in STANDARD if kind not in GROUPS["noise"]),
        "AFAT, Table 2",
        reference="AlexNet",
        divided=ScoreText("mce_without_noise", "mCE w/o noise", "mCE over the 12 kinds that are not noise"),
    ),
    Benchmark("corruptions-135", "classification", dict.fromkeys(STANDARD, (1, 3, 5)), "every other severity"),
    Benchmark(
        "fan-16",
        "classification",
        _all_severities(_FAN_KINDS),
        "FAN, Table 12",
        mean=ScoreText("fan_{m.name}", "FAN {m.name}", "mean {m.name} over the 16 kinds of FAN's Table 12", FAN_LABEL),
        kept=ScoreText("fan_retention", "FAN retention", "FAN's 16-kind {m.name} by clean {m.name}", FAN_LABEL),
        partial=False,
    ),
    _c_bar("imagenet-c-bar", "ImageNet-C-bar", "cifar-c-bar"),
    _c_bar("cifar-c-bar", "CIFAR-10-C-bar", "imagenet-c-bar"),
    Benchmark(
        "cityscapes-c-all",
        "segmentation",
        _all_severities(_DENSE_KINDS),
        "all severities of FAN's 16 kinds",
        mean=ScoreText("mean_corruption_{m.name}", "{m.mean_label}", "mean {m.label} over 16 kinds × 5 severities"),
        kept=ScoreText("retention", "retention", "{m.mean_label} by clean {m.label}"),
    ),
    Benchmark(
        "cityscapes-c",
        "segmentation",
        # also TAP+ADL's released tester: noise at severities 1–3, because stronger noise is uninformative
        {kind: SEVERITIES[:3] if kind in _FAN_GROUPS["noise"] else SEVERITIES for kind in _DENSE_KINDS},
        "FAN, Section 4.3 and Table 9; TAP+ADL, Table 4",
        mean=ScoreText(
            "cityscapes_c",
            "Cityscapes-C",
            "mean mIoU over 16 kinds, noise at severities 1–3, others at 1–5 (FAN Table 9, TAP+ADL Table 4)",
            ROUNDED,
        ),
        kept=ScoreText("cityscapes_c_retention", "Cityscapes-C retention", "Cityscapes-C by clean mIoU"),
        rounded=True,
        groups=_FAN_GROUPS,
        grouped=ScoreText(
            "miou_group/{group}", "{group} (Cityscapes-C)", "mean mIoU over {members} by the papers' severities"
        ),
        suite=SUITES["cityscapes-c"],
    ),
    Benchmark(
        "cityscapes-c-fan-released",
        "segmentation",
        dict.fromkeys(_DENSE_KINDS, SEVERITIES[:3]),
        "FAN's released tester, unlike its paper",
        mean=ScoreText(
            "cityscapes_c_fan_released",
            "Cityscapes-C (FAN's tester)",
            "mean mIoU over 16 kinds at severities 1–3, as FAN's released tester averages",
        ),
        rounded=True,
    ),
    Benchmark(
        "coco-c",
        "detection",
        _all_severities(STANDARD),
        "Michaelis et al. 2019",
        mean=ScoreText("{prefix}mpc", "{what} mPC", f"{_COCO} × 5 severities"),
        kept=ScoreText("{prefix}rpc", "{what} rPC", f"{_COCO} by that of the clean images"),
        suite=SUITES["coco-c"],
        rivals=("coco-c-fan",),
    ),
    Benchmark(
        "coco-c-fan",
        "detection",
        _all_severities(_DENSE_KINDS),
        "FAN, Table 14, whose printed averages lie about 0.3 below the mean of its own columns",
        mean=ScoreText("{prefix}mpc_fan", "{what} mPC (FAN)", f"{_COCO} × 5 severities", FAN_NOTE),
        kept=ScoreText("{prefix}rpc_fan", "{what} rPC (FAN)", f"{_COCO} by that of the clean images", FAN_NOTE),
        suite=SUITES["coco-c-fan"],
        rivals=("coco-c",),
    ),
)
BENCHMARKS: Registry[str, Benchmark] = Registry(
    {row.name: row for row in _ROWS}, register="holdfast.benchmarks.register_benchmark"
)


def register_benchmark(name: str, benchmark: Benchmark, line: str = "") -> None:
    """Register a benchmark; ``line`` describes its suite, without one it has only scores."""
    add_row(BENCHMARKS, name, replace(benchmark, name=name, suite=line or benchmark.suite), what="benchmark")


def benchmarks_of(task: str) -> list[Benchmark]:
    """The rows of a task that have scores, in order."""
    return [row for row in BENCHMARKS.values() if row.task == task and row.mean is not None]


def benchmark_suites() -> dict[str, str]:
    """Suites that follow from a row, with their lines."""
    return {row.name: row.suite for row in BENCHMARKS.values() if row.suite}
