import pytest

from tests.records.test_records import start


@pytest.fixture
def folder(tmp_path):
    """A record set of five images without units."""
    return start(tmp_path / "run" / "records" / "digits-ffffffff")
