"""Names that people type, and names of files made from them."""

from collections.abc import Iterable, Sequence

from holdfast.errors import HoldfastError, nearest


def comma_list(text: str) -> tuple[str, ...]:
    """The words of ``a, b,c``; empty ones are left out."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def chosen_names(names: str | Sequence[str], known: Iterable[str], *, one: str, several: str) -> tuple[str, ...]:
    """Known names from a comma list or a sequence, each once; ``one`` and ``several`` call them in sentences."""
    every = tuple(known)
    words = comma_list(names) if isinstance(names, str) else (word.strip() for word in names if word.strip())
    chosen = tuple(dict.fromkeys(words))
    for name in chosen:
        if name not in every:
            hint = nearest(name, every) or f"; expected some of {', '.join(every)}"
            raise HoldfastError(f"unknown {one} {name!r}{hint}")
    if not chosen:
        raise HoldfastError(f"{several} must name at least one of {', '.join(every)}, got none")
    return chosen


def file_name(text: str, *, allowed: str = "-_.") -> str:
    """Text as a part of a file's name: letters, digits and the signs that are allowed; a dash for all others."""
    return "".join(letter if letter.isalnum() or letter in allowed else "-" for letter in text)
