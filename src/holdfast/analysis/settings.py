"""Settings of analyses: each analysis declares its own, and some are shared."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.errors import HoldfastError, nearest
from holdfast.io.validation import comma_list

Check = Callable[[str, Any], None]  # (name, value), raises an error for a bad value


def _accept_anything(name: str, value: Any) -> None:
    pass


def _as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Setting:
    """One setting of an analysis.

    Attributes:
        name: its name in Python and in stored results.
        default: its default value.
        line: one-line description for ``--help``.
        kind: its type on the command line, ``int``, ``float`` or ``str``.
        check: raises an error for invalid values.
        option: the command-line option, if it differs from the name.
        read: converts the command-line value.
    """

    name: str
    default: Any
    line: str
    kind: type = str
    check: Check = _accept_anything
    option: str = ""
    read: Callable[[Any], Any] = _as_it_is

    @property
    def flag(self) -> str:
        """The option on the command line."""
        return self.option or "--" + self.name.replace("_", "-")

    @property
    def written(self) -> Any:
        """The default as typed on the command line."""
        return ",".join(map(str, self.default)) if isinstance(self.default, tuple) else self.default


class Settings:
    """Settings of all analyses; each uses those that it declares, with defaults for the rest.

    ``Settings(cells=("fog/3",), masks=1000)``. `holdfast.analysis.registry.all_settings` and
    ``holdfast analyze --help`` list the names.
    """

    def __init__(self, **values: Any) -> None:
        known = _known_settings()
        for name, value in values.items():
            if name not in known:
                raise HoldfastError(f"unknown setting {name!r}{nearest(name, known)}")
            known[name].check(name, value)
        self._chosen = values

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._chosen:
            return self._chosen[name]
        known = _known_settings()
        if name not in known:
            raise AttributeError(f"no analysis has a setting {name!r}")
        return known[name].default

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in self._chosen.items())})"

    def changed(self, **values: Any) -> "Settings":
        """A copy with some values changed."""
        return Settings(**{**self._chosen, **values})


def _known_settings() -> Mapping[str, Setting]:
    from holdfast.analysis.registry import all_settings

    return all_settings()


# ---------------------------------------------------------------------------------------------- checks


def at_least(least: int) -> Check:
    """A check that raises an error for smaller numbers."""

    def check(name: str, value: Any) -> None:
        if value < least:
            raise HoldfastError(f"{name} must be at least {least}, got {value}")

    return check


def share(name: str, value: Any) -> None:
    """Raise an error for values outside [0, 1]."""
    if not 0 <= value <= 1:
        raise HoldfastError(f"{name} must lie in [0, 1], got {value}")


def one_of(*choices: str) -> Check:
    """A check that raises an error for any other word."""

    def check(name: str, value: Any) -> None:
        if value not in choices:
            raise HoldfastError(f"{name} must be {' or '.join(map(repr, choices))}, got {value!r}")

    return check


def _cells(name: str, value: Any) -> None:
    if not value:
        raise HoldfastError("cells must name at least one corruption cell such as gaussian_noise/3, got none")


# ---------------------------------------------------------------------------------------------- shared by several

CELLS = Setting(
    "cells",
    ("gaussian_noise/3",),
    "comma list of corruption cells such as fog/3, or occlusion/10 for a tenth of the patches; pictures show the first",
    check=_cells,
    read=comma_list,
)
RATIO = Setting("ratio", 0.1, "share of the patches that a mask occludes", float, share)
MODULES = Setting("modules", (), "comma list of modules for noise decay and grouping", read=comma_list)
PICTURES = Setting("pictures", 4, "number of images in the pictures", int, at_least(1))
