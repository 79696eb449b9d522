"""Every suite on data whose score can be counted by hand."""

import numpy as np
import pytest
from PIL import Image
from torch import nn

from holdfast import ComputeConfig, EvalProtocol, evaluate
from holdfast.corruptions import EXTRA, SEVERITIES, STANDARD, corrupt, keyed
from holdfast.corruptions.sequences import TEST_SEQUENCES, frame_count, perturb
from holdfast.errors import HoldfastError
from holdfast.evaluation.loader import fitting_shard
from holdfast.evaluation.suites import SUITES, assign, expand_standard
from holdfast.published import published
from holdfast.tasks import task_named
from tests.evaluation.toys import Brightest, ByLevel, brightest_channel, colours, plain

QUICK = {"workers": 0, "show": False}


def test_clean_is_what_the_pixels_say():
    source = colours(30)
    cell = evaluate(Brightest(), source, "clean", **QUICK).cells["clean"]
    assert cell.predictions.tolist() == [brightest_channel(image) for image in source.images]
    assert 0.5 < cell.accuracy < 1
    logits = 20 * source.images.reshape(30, -1, 3).mean(axis=1) / 255
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(cell.confidences, probabilities.max(axis=1), rtol=1e-4)
    np.testing.assert_allclose(cell.nll, -np.log(probabilities[np.arange(30), source.targets]), rtol=1e-4)
    assert cell.top5.all()  # of three classes


@pytest.mark.parametrize("extra", [False, True])
def test_corruptions_are_those_of_the_catalogue_keyed_by_image(extra):
    source = colours(3)
    records = evaluate(Brightest(), source, "corruptions", seed=7, protocol=EvalProtocol(extra=extra), **QUICK)
    kinds = STANDARD + EXTRA if extra else STANDARD
    assert list(records.cells) == [f"{kind}/{severity}" for kind in kinds for severity in SEVERITIES]
    for kind, severity in [("gaussian_noise", 5), ("contrast", 5), ("frost", 3), ("brightness", 5), (kinds[-1], 1)]:
        expected = [
            brightest_channel(
                corrupt(image, kind, severity=severity, preset="cifar", rng=keyed(7, source.id(i), kind, severity))
            )
            for i, image in enumerate(source.images)
        ]
        assert records.cells[f"{kind}/{severity}"].predictions.tolist() == expected
    assert records.cells["fog/3"].header["parameters"]["amount"] == 0.75
    assert records.header["preset"] == "cifar"
    assert records.header["label"] == "on-the-fly"


def test_fewer_severities_are_a_part_of_the_whole_suite(tmp_path):
    """Measured first, they are not measured again; both together are the whole."""
    source = colours(3)
    some = evaluate(Brightest(), source, "corruptions-135", out=tmp_path, **QUICK)
    assert list(some.cells) == [f"{kind}/{severity}" for kind in STANDARD for severity in (1, 3, 5)]
    mean = np.mean([cell.accuracy for cell in some.cells.values()])
    assert some.summary(intervals=False)["mean_corruption_accuracy_partial"].value == pytest.approx(100 * mean)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.[135].*.safetensors")}
    whole = evaluate(Brightest(), source, "corruptions,corruptions-135", out=tmp_path, **QUICK)
    assert len(whole.cells) == len(STANDARD) * len(SEVERITIES)
    assert before
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())


def test_perturbations_keep_every_frame():
    source = colours(2)
    records = evaluate(Brightest(), source, "perturbations", seed=3, compute=ComputeConfig(batch_size=7), **QUICK)
    assert list(records.cells) == [f"sequence/{kind}" for kind in TEST_SEQUENCES]
    for kind in ("gaussian_noise", "rotate", "translate"):
        cell = records.cells[f"sequence/{kind}"]
        frames = [
            perturb(image, kind, preset="cifar", rng=keyed(3, source.id(i), f"{kind} sequence", 1))
            for i, image in enumerate(source.images)
        ]
        assert cell.predictions.shape == (2, frame_count(kind, preset="cifar"))
        assert cell.predictions.tolist() == [[brightest_channel(frame) for frame in film] for film in frames]
    assert "top_five" not in records.cells["sequence/rotate"].fields  # there are no five classes


def test_sequences_of_many_classes_keep_the_best_five_of_every_frame():
    source = colours(2)
    source = type(source)("x", source.images, np.array([0, 9]), tuple(map(str, range(10))), source.numbers)
    cell = evaluate(ByLevel(10, 20), source, "perturbations", **QUICK).cells["sequence/brightness"]
    assert cell.top_five.shape == (2, 31, 5)
    assert (cell.top_five[:, :, 0] == cell.predictions).all()


