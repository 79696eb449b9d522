"""Our models compute what the published implementations compute."""

import json
from pathlib import Path

import pytest
import timm
import torch

import holdfast
from tests import golden_weights

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "models.json").read_text())
TOLERANCE = 1e-5


@pytest.mark.parametrize("entry", GOLDEN)
def test_logits_and_blocks_agree_with_the_published_implementation(entry):
    name, size = entry.split("/")
    height, width = map(int, size.split("x"))
    golden = GOLDEN[entry]
    model = golden_weights.fill(timm.create_model(name)).eval()

    assert sum(parameter.numel() for parameter in model.parameters()) == golden["parameters"]
    assert len(model.state_dict()) == golden["keys"]

    with torch.no_grad(), holdfast.watch(model) as seen:
        logits = model(golden_weights.images(f"golden/{entry}", 2, height, width))
    torch.testing.assert_close(logits[:, :8], torch.tensor(golden["logits_first8"]), atol=TOLERANCE, rtol=0)
    assert statistics(logits) == pytest.approx(golden["logits_stats"], abs=TOLERANCE)
    assert len(seen.features) == len(golden["block_output_stats"])
    for output, expected in zip(seen.features, golden["block_output_stats"], strict=True):
        assert statistics(output) == pytest.approx(expected, abs=1e-4)


def statistics(values: torch.Tensor) -> list[float]:
    return [values.mean().item(), values.std().item(), values.abs().max().item()]


PUBLISHED_SIZES = {  # parameters and state-dict entries, counted on the published implementations
    "fan_tiny_12_p16_224": (7_319_920, 439),
    "fan_small_12_p16_224": (28_345_336, 439),
    "fan_base_18_p16_224": (54_350_320, 625),
    "fan_large_24_p16_224": (80_574_100, 811),
    "fan_small_12_p16_224_se_attn": (27_452_440, 427),
    "fan_tiny_8_p4_hybrid": (7_467_240, 355),
    "fan_small_12_p4_hybrid": (26_117_944, 417),
    "fan_base_16_p4_hybrid": (50_475_048, 603),
    "fan_large_16_p4_hybrid": (76_855_140, 807),
    "fan_Xlarge_16_p4_hybrid": (120_407_316, 860),
    "fan_swin_tiny_patch4_window7_224": (29_538_940, 340),
    "fan_swin_small_patch4_window7_224": (53_064_220, 694),
    "fan_swin_base_patch4_window7_224": (93_599_448, 694),
    "fan_swin_large_patch4_window7_224": (208_941_136, 694),
}


RVT_PARAMETERS = {
    "rvt_tiny": 8_646_376,
    "rvt_tiny_plus": 10_951_336,
    "rvt_small": 22_148_392,
    "rvt_small_plus": 23_300_872,
    "rvt_base": 86_223_784,
    "rvt_base_plus": 88_528_744,
}


@pytest.mark.parametrize("name", RVT_PARAMETERS)
def test_rvt_sizes_are_the_published_ones(name):
    with torch.device("meta"):
        assert sum(p.numel() for p in timm.create_model(name).parameters()) == RVT_PARAMETERS[name]


def test_rvt_base_plus_reaches_the_papers_size_with_masks_in_all_blocks():
    with torch.device("meta"):
        model = timm.create_model("rvt_base_plus", masked_blocks=12)
    assert sum(p.numel() for p in model.parameters()) == 91_755_688


@pytest.mark.parametrize("name", PUBLISHED_SIZES)
def test_sizes_are_the_published_ones(name):
    with torch.device("meta"):
        model = timm.create_model(name)
    assert (sum(p.numel() for p in model.parameters()), len(model.state_dict())) == PUBLISHED_SIZES[name]
