"""Class maps: which outputs of a model stand for each class of the data, and how they are aggregated.

A map has one output per class (wnid folders and a 1000-class model) or several (16-class ImageNet, Geirhos et al.
2018). The model answers ``restricted`` to the classes of the map, or among ``all`` its outputs, where every output that
the map does not name stays a class of its own.
"""

import csv
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from holdfast.data import imagenet_classes
from holdfast.data.source import are_ranks, in_label_order
from holdfast.errors import HoldfastError, nearest
from holdfast.io.yaml import read_yaml
from holdfast.published import published

RESTRICTED, ALL = "restricted", "all"
MEAN, SUM, MAX = AGGREGATIONS = ("mean", "sum", "max")
SHIPPED = {"imagenet-16": "imagenet_16", "objectnet": "objectnet"}
SHOWN = 3  # misfits that an error names
Members = Mapping[str, Sequence[str | int]]
ClassMapSpec = str | Path | Mapping[str, Any]


@dataclass(frozen=True)
class Outputs:
    """The classes that a model answers with.

    Attributes:
        count: number of outputs.
        names: their names, if the model stores them.
    """

    count: int
    names: tuple[str, ...] | None = None

    @cached_property
    def of_imagenet(self) -> bool:
        """Whether they are ImageNet's 1000 classes: by their number, unless the model's own names say otherwise."""
        if self.count != imagenet_classes.COUNT:
            return False
        told = self.names and not are_ranks(self.names) and not all(name.startswith("LABEL_") for name in self.names)
        return not told or imagenet_classes.are_imagenet(self.names or ())

    def find(self, what: str | int) -> tuple[int, ...]:
        """Outputs that an index, a wnid or a name stands for: one, none, or several for an ambiguous name."""
        if isinstance(what, int) or what.strip().isdecimal():
            index = int(what)
            return (index,) if 0 <= index < self.count else ()
        named = tuple(place for place, name in enumerate(self.names or ()) if name == what)
        if named or not self.of_imagenet:
            return named
        return imagenet_classes.find_class(what)

    def name(self, index: int) -> str:
        """Name of an output."""
        if self.names:
            return self.names[index]
        return imagenet_classes.wnids()[index] if self.of_imagenet else str(index)


@dataclass(frozen=True)
class ClassMap:
    """Outputs of a model that stand for each class of the data.

    Attributes:
        name: where it comes from: ``wnid``, ``index``, ``name`` for rules, else a shipped map or a file.
        classes: the classes, in the order of the data's labels.
        members: outputs of each class; no output twice.
        outputs: the model's outputs.
        aggregation: ``mean``, ``sum`` or ``max`` of the probabilities of a class's outputs.
        restricted: whether the outputs outside the map are no answers.
    """

    name: str
    classes: tuple[str, ...]
    members: tuple[tuple[int, ...], ...]
    outputs: Outputs
    aggregation: str = MEAN
    restricted: bool = True

    @property
    def is_one_to_one(self) -> bool:
        """Whether every class has one output."""
        return all(len(each) == 1 for each in self.members)

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Outputs of every answer: the classes, or these and all other outputs, by their first output."""
        if self.restricted:
            return self.members
        mapped = {output for each in self.members for output in each}
        others = ((output,) for output in range(self.outputs.count) if output not in mapped)
        return tuple(sorted([*self.members, *others]))

    @cached_property
    def answers(self) -> tuple[str, ...]:
        """Names of the answers."""
        if self.restricted:
            return self.classes
        known = dict(zip(self.members, self.classes, strict=True)) if not self.is_one_to_one else {}
        return tuple(known.get(group) or self.outputs.name(group[0]) for group in self.groups)

    @property
    def changes_outputs(self) -> bool:
        """Whether the answers differ from the model's outputs."""
        return self.groups != tuple((output,) for output in range(self.outputs.count))

    def labels_of(self, classes: Sequence[str]) -> np.ndarray:
        """Place among the answers of every class of the data; raises an error if the map lacks one."""
        missing = [repr(name) for name in classes if name not in self.classes]
        if missing:
            raise HoldfastError(
                f"class map {self.name!r} must have an entry for every class of the data, but lacks {_first(missing)}"
            )
        places = {group: place for place, group in enumerate(self.groups)}
        own = dict(zip(self.classes, self.members, strict=True))
        return np.array([places[own[name]] for name in classes], dtype=np.int64)

    def record(self) -> dict[str, Any]:
        """The map as plain data, for the header of records."""
        members = dict(zip(self.classes, map(list, self.members), strict=True))
        whole = {} if self.name in ("wnid", "index", "name") else {"members": members}
        return {
            "name": self.name,
            "classes": RESTRICTED if self.restricted else ALL,
            "aggregation": "none" if self.is_one_to_one else self.aggregation,
            "mapped": sum(map(len, self.members)),
            "outputs": self.outputs.count,
            "digest": hashlib.blake2b(json.dumps(members, sort_keys=True).encode(), digest_size=8).hexdigest(),
            **whole,
        }


