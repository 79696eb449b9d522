import os
import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

if "PYTEST_XDIST_WORKER" in os.environ:  # two workers on two cores: one thread each
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items):
    """Tests that share a model, records or a page run in one process: it is made once (--dist loadgroup)."""
    for item in items:
        if (group := _group(item)) is not None:
            item.add_marker(pytest.mark.xdist_group(group))


def _group(item):
    """The folder or file whose fixture for several tests this test uses; None if it shares nothing."""
    defined = [each for found in item._fixtureinfo.name2fixturedefs.values() for each in found]
    shared = {each.baseid for each in defined if each.scope in ("module", "package", "session")}
    return min(shared - {"", "tests"}, key=len, default=None)


@pytest.fixture(autouse=True)
def seeded():
    """Models that tests build have the same random weights in every run."""
    import torch

    torch.manual_seed(0)


@pytest.fixture(scope="session")
def browser():
    """Chromium, one for all tests of a process: playwright's plain interface cannot be opened twice."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed (Debian: apt-get install chromium): the page is not looked at")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (the dev group has it)")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(autouse=True)
def without_plugins_of_before():
    """Plug-ins that a test has run do not stand in the headers of the next one's records, and no worker loads them."""
    from holdfast.runtime.plugins import PLUGIN_FILES, PLUGINS

    before = [dict(PLUGINS), dict(PLUGIN_FILES)]
    yield
    for table, held in zip((PLUGINS, PLUGIN_FILES), before, strict=True):
        table.clear()
        table.update(held)


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """What tests keep for later is nobody else's."""
    os.environ["HOLDFAST_CACHE"] = str(tmp_path_factory.mktemp("cache"))
