"""What a model may return: a tensor of logits in any of the usual containers, in every command."""

from collections import OrderedDict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import holdfast
from holdfast import EvalProtocol, evaluate
from holdfast.attacks import from_pixels
from holdfast.data import open_data
from holdfast.errors import HoldfastError
from holdfast.inference.export import prepare_export
from holdfast.lab import inspect_image, open_model
from tests.evaluation.toys import Brightest, colours

ALONE = {"workers": 0, "show": False}
CONTAINERS = {
    "tuple": lambda logits: (logits, logits.sum()),
    "list": lambda logits: [logits],
    "out": lambda logits: OrderedDict(out=logits, aux=2 * logits),
    "logits": lambda logits: {"loss": None, "logits": logits},
    "object": lambda logits: SimpleNamespace(logits=logits),
}


class Contained(Brightest):
    """The same answers, in a container."""

    def __init__(self, container):
        super().__init__()
        self.container = container

    def forward(self, images):
        return self.container(super().forward(images))


@pytest.mark.parametrize("name", CONTAINERS)
def test_the_usual_containers_are_opened_everywhere(name, tmp_path):
    model, source = Contained(CONTAINERS[name]), colours(6)
    wanted = evaluate(Brightest(), source, "clean,fgsm", **ALONE)
    found = evaluate(model, source, "clean,fgsm", **ALONE)
    for cell in ("clean", "fgsm"):
        assert np.array_equal(found.cells[cell].nll, wanted.cells[cell].nll)
    source.image(0).save(tmp_path / "x.png")
    asked = EvalProtocol(size=32)
    assert holdfast.predict(model, tmp_path / "x.png", protocol=asked) == holdfast.predict(
        Brightest(), tmp_path / "x.png", protocol=asked
    )
    plain = inspect_image(open_model(Brightest(), source), 0, "fog/3").after.answers[""]
    assert torch.equal(inspect_image(open_model(model, source), 0, "fog/3").after.answers[""], plain)
    exported = prepare_export(model, source, size=32)
    assert torch.equal(exported.answers, Brightest()(exported.images))


def test_label_maps_by_the_name_out_are_taken_also_in_windows():
    source = open_data("scenes:val[0:1]", split="test")

    class Maps(nn.Module):
        def forward(self, images):
            return torch.stack([(0.1 * k + 1) * images[:, k % 3] for k in range(len(source.classes))], dim=1)

    class Out(Maps):
        def forward(self, images):
            return {"out": super().forward(images)}

    for protocol in (EvalProtocol(), EvalProtocol(window=48, stride=32)):
        counts = [
            evaluate(model, source, protocol=protocol, **ALONE).cells["clean"].counts for model in (Maps(), Out())
        ]
        assert np.array_equal(*counts)


REFUSED = {
    "numpy": (lambda logits: logits.numpy(), "a numpy ndarray", "torch.as_tensor(forward(images))"),
    "named": (lambda logits: {"scores": logits}, "a dictionary of scores", 'forward(images)["scores"]'),
    "arrays": (lambda logits: [logits.numpy()], "a list of ndarray", "torch.stack("),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_taken_gets_the_two_lines_that_solve_it(name):
    container, came, helps = REFUSED[name]
    model = Contained(container)
    with pytest.raises(HoldfastError) as error:
        evaluate(model, colours(3), **ALONE)
    said = str(error.value)
    assert f"got {came}; two lines fix it:" in said
    assert helps in said
    if name == "arrays":  # a list of arrays may hold anything
        return
    lines = [line.strip() for line in said.splitlines()[1:]]
    assert len(lines) == 2
    exec("\n".join(lines), {"model": model, "torch": torch})
    assert np.array_equal(
        evaluate(model, colours(3), **ALONE).cells["clean"].nll,
        evaluate(Brightest(), colours(3), **ALONE).cells["clean"].nll,
    )


def test_attacks_of_ones_own_loop_open_containers_too():
    images = torch.rand(2, 3, 8, 8)
    model = Contained(CONTAINERS["logits"])
    model.pretrained_cfg = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0), "input_size": (3, 8, 8)}
    assert torch.equal(from_pixels(model)(images), Brightest()((images - torch.zeros(3, 1, 1)) / torch.ones(3, 1, 1)))


def test_a_tensor_can_be_predicted():
    source = colours(3)
    batch = torch.stack([torch.from_numpy(source.images[number]).permute(2, 0, 1) for number in range(3)])
    wanted = evaluate(Brightest(), source, **ALONE).cells["clean"].confidences
    for images in (batch, batch.float() / 255):
        found = holdfast.predict(Brightest(), images, top=1)
        assert [each.image for each in found] == ["000000", "000001", "000002"]
        assert [each.rows[0]["probability"] for each in found] == pytest.approx(wanted.tolist(), abs=1e-6)
    (alone,) = holdfast.predict(Brightest(), batch[1], top=1)
    assert alone.rows[0]["probability"] == pytest.approx(float(wanted[1]), abs=1e-6)
    normalised = (batch.float() / 255 - 0.5) / 0.25
    protocol = EvalProtocol(mean=(0.5,) * 3, std=(0.25,) * 3)
    found = holdfast.predict(Brightest(), normalised, top=1, protocol=protocol)
    other = evaluate(Brightest(), source, protocol=protocol, **ALONE).cells["clean"].confidences
    assert [each.rows[0]["probability"] for each in found] == pytest.approx(other.tolist(), abs=1e-6)
    with pytest.raises(HoldfastError, match=r"images must be \(3, H, W\) or \(n, 3, H, W\), got \(3, 32\)"):
        holdfast.predict(Brightest(), torch.rand(3, 32))
    with pytest.raises(HoldfastError, match=r"must be uint8 or lie in \[0, 1\]"):
        holdfast.predict(Brightest(), normalised)


def test_a_module_that_was_handed_over_is_left_in_its_mode(tmp_path):
    Image.new("RGB", (32, 32)).save(tmp_path / "x.png")
    model = nn.Sequential(Brightest(), nn.Dropout()).train()
    holdfast.predict(model, tmp_path / "x.png", protocol=EvalProtocol(size=32))
    assert model.training
    assert model[1].training