def test_large_images_make_small_shards():
    assert [fitting_shard(size) for size in ((32, 32), (224, 224), (384, 384))] == [256, 256, 256]
    assert fitting_shard((1024, 2048)) == 21  # 6.3 MB each
    assert fitting_shard((20_000, 20_000)) == 1
    records = evaluate(Brightest(), colours(3), "clean", protocol=EvalProtocol(size=2048), **QUICK)
    assert records.header["shard_size"] == 128 * 2**20 // (3 * 2048 * 2048)


# ---------------------------------------------------------------------- stored sets


def write_tree(root, levels, *, size=224):
    """One folder per class with images of the given red levels."""
    for wnid, reds in levels.items():
        (root / wnid).mkdir(parents=True)
        for number, red in enumerate(reds):
            Image.new("RGB", (size, size), (red, 0, 0)).save(root / wnid / f"{number}.png")
    return root


@pytest.fixture
def imagenet_c(tmp_path):
    """Three classes with 1, 2 and 3 images; at severity 5 of snow two of six look like class 0."""
    for kind in STANDARD:
        for severity in SEVERITIES:
            reds = {"n1": [0], "n2": [40, 40], "n3": [80, 80, 80]}
            if (kind, severity) == ("snow", 5):
                reds = {"n1": [0], "n2": [40, 0], "n3": [80, 0, 80]}
            write_tree(tmp_path / "c" / kind / str(severity), reds)
    return tmp_path / "c"


def test_imagenet_c_as_stored(imagenet_c):
    records = evaluate(ByLevel(3, 40), f"imagenet-c:{imagenet_c}", "imagenet-c", **QUICK)
    assert len(records.cells) == 75
    assert records.cells["fog/3"].accuracy == 1
    assert records.cells["snow/5"].right.tolist() == [1, 1, 0, 1, 0, 1]
    assert records.header["label"] == "official"
    assert records.header["partial"] == []
    assert records.header["preprocessing"]["model_size"] == "as it is"


def test_a_missing_severity_is_named_and_the_rest_measured(imagenet_c, caplog):
    (imagenet_c / "fog" / "4").rename(imagenet_c / "elsewhere")
    records = evaluate(ByLevel(3, 40), f"imagenet-c:{imagenet_c}", "imagenet-c", **QUICK)
    assert len(records.cells) == 74
    assert records.header["partial"] == ["fog/4"]
    assert "partial" in caplog.text
    assert "fog/4" in caplog.text
    assert "mean_corruption_accuracy_partial" in records.summary().scores


def test_an_image_that_one_stored_cell_lacks_counts_in_none(imagenet_c):
    (imagenet_c / "fog" / "4" / "n3" / "1.png").unlink()
    (imagenet_c / "fog" / "2" / "n2" / "0.png").write_bytes(b"no image")
    records = evaluate(ByLevel(3, 40), f"imagenet-c:{imagenet_c}", "imagenet-c", **QUICK)
    assert records.excluded == ("n2/0.png", "n3/1.png")
    assert {len(cell) for cell in records.cells.values()} == {4}
    assert records.cells["snow/5"].right.tolist() == [1, 0, 1, 1]


def test_cifar_c_as_stored(tmp_path):
    labels = np.tile([0, 1, 2, 2], 5)
    for kind in STANDARD:
        stack = np.zeros((20, 32, 32, 3), dtype=np.uint8)
        stack[..., 0] = 20 * labels[:, None, None]
        if kind == "frost":
            stack[16:18] = 200  # of severity 5, two of four
        np.save(tmp_path / f"{kind}.npy", stack)
    np.save(tmp_path / "labels.npy", labels)
    records = evaluate(ByLevel(10, 20), f"cifar10-c:{tmp_path}", "cifar-c", **QUICK)
    assert len(records.cells) == 75
    assert records.cells["frost/4"].accuracy == 1
    assert records.cells["frost/5"].right.tolist() == [0, 0, 1, 1]
    assert records.summary()["mean_corruption_accuracy"].value == pytest.approx(100 * (74 + 0.5) / 75)


@pytest.mark.parametrize("name", ["imagenet-a", "imagenet-r"])
def test_sets_of_200_classes_are_answered_among_those(tmp_path, name):
    """A thousand-class model that prefers a class outside of the 200, and else reads the level."""
    table = published(f"{name.replace('-', '_')}_indices")
    chosen = {wnid: [rank] for rank, wnid in enumerate(sorted(table["wnids"]))}
    chosen[sorted(table["wnids"])[7]] = [7, 150]  # one image of class 7 looks like class 150
    write_tree(tmp_path, chosen, size=32)

    class Thousand(ByLevel):
        def forward(self, images):
            among = super().forward(images)  # n 200
            logits = among.new_full((len(images), 1000), 10.0)
            logits[:, table["indices"]] = among
            return logits

    cell = evaluate(Thousand(200, 1), f"{name}:{tmp_path}", name, **QUICK).cells[name]
    assert len(cell) == 201
    assert cell.right.sum() == 200
    assert cell.predictions[~cell.right.astype(bool)].tolist() == [150]


