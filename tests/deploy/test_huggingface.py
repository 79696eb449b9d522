"""Classifiers of transformers: the same answers as by transformers alone, or one sentence."""

import json

import numpy as np
import pytest
import torch

pytest.importorskip("transformers", reason="needs the extra hf")

import transformers
from PIL import Image

from holdfast import evaluate
from holdfast.deploy.huggingface import preprocessing_of
from holdfast.errors import HoldfastError
from holdfast.models.factory import load_model
from tests.evaluation.toys import colours


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small ViT with a preprocessing of its own, as people save it."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("hf") / "vit"
    names = {0: "red", 1: "green", 2: "blue"}
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=32, patch_size=8,
        id2label=names, label2id={name: number for number, name in names.items()},
    )  # fmt: skip
    transformers.ViTForImageClassification(config).save_pretrained(path)
    transformers.ViTImageProcessor(
        size={"height": 32, "width": 32}, image_mean=[0.4, 0.5, 0.6], image_std=[0.2, 0.25, 0.3]
    ).save_pretrained(path)
    return path


def test_answers_are_those_of_transformers_with_its_own_preprocessing(folder):
    source = colours(12)
    records = evaluate(f"hf:{folder}", source, "clean,fgsm", workers=0, show=False)  # a gradient it has
    model = transformers.AutoModelForImageClassification.from_pretrained(folder).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    pictures = [source.image(index) for index in range(len(source))]
    with torch.inference_mode():
        logits = model(**processor(pictures, return_tensors="pt")).logits
    clean = records.cells["clean"]
    wanted = logits.log_softmax(1)
    assert np.array_equal(clean.predictions, logits.argmax(1).numpy())
    assert np.allclose(clean.nll, -wanted[torch.arange(12), torch.tensor(source.targets)].numpy(), atol=1e-4)
    assert records.header["architecture"] == "vit"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"do_normalize": False},
        {"rescale_factor": 1 / 127.5},
        {"do_rescale": False, "image_mean": [100.0, 110.0, 120.0], "image_std": [50.0, 60.0, 70.0]},
    ],
)
def test_every_way_to_rescale_and_normalise_is_one_mean_and_std(options):
    processor = transformers.ViTImageProcessor(size={"height": 32, "width": 32}, **options)
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    wanted = np.asarray(processor(Image.fromarray(pixels), return_tensors="np")["pixel_values"])[0]
    told = preprocessing_of(processor, name="x")
    mean, std = (np.array(told[key]) for key in ("mean", "std"))
    assert np.allclose(((pixels / 255 - mean) / std).transpose(2, 0, 1), wanted, atol=1e-4)


def test_what_is_no_classifier_gets_a_sentence(folder, tmp_path):
    import shutil

    with pytest.raises(HoldfastError, match="must be an image classifier, segmenter or detector of transformers"):
        load_model(f"hf:{tmp_path}")
    headless = tmp_path / "headless"
    transformers.ViTModel.from_pretrained(folder).save_pretrained(headless)
    shutil.copy(folder / "preprocessor_config.json", headless)
    with pytest.raises(HoldfastError, match="must hold all weights of a classifier, but classifier"):
        load_model(f"hf:{headless}")
    pickled = tmp_path / "pickled"
    shutil.copytree(folder, pickled)
    (pickled / "model.safetensors").unlink()
    torch.save({}, pickled / "pytorch_model.bin")
    with pytest.raises(HoldfastError, match="in safetensors"):
        load_model(f"hf:{pickled}")
    code = tmp_path / "code"
    shutil.copytree(folder, code)
    told = json.loads((code / "config.json").read_text())
    auto = {"AutoConfig": "own.Config", "AutoModelForImageClassification": "own.Model"}
    (code / "config.json").write_text(json.dumps({**told, "model_type": "own", "auto_map": auto}))
    (code / "own.py").write_text("raise SystemExit('this code was run')")
    with pytest.raises(HoldfastError, match="must be an image classifier"):
        load_model(f"hf:{code}")
