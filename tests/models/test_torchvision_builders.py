"""torchvision's segmenters and detectors by name, with their own transforms, from files of people's own."""

import numpy as np
import pytest
import torch
from torchvision import models as tv

from holdfast import evaluate, predict
from holdfast.data.scenes import SceneSource
from holdfast.errors import HoldfastError
from holdfast.evaluation.config import EvalProtocol
from holdfast.metrics.iou import pixel_counts
from holdfast.models.factory import load_model
from holdfast.models.torchvision_builders import builder_names
from tests.tasks.detectors import IDS, coco_folder

CLASSES = 11


@pytest.fixture(scope="module")
def lraspp(tmp_path_factory):
    """The smallest segmenter, of the scenes' eleven classes."""
    torch.manual_seed(0)
    model = tv.get_model("lraspp_mobilenet_v3_large", weights=None, weights_backbone=None, num_classes=CLASSES).eval()
    path = tmp_path_factory.mktemp("torchvision") / "lraspp.pth"
    torch.save(model.state_dict(), path)
    return model, path


def test_every_builder_of_both_kinds_is_known():
    names = builder_names()
    assert {"fcn_resnet50", "deeplabv3_resnet101", "lraspp_mobilenet_v3_large", "ssd300_vgg16"} <= set(names)
    assert {"fcos_resnet50_fpn", "retinanet_resnet50_fpn_v2", "maskrcnn_resnet50_fpn"} <= set(names)
    with pytest.raises(HoldfastError, match=r"torchvision:fcn_resnet5 is no segmenter or detector.*fcn_resnet50"):
        load_model("torchvision:fcn_resnet5")


def test_a_segmenter_sees_images_as_the_transforms_of_its_weights_make_them(lraspp):
    model, path = lraspp
    source, preset = (
        SceneSource("test", count=2),
        tv.get_model_weights("lraspp_mobilenet_v3_large").DEFAULT.transforms(),
    )
    records = evaluate(f"torchvision:lraspp_mobilenet_v3_large@{path}", source, workers=0, show=False)
    total = 0
    for index in range(2):
        image = torch.from_numpy(np.array(source.image(index))).permute(2, 0, 1) / 255
        with torch.inference_mode():
            logits = model(preset(image)[None])["out"]
            back = torch.nn.functional.interpolate(logits, size=image.shape[1:], mode="bilinear")
        total = total + pixel_counts(back[0].argmax(0).numpy().astype(np.uint8), source.target(index), classes=CLASSES)
    got = records.cells["clean"].counts.sum(axis=0)
    assert np.abs(got - total).sum() <= 1e-3 * total[0].sum()  # pixels where two classes are equal to the sixth digit
    assert records.header["preprocessing"]["model_size"].startswith("short side 520, bilinear")
    assert records.header["preprocessing"]["mean"] == pytest.approx(preset.mean)
    assert records.header["architecture"] == "lraspp_mobilenet_v3_large"


def test_it_has_a_gradient_another_size_and_overlays(lraspp, tmp_path):
    spec, source = f"torchvision:lraspp_mobilenet_v3_large@{lraspp[1]}", SceneSource("test", count=1)
    records = evaluate(spec, source, "clean,segpgd5", workers=0, show=False, protocol=EvalProtocol(size=64))
    assert set(records.cells) == {"clean", "segpgd5"}
    assert "short side 64" in records.header["preprocessing"]["model_size"]
    source.image(0).save(tmp_path / "scene.png")
    (found,) = predict(spec, tmp_path / "scene.png", protocol=EvalProtocol(size=64), overlays=tmp_path / "seen")
    assert found.rows[0]["share"] > 0
    assert (tmp_path / "seen" / "scene.png").is_file()


@pytest.mark.parametrize("name", ["ssdlite320_mobilenet_v3_large", "fasterrcnn_mobilenet_v3_large_320_fpn"])
def test_a_detector_is_measured_and_drawn_as_torchvision_answers(name, tmp_path):
    torch.manual_seed(0)
    model = tv.get_model(name, weights=None, weights_backbone=None, num_classes=1 + len(IDS)).eval()
    torch.save(model.state_dict(), tmp_path / "m.pth")
    folder = tmp_path / "coco"
    folder.mkdir()
    data = coco_folder(folder, images=2)
    one = evaluate(f"torchvision:{name}@{tmp_path / 'm.pth'}", data, workers=0, show=False)
    other = evaluate(model, data, workers=0, show=False)
    for field in ("boxes", "scores", "labels"):
        ours, theirs = (np.concatenate(records.cells["clean"].fields[field]) for records in (one, other))
        np.testing.assert_array_equal(ours, theirs)
    (found,) = predict(f"torchvision:{name}@{tmp_path / 'm.pth'}", folder / "0.png", overlays=tmp_path / "seen")
    assert (tmp_path / "seen" / "0.png").is_file()
    assert set(found.rows[0]) == {"class", "score", "box"} if found.rows else True


def test_weights_of_something_else_and_a_missing_network_are_one_sentence(lraspp, tmp_path, monkeypatch):
    with pytest.raises(HoldfastError, match="must hold the weights of fcn_resnet50"):
        load_model(f"torchvision:fcn_resnet50@{lraspp[1]}")

    def offline(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", offline)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", offline)
    with pytest.raises(HoldfastError, match=r"cannot be fetched \(no route to host\); with a file at hand"):
        load_model("torchvision:lraspp_mobilenet_v3_large")
