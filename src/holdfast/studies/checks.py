"""What is wrong with a study, said before its first step: suites, analyses, columns of claims, test data."""

from holdfast.analysis.results import KINDS
from holdfast.data import open_data
from holdfast.data.stored import is_official
from holdfast.errors import HoldfastError, nearest
from holdfast.evaluation.suites import check_suites, open_evaluation_data, parse_suites
from holdfast.names import chosen_names
from holdfast.studies.columns import COLUMNS
from holdfast.studies.measures import KEPT
from holdfast.studies.plan import Study

# the suite or analysis that every ingredient of a column comes from
MEASURED_BY = {
    "clean": "clean",
    "corrupted": "corruptions",
    "occluded": "occlusion-random",
    "pgd5": "pgd5",
    "pgd3_adv": "pgd3-rvt-adv",
    **{measure: analysis for analysis, (measure, _) in KEPT.items()},
}


def check_study(study: Study) -> None:
    """Refuse a study that would fail, or lose a claim, only after its first training."""
    names = parse_suites(study.suites)
    if study.analyses:
        chosen_names(study.analyses, KINDS, one="analysis", several="analyses")
    _check_claims(study)
    if not is_official(study.test):  # a download that training would do anyway
        open_data(study.test, split="test", download=bool(study.common.get("data", {}).get("download")))
    check_suites(names, open_evaluation_data(study.test, limit=study.limit))


def _check_claims(study: Study) -> None:
    measured = {*study.suites, *study.analyses}
    for claim in study.claims:
        if claim.column not in COLUMNS:
            hint = nearest(claim.column, COLUMNS) or f"; known are {', '.join(COLUMNS)}"
            raise HoldfastError(f"claim {claim.says!r} must name a column, got {claim.column!r}{hint}")
        for ingredient in COLUMNS[claim.column].needs:
            if MEASURED_BY[ingredient] not in measured:
                raise HoldfastError(
                    f"claim {claim.says!r} needs {MEASURED_BY[ingredient]!r} among the suites or analyses of the study"
                )
