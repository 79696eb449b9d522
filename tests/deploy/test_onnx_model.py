"""Models as they are deployed: what an ONNX file must say, what is refused, and that it answers as it should."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

import onnx
from onnx import TensorProto, helper

from holdfast import analyze, evaluate
from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.evaluation.config import ComputeConfig, EvalProtocol
from holdfast.models.factory import load_model
from tests.evaluation.toys import Brightest, colours
from tests.models.onnx_graphs import PLAIN, brightest


def measured(path, suites="clean", **options):
    return evaluate(f"onnx:{path}", colours(30), suites, workers=0, show=False, **options)


def same(one, other):
    return all(
        np.array_equal(held.predictions, other.cells[name].predictions)
        and np.allclose(held.nll, other.cells[name].nll, atol=1e-5)
        for name, held in one.cells.items()
    )


@pytest.mark.parametrize("batch", ["batch", 1, 7, 64])
def test_a_file_answers_as_the_model_it_stands_for_whatever_its_batch(tmp_path, batch):
    path = brightest(tmp_path / "m.onnx", batch=batch)
    suites = ["clean", "occlusion-random"]
    wanted = evaluate(Brightest(), colours(30), suites, workers=0, show=False)
    assert same(measured(path, suites, compute=ComputeConfig(batch_size=16)), wanted)


def test_halves_and_doubles_are_fed_as_they_are_wanted(tmp_path):
    images = torch.rand(3, 3, 32, 32)
    wanted = Brightest()(images)
    for kind, tolerance in ((TensorProto.FLOAT16, 2e-2), (TensorProto.DOUBLE, 1e-5)):
        model = load_model(f"onnx:{brightest(tmp_path / 'm.onnx', kind=kind)}").model
        assert torch.allclose(model(images), wanted, atol=tolerance)
    with pytest.raises(HoldfastError, match=r"must take images .* tensor\(uint8\)"):
        load_model(f"onnx:{brightest(tmp_path / 'm.onnx', kind=TensorProto.UINT8)}")


def test_another_file_is_another_model(tmp_path):
    one = measured(brightest(tmp_path / "m.onnx"))
    other = measured(brightest(tmp_path / "m.onnx", scale=np.full(1, 21, np.float32)))
    assert one.header["model_fingerprint"] != other.header["model_fingerprint"]
    assert one.header["model_fingerprint"] == measured(brightest(tmp_path / "n.onnx")).header["model_fingerprint"]


def test_probabilities_are_taken_as_such(tmp_path):
    logits = measured(brightest(tmp_path / "m.onnx"))
    told = measured(brightest(tmp_path / "p.onnx", softmax=True, told=replace(PLAIN, output="probabilities")))
    asked = measured(brightest(tmp_path / "q.onnx", softmax=True), protocol=EvalProtocol(probabilities=True))
    assert np.allclose(told.cells["clean"].confidences, logits.cells["clean"].confidences, atol=1e-5)
    assert same(told, logits)
    assert same(asked, logits)


def test_what_a_file_does_not_say_must_be_said(tmp_path):
    path = brightest(tmp_path / "m.onnx", told=None)
    with pytest.raises(HoldfastError, match="does not define its mean and std: add --mean and --std"):
        measured(path)
    protocol = EvalProtocol(mean=(0.1, 0.2, 0.3), std=(1, 1, 1))
    got = measured(path, protocol=protocol)
    assert got.header["preprocessing"]["mean"] == [0.1, 0.2, 0.3]
    assert same(got, evaluate(Brightest(), colours(30), workers=0, show=False, protocol=protocol))
    with pytest.raises(HoldfastError, match="does not define its size and mean and std"):
        measured(brightest(tmp_path / "m.onnx", side=None, told=None))


def test_classes_are_matched_by_name_and_other_names_are_refused(tmp_path):
    swapped = brightest(tmp_path / "swapped.onnx", told=replace(PLAIN, classes=("red", "blue", "green")))
    assert measured(swapped).header["class_names"] == ["red", "blue", "green"]
    path = brightest(tmp_path / "m.onnx", told=replace(PLAIN, classes=("red", "azure", "blue")))
    with pytest.raises(HoldfastError, match="number 1 is 'azure' for the model"):
        measured(path)


@pytest.mark.parametrize("suite", ["fgsm", "pgd5", "patch-fool", "occlusion-learned"])
def test_attacks_that_climb_a_gradient_are_refused_before_anything_is_measured(tmp_path, suite):
    path = brightest(tmp_path / "m.onnx")
    with pytest.raises(HoldfastError, match="needs gradients, which ONNX files and int8 models do not have"):
        measured(path, ["clean", suite], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_nobody_looks_inside_a_file(tmp_path):
    with pytest.raises(HoldfastError, match="needs the layers of a model, which an ONNX file does not have"):
        analyze(f"onnx:{brightest(tmp_path / 'm.onnx')}", colours(4), out=tmp_path / "out", show=False)
    assert not (tmp_path / "out").exists()


def test_damaged_files_get_a_sentence(tmp_path, capsys):
    whole = brightest(tmp_path / "m.onnx").read_bytes()
    rng = np.random.default_rng(0)
    broken = [
        b"",
        b"PK\3\4",
        b"\x08\x09",
        rng.bytes(500),
        json.dumps({"a": 1}).encode(),
        whole[:-40],
        whole[: len(whole) // 2],
    ]
    for number, content in enumerate(broken):
        path = tmp_path / f"{number}.onnx"
        path.write_bytes(content)
        with pytest.raises(HoldfastError, match=r"damaged|cannot open|what .* says of itself|does not say"):
            measured(path)
    for place in (tmp_path, tmp_path / "nowhere.onnx"):
        with pytest.raises(HoldfastError, match=r"cannot be read|must be a file"):
            measured(place)
    assert main(["evaluate", "--model", f"onnx:{tmp_path / '3.onnx'}", "--data", "digits"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "link/secret", "folder/../../secret"])
def test_weights_outside_of_the_models_folder_are_never_opened(tmp_path, location):
    folder = tmp_path / "model"
    (folder / "folder").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(bytes(4))
    (folder / "link").symlink_to(tmp_path)
    path = brightest(folder / "m.onnx")
    model = onnx.load(str(path))
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", location
    path.write_bytes(model.SerializeToString())
    with pytest.raises(HoldfastError, match="must keep its weights in its own folder"):
        measured(path)


def test_weights_beside_the_file_are_read_and_count_for_its_name(tmp_path):
    scale = np.full(3, 20, np.float32)
    path = brightest(tmp_path / "m.onnx", scale=scale, save_as_external_data=True, location="w.bin", size_threshold=0)
    one = measured(path)
    assert same(one, measured(brightest(tmp_path / "n.onnx")))
    (tmp_path / "w.bin").write_bytes((2 * scale).tobytes() + (tmp_path / "w.bin").read_bytes()[12:])
    assert measured(path).header["model_fingerprint"] != one.header["model_fingerprint"]
    (tmp_path / "w.bin").unlink()
    with pytest.raises(HoldfastError, match="which does not exist"):
        measured(path)


def test_hostile_graphs_end_with_a_sentence(tmp_path):
    huge = [
        helper.make_node(
            "Constant", [], ["shape"], value=helper.make_tensor("v", TensorProto.INT64, [2], [2**20, 2**28])
        ),
        helper.make_node("ConstantOfShape", ["shape"], ["ones"]),
        helper.make_node("ReduceSum", ["ones"], ["unused"], keepdims=0),
    ]
    foreign = [helper.make_node("Steal", ["mean"], ["unused"], domain="some.where")]
    for nodes in (huge, foreign):
        with pytest.raises(HoldfastError, match=r"onnxruntime cannot open|the model fails on images"):
            measured(
                brightest(tmp_path / "m.onnx", nodes=[*nodes, helper.make_node("Add", ["logits", "unused"], ["x"])])
            )
