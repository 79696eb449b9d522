import os

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:  # two workers on two cores: one thread each
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def seeded():
    """Models that tests build have the same random weights in every run."""
    import torch

    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """What tests keep for later is nobody else's."""
    os.environ["HOLDFAST_CACHE"] = str(tmp_path_factory.mktemp("cache"))