def one_to_one(
    name: str, classes: Sequence[str], outputs: Outputs, numbers: Iterable[int], *, restricted: bool
) -> ClassMap:
    """The map of classes that are one output each."""
    return ClassMap(name, tuple(classes), tuple((int(number),) for number in numbers), outputs, restricted=restricted)


def wnid_map(classes: Sequence[str], outputs: Outputs, *, data: str, restricted: bool) -> ClassMap:
    """The map of wnid folders onto ImageNet's 1000 classes."""
    unknown = [name for name in classes if not imagenet_classes.find_class(name)]
    if unknown:
        raise HoldfastError(
            f"the wnid folders of {data!r} must be among ImageNet's 1000 classes for this model, but "
            f"{_first(unknown)} {'is' if len(unknown) == 1 else 'are'} not; map them with --class-map FILE"
        )
    numbers = [imagenet_classes.indices()[name] for name in classes]
    return one_to_one("wnid", classes, outputs, numbers, restricted=restricted)


def open_class_map(given: ClassMapSpec, outputs: Outputs, *, restricted: bool = True) -> ClassMap:
    """Open a class map for a model: a shipped name, a YAML or CSV file, or a mapping from classes to outputs."""
    name, members, aggregation = _read(given)
    return resolve(name, members, outputs, aggregation=aggregation, restricted=restricted)


def shipped_map(table: str, outputs: Outputs, *, restricted: bool = True) -> ClassMap:
    """The map of a published benchmark: its classes and outputs in ``holdfast.published``."""
    found = published(table if table in SHIPPED.values() else f"{table}_indices")
    name = next((name for name, file in SHIPPED.items() if file == table), table.replace("_", "-"))
    if "classes" in found:
        return resolve(name, found["classes"], outputs, aggregation=found["aggregation"], restricted=restricted)
    return one_to_one(name, found["wnids"], outputs, found["indices"], restricted=restricted)


def resolve(
    name: str, members: Members, outputs: Outputs, *, aggregation: str = MEAN, restricted: bool = True
) -> ClassMap:
    """Find the outputs that a map names; raises an error that names the first three that do not fit."""
    if aggregation not in AGGREGATIONS:
        hint = nearest(str(aggregation), AGGREGATIONS)
        raise HoldfastError(f"aggregation must be one of {', '.join(AGGREGATIONS)}, got {aggregation!r}{hint}")
    classes = in_label_order(members)
    found = {label: [(what, outputs.find(what)) for what in members[label]] for label in classes}
    misfits = list(_misfits(found, outputs))
    if misfits:
        raise HoldfastError(
            f"class map {name!r} must name outputs of the model, each once, by index, wnid or name, "
            f"but {_first(misfits)}"
        )
    places = tuple(tuple(sorted(places[0] for _, places in found[label])) for label in classes)
    return ClassMap(name, classes, places, outputs, aggregation, restricted)


