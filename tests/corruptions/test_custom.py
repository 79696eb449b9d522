"""A corruption of one's own: what is checked when it is registered."""

import numpy as np
import pytest

from holdfast.corruptions import custom
from holdfast.corruptions.apply import FUNCTIONS, corrupt
from holdfast.corruptions.severities import KINDS
from holdfast.errors import HoldfastError

FIVE = [{"step": step} for step in (1, 2, 3, 4, 5)]


def darker(images, draws, *, step):
    return images // (1 + step)


@pytest.fixture(autouse=True)
def as_before():
    known = set(KINDS)
    yield
    for name in set(KINDS) - known:
        dict.pop(KINDS, name)
        dict.pop(FUNCTIONS, name, None)


def test_a_registered_corruption_is_applied_and_reaches_workers():
    kind = custom.register_corruption("darker", darker, "less light", severities=FIVE, short="Dark", random=False)
    assert (kind.line, kind.short) == ("less light", "Dark")
    image = np.full((32, 32, 3), 200, np.uint8)
    assert (corrupt(image, "darker", severity=3, preset="cifar") == 50).all()
    sent = custom.registered()
    assert [each.kind.name for each in sent] == ["darker"]
    dict.pop(KINDS, "darker")
    dict.pop(FUNCTIONS, "darker")
    custom.know(sent)
    assert (corrupt(image, "darker", severity=1, preset="cifar") == 100).all()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"name": "Dark er"}, "name must be lower-case letters"),
        ({"name": "fog"}, "corruption 'fog' is already registered"),
        ({"group": "noise"}, "group must not be a published one"),
        ({"short": "Darker"}, "short must have at most four letters"),
        ({"severities": FIVE[:4]}, "must be five sets of parameters of darker, got 4"),
        ({"severities": [{"size": 1}] * 5}, "must be parameters that darker takes"),
        ({"function": lambda images, draws, *, step: images}, "must be defined at the top level of a module"),
    ],
)
def test_what_it_cannot_be_is_one_sentence_and_registers_nothing(options, sentence):
    known = set(KINDS)
    given = {"name": "darker", "function": darker, "severities": FIVE, **options}
    with pytest.raises(HoldfastError, match=sentence):
        custom.register_corruption(given.pop("name"), given.pop("function"), **given)
    assert set(KINDS) == known
