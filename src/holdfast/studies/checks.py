"""Validation of a study before its first run: suites, analyses, columns of claims, test data."""

from collections.abc import Mapping, Sequence

from holdfast.analysis.registry import ANALYSES
from holdfast.benchmarks import BENCHMARKS
from holdfast.corruptions.c_bar_severities import C_BAR_SUITES
from holdfast.data import open_data
from holdfast.data.domains import PREFIX
from holdfast.data.official_sets import is_official
from holdfast.errors import HoldfastError, nearest
from holdfast.evaluation.attack_specs import ATTACKS, AttackSuite
from holdfast.evaluation.data import open_evaluation_data
from holdfast.evaluation.suites import check_suites, parse_suites
from holdfast.io.validation import chosen_names
from holdfast.studies.columns import DOMAIN_COLUMNS, SET_COLUMNS, Column, columns
from holdfast.studies.config import Study

CLEAN = ("clean", "quick", "standard")
CORRUPTED = ("corruptions", "corruptions-135", "quick", "standard", "imagenet-c", "cifar-c")


def check_study(study: Study) -> None:
    """Refuse a study that would fail, or miss a claim's column, only after its first training."""
    names = parse_suites(study.suites)
    if study.analyses:
        chosen_names(study.analyses, ANALYSES, one="analysis", several="analyses")
    _check_claims(study, attacks=[str(suite) for suite in names if isinstance(suite, AttackSuite) or suite in ATTACKS])
    if not is_official(study.test):  # may download, which training would do anyway
        open_data(study.test, split="test", download=bool(study.common.get("data", {}).get("download")))
    trained = (study.recipe_of(row, study.seeds[0]).data.train for row in study.rows)
    for data in dict.fromkeys(spec for spec in trained if spec.startswith(PREFIX)):
        open_data(data, split="train")  # a domain that does not exist, before the first run
    for data in study.shifts.values():
        open_evaluation_data(data)
    check_suites(names, open_evaluation_data(study.test, limit=study.limit))


def _check_claims(study: Study, *, attacks: Sequence[str]) -> None:
    claimed = [claim.column for claim in study.claims if claim.column.startswith("domain/")]
    domains = claimed if study.test.startswith(PREFIX) else []
    known, measured = columns(study.shifts, attacks, domains), {*study.suites, *attacks, *study.analyses}
    for claim in study.claims:
        if claim.column not in known:
            hint = nearest(claim.column, known) or f"; known columns are {', '.join(known)}"
            raise HoldfastError(f"claim {claim.says!r} must name a column, got {claim.column!r}{hint}")
        for needed in _needs(claim.column, known):
            if not measured & {*needed}:
                wanted = " or ".join(map(repr, needed))
                raise HoldfastError(f"claim {claim.says!r} needs {wanted} among the suites or analyses of the study")


def _needs(column: str, known: Mapping[str, Column]) -> tuple[tuple[str, ...], ...]:
    """For every ingredient of a column, the suites or analyses that provide it."""
    if column in known.keys() - columns().keys():
        return ()  # a shift or an attack named by the study itself
    if column in DOMAIN_COLUMNS:
        return (CLEAN,)
    corrupted = (*CORRUPTED, *(row.name for row in BENCHMARKS.values() if row.suite and row.name not in C_BAR_SUITES))
    if column in SET_COLUMNS:
        return (CLEAN, corrupted) if column.endswith("_kept") else (corrupted if column.endswith("_c") else CLEAN,)
    for name, analysis in ANALYSES.items():
        if any(offered.name == column for offered in analysis.columns):
            return ((name,),)
    shows = columns()[column].shows
    # per score, the suites of which at least one is needed for each ingredient; attacks are suites of their own
    suites_of = {
        "clean": (CLEAN,),
        "measured_corruption_accuracy": (corrupted,),
        "mean_c_bar_accuracy": (tuple(C_BAR_SUITES),),
        "measured_retention": (CLEAN, corrupted),
    }
    return suites_of.get(shows, ((shows.removeprefix("attack/"),),))
