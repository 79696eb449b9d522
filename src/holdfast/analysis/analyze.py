"""``holdfast.analyze``: runs the analyses of one model on one data set and stores results to draw figures from."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from holdfast.analysis.base import Tick
from holdfast.analysis.probe import NotApplicable, Probe, find_corruptor, parse_cell
from holdfast.analysis.registry import ANALYSES, headlines
from holdfast.analysis.results import AnalysisResult, load_result, result_folder, save_result
from holdfast.analysis.settings import Settings
from holdfast.analysis.token_features import check_names
from holdfast.corruptions import recorded_name
from holdfast.data import Source
from holdfast.data.fingerprints import content_fingerprint, data_fingerprint, fingerprint
from holdfast.data.fingerprints import versions as library_versions
from holdfast.errors import HoldfastError
from holdfast.evaluation.config import BENCHMARK, EvalProtocol
from holdfast.evaluation.data import EvaluationData, open_evaluation_data, with_model_labels
from holdfast.evaluation.model_input import check_side
from holdfast.evaluation.normalized_model import NormalizedModel
from holdfast.evaluation.predictor import Predictor, given_normalisation, requested_input
from holdfast.evaluation.preprocessing import Preprocessing, choose_preset, largest_size, preprocessing
from holdfast.io import atomic
from holdfast.io.validation import chosen_names
from holdfast.models.factory import LoadedModel, load_torch_model
from holdfast.models.flops import count_model
from holdfast.registry import model_spec
from holdfast.runtime.device import unwrap_model
from holdfast.runtime.plugins import plugins_header
from holdfast.runtime.progress import ProgressLine
from holdfast.tasks import task_of

logger = logging.getLogger(__name__)

# analyses preprocess clean images like corrupted ones, to compare the two position by position
ONLY_OF_CELLS = ("clean", "preparation")

NOT_DETECTORS = "holdfast analyze supports classifiers and the encoders of segmenters, not detectors"


@dataclass(frozen=True, eq=False)
class Analysed:
    """The analysis results of one model on one data set.

    Attributes:
        results: results by name of the analysis.
        skipped: the reasons why analyses were not possible, by name.
        folder: the folder of the results, if they are stored.
    """

    results: Mapping[str, AnalysisResult]
    skipped: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None

    def summary(self) -> dict[str, float]:
        """The headline numbers of all results, by name."""
        return headlines(list(self.results.values()))


@torch.no_grad()
def analyze(
    model: nn.Module | str | Path,
    data: Source | Dataset[Any] | DataLoader[Any] | Sequence[Any] | str,
    analyses: str | Sequence[str] | None = None,
    *,
    settings: Settings | None = None,
    out: Path | str | None = None,
    label: str | None = None,
    limit: int | None = 256,
    size: int | tuple[int, int] | None = None,
    preset: str | None = None,
    protocol: EvalProtocol | None = None,
    corruptor: Path | str | None = None,
    seed: int = 0,
    batch_size: int = 32,
    device: str = "auto",
    fresh: bool = False,
    show: bool | None = None,
) -> Analysed:
    """Analyse why a model is robust or fails.

    An analysis that the model does not support (attention of a convolutional network) is skipped with a reason. Stored
    results of the same model, images and settings are read, not computed again.

    Args:
        model: a module, or ``run:DIR``, ``timm:NAME[@CHECKPOINT]``, ``local-dir:DIR``, ``python:module:function``.
        data: a spec such as ``digits`` or ``folder:DIR``, or a source.
        analyses: names from `holdfast.analysis.registry.ANALYSES`; a comma list or a sequence; all by default.
        settings: see `holdfast.analysis.settings.Settings`.
        out: the folder for ``analysis/``; by default the run folder of ``run:DIR``, else nothing is stored.
        label: the model's name in figures; by default the run folder or the model's name.
        limit: number of images to use, stratified by class; None or 0 for all.
        size: the model's image size; by default from its configuration, or the images' own for label maps. Grouping at
            448 px: ``size=448``; a segmenter's encoder at 1024×2048: ``size=(1024, 2048)``.
        preset: the corruptions' protocol, see `holdfast.evaluate`; ``any`` if a size is given.
        protocol: mean, std, interpolation and other settings of `holdfast.evaluate`. Clean images are preprocessed like
            corrupted ones, since the two are compared position by position.
        corruptor: file of a corruption model for ``patches``; an AFAT run has its own.
        seed: seed of corruptions, masks and noise.
        batch_size: images per forward pass, fewer for large images; does not change results.
        device: ``auto``, ``cpu``, ``cuda`` …; a module stays where it is with ``auto``.
        fresh: compute everything again.
        show: show progress; None shows it on a terminal.
    """
    names = parse_analyses(tuple(ANALYSES) if analyses is None else analyses)
    settings = settings or Settings()
    for cell in settings.cells:
        parse_cell(cell)
    if batch_size < 1:
        raise HoldfastError(f"batch_size must be at least 1, got {batch_size}")
    given = protocol or EvalProtocol()
    given = replace(given, size=size if size is not None else given.size, preset=preset or given.preset)
    opened, source = _open(data, limit, given)
    if not task_of(source).evaluation.tensor_outputs:
        raise HoldfastError(NOT_DETECTORS)
    loaded = load_torch_model(model, what="holdfast analyze")
    loaded = replace(loaded, model=unwrap_model(loaded.model))
    if given.size is not None:
        check_side(given.size)
        if not loaded.given:
            _set_size(loaded.model, given.size)
    options: dict[str, Any] = {"device": device, "steps": lambda model: _steps(model, source, given)}
    with (
        torch.inference_mode(False),
        torch.no_grad(),
        Predictor.open(loaded, opened, given, **options) as predictor,
    ):
        steps = predictor.steps
        judge, network = predictor.normalized_model, predictor.loaded.model
        # analyses look inside the model itself, so its outputs stay as they are and wnid folders get their indices
        every = "all" if opened.task.scoring.one_class else None  # the choice of answers is a classifier's
        opened = with_model_labels(opened, loaded.classes, judge.probe, classes=every)
        source = opened.source or source
        answers = _predicts_targets(judge, source)
        file = Path(corruptor) if corruptor is not None else None
        patches_by = find_corruptor(file, loaded.folder) if answers or file is not None else None
        subject = Probe(judge.pixels, source, steps, seed, batch_size, answers, patches_by)
        # a misspelt module must not be found after minutes of other analyses
        check_names(dict(unwrap_model(subject.inner).named_modules()), settings.modules)
        header = {
            "label": label or _label(loaded),
            "model": loaded.name,
            "model_fingerprint": judge.identify(network)[0],
            "data": opened.spec,
            "data_content": opened.content,
            **_describe_images(subject),
        }
        folder = _folder(Path(out).expanduser() if out is not None else loaded.folder, opened.label, header)
        with atomic.remove_on_failure(folder, unless=lambda: False) if folder is not None else nullcontext():
            return _run_all(names, subject, settings, header=header, folder=folder, fresh=fresh, show=show)


def _steps(model: nn.Module, source: Source, given: EvalProtocol) -> Preprocessing:
    """Preprocessing as for classifiers; for label maps at the images' own size."""
    dense = not task_of(source).scoring.one_class
    if not dense:
        wanted = requested_input(model, given)
    else:
        wanted = requested_input(model, given, size=given.size or largest_size(source), preparation=BENCHMARK)
    preset = given.preset or ("any" if given.size or dense else choose_preset(source, wanted))
    return preprocessing(preset, wanted, prepared=getattr(source, "prepared", None), images=source)


