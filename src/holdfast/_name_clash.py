"""Detection of PyPI's unrelated `holdfast` package in the same site-packages."""

from pathlib import Path

OURS, THEIRS = "holdfast-vision", "holdfast"


def foreign_distribution(packages: Path) -> str | None:
    """Return the ``.dist-info`` folder of the unrelated `holdfast` package, if it is installed."""
    try:
        names = [path.name for path in packages.iterdir()]
    except OSError:  # inside an archive, or without read permission
        return None
    return next((name for name in names if name.startswith(f"{THEIRS}-") and name.endswith(".dist-info")), None)


def foreign_sentence(packages: Path) -> str | None:
    """Return a warning with the remedy, or None without a clash."""
    found = foreign_distribution(packages)
    if found is None:
        return None
    name = found.removesuffix(".dist-info").replace("-", " ")
    return (
        f"{name} from PyPI, an unrelated package, is installed over {OURS} in {str(packages)!r}: run "
        f"`pip uninstall {THEIRS}` and then `pip install --force-reinstall --no-deps .` in the clone of Holdfast"
    )
