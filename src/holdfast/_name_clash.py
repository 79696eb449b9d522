"""Somebody else's `holdfast` in the same folder of packages: recognised by its metadata, and named in one sentence."""

from pathlib import Path

OURS, THEIRS = "holdfast-vision", "holdfast"


def foreign_distribution(packages: Path) -> str | None:
    """The folder of metadata that PyPI's other `holdfast` left among installed packages, if it is there."""
    try:
        names = [path.name for path in packages.iterdir()]
    except OSError:  # inside an archive, or not to be read: nothing can be said
        return None
    return next((name for name in names if name.startswith(f"{THEIRS}-") and name.endswith(".dist-info")), None)


def foreign_sentence(packages: Path) -> str | None:
    """What is wrong and what to do, or None where ours stands alone."""
    found = foreign_distribution(packages)
    if found is None:
        return None
    name = found.removesuffix(".dist-info").replace("-", " ")
    return (
        f"{name} of PyPI, which is somebody else's, is installed over {OURS} in {str(packages)!r}: run "
        f"`pip uninstall {THEIRS}` and then `pip install --force-reinstall --no-deps {OURS}`"
    )