def _predicts_targets(judge: NormalizedModel, source: Source) -> bool:
    """Whether the model's classes are those of the data; False for segmenters, which predict no class of an image."""
    logits = judge.probe[judge.views[0]]
    if not isinstance(logits, torch.Tensor):
        raise HoldfastError(NOT_DETECTORS)
    one_class = logits.ndim == 2 and task_of(source).scoring.one_class
    return one_class and logits.shape[-1] == len(source.classes)


def parse_analyses(analyses: str | Sequence[str]) -> tuple[str, ...]:
    """Names of analyses, from a comma list or a sequence; each once."""
    return chosen_names(analyses, ANALYSES, one="analysis", several="analyses")


def _run_all(
    names: Sequence[str],
    subject: Probe,
    settings: Settings,
    *,
    header: dict[str, Any],
    folder: Path | None,
    fresh: bool,
    show: bool | None,
) -> Analysed:
    results: dict[str, AnalysisResult] = {}
    skipped: dict[str, str] = {}
    for name in names:
        analysis = ANALYSES[name]
        mine = {**header, "settings": analysis.relevant_settings(settings), "definition": analysis.definition}
        kept = None if fresh or folder is None else _stored_result(folder / f"{name}.safetensors", mine)
        if kept is not None:
            results[name] = kept
            continue
        try:
            with _progress(name, analysis.ticks(len(subject.source), settings), show=show) as tick:
                facts, arrays = analysis.run(subject, settings, tick)
        except NotApplicable as error:
            skipped[name] = str(error)
            continue
        results[name] = AnalysisResult(name, {**mine, **facts}, arrays)
        if folder is not None:
            save_result(folder, results[name])
    if not results:
        raise HoldfastError("; ".join(f"{name} is not possible: {why}" for name, why in skipped.items()))
    return Analysed(results, skipped, folder)


