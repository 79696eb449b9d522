"""TORA-ViT: a frozen pretrained ViT with an accuracy and a robustness adapter after every block, fused by a gate.

Li and Xu, *Trade-off between Robustness and Accuracy of Vision Transformers*, CVPR 2023; and the three methods that
their slides compare it with. docs/tora.md separates the authors' parts from our derivation.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from holdfast.errors import HoldfastError, nearest
from holdfast.layers.tora_adapters import Adapter, AdapterGate, Fusion, PlaceGate, TokenGate

Method = Literal["tora", "adapter-fusion", "single-adapter", "head-only"]
Softmax = Literal["adapter", "token"]
Streams = dict[str, Tensor]  # [ACC] and [ROB] (B, 1, D) by name

GATES: dict[str, type[Fusion]] = {"adapter": AdapterGate, "token": TokenGate}


@dataclass(frozen=True)
class ToraSettings:
    """Settings of the modules that are added to a ViT.

    Attributes:
        method: ``tora``, or ``adapter-fusion``, ``single-adapter``, ``head-only`` for comparison.
        reduction: ratio of the model's width to the adapters'; 16 fits the sizes in the slides.
        gate_softmax: softmax over the two adapters (``adapter``, TORA) or over the tokens of each (``token``).
        gate_heads: heads of the gate; None for as many as the model's attention has.
    """

    method: Method = "tora"
    reduction: int = 16
    gate_softmax: Softmax = "adapter"
    gate_heads: int | None = None

    def __post_init__(self) -> None:
        for name, known in (("method", METHODS), ("gate_softmax", GATES)):
            value = getattr(self, name)
            if value not in known:
                raise HoldfastError(f"{name} must be one of {', '.join(known)}, got {value!r}{nearest(value, known)}")
        if self.reduction < 1:
            raise HoldfastError(f"reduction must be at least 1, got {self.reduction}")


class PairLayer(nn.Module):
    """Both adapters of a block and their fusion."""

    def __init__(self, dim: int, heads: int, settings: ToraSettings, gate: type[Fusion]) -> None:
        super().__init__()
        width = max(1, dim // settings.reduction)
        self.acc, self.rob = Adapter(dim, width), Adapter(dim, width)
        self.fusion = gate(dim, settings.gate_heads or heads)

    def adapt(self, z: Tensor, streams: Streams) -> tuple[Tensor, Tensor]:
        """The outputs of the two adapters, (B, N, D) each."""
        raise NotImplementedError

    def shares(self, z: Tensor, streams: Streams) -> tuple[Tensor, Tensor]:
        """The first query's weights of the adapters' tokens, see `Fusion.shares`."""
        return self.fusion.shares(z, *self.adapt(z, streams))


class ToraLayer(PairLayer):
    """a = ψ_A([ACC] ‖ z_2:), r = ψ_R([ROB] ‖ z_2:); next input z + o^A + o^R; [ACC] = a_1 + o^A_1, [ROB] = r_1 + o^R_1.

    Adapters process each token separately: with the slides' [ACC] = a_1 alone, it would not depend on the image.
    """

    def __init__(self, dim: int, heads: int, settings: ToraSettings) -> None:
        super().__init__(dim, heads, settings, GATES[settings.gate_softmax])

    def adapt(self, z: Tensor, streams: Streams) -> tuple[Tensor, Tensor]:
        """Each adapter gets its own stream in place of the class token."""
        others = z[:, 1:]
        acc, rob = (torch.cat([streams[name], others], dim=1) for name in ("acc", "rob"))
        return self.acc(acc), self.rob(rob)

    def forward(self, z: Tensor, streams: Streams, last: bool) -> tuple[Tensor, Streams]:
        """Tokens and streams after one block → those for the next; after the last block only the streams matter."""
        a, r = self.adapt(z, streams)
        both, acc = self.fusion(z[:, :1] if last else z, a, r)
        new = {"acc": a[:, :1] + acc, "rob": r[:, :1] + both[:, :1] - acc}
        return (z if last else z + both), new


class AdapterFusionLayer(PairLayer):
    """Both adapters get all tokens and are fused token by token; the streams sum the class token's updates."""

    def __init__(self, dim: int, heads: int, settings: ToraSettings) -> None:
        super().__init__(dim, heads, settings, PlaceGate)

    def adapt(self, z: Tensor, streams: Streams) -> tuple[Tensor, Tensor]:
        """Each adapter gets the block's tokens."""
        return self.acc(z), self.rob(z)

    def forward(self, z: Tensor, streams: Streams, last: bool) -> tuple[Tensor, Streams]:
        """Tokens and streams for the next block, see `ToraLayer.forward`."""
        z = z[:, :1] if last else z
        both, acc = self.fusion(z, *self.adapt(z, streams))
        new = {"acc": streams["acc"] + acc, "rob": streams["rob"] + both[:, :1] - acc}
        return (z if last else z + both), new


