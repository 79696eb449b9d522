"""Segmenters and detectors of transformers: what its own processor and post-processing give, image by image."""

import numpy as np
import pytest
import torch

pytest.importorskip("transformers", reason="needs the extra hf")

import transformers as hf
from PIL import Image

from holdfast import evaluate, export, predict
from holdfast.data.scenes import SceneSource
from holdfast.deploy.detection_layouts import LAYOUTS  # noqa: F401 - the module must import without onnx
from holdfast.errors import HoldfastError
from holdfast.evaluation.config import EvalProtocol
from holdfast.metrics.iou import pixel_counts
from holdfast.models.factory import load_model
from tests.tasks.detectors import IDS, coco_folder

CLASSES = 11
SWIN = {"embed_dim": 8, "depths": [1, 1, 1, 1], "num_heads": [1, 1, 2, 2], "window_size": 4, "image_size": 64}


def names(count):
    return {"id2label": {n: f"class {n}" for n in range(count)}, "label2id": {f"class {n}": n for n in range(count)}}


def segformer():
    config = hf.SegformerConfig(
        num_encoder_blocks=4, depths=[1] * 4, hidden_sizes=[8, 8, 16, 16], num_attention_heads=[1, 1, 2, 2],
        decoder_hidden_size=16, **names(CLASSES),
    )  # fmt: skip
    processor = hf.SegformerImageProcessor(size={"height": 64, "width": 96}, image_mean=[0.4, 0.5, 0.6])
    return hf.SegformerForSemanticSegmentation(config), processor


def upernet():
    stages = ["stage1", "stage2", "stage3", "stage4"]
    backbone = hf.ConvNextConfig(depths=[1] * 4, hidden_sizes=[8, 8, 16, 16], out_features=stages)
    config = hf.UperNetConfig(backbone_config=backbone, hidden_size=16, auxiliary_in_channels=16, **names(CLASSES))
    processor = hf.SegformerImageProcessor(size={"height": 64, "width": 64})
    return hf.UperNetForSemanticSegmentation(config), processor


def mask2former():
    backbone = hf.SwinConfig(**SWIN, out_features=["stage1", "stage2", "stage3", "stage4"])
    config = hf.Mask2FormerConfig(
        backbone_config=backbone, hidden_dim=32, feature_size=32, mask_feature_size=32, num_queries=6, encoder_layers=1,
        decoder_layers=2, dim_feedforward=16, encoder_feedforward_dim=16, num_attention_heads=2, **names(CLASSES),
    )  # fmt: skip
    processor = hf.Mask2FormerImageProcessor(size={"height": 64, "width": 64})
    return hf.Mask2FormerForUniversalSegmentation(config), processor


def detr(classes=3):
    backbone = hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[1] * 4, out_features=["stage4"])
    config = hf.DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=backbone, d_model=16,
        encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=16,
        decoder_ffn_dim=16, num_queries=8, **names(classes),
    )  # fmt: skip
    return hf.DetrForObjectDetection(config), hf.DetrImageProcessor(size={"shortest_edge": 64, "longest_edge": 96})


def yolos(classes=14):
    config = hf.YolosConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=[64, 64],
        patch_size=8, num_detection_tokens=8, use_mid_position_embeddings=False, **names(classes),
    )  # fmt: skip
    return hf.YolosForObjectDetection(config), hf.YolosImageProcessor(size={"shortest_edge": 64, "longest_edge": 96})


def rt_detr(classes=3):
    backbone = hf.RTDetrResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16, 16, 16], depths=[1] * 4, out_features=["stage2", "stage3", "stage4"],
        layer_type="basic",
    )  # fmt: skip
    config = hf.RTDetrConfig(
        backbone_config=backbone, use_timm_backbone=False, encoder_hidden_dim=16, encoder_in_channels=[16, 16, 16],
        encoder_ffn_dim=16, encoder_attention_heads=2, d_model=16, decoder_in_channels=[16] * 3, decoder_ffn_dim=16,
        decoder_layers=1, decoder_attention_heads=2, num_queries=8, num_denoising=0, encoder_layers=1, **names(classes),
    )  # fmt: skip
    return hf.RTDetrForObjectDetection(config), hf.RTDetrImageProcessor(size={"height": 64, "width": 64})


def saved(make, folder):
    torch.manual_seed(0)
    model, processor = make()
    model.eval().save_pretrained(folder)
    processor.save_pretrained(folder)
    return model, processor


