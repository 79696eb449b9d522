"""From a model to a file and back: exported, measured, quantised, and through the gate."""

import json

import numpy as np
import pytest
import timm
import torch

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

import onnx
import onnxruntime

import holdfast
from holdfast import evaluate
from holdfast.cli.main import main
from holdfast.data import open_data
from holdfast.deploy.onnx_files import METADATA
from holdfast.errors import HoldfastError
from holdfast.inference.export import export
from holdfast.models.factory import load_model
from holdfast.records.records import load_records
from tests.training.helpers import run


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A run, measured and exported by the command line."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    run(folder, model={"name": "fan_nano", "kwargs": {"depth": 1}})
    assert main(["evaluate", str(folder), "--suite", "clean,occlusion-random", "--limit", "60", "--workers", "0"]) == 0
    assert main(["export", str(folder)]) == 0
    return folder


def test_a_run_is_exported_and_its_file_gives_the_answers_of_the_run(exported, tmp_path, capsys):
    path = exported / "model.onnx"
    graph = onnx.load(str(path))
    assert not graph.graph.value_info  # onnxruntime's quantisation stumbles over it
    told = json.loads(next(entry.value for entry in graph.metadata_props if entry.key == METADATA))
    assert (told["task"], told["size"], told["output"]) == ("classification", [32, 32], "logits")
    arguments = ["--data", "digits:test", "--suite", "clean,occlusion-random", "--limit", "60", "--workers", "0"]
    assert main(["evaluate", "--model", f"onnx:{path}", *arguments, "--out", str(tmp_path / "onnx")]) == 0
    (theirs,), (ours,) = load_records(tmp_path / "onnx"), load_records(exported)
    assert list(theirs.cells) == ["clean", "occlusion-random"]
    for name, cell in ours.cells.items():
        assert np.array_equal(theirs.cells[name].predictions, cell.predictions)
        assert np.allclose(theirs.cells[name].nll, cell.nll, atol=1e-5)
    assert main(["gate", str(tmp_path / "onnx"), "--against", str(exported), "--margin", "5"]) == 0
    assert main(["evaluate", "--model", f"onnx:{path}", "--data", "digits", "--suite", "pgd5"]) == 2
    assert "needs gradients" in capsys.readouterr().err


def test_the_walk_to_int8_and_through_the_gate(exported, tmp_path, capsys):
    from onnxruntime.quantization import quantize_dynamic

    small = tmp_path / "int8.onnx"
    quantize_dynamic(exported / "model.onnx", small)
    assert small.stat().st_size < 0.5 * (exported / "model.onnx").stat().st_size
    baseline = tmp_path / "baseline.json"
    assert main(["gate", str(exported), "--save", str(baseline)]) == 0
    arguments = [
        "--model",
        f"onnx:{small}",
        "--against",
        str(baseline),
        "--out",
        str(tmp_path / "int8"),
        "--workers",
        "0",
    ]
    assert main(["gate", *arguments, "--margin", "100", "--unresolved", "fail"]) == 0  # any answers are no worse by 100
    (records,) = load_records(tmp_path / "int8")
    assert records.header["model"] == f"onnx:{small}"
    assert "clean no worse" in capsys.readouterr().out


def test_pt2_is_written_and_not_read(exported, tmp_path):
    assert main(["export", str(exported), "--to", "pt2", "--out", str(tmp_path / "m.pt2")]) == 0
    program = torch.export.load(tmp_path / "m.pt2").module()  # a file of our own
    model = load_model(f"run:{exported}").model.eval()
    for count in (1, 3):
        images = torch.randn(count, 3, 32, 32)
        assert torch.allclose(program(images), model(images), atol=1e-5)
    with pytest.raises(HoldfastError, match="model must be a module, a run's folder or a spec"):
        load_model(f"pt2:{tmp_path / 'm.pt2'}")


def test_what_cannot_be_exported_gets_a_sentence_and_leaves_nothing(exported, tmp_path, capsys):
    class Branching(torch.nn.Module):
        num_classes = 10

        def forward(self, images):
            return images.mean((2, 3)) if images.sum().item() > 0 else images.amax((2, 3))

    out = tmp_path / "m.onnx"
    with pytest.raises(HoldfastError, match=r"cannot be exported|must answer"):
        export(Branching(), out, "digits", size=32)
    for arguments, sentence in (
        ([str(exported), "--to", "tflite"], "to must be one of onnx, pt2"),
        ([f"onnx:{exported / 'model.onnx'}", "--data", "digits", "--out", str(out)], "an exported file"),
        (["timm:vit_nano", "--data", "digits"], "needs --out FILE"),
        ([str(exported), "--out", str(tmp_path)], "--out must be a file"),
        ([str(exported), "--data", "scene-objects", "--out", str(out)], "classifiers and segmenters"),
    ):
        assert main(["export", *arguments]) == 2
        assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def of_name(name):
    if name == "tora":
        return holdfast.tora(timm.create_model("vit_tiny_patch16_224", num_classes=10))
    if name == "segmenter":
        return holdfast.segmenter("fan_tiny_8_p4_hybrid", num_classes=11, window=128)
    return timm.create_model(name, num_classes=10)


def digits(count, size):
    """Real images of the model's size, normalised."""
    source = open_data("digits", split="train")
    pictures = [np.array(source.image(index).convert("RGB").resize((size, size))) for index in range(count)]
    return (torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25


@pytest.mark.full
@pytest.mark.timeout(3600)  # 1000 forward passes at 224 px
@pytest.mark.parametrize(
    "name", ["fan_tiny_12_p16_224", "fan_tiny_8_p4_hybrid", "rvt_tiny", "tap_fan_tiny_8_p4_hybrid", "tora"]
)
def test_every_family_answers_alike_on_500_images_and_in_batches_of_1_2_and_5(tmp_path, name):
    torch.manual_seed(0)
    model = of_name(name).eval()
    assert export(model, tmp_path / "m.onnx", "digits") <= 1e-4
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    images = digits(500, 224)
    largest, same = 0.0, 0
    starts = [0, 1, 3, *range(8, 498, 5), 498]
    for start, stop in zip(starts, [*starts[1:], 500], strict=True):
        batch = images[start:stop]
        (theirs,) = session.run(None, {"images": batch.numpy()})
        with torch.inference_mode():
            ours = model(batch).numpy()
        largest = max(largest, float(np.abs(theirs - ours).max()))
        same += int((theirs.argmax(1) == ours.argmax(1)).sum())
    print(f"{name}: at most {largest:.2g}, {same} of 500 answers")
    assert largest <= 1e-4
    assert same == 500


@pytest.mark.full
@pytest.mark.parametrize(("data", "window"), [("scenes", "96×128"), ("scenes:test,160x192,4", "128×128")])
def test_a_segmenter_is_exported_and_asked_window_by_window(tmp_path, caplog, data, window):
    torch.manual_seed(0)
    model = of_name("segmenter").eval()
    print("segmenter: at most", export(model, tmp_path / "m.onnx", data))
    options = {"limit": 2, "workers": 0, "show": False}
    ours = evaluate(model, data, **options)
    theirs = evaluate(f"onnx:{tmp_path / 'm.onnx'}", data, **options)
    assert window in theirs.header["preprocessing"]["inference"]  # smaller images are whole, larger ones in windows
    assert "are padded" not in caplog.text
    assert (
        np.abs(theirs.cells["clean"].counts - ours.cells["clean"].counts).sum()
        <= 0.001 * ours.cells["clean"].counts.sum()
    )