def _stored_result(path: Path, header: dict[str, Any]) -> AnalysisResult | None:
    """A stored result of the same model, images and settings; the label may differ."""
    if not path.is_file():
        return None
    try:
        result = load_result(path)
    except HoldfastError as error:
        logger.warning("%s; it is computed again", error)
        return None
    stored = {"definition": 1, **result.header}
    stored.setdefault("data_content", header.get("data_content"))  # older results have only names and sizes
    same = all(stored.get(key) == value for key, value in header.items() if key not in ("label", "model"))
    same = same and stored.get("plugins") == header.get("plugins")
    return AnalysisResult(result.kind, {**result.header, "label": header["label"]}, result.arrays) if same else None


@contextmanager
def _progress(name: str, total: int, *, show: bool | None) -> Iterator[Tick]:
    with ProgressLine(name, total=total, unit="images", show=show, header=f"analysing: {name}") as line:
        yield line.advance


def _open(data: Any, limit: int | None, given: EvalProtocol) -> tuple[EvaluationData, Source]:
    opened = open_evaluation_data(data, limit=limit, exif=given.exif, **given_normalisation(given))
    if opened.source is None:
        raise HoldfastError(f"data must be pictures that can be corrupted, got the stored set {opened.spec!r}")
    if not len(opened.source):
        raise HoldfastError(f"data {opened.spec!r} must hold at least one image, got none")
    return opened, opened.source


def _describe_images(subject: Probe) -> dict[str, Any]:
    """Header fields about the images and their preprocessing."""
    source, steps = subject.source, subject.steps
    ids = [source.id(number) for number in range(len(source))]
    cost = count_model(subject.model.model, steps.fixed_size)
    return {
        "data_fingerprint": data_fingerprint(
            ids, task_of(source).evaluation.truth(source), content=content_fingerprint(source)
        ),
        "images": len(source),
        "answers": subject.answers,
        "seed": subject.seed,
        "preset": steps.preset,
        "preprocessing": {key: value for key, value in steps.record().items() if key not in ONLY_OF_CELLS},
        "size": list(steps.fixed_size),
        "frost": recorded_name("frost"),
        "cost": {"parameters": cost.parameters, "gmacs": cost.gmacs},
        "versions": library_versions(),
        **plugins_header(),
    }


def _folder(root: Path | None, label: str, header: dict[str, Any]) -> Path | None:
    if root is None:
        return None
    parts = ("data_fingerprint", "preprocessing", "seed", "preset")
    return result_folder(root, label, fingerprint({key: header[key] for key in parts}))


def _set_size(model: nn.Module, size: int | tuple[int, int]) -> None:
    """Set the image size of a timm ViT or Swin; other models adapt to their input."""
    if hasattr(model, "set_input_size"):
        model.set_input_size(img_size=(size, size) if isinstance(size, int) else size)


def _label(loaded: LoadedModel) -> str:
    if loaded.folder is not None:
        return loaded.folder.resolve().name
    return model_spec(loaded.name).architecture