def _misfits(found: Mapping[str, Sequence[tuple[Any, tuple[int, ...]]]], outputs: Outputs) -> Iterator[str]:
    """What is wrong with a map, in words."""
    owner: dict[int, str] = {}
    for label, entries in found.items():
        if not entries:
            yield f"{label!r} has no output"
        for what, places in entries:
            if not places:
                yield f"{what!r} of {label!r} is none of the {outputs.count} classes"
            elif len(places) > 1:
                yield f"{what!r} of {label!r} may be {' or '.join(map(str, places))}"
            elif places[0] in owner:
                twice = f"both {owner[places[0]]!r} and {label!r}" if owner[places[0]] != label else f"{label!r} twice"
                yield f"output {places[0]} is in {twice}"
            else:
                owner[places[0]] = label


def _read(given: ClassMapSpec) -> tuple[str, Members, str]:
    """Name, members and aggregation of a map."""
    if isinstance(given, Mapping):
        return _checked("given", given)
    path = Path(given).expanduser()
    if str(given) in SHIPPED and not path.exists():
        table = published(SHIPPED[str(given)])
        return str(given), table["classes"], table["aggregation"]
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        known = f"a YAML or CSV file, or {' or '.join(SHIPPED)}"
        raise HoldfastError(f"class_map must be {known}, got {str(given)!r} ({reason})") from error
    if path.suffix.lower() == ".csv":
        return path.name, _from_csv(text, name=path.name), MEAN
    values = read_yaml(text, name=f"class map {path.name!r}")
    _check_keys(text, name=path.name)
    return _checked(path.name, values)


def _checked(name: str, values: Any) -> tuple[str, Members, str]:
    """A map as YAML writes it: classes and their outputs, or these under ``classes`` with an ``aggregation``."""
    form = "classes with their outputs, as in dog: [151, n02085782, Maltese dog]"
    if not isinstance(values, Mapping) or not values:
        raise HoldfastError(f"class map {name!r} must hold {form}, got {type(values).__name__}")
    aggregation, classes = MEAN, values
    if isinstance(values.get("classes"), Mapping):
        unknown = [str(key) for key in values if key not in ("classes", "aggregation")]
        if unknown:
            raise HoldfastError(f"class map {name!r} must have the keys classes and aggregation, got {_first(unknown)}")
        aggregation, classes = values.get("aggregation", MEAN), values["classes"]
    members = {}
    for label, outputs in classes.items():
        listed = outputs if isinstance(outputs, list | tuple) else [outputs]
        if not all(isinstance(each, str | int) and not isinstance(each, bool) for each in listed):
            raise HoldfastError(f"class map {name!r} must hold {form}, got {outputs!r:.60} for {label!r}")
        members[str(label)] = listed
    return name, members, str(aggregation)


def _from_csv(text: str, *, name: str) -> Members:
    """Rows ``class,output``; a heading of these words is skipped."""
    members: dict[str, list[str | int]] = {}
    rows = ([cell.strip() for cell in row] for row in csv.reader(text.splitlines()))
    for number, row in enumerate(row for row in rows if any(row)):
        if number == 0 and [cell.lower() for cell in row] == ["class", "output"]:
            continue
        if len(row) != 2 or not all(row):
            given = ",".join(row)
            raise HoldfastError(f"class map {name!r} must have rows of a class and an output, got {given:.60}")
        members.setdefault(row[0], []).append(row[1])
    if not members:
        raise HoldfastError(f"class map {name!r} must have rows of a class and an output, got none")
    return members


def _check_keys(text: str, *, name: str) -> None:
    """Refuse a class that a YAML file has twice, of which a reader would silently keep the last."""
    nodes = _mappings(yaml.compose(text, Loader=yaml.SafeLoader))
    counts = [Counter(key.value for key, _ in node.value) for node in nodes]
    twice = [repr(value) for each in counts for value, count in each.items() if count > 1]
    if twice:
        raise HoldfastError(f"class map {name!r} must have every class once, but has {_first(twice)} twice")


def _mappings(node: Any) -> Iterator[yaml.MappingNode]:
    if isinstance(node, yaml.MappingNode):
        yield node
        for _, value in node.value:
            yield from _mappings(value)


def _first(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return ", ".join(texts[:SHOWN]) + more
