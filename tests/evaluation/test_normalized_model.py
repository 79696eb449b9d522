"""Batches do not change records; where they must, as in int8 layers, records say so."""

import copy
import warnings

import numpy as np
import pytest
import timm
import torch
from torch import nn

from holdfast import ComputeConfig, evaluate
from holdfast.errors import HoldfastError
from tests.evaluation.toys import Brightest, colours


def measured(model, *, suites="clean", batch_size=64, workers=0, data="digits", **options):
    return evaluate(
        model,
        data,
        suites,
        compute=ComputeConfig(batch_size=batch_size, shard_size=12),
        workers=workers,
        show=False,
        **({"limit": 30} if data == "digits" else {}),
        **options,
    )


@pytest.fixture(scope="module")
def int8():
    torch.manual_seed(0)
    model = timm.create_model("vit_nano", num_classes=10, depth=2).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch recommends torchao instead
        return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)


def assert_equal(one, other):
    assert list(one.cells) == list(other.cells)
    for name, cell in one.cells.items():
        np.testing.assert_array_equal(cell.nll, other.cells[name].nll, err_msg=name)


def test_an_int8_model_is_measured_and_its_record_names_the_batch_size(int8, tmp_path):
    one, other = (measured(int8, batch_size=size, out=tmp_path) for size in (5, 64))
    assert (one.header["batch_size"], other.header["batch_size"]) == (5, 64)
    assert one.folder != other.folder
    assert one.header["model_fingerprint"] == other.header["model_fingerprint"]
    content = (one.folder / "clean.00000.safetensors").read_bytes()
    assert_equal(measured(int8, batch_size=5, out=tmp_path), one)
    assert (one.folder / "clean.00000.safetensors").read_bytes() == content


def test_workers_and_what_was_measured_before_do_not_change_an_int8_models_records(int8, tmp_path):
    suites = "clean,corruptions"
    one = measured(int8, suites=suites, batch_size=5)
    assert_equal(measured(int8, suites=suites, batch_size=5, workers=2), one)
    folder = measured(int8, suites="clean", batch_size=5, out=tmp_path).folder
    (folder / "clean.00001.safetensors").unlink()
    assert_equal(measured(int8, suites=suites, batch_size=5, out=tmp_path), one)


def test_another_weight_of_an_int8_layer_is_another_model(int8):
    other = copy.deepcopy(int8)
    weight, bias = other.head._weight_bias()
    changed = weight.dequantize()
    changed[0, 0] += 0.5
    other.head.set_weight_bias(
        torch.quantize_per_tensor(changed, weight.q_scale(), weight.q_zero_point(), torch.qint8), bias
    )
    one, two = (measured(model).header["model_fingerprint"] for model in (int8, other))
    assert one != two


def test_an_attack_on_an_int8_model_is_refused_in_a_sentence(int8):
    with pytest.raises(HoldfastError, match=r"^suite 'fgsm' needs gradients, which .* int8 models do not have; run it"):
        measured(int8, suites="clean,fgsm")


class NeverOne(Brightest):
    """Answers otherwise when it is shown a single image, as kernels round otherwise."""

    def forward(self, images):
        return super().forward(images) * (1 + 1e-3 * (len(images) == 1))


def test_a_batch_of_one_is_computed_as_larger_ones_are():
    one, three, five = (measured(NeverOne(), data=colours(13), batch_size=size) for size in (1, 3, 5))
    assert_equal(one, three)
    assert_equal(one, five)


class OnlyOne(Brightest):
    """As a graph that was exported for a single image."""

    def forward(self, images):
        if len(images) != 1:
            raise RuntimeError("expected one image")
        return super().forward(images)


def test_a_model_of_single_images_gets_them_one_by_one():
    records = measured(OnlyOne(), data=colours(5), batch_size=1)
    assert_equal(records, measured(Brightest(), data=colours(5)))
