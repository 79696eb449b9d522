"""A term of one's own: one class, one row, and recipe, log, checkpoint, list and report know it. Public seams only."""

import pytest
import timm
import torch
from torch import nn

import holdfast
from holdfast.methods import (
    TERMS,
    FeatureAlignment,
    Loss,
    RobustObjective,
    Term,
    TermEntry,
    corruptor_for,
    methods,
)
from tests.training.helpers import assert_same_run, log_of, tiny


class Mirrored(Term):
    """Features of the mirrored images should agree with the clean ones', up to a factor that is learned."""

    watches = True

    def __init__(self, weight: float) -> None:
        self.weight, self.factor = weight, nn.Linear(1, 1, bias=False)
        nn.init.ones_(self.factor.weight)
        self.optimizer = torch.optim.SGD(self.factor.parameters(), lr=0.1)

    @property
    def modules(self):
        return {"factor": self.factor}

    @property
    def optimizers(self):
        return {"factor": self.optimizer}

    def prepare(self, images, forward):
        return (images.flip(-1), images)

    def loss(self, forward):
        mirrored, clean = forward.pair(self, forward.features[-1])
        apart = (mirrored - self.factor.weight * clean).square().mean()
        return Loss(self.weight * apart, {"mirrored_apart": apart.detach()})

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad()
        return {"mirrored_factor": self.factor.weight.detach().squeeze()}


@pytest.fixture
def registered(monkeypatch):
    """The one row."""
    entry = TermEntry(lambda options, context: Mirrored(**options), "features of mirrored images")
    monkeypatch.setitem(TERMS, "mirrored", entry)


def test_a_term_of_ones_own_reaches_recipe_log_checkpoint_list_and_report(registered, tmp_path):
    recipe = tiny(objective={"name": "robust", "options": {"mirrored": {"weight": 0.5}}}, train={"epochs": 3})
    for name in ("run", "again"):
        holdfast.train(recipe, out=tmp_path / name, show=False)
    assert_same_run(tmp_path / "run", tmp_path / "again")
    last = log_of(tmp_path / "run", "step")[-1]
    assert last["mirrored_apart"] > 0
    assert last["mirrored_factor"] != 1
    assert list((tmp_path / "run" / "checkpoints").glob("*/*factor*"))
    assert methods()["robust: mirrored"] == "features of mirrored images"
    assert "mirrored apart" in holdfast.report(tmp_path / "run")


def test_views_of_several_terms_stand_side_by_side():
    """AFAT's loss is the same whether or not another term has added a view before it."""
    model = timm.create_model("vit_nano").eval()
    images, targets = torch.rand(4, 3, 32, 32), torch.arange(4)
    figures = []
    for others in ([], [Mirrored(0.0)]):
        torch.manual_seed(0)
        objective = RobustObjective([*others, FeatureAlignment(corruptor_for(model, (32, 32)))])
        torch.manual_seed(1)
        figures.append(objective(model, images, targets).parts)
    for name in ("cross_entropy", "alignment"):
        torch.testing.assert_close(figures[0][name], figures[1][name], atol=1e-6, rtol=1e-5)


def test_two_terms_with_modules_of_one_name_and_unknown_terms_are_refused(tmp_path):
    with pytest.raises(holdfast.HoldfastError, match="must own modules of different names, got factor, factor"):
        RobustObjective([Mirrored(1.0), Mirrored(1.0)])
    with pytest.raises(holdfast.HoldfastError, match="unknown option 'aft' of objective 'robust'; did you mean 'afat'"):
        holdfast.train(tiny(objective={"name": "robust", "options": {"aft": {}}}), out=tmp_path / "run", show=False)
