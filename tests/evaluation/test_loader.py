"""Data loader of an evaluation: workers read, preprocess and corrupt images while the model runs."""

import pickle

import torch

from holdfast.cells import corruption_cell
from holdfast.evaluation.cell_images import CorruptedImages
from holdfast.evaluation.loader import Chunks, Job
from holdfast.evaluation.model_input import model_input
from holdfast.evaluation.plan import Cell, shared_plan
from holdfast.evaluation.preprocessing import preprocessing
from tests.evaluation.toys import Brightest, colours


def test_what_workers_get_can_be_sent_to_new_processes():
    """Where processes are not forked, the work is pickled."""
    plan = shared_plan(colours(4), lambda source: [Cell(corruption_cell("fog", 3), CorruptedImages("fog", 3), source)])
    steps = preprocessing("cifar", model_input(Brightest()))
    production = Chunks(plan, [Job(0, (0,))], steps=steps, seed=0, shard_size=8)
    (here,), (there,) = list(production), list(pickle.loads(pickle.dumps(production)))
    assert torch.equal(here.images, there.images)
    assert here.rows == there.rows == [0, 1, 2, 3]