def test_sketch_counts_all_classes(tmp_path):
    write_tree(tmp_path, {"n1": [0, 40], "n2": [40], "n3": [80]})
    cell = evaluate(ByLevel(3, 40), f"imagenet-sketch:{tmp_path}", "imagenet-sketch", **QUICK).cells["imagenet-sketch"]
    assert cell.right.tolist() == [1, 0, 1, 1]


def test_stored_sequences(tmp_path):
    for kind in TEST_SEQUENCES:
        films = np.zeros((3, frame_count(kind, preset="cifar"), 32, 32, 3), dtype=np.uint8)
        films[..., 0] = 20 * np.arange(3)[:, None, None, None]
        films[1, 5:, ..., 0] = 60  # one of three changes its mind once
        np.save(tmp_path / f"{kind}.npy", films)
    np.save(tmp_path / "labels.npy", np.arange(3))
    records = evaluate(ByLevel(10, 20), f"cifar10-p:{tmp_path}", "perturbations", **QUICK)
    cell = records.cells["sequence/rotate"]
    assert cell.predictions[0].tolist() == [0] * 31
    assert cell.predictions[1].tolist() == [1] * 5 + [3] * 26
    assert records.summary()["fp/rotate"].value == pytest.approx(100 / 3 / 30)


def test_stored_frames_of_imagenet_p(tmp_path):
    """Folders of frames; only one kind is there, so the score is partial and says so."""
    for label, name in enumerate(("n00000001", "n00000002", "n00000003")):
        for number in range(frame_count("translate", preset="imagenet")):
            frame = tmp_path / "translate" / name / "film" / f"{number}.png"
            frame.parent.mkdir(parents=True, exist_ok=True)
            level = 20 * label if name != "n00000002" or number < 11 else 40  # one film changes its mind once
            Image.new("RGB", (224, 224), (level, 0, 0)).save(frame)
    records = evaluate(ByLevel(3, 20), f"imagenet-p:{tmp_path}", "perturbations", **QUICK)
    cell = records.cells["sequence/translate"]
    assert cell.predictions.shape == (3, 41)
    assert cell.predictions[1].tolist() == [1] * 11 + [2] * 30
    assert records.summary()["fp/translate"].value == pytest.approx(100 / 3 / 40)
    assert "sequence/rotate" in records.header["partial"]


# ---------------------------------------------------------------------- preprocessing and subsets


def test_large_images_follow_the_imagenet_protocol(tmp_path):
    """Short side 256, centre crop 224: a frame of another colour outside of the crop is never seen."""
    picture = np.zeros((512, 600, 3), dtype=np.uint8)
    picture[..., 2] = 255
    picture[40:-40, 80:-80] = (200, 0, 0)  # the crop is 448 px of it, from 32 and from 76
    write = tmp_path / "red"
    write.mkdir()
    for name in ("green", "blue"):
        (tmp_path / name).mkdir()
    Image.fromarray(picture).save(write / "a.png")
    seen = []

    class Watching(Brightest):
        def forward(self, images):
            seen.append(images)
            return super().forward(images)

    source = f"folder:{tmp_path}"
    records = evaluate(Watching(), source, "clean", device="cpu", **QUICK)
    assert records.header["preset"] == "imagenet"
    assert seen[-1].shape == (2, 3, 224, 224)  # one image goes in twice
    assert seen[-1][0, 0, 112, 112] == pytest.approx(200 / 255)
    assert seen[-1][0, 2, 0, 112] > 0.5  # 4 px of the frame at the top
    assert seen[-1][0, 2, 6, 112] == 0


def test_the_models_size_mean_and_std_come_last():
    seen = []

    class Watching(Brightest):
        def forward(self, images):
            seen.append(images)
            return super().forward(images)

    options = {"protocol": EvalProtocol(size=48, mean=(0.5,) * 3, std=(0.25,) * 3), **QUICK}
    records = evaluate(Watching(), plain([0], margin=[155], level=0), "clean", **options)
    assert seen[-1].shape == (2, 3, 48, 48)  # one image goes in twice
    assert seen[-1][0, 0, 0, 0] == pytest.approx((155 / 255 - 0.5) / 0.25)
    assert records.header["preprocessing"]["model_size"] == "48×48 bilinear"
    assert records.header["preset"] == "cifar"


