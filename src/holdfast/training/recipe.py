"""The recipe of a training run, as dataclasses without torch, so that ``holdfast train --help`` is fast.

Every value can be overridden on the command line by its path (``--train.epochs=10``); recipe_files.py reads the files.
"""

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class DataRecipe:
    """Where images come from and how large they become.

    Args:
        train: training images: digits, npz:FILE, folder:DIR, cifar10:[DIR], cifar100:[DIR], or several with +.
        val: source for the clean accuracy after every epoch.
        train_subset: use only a count (≥ 1) or fraction (< 1) of the training images, stratified by class.
        val_subset: likewise for validation.
        download: fetch a missing CIFAR archive.
        size: side of the square images that the model sees; null for the model's own.
        mean: channel means to subtract; null for the model's own.
        std: channel deviations to divide by; null for the model's own.
        crop_pct: share of the resized image that the validation crop keeps; null for the model's own.
        workers: loader processes of each process; the result does not depend on it.
        skip_bad: replace unreadable images by their neighbours and go on, instead of stopping.
        exif: ignore rotations that EXIF data of a folder's images ask for, as torchvision and timm, or apply them.
    """

    train: str = "digits"
    val: str = "digits"
    train_subset: int | float | None = None
    val_subset: int | float | None = None
    download: bool = False
    size: int | None = None
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None
    crop_pct: float | None = None
    workers: int = 2
    skip_bad: bool = False
    exif: Literal["ignore", "apply"] = "ignore"


@dataclass(frozen=True)
class AdaptRecipe:
    """What is added to the frozen model of ``model.init``; only that learns.

    Args:
        name: a registered way to adapt a model; `holdfast list methods` shows them.
        options: its arguments, such as reduction.
        start: run folder whose added parts this run starts from; phases fill it in.
    """

    name: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    start: str | None = None


@dataclass(frozen=True)
class MixRecipe:
    """Weights that are averages of those of other models; nothing is trained then (`holdfast mix`).

    Args:
        parents: the models, as run:DIR, run:DIR@best or timm:NAME[@FILE]; of an interpolation the start comes first.
        rule: interpolate between two (WiSE-FT), the uniform mean of all, or a greedy soup.
        alpha: weight of the second of two: 0 is the first, 1 the second.
        greedy: a greedy soup accepts what raises the validation score (released) or does not lower it (paper).
        images: training images, at most, on which BatchNorm's statistics are estimated anew.
    """

    parents: list[str] = field(default_factory=list)
    rule: Literal["interpolate", "uniform", "greedy"] = "interpolate"
    alpha: float = 0.5
    greedy: Literal["released", "paper"] = "released"
    images: int = 10_000


@dataclass(frozen=True)
class ModelRecipe:
    """What is trained, and from where it starts.

    Args:
        name: a model of Holdfast or timm; null if init names it.
        kwargs: further arguments of the model, such as drop_path_rate.
        init: start from timm:NAME (pretrained), a weight file, or run:DIR; null for random weights.
        init_weights: which weights of a file or run that has both: ema (averaged), raw, or auto for ema.
        needs_init: the recipe is meant to start from weights, so a run without init is warned of.
        head: new gives a fresh head, keep insists on the initial one, auto keeps it if the number of classes fits.
        frozen: modules or parameters that stay as they are, by name (blocks.0, patch_embed).
        adapt: see AdaptRecipe; null trains the model itself.
        mix: see MixRecipe; null for a model that is trained.
    """

    name: str | None = None
    kwargs: dict[str, Any] = field(default_factory=dict)
    init: str | None = None
    init_weights: Literal["auto", "ema", "raw"] = "auto"
    needs_init: bool = False
    head: Literal["auto", "new", "keep"] = "auto"
    frozen: list[str] = field(default_factory=list)
    adapt: AdaptRecipe | None = None
    mix: MixRecipe | None = None


