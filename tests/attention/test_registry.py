"""Every timm family is read right or refused: one small model of each, against the model's own unfused attention."""

import copy
import re
from pathlib import Path

import pytest
import timm
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import holdfast
from holdfast.attention import AttentionHandle, can_watch, why_not
from holdfast.errors import HoldfastError

# Module of timm → a model and the arguments that make it small. Those that are accepted are run.
ACCEPTED = {
    "beit": ("beit_base_patch16_224", {"img_size": (48, 64), "embed_dim": 48, "num_heads": 3, "depth": 2}),
    "cait": ("cait_xxs24_224", {"img_size": (48, 64), "depth": 2}),
    "deepseek_vit": (
        "deepseek_vit_412m",
        {"img_size": (42, 56), "embed_dim": 64, "num_heads": 4, "depth": 2},
    ),
    "deit": ("deit_tiny_distilled_patch16_224", {"img_size": (48, 64), "depth": 2}),
    "eva": ("eva02_tiny_patch14_224", {"img_size": (42, 56), "depth": 2}),
    "hiera": ("hiera_tiny_224", {"img_size": (64, 96), "embed_dim": 24, "stages": (1, 2, 1, 1)}),
    "qwen3_vit": ("qwen3_vit_88m", {"img_size": (32, 64), "embed_dim": 64, "num_heads": 4, "depth": 2}),
    "swin_transformer": (
        "swin_tiny_patch4_window7_224",
        {"img_size": (56, 112), "embed_dim": 24, "depths": (2, 2), "num_heads": (2, 4)},
    ),
    "swin_transformer_v2": (
        "swinv2_tiny_window8_256",
        {"img_size": (64, 128), "embed_dim": 24, "depths": (2, 2), "num_heads": (2, 4)},
    ),
    "vision_transformer": ("test_vit", {"img_size": (48, 64)}),
    "vision_transformer_hybrid": ("vit_tiny_r_s16_p8_224", {"img_size": (64, 96), "depth": 2}),
    "vitamin": ("vitamin_small_224", {"img_size": (48, 64), "depth": 2}),
    "xcit": ("xcit_nano_12_p16_224", {"depth": 2}),
}
VARIANTS = {  # of the same families: every pair of attention and block that timm's accepted models are made of
    "BEiT with shared positions": (
        "beit_base_patch16_224",
        {"img_size": 48, "embed_dim": 48, "num_heads": 3, "depth": 2, "use_rel_pos_bias": False}
        | {"use_shared_rel_pos_bias": True},
    ),
    "BEiTv2": ("beitv2_base_patch16_224", {"img_size": 48, "embed_dim": 48, "num_heads": 3, "depth": 2}),
    "EVA": ("eva_giant_patch14_224", {"img_size": 42, "embed_dim": 64, "num_heads": 4, "depth": 2}),
    "EVA-02 with separate projections": (
        "eva02_base_patch14_224",
        {"img_size": 42, "embed_dim": 64, "num_heads": 4, "depth": 2},
    ),
    "DINOv3": ("vit_small_patch16_dinov3", {"img_size": (48, 64), "embed_dim": 64, "num_heads": 4, "depth": 2}),
    "DINOv2 with registers": ("vit_small_patch14_reg4_dinov2", {"img_size": 42, "embed_dim": 96, "depth": 2}),
    "ViT with mixed rotary codes": ("vit_small_patch16_rope_mixed_224", {"img_size": 48, "embed_dim": 96, "depth": 2}),
    "ViT with norms of queries and keys": ("vit_tiny_patch16_224", {"img_size": 48, "depth": 2, "qk_norm": True}),
    "EVA-02 with norms behind": (
        "eva02_enormous_patch14_clip_224",
        {"img_size": 42, "embed_dim": 64, "num_heads": 4, "depth": 2},
    ),
    "ViT with norms behind": (
        "vit_base_patch16_rpn_224",
        {"img_size": 48, "embed_dim": 48, "num_heads": 3, "depth": 2},
    ),
    "SwinV2 with a window of another pretraining": (
        "swinv2_base_window12to16_192to256",
        {"img_size": 64, "embed_dim": 24, "depths": (2,), "num_heads": (2,)},
    ),
    "Hiera with window positions": (
        "hiera_small_abswin_256",
        {"img_size": 64, "embed_dim": 24, "stages": (1, 1, 1, 1)},
    ),
}
REFUSED_QUICK = {  # those that were once accepted and read wrong, and those that users try
    "crossvit": "crossvit_tiny_240",
    "levit": "levit_128s",
    "maxxvit": "maxvit_pico_rw_256",
    "mobilevit": "mobilevit_xxs",
    "mvitv2": "mvitv2_tiny",
    "naflexvit": "naflexvit_base_patch16_gap",
    "pit": "pit_ti_224",
    "pvt_v2": "pvt_v2_b0",
    "resnet": "test_resnet",
    "vision_transformer_relpos": "vit_srelpos_small_patch16_224",
}