class SingleLayer(nn.Module):
    """Single adapter: the next block's input is ψ(z)."""

    def __init__(self, dim: int, heads: int, settings: ToraSettings) -> None:
        super().__init__()
        self.adapter = Adapter(dim, max(1, dim // settings.reduction))

    def forward(self, z: Tensor, streams: Streams, last: bool) -> tuple[Tensor, Streams]:
        """Tokens and streams for the next block, see `ToraLayer.forward`."""
        return self.adapter(z[:, :1] if last else z), streams


@dataclass(frozen=True)
class MethodParts:
    """The modules of a method: a layer per block, heads, and learned initial streams."""

    layer: Callable[[int, int, ToraSettings], nn.Module] | None
    heads: tuple[str, ...]
    tokens: tuple[str, ...]


METHODS: dict[str, MethodParts] = {
    "tora": MethodParts(ToraLayer, heads=("acc", "rob"), tokens=("acc", "rob")),
    "adapter-fusion": MethodParts(AdapterFusionLayer, heads=("acc", "rob"), tokens=("acc", "rob")),
    "single-adapter": MethodParts(SingleLayer, heads=("joint",), tokens=("joint",)),
    "head-only": MethodParts(None, heads=("acc", "rob"), tokens=()),
}


class ToraViT(nn.Module):
    """A frozen ViT with added modules and three predictions: ``acc``, ``rob`` and their mean ``joint``.

    A head reads norm(z_L,1 + stream) with z_L,1 the class token after the last block. Initially the streams and the
    layers' updates are zero and the heads are copies of the pretrained one, so every prediction equals the pretrained
    model's. The pretrained head stays in place, unused, and counts as parameters.
    """

    backbone: Any  # a VisionTransformer
    settings: ToraSettings

    def __init__(self, backbone: Any, settings: ToraSettings) -> None:
        super().__init__()
        self.settings, self.backbone = settings, backbone
        dim, heads, parts = backbone.embed_dim, backbone.blocks[0].attn.num_heads, METHODS[settings.method]
        self.layers = nn.ModuleList([parts.layer(dim, heads, settings) for _ in backbone.blocks] if parts.layer else [])
        self.heads = nn.ModuleDict({name: _copy(backbone.head) for name in parts.heads})
        self.tokens = nn.ParameterDict({name: nn.Parameter(torch.zeros(dim)) for name in parts.tokens})
        reference = backbone.head.weight
        for added in (self.layers, self.heads, self.tokens):
            added.to(reference.device, reference.dtype)
        self.grad_checkpointing = False
        backbone.requires_grad_(False)
        self.train(backbone.training)

    @property
    def pretrained_cfg(self) -> dict[str, Any]:
        """The pretrained model's data configuration, with an architecture such as ``tora(vit_nano)``."""
        cfg = self.backbone.pretrained_cfg
        return {**cfg, "architecture": f"{self.settings.method}({cfg.get('architecture')})"}

    default_cfg = pretrained_cfg

    @property
    def patch_embed(self) -> nn.Module:
        """The pretrained model's patch embedding, from which `holdfast.watch` gets the token grid."""
        return self.backbone.patch_embed

    @property
    def num_classes(self) -> int:
        """The number of classes of every head."""
        return self.backbone.num_classes

    @property
    def view_names(self) -> tuple[str, ...]:
        """The names of the predictions."""
        return ("joint",) if "joint" in self.heads else ("joint", *self.heads)

    def train(self, mode: bool = True) -> "ToraViT":
        """Set the mode of the added modules; the frozen model stays in evaluation mode."""
        super().train(mode)
        self.backbone.eval()
        return self

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute blocks and adapters in the backward pass."""
        self.grad_checkpointing = enable

    def streams(self, images: Tensor) -> tuple[Tensor, Streams]:
        """The class token after the last block, (B, D), and the streams [ACC]_L and [ROB]_L, (B, D)."""
        vit, count = self.backbone, images.shape[0]  # len() would freeze an exported batch
        z = vit.norm_pre(vit.patch_drop(vit._pos_embed(vit.patch_embed(images))))
        streams = {name: token.expand(count, 1, -1) for name, token in self.tokens.items()}
        for number, block in enumerate(vit.blocks):
            step = _Step(block, self.layers[number] if self.layers else None, last=number == len(vit.blocks) - 1)
            if self.grad_checkpointing and self.training:
                z, streams = checkpoint(step, z, streams, use_reentrant=False)
            else:
                z, streams = step(z, streams)
        return z[:, 0], {name: stream[:, 0] for name, stream in streams.items()}

    def views(self, images: Tensor) -> dict[str, Tensor]:
        """Logits of every prediction, (B, classes) each."""
        logits = self._logits(images, tuple(self.heads))
        return {"joint": _mean(logits), **logits}

    def forward(self, images: Tensor, view: str = "joint") -> Tensor:
        """Logits of one prediction, (B, classes); ``each`` gives those of every head, (heads, B, classes)."""
        if view == "each":
            return torch.stack(list(self._logits(images, tuple(self.heads)).values()))
        if view not in self.view_names:
            raise HoldfastError(f"view must be one of {', '.join(self.view_names)}, got {view!r}")
        return _mean(self._logits(images, (view,) if view in self.heads else tuple(self.heads)))

    def _logits(self, images: Tensor, names: tuple[str, ...]) -> dict[str, Tensor]:
        vit = self.backbone
        z, streams = self.streams(images)
        read = {name: z + streams[name] if name in streams else z for name in names}
        return {name: self.heads[name](vit.head_drop(vit.fc_norm(vit.norm(x)))) for name, x in read.items()}


def tora(
    model: nn.Module,
    *,
    method: Method = "tora",
    reduction: int = 16,
    gate_softmax: Softmax = "adapter",
    gate_heads: int | None = None,
) -> ToraViT:
    """Add TORA's adapters, gates and heads to a pretrained ViT, which is frozen and not copied.

    Args:
        model: a plain ViT or DeiT of timm with a class token, or vit_nano.
        method: see `ToraSettings`, also for the other arguments.
        reduction: ratio of the model's width to the adapters'.
        gate_softmax: ``adapter`` or ``token``.
        gate_heads: heads of the gate.
    """
    return ToraViT(_plain_vit(model), ToraSettings(method, reduction, gate_softmax, gate_heads))


@torch.no_grad()
def gate_maps(model: ToraViT, images: Tensor) -> dict[str, Tensor]:
    """The weights of the class token's gate for each adapter's patches: ``acc`` and ``rob``, (B, L, rows, columns).

    The mean over heads, as in the slides' figures. For ``adapter-fusion``, each token's own weights.
    """
    if model.settings.method not in ("tora", "adapter-fusion"):
        raise HoldfastError(f"gate maps need method tora or adapter-fusion, got {model.settings.method!r}")
    seen: list[tuple[Tensor, Tensor]] = []
    hooks = [
        layer.register_forward_pre_hook(lambda layer, args: seen.append(layer.shares(*args[:2])))
        for layer in model.layers
    ]
    try:
        model(images)
    finally:
        for hook in hooks:
            hook.remove()
    grid = model.backbone.patch_embed.dynamic_feat_size(images.shape[-2:])
    prefix = model.backbone.num_prefix_tokens
    stacked = [torch.stack([shares[side] for shares in seen], dim=1)[:, :, prefix:] for side in (0, 1)]
    return {name: maps.unflatten(2, grid) for name, maps in zip(("acc", "rob"), stacked, strict=True)}


def describe(settings: ToraSettings) -> dict[str, Any]:
    """The settings as plain data."""
    return asdict(settings)


class _Step:
    """One block and the layer added after it."""

    def __init__(self, block: nn.Module, layer: nn.Module | None, *, last: bool) -> None:
        self.block, self.layer, self.last = block, layer, last

    def __call__(self, z: Tensor, streams: Streams) -> tuple[Tensor, Streams]:
        z = self.block(z)
        return self.layer(z, streams, self.last) if self.layer is not None else (z, streams)


def _mean(logits: dict[str, Tensor]) -> Tensor:
    return torch.stack(list(logits.values())).mean(dim=0)


def _copy(head: nn.Linear) -> nn.Linear:
    copied = nn.Linear(head.in_features, head.out_features, bias=head.bias is not None, device=head.weight.device)
    copied.load_state_dict(head.state_dict())
    return copied


def _plain_vit(model: Any) -> VisionTransformer:
    kind = type(model).__name__
    if isinstance(model, ToraViT):
        raise HoldfastError("this model has adapters already: pass the pretrained model to tora()")
    plain = isinstance(model, VisionTransformer) and all(
        getattr(type(model), name) is getattr(VisionTransformer, name) for name in ("forward_features", "forward_head")
    )
    if not plain or not model.has_class_token or model.global_pool != "token":
        raise HoldfastError(
            "TORA needs a plain ViT or DeiT of timm that reads its class token (vit_nano, vit_base_patch16_224, "
            f"deit_small_patch16_224), got {kind}{_why_not(model, plain=plain)}"
        )
    if not isinstance(model.head, nn.Linear):
        raise HoldfastError("TORA copies the pretrained head: give a model with one, got num_classes=0")
    return model


def _why_not(model: Any, *, plain: bool) -> str:
    if not plain:
        return ""
    if not model.has_class_token:
        return " without a class token"
    return f" with global_pool={model.global_pool!r}"
