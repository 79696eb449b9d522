"""A run that goes on with another number of processes takes the same images per step."""

import pytest

from holdfast.errors import HoldfastError
from holdfast.runtime.signals import peer_deaths
from holdfast.training.checkpoint import rescale_for_processes
from holdfast.training.recipe_files import load_recipe
from tests.training.helpers import run, tiny


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Of a run with 16 images per step."""
    folder = tmp_path_factory.mktemp("run")
    run(folder, train={"steps": 1})
    return folder / "checkpoints"


@pytest.mark.parametrize(
    ("processes", "batch", "accumulate", "expected"),
    [
        (1, 16, 1, (16, 1)),
        (2, 16, 1, (8, 1)),
        (1, 8, 1, (8, 2)),
        (1, 2, 4, (2, 8)),
        (4, 8, 2, (4, 1)),
        (1, 5, 1, (4, 4)),
    ],
)
def test_no_process_sees_more_at_once_than_the_recipe_says(checkpoints, processes, batch, accumulate, expected):
    recipe = load_recipe(tiny(train={"batch_size": batch, "accumulate": accumulate}))
    train = rescale_for_processes(recipe, checkpoints, processes).train
    assert (train.batch_size, train.accumulate) == expected
    assert train.batch_size * train.accumulate * processes == 16


def test_processes_that_cannot_share_the_images_are_refused(checkpoints):
    with pytest.raises(HoldfastError, match="takes 16 images per step, which 3 processes cannot share evenly"):
        rescale_for_processes(load_recipe(tiny()), checkpoints, 3)


def test_a_new_run_is_as_its_recipe_says(tmp_path):
    recipe = load_recipe(tiny())
    assert rescale_for_processes(recipe, tmp_path, 7) is recipe


def test_the_death_of_another_process_is_one_sentence_and_other_errors_stay_what_they_are():
    with pytest.raises(HoldfastError, match="one of the 2 processes has died; go on"), peer_deaths(2, way_on="go on"):
        raise RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer")
    with pytest.raises(RuntimeError, match="shapes"), peer_deaths(2, way_on="go on"):
        raise RuntimeError("shapes do not fit")