def test_stored_jpeg_changes_corrupted_images_only():
    source = colours(4, seed=1)
    plainly, stored = (
        evaluate(Brightest(), source, "clean,corruptions", protocol=EvalProtocol(stored_jpeg=flag), **QUICK)
        for flag in (False, True)
    )
    assert (plainly.cells["clean"].nll == stored.cells["clean"].nll).all()
    assert (plainly.cells["fog/3"].nll != stored.cells["fog/3"].nll).any()
    assert stored.header["preprocessing"]["after_corruption"] == "JPEG quality 85"
    assert plainly.header["fingerprint"] != stored.header["fingerprint"]


def test_a_limit_is_recorded():
    records = evaluate(Brightest(), colours(30), "clean", limit=6, **QUICK)
    assert np.bincount(records.cells["clean"].targets).tolist() == [2, 2, 2]
    assert records.header["limit"] == 6
    assert records.header["images"] == 6


@pytest.mark.parametrize(
    ("suites", "data", "sentence"),
    [
        ("corruption", colours(3), "unknown suite 'corruption'; did you mean 'corruptions'?"),
        ("", colours(3), "suites must name at least one"),
        ("imagenet-c", colours(3), "suite 'imagenet-c' needs the stored set, --data imagenet-c:DIR, got 'colours'"),
    ],
)
def test_suites_that_cannot_be_measured(suites, data, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        evaluate(Brightest(), data, suites, **QUICK)


def test_every_attack_of_the_package_is_a_suite():
    from holdfast.attacks import PRESETS

    assert set(PRESETS) < set(SUITES)


def test_every_data_set_serves_its_suites(tmp_path):
    np.save(tmp_path / "rotate.npy", np.zeros((1, 31, 32, 32, 3), dtype=np.uint8))
    stored = f"cifar10-p:{tmp_path}"
    assert assign(["clean", "pgd5", "perturbations"], ["digits", stored]) == [
        ("digits", ("clean", "pgd5")),
        (stored, ("perturbations",)),
    ]
    assert assign(["clean", "perturbations"], ["digits"]) == [("digits", ("clean", "perturbations"))]
    with pytest.raises(HoldfastError, match="suite 'cifar-c' needs --data cifar10-c:DIR or cifar100-c:DIR, got"):
        assign(["cifar-c"], ["digits", stored])
    with pytest.raises(HoldfastError, match="is used by none of the suites clean"):
        assign(["clean"], ["digits", stored])


class TinySegmenter(nn.Module):
    num_classes = 11

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 11, 3, padding=1)

    def forward(self, images):
        return self.layer(images)


def test_quick_is_clean_and_every_kind_at_severity_3_in_the_records_of_the_full_suites(tmp_path):
    model, data = Brightest(), colours(3)
    quick = evaluate(model, data, "quick", out=tmp_path, **QUICK)
    assert set(quick.cells) == {"clean", *(f"{kind}/3" for kind in STANDARD)}
    assert {cell.header["suite"] for cell in quick.cells.values()} == {"clean", "corruptions"}
    before = {path: path.stat().st_mtime_ns for path in quick.folder.glob("*.[0-9]*.safetensors")}
    whole = evaluate(model, data, "clean,corruptions", out=tmp_path, **QUICK)
    assert whole.folder == quick.folder
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())  # not measured again


def test_standard_is_the_benchmark_of_the_task_and_five_steps_of_pgd_where_there_are_gradients():
    tasks = {name: task_named(name) for name in ("classification", "segmentation", "detection")}
    expected = {
        "classification": ("clean", "corruptions", "pgd5"),
        "segmentation": ("clean", "corruptions", "segpgd5"),
        "detection": ("clean", "coco-c"),
    }
    for name, task in tasks.items():
        assert expand_standard(["standard"], task, gradients=True) == expected[name]
        assert expand_standard(["standard"], task, gradients=False) == expected[name][:2]
    assert expand_standard(["clean", "fgsm", "standard"], tasks["detection"], gradients=True) == (
        "clean",
        "fgsm",
        "coco-c",
    )


def test_standard_measures_a_segmenter():
    protocol = EvalProtocol(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    records = evaluate(TinySegmenter(), "scenes:test,32x32,2", "standard", protocol=protocol, **QUICK)
    assert len(records.cells) == 1 + 16 * 5 + 1
    assert {"mean_corruption_miou", "cityscapes_c", "attack/segpgd5"} <= set(records.summary().scores)
