"""C-bar as suites: on the fly at the magnitudes of the preset, and stored in the published layouts."""

import numpy as np
import pytest
from PIL import Image

from holdfast import EvalProtocol, evaluate
from holdfast.cli.main import main
from holdfast.corruptions import C_BAR_SUITES, SEVERITIES, corrupt, keyed, parameters
from holdfast.data import open_official
from holdfast.errors import HoldfastError
from tests.data.test_official_set_readers import WNIDS, write_image
from tests.evaluation.toys import Brightest, brightest_channel, colours

QUICK = {"workers": 0, "show": False}
IMAGENET, CIFAR = C_BAR_SUITES["imagenet-c-bar"], C_BAR_SUITES["cifar-c-bar"]


def test_the_suite_of_small_images_is_made_at_its_own_magnitudes():
    source = colours(3)
    records = evaluate(Brightest(), source, "cifar-c-bar", seed=7, **QUICK)
    assert list(records.cells) == [f"{kind}/{severity}" for kind in CIFAR for severity in SEVERITIES]
    for kind, severity in [("sparkles", 3), ("blue_noise_sample", 5), ("lines", 5)]:
        expected = [
            brightest_channel(
                corrupt(image, kind, severity=severity, preset="cifar", rng=keyed(7, source.id(i), kind, severity))
            )
            for i, image in enumerate(source.images)
        ]
        assert records.cells[f"{kind}/{severity}"].predictions.tolist() == expected
    assert records.cells["sparkles/3"].header["parameters"] == {"magnitude": 5.6}
    assert records.cells["sparkles/3"].header["suite"] == "cifar-c-bar"
    assert 0 <= records.summary()["mean_c_bar_accuracy"].value <= 100


def test_a_suite_is_refused_where_its_kinds_would_have_other_magnitudes():
    with pytest.raises(HoldfastError, match="suite 'imagenet-c-bar' needs one of the presets imagenet, inception, any"):
        evaluate(Brightest(), colours(3), "imagenet-c-bar", **QUICK)
    with pytest.raises(
        HoldfastError, match="needs one of the presets cifar, tiny, got 'any'; use suite 'imagenet-c-bar'"
    ):
        evaluate(Brightest(), colours(3), "cifar-c-bar", protocol=EvalProtocol(preset="any"), **QUICK)
    any_size = evaluate(Brightest(), colours(2), "imagenet-c-bar", protocol=EvalProtocol(preset="any"), **QUICK)
    assert list(any_size.cells) == [f"{kind}/{severity}" for kind in IMAGENET for severity in SEVERITIES]


def folder_names(kind, layout):
    if layout == "severities":
        return [str(severity) for severity in SEVERITIES]
    return [f"{parameters(kind, severity, preset='imagenet')['magnitude']:.2f}" for severity in SEVERITIES]


@pytest.mark.parametrize("layout", ["severities", "magnitudes"])
def test_stored_imagenet_c_bar_is_read_in_both_layouts(tmp_path, layout):
    for kind in IMAGENET:
        for severity, folder in enumerate(folder_names(kind, layout), start=1):
            for label, wnid in enumerate(WNIDS):
                write_image(tmp_path / kind / folder / wnid / "val_0.JPEG", red=40 * label + severity)
    stored = open_official(f"imagenet-c-bar:{tmp_path}")
    assert (stored.suite, stored.preset, stored.missing, len(stored.cells)) == ("imagenet-c-bar", "imagenet", (), 50)
    if layout == "magnitudes":
        assert (tmp_path / "caustic_refraction" / "9.15").is_dir()
    source = stored.open("caustic_refraction/5")
    assert source.targets.tolist() == [0, 1, 2]
    assert np.asarray(source.image(2))[0, 0, 0] == pytest.approx(85, abs=3)
    (tmp_path / "plasma_noise").rename(tmp_path / "elsewhere")
    partial = open_official(f"imagenet-c-bar:{tmp_path}")
    assert partial.missing == tuple(f"plasma_noise/{severity}" for severity in SEVERITIES)


def test_stored_cifar_c_bar_holds_the_severities_below_one_another(tmp_path):
    for kind in CIFAR:
        images = np.repeat(np.arange(5, dtype=np.uint8) * 50, 4)[:, None, None, None]
        np.save(tmp_path / f"{kind}.npy", np.broadcast_to(images, (20, 32, 32, 3)))
    np.save(tmp_path / "labels.npy", np.tile(np.arange(4), 5))
    stored = open_official(f"cifar10-c-bar:{tmp_path}")
    assert (stored.suite, stored.preset, stored.missing, len(stored.cells)) == ("cifar-c-bar", "cifar", (), 50)
    source = stored.open("ripple/4")
    assert (len(source), source.targets.tolist()) == (4, [0, 1, 2, 3])
    assert np.asarray(source.image(0)).max() == 150


def test_what_holdfast_corrupt_writes_is_measured_like_the_images_on_the_fly(tmp_path):
    rng = np.random.default_rng(0)
    for number, wnid in enumerate(WNIDS):
        pixels = rng.integers(0, 200, (224, 224, 3), dtype=np.uint8)
        pixels[..., number] += 40
        (tmp_path / "val" / wnid).mkdir(parents=True)
        Image.fromarray(pixels).save(tmp_path / "val" / wnid / "0.png")
    stored = tmp_path / "stored"
    folders = [str(tmp_path / "val"), str(stored)]
    assert main(["corrupt", *folders, "--kinds", "sparkles,lines", "--preset", "imagenet"]) == 0
    assert len(list(stored.rglob("*.png"))) == 30
    there = open_official(f"imagenet-c-bar:{stored}")
    assert there.names == tuple(f"sparkles/{severity}" for severity in SEVERITIES)
    image = np.asarray(Image.open(tmp_path / "val" / WNIDS[1] / "0.png"))
    draws = keyed(0, f"{WNIDS[1]}/0.png", "sparkles", 4)
    expected = corrupt(image, "sparkles", severity=4, preset="imagenet", rng=draws)
    assert (np.asarray(there.open("sparkles/4").image(1)) == expected).all()