@dataclass(frozen=True)
class AugmentRecipe:
    """How training images are varied.

    Args:
        crop: resized (random area and ratio), pad (pad and crop) or none (resize only).
        scale: smallest and largest area of a resized crop.
        ratio: smallest and largest aspect ratio of a resized crop.
        pad: pixels of padding of a pad crop.
        interpolation: bicubic, bilinear, or random between the two.
        hflip: probability of mirroring left and right.
        vflip: probability of mirroring top and bottom.
        color_jitter: strength of colour changes; inactive under rand_augment, as in timm.
        rand_augment: timm's policy string, such as rand-m9-mstd0.5-inc1; null for none.
        corruption: arguments of holdfast.corruptions.RandomCorruption; null for none.
        erasing: probability of erasing a rectangle.
        erasing_mode: what it is filled with: pixel noise, one random colour, or the mean.
        erasing_order: every image before mixing (RVT), or the mixed batch after it (FAN).
        mixup: mixup's alpha; 0 for none.
        cutmix: cutmix' alpha; 0 for none.
        mix_probability: probability that a batch is mixed at all.
        mix_switch: probability of cutmix where both are on.
        mix_mode: one mixture for the batch, for pairs, or for every image.
        mix_off_epoch: no mixing from this epoch on; 0 for always.
        smoothing: label smoothing.
        joint: how images with label maps are varied instead, arguments of JointAugmentation; null for its defaults.
        repeats: copies of every image in an epoch of unchanged length (repeated augmentation).
        object_crop: of detection: probability of a smaller scale and a random crop, before the detector's own scale.
        object_scales: of detection: the short sides that are drawn from before such a crop.
        object_crop_sides: of detection: smallest and largest side of such a crop.
    """

    crop: Literal["resized", "pad", "none"] = "resized"
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    pad: int = 4
    interpolation: Literal["bicubic", "bilinear", "random"] = "bicubic"
    hflip: float = 0.5
    vflip: float = 0.0
    color_jitter: float = 0.0
    rand_augment: str | None = None
    corruption: dict[str, Any] | None = None
    erasing: float = 0.0
    erasing_mode: Literal["pixel", "rand", "const"] = "pixel"
    erasing_order: Literal["before", "after"] = "before"
    mixup: float = 0.0
    cutmix: float = 0.0
    mix_probability: float = 1.0
    mix_switch: float = 0.5
    mix_mode: Literal["batch", "pair", "elem"] = "batch"
    mix_off_epoch: int = 0
    smoothing: float = 0.0
    joint: dict[str, Any] | None = None
    repeats: int = 1
    object_crop: float = 0.0
    object_scales: tuple[int, ...] = (400, 500, 600)
    object_crop_sides: tuple[int, int] = (384, 600)


@dataclass(frozen=True)
class ObjectiveRecipe:
    """What it is trained for.

    Args:
        name: a registered objective.
        options: its arguments.
    """

    name: str = "cross_entropy"
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SamRecipe:
    """Sharpness-aware minimisation: steps by the gradient at the weights + ε, for two passes a step.

    Args:
        rho: length of ε; published are 0.05 (SAM) and 0.5 (ASAM).
        adaptive: measure ε relative to the size of every weight (ASAM).
        eta: of ASAM: added to the size of every weight.
    """

    rho: float = 0.05
    adaptive: bool = False
    eta: float = 0.01


@dataclass(frozen=True)
class OptimizerRecipe:
    """How weights move. Biases, norms and what the model names (class tokens, …) are not decayed.

    Args:
        name: an optimizer of timm.
        lr: peak learning rate.
        lr_base_batch: scale lr by (global batch / this); null to take lr as it is.
        weight_decay: decoupled weight decay.
        layer_decay: factor on the learning rate per layer below the head (fine-tuning); null for none.
        lr_factors: factors on lr for parts that start from nothing, by their names, such as dilation_predictor of TAP;
            layer_decay does not count there.
        clip_grad: largest gradient norm; null for no clipping.
        groups: timm's rules, or segmentation for those of the published segmentors: the head learns ten times faster,
            and only names with norm in them are not decayed.
        options: further arguments of the optimizer, such as betas.
        sam: see SamRecipe; null for plain steps.
    """

    name: str = "adamw"
    lr: float = 1e-3
    lr_base_batch: int | None = None
    weight_decay: float = 0.05
    layer_decay: float | None = None
    lr_factors: dict[str, float] = field(default_factory=dict)
    clip_grad: float | None = None
    groups: Literal["timm", "segmentation"] = "timm"
    options: dict[str, Any] = field(default_factory=dict)
    sam: SamRecipe | None = None


