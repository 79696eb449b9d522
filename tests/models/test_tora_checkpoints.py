"""TORA checkpoints: saving adapters, fusion and heads without the pretrained model, and attaching them to it."""

import copy

import pytest
import torch

import holdfast
from holdfast.errors import HoldfastError
from holdfast.models.tora import ToraViT
from holdfast.models.tora_checkpoints import added_state, attach_tora, load_tora, save_tora
from tests.models.test_tora import (
    images,
    one_step,
    vit,
)


@pytest.fixture
def saved(tmp_path):
    model = vit()
    adapted = holdfast.tora(copy.deepcopy(model), reduction=4)
    one_step(adapted, images(model))
    save_tora(adapted, tmp_path / "adapters", notes={"lambda": 0.5})
    return model, adapted.eval(), tmp_path / "adapters"


def test_adapters_alone_are_saved_and_go_back_onto_the_pretrained_model(saved):
    model, adapted, folder = saved
    again = attach_tora(model, folder).eval()
    x = images(model)
    assert torch.equal(again(x), adapted(x))
    bytes_added = sum(value.numel() * value.element_size() for value in added_state(adapted).values())
    assert (folder / "tora.safetensors").stat().st_size < 1.1 * bytes_added + 20_000
    assert sorted(path.name for path in folder.iterdir()) == ["tora.json", "tora.safetensors"]


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"embed_dim": 32}, "belong to a ViT of width 48, depth 3, classes 10; got one of width 32, depth 3"),
        ({"depth": 2}, "width 48, depth 3, classes 10; got one of width 48, depth 2"),
        ({"num_classes": 5}, "classes 10; got one of width 48, depth 3, classes 5"),
        ({}, "were trained for other weights of this ViT; set other_weights=True"),
    ],
)
def test_adapters_of_another_model_are_refused(saved, other, sentence):
    _, _, folder = saved
    with pytest.raises(HoldfastError, match=sentence):
        attach_tora(vit(**other), folder)


def test_other_weights_can_be_insisted_on(saved):
    _, _, folder = saved
    assert isinstance(attach_tora(vit(), folder, other_weights=True), ToraViT)


def test_folders_that_are_none_get_one_sentence(saved, tmp_path):
    model, _, folder = saved
    with pytest.raises(HoldfastError, match=r"must hold tora\.json and tora\.safetensors"):
        attach_tora(model, tmp_path)
    with pytest.raises(HoldfastError, match=r"must hold backbone/ with the pretrained model"):
        load_tora(folder)
    (folder / "tora.safetensors").write_bytes(b"no tensors")
    with pytest.raises(HoldfastError, match="missing or damaged"):
        attach_tora(model, folder)