class Softmaxes(TorchDispatchMode):
    """Keeps what every softmax of a forward pass returns."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function is torch.ops.aten._softmax.default and result.ndim >= 4:
            self.found.append(result)
        return result


def restless(model: nn.Module) -> nn.Module:
    """No weight is what it was initialised to: biases and tables that begin as zeros count, too."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=generator))
    return model.eval()


def image_of(model: nn.Module, kwargs: dict) -> torch.Tensor:
    size = kwargs.get("img_size", 48)
    size = (size, size) if isinstance(size, int) else size
    return torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(1))


def own_attention(model: nn.Module, images: torch.Tensor) -> list[torch.Tensor]:
    """The maps that the model itself computes where its attention is not fused."""
    modules = [module for module in model.modules() if hasattr(module, "fused_attn")]
    for module in modules:
        module.fused_attn = False
    with torch.no_grad(), Softmaxes() as mode:
        model(images)
    for module in modules:
        module.fused_attn = True
    return mode.found


def as_the_model_has_it(handle: AttentionHandle, own: torch.Tensor) -> torch.Tensor:
    """The model's map in the handle's order: only Hiera's differs."""
    if handle.unrolled is None:
        return own
    return in_rows(own, handle)


def in_rows(own: torch.Tensor, handle: AttentionHandle) -> torch.Tensor:
    """Hiera's map, brute force: every query and key is looked for by its row and column in the image."""
    windows = handle.windows or (1, 1)
    keys = (handle.grid[0] * windows[0], handle.grid[1] * windows[1])
    asking = handle.query_grid or handle.grid
    queries = (asking[0] * windows[0], asking[1] * windows[1])
    own = own if own.ndim == 5 else own.unsqueeze(2)  # B h windows queries keys
    count = own.shape[2]
    result = torch.zeros(len(own), count, own.shape[1], *own.shape[3:])
    key_place, query_place = hiera_places(keys, count), hiera_places(queries, count)
    for window in range(count):
        for number, (down, right) in enumerate(query_place[window]):
            row = (down // asking[0]) * windows[1] + right // asking[1]
            query = (down % asking[0]) * asking[1] + right % asking[1]
            for other, (key_down, key_right) in enumerate(key_place[window]):
                key = (key_down % handle.grid[0]) * handle.grid[1] + key_right % handle.grid[1]
                result[:, row, :, query, key] = own[:, :, window, number, other]
    return result.flatten(0, 1)


def hiera_places(grid, count):
    """Row and column of every token of every window: timm's own unrolling of an image of row and column numbers."""
    from timm.models.hiera import Unroll

    places = torch.stack(torch.meshgrid(torch.arange(grid[0]), torch.arange(grid[1]), indexing="ij"), dim=-1)
    steps = {16: 3, 8: 2, 4: 1, 2: 0}[grid[0]]  # of 64 pixels in patches of 4
    flat = Unroll(grid, (1, 1), [(2, 2)] * steps)(places.reshape(1, -1, 2))[0]
    return flat.view(-1, count, 2).transpose(0, 1).tolist()


def check_right(name: str, kwargs: dict) -> None:
    model = restless(timm.create_model(name, pretrained=False, num_classes=3, **kwargs))
    images = image_of(model, kwargs)
    own = own_attention(model, images)
    assert why_not(model) == ""
    with torch.no_grad(), holdfast.watch(model) as seen:
        model(images)
    handles = seen._read()
    assert len(handles) == len(own)  # no attention of the model is left out
    for handle, map_of_model in zip(handles, own, strict=True):
        maps = handle.maps()
        torch.testing.assert_close(maps.sum(-1), torch.ones(maps.shape[:-1]))
        torch.testing.assert_close(maps, as_the_model_has_it(handle, map_of_model), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(torch.cat(list(handle.rows(chunk=7)), dim=-2), maps, atol=1e-6, rtol=1e-4)
        check_places(handle, images)


def check_places(handle: AttentionHandle, images: torch.Tensor) -> None:
    """Tokens are in front of a grid of the image's proportions; windows are as many as fit."""
    if handle.kind in ("channel", "class"):
        return
    windows = handle.windows or (1, 1)
    assert len(handle.q) == len(images) * windows[0] * windows[1]
    assert handle.k.shape[-2] == handle.prefix + handle.grid[0] * handle.grid[1]
    asking = handle.query_grid or handle.grid
    assert handle.q.shape[-2] == handle.prefix + asking[0] * asking[1]
    grid = handle.image_grid or handle.grid
    assert grid[0] * images.shape[-1] == grid[1] * images.shape[-2]


def check_refused(name: str) -> None:
    """By what the model is made of, so that nothing needs to be run."""
    with torch.device("meta"):
        model = timm.create_model(name, pretrained=False)
    assert not can_watch(model)
    with pytest.raises(HoldfastError, match=type(model).__name__) as refusal, holdfast.watch(model):
        pass
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("family", [*ACCEPTED, *VARIANTS])
def test_a_supported_family_is_read_as_it_computes(family):
    check_right(*{**ACCEPTED, **VARIANTS}[family])


@pytest.mark.parametrize("family", REFUSED_QUICK)
def test_other_families_are_refused_in_one_sentence(family):
    check_refused(REFUSED_QUICK[family])


@pytest.mark.parametrize("family", ["beit", "cait", "eva", "hiera", "swin_transformer_v2"])
def test_gradients_are_those_of_the_plain_model_under_checkpointing(family):
    name, kwargs = ACCEPTED[family]
    plain = restless(timm.create_model(name, pretrained=False, num_classes=3, **kwargs))
    saving = copy.deepcopy(plain)
    saving.set_grad_checkpointing(True)
    images = image_of(plain, kwargs)
    for model in (plain, saving):
        model.train()
        with holdfast.watch(model) as seen:
            loss = model(images).square().sum() + sum(handle.maps().square().sum() for handle in seen.attention)
            (loss + sum(feature.square().mean() for feature in seen.features)).backward()
        assert len(seen.attention) == len(seen.features)
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    for (key, a), b in zip(plain.named_parameters(), saving.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, atol=1e-4, rtol=1e-3, msg=lambda text, key=key: f"{key}: {text}")


# ---------------------------------------------------------------------------------- what was once read wrong


def test_wrapped_models_have_the_grid_and_prefix_of_the_model_inside():
    vit = timm.create_model("test_vit", img_size=(48, 64)).eval()
    with torch.no_grad(), holdfast.watch(nn.Sequential(nn.Identity(), vit)) as seen:
        nn.Sequential(nn.Identity(), vit)(torch.randn(2, 3, 48, 64))
    assert [(handle.grid, handle.prefix) for handle in seen.attention] == [((3, 4), 1)] * len(vit.blocks)


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "eva02_tiny_patch14_224"])
def test_dropped_patches_are_refused_and_never_a_negative_prefix(name):
    model = timm.create_model(name, img_size=112, depth=1, patch_drop_rate=0.5)
    images = torch.randn(2, 3, 112, 112)
    with (
        pytest.raises(HoldfastError, match=r"cannot watch (VisionTransformer|Eva): .* without patch dropout"),
        holdfast.watch(model.train()),
    ):
        model(images)
    with holdfast.watch(model.eval()) as seen:
        model(images)
    assert seen.attention[0].prefix == 1


