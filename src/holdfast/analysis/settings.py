"""What can be chosen about an analysis: each analysis declares its settings, and some share one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.errors import HoldfastError, nearest
from holdfast.io.validation import comma_list

Check = Callable[[str, Any], None]  # refuses a value of that name


def _accept_anything(name: str, value: Any) -> None:
    pass


def _as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Setting:
    """One thing that can be chosen.

    Attributes:
        name: in Python and in stored results.
        default: its value unless chosen.
        line: for ``--help``.
        kind: ``int``, ``float`` or ``str`` on the command line.
        check: refuses values without meaning in one sentence.
        option: on the command line, if it is not the name.
        read: from what the command line gives to the value.
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
        """The command line's option."""
        return self.option or "--" + self.name.replace("_", "-")

    @property
    def written(self) -> Any:
        """The default as one would type it."""
        return ",".join(map(str, self.default)) if isinstance(self.default, tuple) else self.default


class Settings:
    """Chosen settings of all analyses; each takes what concerns it, and has its defaults for the rest.

    ``Settings(cells=("fog/3",), masks=1000)``. `holdfast.analysis.registry.all_settings` tells the names, and so does
    ``holdfast analyze --help``.
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
        """The same, but for some values."""
        return Settings(**{**self._chosen, **values})


def _known_settings() -> Mapping[str, Setting]:
    from holdfast.analysis.registry import all_settings

    return all_settings()


# ---------------------------------------------------------------------------------------------- checks


def at_least(least: int) -> Check:
    """Refuses smaller numbers."""

    def check(name: str, value: Any) -> None:
        if value < least:
            raise HoldfastError(f"{name} must be at least {least}, got {value}")

    return check


def share(name: str, value: Any) -> None:
    """Refuses what is not in [0, 1]."""
    if not 0 <= value <= 1:
        raise HoldfastError(f"{name} must lie in [0, 1], got {value}")


def one_of(*choices: str) -> Check:
    """Refuses other words."""

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
PICTURES = Setting("pictures", 4, "images that pictures show", int, at_least(1))
