"""No renaming changes a byte of what people and scripts read; ``python -m tests.golden_outputs.make`` makes it anew."""

import pytest

from tests.golden_outputs.outputs import EXPECTED, collect

NAMES = sorted(path.relative_to(EXPECTED).as_posix() for path in EXPECTED.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    return collect(tmp_path_factory.mktemp("golden"))


@pytest.mark.parametrize("name", NAMES)
def test_the_output_is_the_stored_one_byte_for_byte(name, outputs):
    assert outputs[name].encode() == (EXPECTED / name).read_bytes()


def test_every_output_is_stored(outputs):
    assert sorted(outputs) == NAMES