def test_parallel_branches_of_a_block_are_refused():
    from timm.models.vision_transformer import ParallelThingsBlock

    model = timm.create_model("test_vit", block_fn=ParallelThingsBlock)
    with pytest.raises(HoldfastError, match=r"VisionTransformer has attention \(blocks.0"), holdfast.watch(model):
        pass


def test_maps_of_a_pass_in_half_precision_are_read_after_it():
    model = restless(timm.create_model("xcit_nano_12_p16_224", depth=2))
    images = torch.randn(2, 3, 48, 48)
    with torch.no_grad(), holdfast.watch(model) as seen:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            model(images)
        half = [handle.maps() for handle in seen.attention]
        model(images)
        exact = [handle.maps() for handle in seen.attention]
    for low, high in zip(half, exact, strict=True):
        torch.testing.assert_close(low.float(), high, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("kwargs", [{"model_name": "test_vit"}, {"model_name": "xcit_nano_12_p16_224", "depth": 1}])
def test_reentrant_checkpointing_is_refused_where_maps_would_have_no_gradient(kwargs):
    from torch.utils.checkpoint import checkpoint

    class Reentrant(nn.Module):
        def __init__(self, block):
            super().__init__()
            self.block = block

        def forward(self, *args):
            return checkpoint(self.block, *args, use_reentrant=True)

    model = timm.create_model(img_size=32, **kwargs)
    model.blocks = (
        type(model.blocks)(*map(Reentrant, model.blocks))
        if isinstance(model.blocks, nn.Sequential)
        else nn.ModuleList(map(Reentrant, model.blocks))
    )
    with pytest.raises(HoldfastError, match="under reentrant checkpointing"), holdfast.watch(model):
        model(torch.randn(1, 3, 32, 32))
    with torch.no_grad(), holdfast.watch(model) as seen:  # nobody wants gradients: nothing is missing
        model(torch.randn(1, 3, 32, 32))
    assert len(seen.attention) == len(model.blocks)


# ---------------------------------------------------------------------------------- the walk over timm


def families() -> list[str]:
    """The modules of timm, ours left out."""
    modules = {name: timm.list_models(module=name)[0] for name in timm.list_modules()}
    return [name for name, model in modules.items() if timm.model_entrypoint(model).__module__.startswith("timm.")]


@pytest.mark.full
@pytest.mark.parametrize("family", sorted(set(families()) - set(ACCEPTED)))
def test_every_other_family_of_timm_is_refused(family):
    check_refused(timm.list_models(module=family)[0])


def test_the_documentation_tells_every_family_apart():
    page = (Path(__file__).parents[2] / "docs" / "look-inside.md").read_text(encoding="utf-8")
    table = page.partition("## Every timm family")[2]
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("| ")][1:]
    listed = {name: row[0].strip() for row in rows for name in re.findall(r"`(\w+)`", row[-1])}
    assert {name for name, answer in listed.items() if answer.startswith("right")} == set(ACCEPTED)
    told = re.search(r"Of the (\d+) modules of timm ([\d.]+):", page)
    assert told is not None
    assert int(told[1]) == len(listed) == sum(int(row[0].rpartition(",")[2]) for row in rows)
    if timm.__version__ != told[2]:
        pytest.skip(f"the table is of timm {told[2]}, this is {timm.__version__}")
    assert set(listed) == set(families())