@pytest.mark.parametrize("make", [segformer, upernet, mask2former], ids=lambda make: make.__name__)
def test_label_maps_are_those_of_transformers_post_processing(make, tmp_path):
    model, processor = saved(make, tmp_path / "model")
    source, total = SceneSource("test", count=2), 0
    for index in range(2):
        picture = source.image(index)
        with torch.inference_mode():
            outputs = model(**processor(picture, return_tensors="pt"))
        sizes = [(picture.height, picture.width)]
        (seen,) = processor.post_process_semantic_segmentation(outputs, target_sizes=sizes)
        total = total + pixel_counts(seen.numpy().astype(np.uint8), source.target(index), classes=CLASSES)
    protocol = EvalProtocol(classes_differ=True)
    records = evaluate(f"hf:{tmp_path / 'model'}", source, workers=0, show=False, protocol=protocol)
    got = records.cells["clean"].counts.sum(axis=0)
    assert np.abs(got - total).sum() <= 2e-3 * total[0].sum()  # ties in the sixth digit
    assert records.header["preprocessing"]["model_size"].startswith("as its processor says: ")


@pytest.mark.parametrize("make", [detr, yolos, rt_detr], ids=lambda make: make.__name__)
def test_boxes_are_those_of_transformers_in_pixels_of_the_image(make, tmp_path):
    model, processor = saved(make, tmp_path / "model")
    folder = tmp_path / "coco"
    folder.mkdir()
    data = coco_folder(folder, images=2)
    protocol = EvalProtocol(classes_differ=True)
    records = evaluate(f"hf:{tmp_path / 'model'}", data, workers=0, show=False, protocol=protocol)
    for number, name in enumerate(("0.png", "1.png")):
        picture = Image.open(folder / name).convert("RGB")
        with torch.inference_mode():
            outputs = model(**processor(picture, return_tensors="pt"))
        sizes = [(picture.height, picture.width)]
        (found,) = processor.post_process_object_detection(outputs, threshold=0.0, target_sizes=sizes)
        labels = found["labels"].numpy()
        known = np.isin(labels, IDS) if make is yolos else np.ones(len(labels), bool)
        wanted = [IDS.index(each) for each in labels[known]] if make is yolos else labels
        cell = records.cells["clean"].fields
        np.testing.assert_allclose(cell["boxes"][number], found["boxes"].numpy()[known], atol=2e-3)
        np.testing.assert_array_equal(cell["labels"][number], wanted)
    assert records.header["preprocessing"]["class_ids"] == ("category-ids" if make is yolos else "ranks")


def test_segmenters_have_a_gradient_and_both_draw(tmp_path):
    saved(segformer, tmp_path / "segformer")
    saved(detr, tmp_path / "detr")
    source = SceneSource("test", count=1)
    protocol = EvalProtocol(classes_differ=True)
    spec = f"hf:{tmp_path / 'segformer'}"
    records = evaluate(spec, source, "clean,segpgd5", workers=0, show=False, protocol=protocol)
    clean, attacked = (records.cells[name].counts[:, 2].sum() for name in ("clean", "segpgd5"))
    assert attacked < clean
    source.image(0).save(tmp_path / "scene.png")
    for name in ("segformer", "detr"):
        (found,) = predict(f"hf:{tmp_path / name}", tmp_path / "scene.png", overlays=tmp_path / f"seen-{name}")
        assert str(found.rows[0]["class"]).startswith("class ")
        assert (tmp_path / f"seen-{name}" / "scene.png").is_file()


def test_what_does_not_fit_is_one_sentence(tmp_path):
    saved(lambda: detr(7), tmp_path / "seven")
    folder = tmp_path / "coco"
    folder.mkdir()
    data = coco_folder(folder, images=2)
    with pytest.raises(HoldfastError, match=r"must have the 3 classes of the data .*got 7"):
        evaluate(f"hf:{tmp_path / 'seven'}", data, workers=0, show=False)
    with pytest.raises(HoldfastError, match="mean of an hf: model is set by its own processor"):
        evaluate(f"hf:{tmp_path / 'seven'}", data, workers=0, show=False, protocol=EvalProtocol(mean=(0, 0, 0)))
    with pytest.raises(HoldfastError, match="cannot be exported: its processor prepares images outside of the network"):
        export(f"hf:{tmp_path / 'seven'}", tmp_path / "m.onnx", data)
    assert not (tmp_path / "m.onnx").exists()
    (tmp_path / "seven" / "preprocessor_config.json").unlink()
    with pytest.raises(
        HoldfastError, match="must be an image classifier, segmenter or detector of transformers with its"
    ):
        load_model(f"hf:{tmp_path / 'seven'}")