@dataclass(frozen=True)
class ScheduleRecipe:
    """A cosine with a linear warm-up, steps, or the linear fall of the published segmentors.

    Args:
        shape: cosine, or poly: linear to 0 behind a warm-up of warmup_steps; then only warmup_steps counts below.
        warmup_steps: steps of poly's warm-up.
        warmup_epochs: epochs of warm-up, counted within the cosine, as in timm; also a part of one.
        warmup_lr: learning rate of the first step.
        min_lr: learning rate at the end.
        cooldown_epochs: further epochs at min_lr.
        every: change the learning rate every step, or every epoch (as timm 0.5 did).
        drops: epochs after which the learning rate falls to a tenth, instead of the cosine.
    """

    shape: Literal["cosine", "poly"] = "cosine"
    warmup_steps: int = 1500
    warmup_epochs: int | float = 5
    warmup_lr: float = 1e-6
    min_lr: float = 1e-6
    cooldown_epochs: int = 0
    every: Literal["step", "epoch"] = "step"
    drops: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class PhasesRecipe:
    """How an adapted model is trained, phase after phase.

    Args:
        run: one phase by its name; all trains every phase in its order, each in its folder.
        weights: weights from 0 to 1; the last phase is trained once for each, all from the same first phases.
        first_epochs: epochs of every phase but the last; null for train.epochs.
    """

    run: str = "all"
    weights: list[float] | None = None
    first_epochs: int | None = None


@dataclass(frozen=True)
class ProbeRecipe:
    """A first phase that fits the head to the frozen features, before everything is trained (LP-FT).

    Args:
        only: stop after it: a linear probe.
        eval_mode: train in evaluation mode afterwards, as published: norms keep their statistics, nothing is dropped.
        images: training images, at most, that the head is fitted to.
    """

    only: bool = False
    eval_mode: bool = True
    images: int = 50_000


@dataclass(frozen=True)
class TrainRecipe:
    """The loop.

    Args:
        epochs: length of the cosine in epochs; cooldown_epochs come on top.
        steps: length of the run in optimizer steps instead, where it is published so; null for epochs. An option
            --train.epochs replaces it.
        batch_size: images per process and forward pass; the global batch is this × processes × accumulate.
        accumulate: forward passes per optimizer step.
        global_batch: images per optimizer step over all processes, to which a published learning rate belongs;
            batch_size and accumulate are then the most images per pass and the fewest passes. null for the product of
            the three.
        sync_bn: normalise by the statistics of all processes on CUDA (torch's SyncBatchNorm), as the released
            segmentors and detectors; TAP's own batch norm stays plain.
        ema: decay of the averaged weights; null for none.
        ema_warmup: let the decay grow with the number of steps, for short runs.
        precision: no, bf16 or fp16; auto takes half precision on CUDA only, where it helps.
        device: auto, cpu or cuda.
        grad_checkpointing: recompute activations in the backward pass to save memory.
        compile: compile the model with torch.compile.
        checkpoint_steps: also save within an epoch, every so many steps; 0 for epoch ends only.
        keep_epochs: keep every so many epochs' checkpoint for good; 0 for last and best only.
        eval_epochs: measure the clean accuracy every so many epochs, and after the last.
        log_steps: write a line of the log every so many steps.
        trackers: tensorboard, wandb, or any other tracker of accelerate.
        phases: see PhasesRecipe; null for one phase, or all in their order where an adapted model has several.
        probe: see ProbeRecipe; null trains everything from the first step.
    """

    epochs: int = 10
    steps: int | None = None
    batch_size: int = 64
    accumulate: int = 1
    global_batch: int | None = None
    sync_bn: bool = False
    ema: float | None = None
    ema_warmup: bool = False
    precision: Literal["auto", "no", "bf16", "fp16"] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    grad_checkpointing: bool = False
    compile: bool = False
    checkpoint_steps: int = 0
    keep_epochs: int = 0
    eval_epochs: int = 1
    log_steps: int = 20
    trackers: list[str] = field(default_factory=list)
    phases: PhasesRecipe | None = None
    probe: ProbeRecipe | None = None


@dataclass(frozen=True)
class Recipe:
    """A complete training run. Written into the run's folder as recipe.yaml, and runnable from there.

    Args:
        seed: everything random follows from it.
        data: see DataRecipe.
        model: see ModelRecipe.
        augment: see AugmentRecipe.
        objective: see ObjectiveRecipe.
        optimizer: see OptimizerRecipe.
        schedule: see ScheduleRecipe.
        train: see TrainRecipe.
    """

    seed: int = 0
    data: DataRecipe = field(default_factory=DataRecipe)
    model: ModelRecipe = field(default_factory=ModelRecipe)
    augment: AugmentRecipe = field(default_factory=AugmentRecipe)
    objective: ObjectiveRecipe = field(default_factory=ObjectiveRecipe)
    optimizer: OptimizerRecipe = field(default_factory=OptimizerRecipe)
    schedule: ScheduleRecipe = field(default_factory=ScheduleRecipe)
    train: TrainRecipe = field(default_factory=TrainRecipe)
