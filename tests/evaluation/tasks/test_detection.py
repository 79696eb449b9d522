"""Detection: what is kept of a detector's answers, what its scores are, and what is refused."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import holdfast
from holdfast import ComputeConfig, EvalProtocol
from holdfast.cells import CLEAN, corruption_cell
from holdfast.corruptions.severities import STANDARD
from holdfast.metrics.average_precision import COCO_C_FAN, coco_scores, match_image, mean_performance, record_scores
from holdfast.metrics.intervals import score_interval
from holdfast.metrics.jackknife import image_groups
from holdfast.metrics.scoring.base import column
from holdfast.metrics.scoring.detection import detection_formulas
from holdfast.records.detections import coco_found, coco_truth
from holdfast.records.records import read_records
from holdfast.tasks import task_named, task_of
from tests.tasks.detectors import IDS, Finder, coco_folder, plain_mask_rcnn, scenes

QUICK = {"workers": 0, "show": False}
TASK = task_named("detection")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    source = scenes()
    return holdfast.evaluate(Finder(source), source, "clean,coco-c", out=tmp_path_factory.mktemp("run"), **QUICK)


@pytest.fixture(scope="module")
def blurred():
    """The same by a detector that a corruption moves further."""
    source = scenes()
    return holdfast.evaluate(Finder(source, shift=200.0), source, "clean,coco-c", **QUICK)


def scored(cell, draw) -> float:
    """AP of a set that holds an image as often as it was drawn, by COCO's evaluation of that set."""
    fields = {
        name: values[draw] if isinstance(values, np.ndarray) else tuple(values[image] for image in draw)
        for name, values in cell.fields.items()
    }
    return record_scores(fields)["bbox"]["AP"]


# ---------------------------------------------------------------------- evaluation


def test_sources_of_objects_belong_to_detection(tmp_path):
    assert task_of(scenes()) is TASK
    assert task_of(holdfast.data.open_data(coco_folder(tmp_path))) is TASK


def test_what_is_found_exactly_scores_one_hundred_and_corruptions_cost(measured):
    summary = measured.summary(intervals=False)
    assert summary["clean"].value == pytest.approx(100)
    assert summary["mask_clean"].value == pytest.approx(100)
    assert 0 < summary["mpc"].value < 100
    assert summary["rpc"].value == pytest.approx(summary["mpc"].value)
    assert summary["ap/pixelate"].value > summary["ap/fog"].value


def test_where_one_image_holds_all_objects_there_is_a_score_and_no_interval(tmp_path):
    spec = coco_folder(tmp_path, images=2)  # the last image is empty: without the first there is no AP
    source = holdfast.data.open_data(spec)
    model = plain_mask_rcnn().eval()
    summary = holdfast.evaluate(model, source, "clean,coco-c", **QUICK).summary()
    assert summary["mpc"].value == pytest.approx(0, abs=5)
    assert math.isnan(summary["mpc"].low)


def test_every_cells_ap_is_recomputed_from_its_records_alone(measured):
    again = read_records(measured.folder)
    summary = again.summary(intervals=False)
    cells = {kind: [] for kind in STANDARD}
    for name, cell in again.cells.items():
        truth, found = coco_truth(cell.fields, classes=10, masks=True), coco_found(cell.fields, masks=True)
        if name != "clean":
            cells[cell.spec.kind].append(coco_scores(truth, found)["AP"])
    assert summary["mpc"].value == pytest.approx(100 * mean_performance(cells))
    assert [score.name for score in summary] == [score.name for score in measured.summary(intervals=False)]


def test_intervals_of_ap_mpc_and_rpc_are_those_of_images_left_out_and_scored_by_hand(blurred):
    cells = blurred.cells
    groups = image_groups(cells["clean"].ids)
    kept = [np.arange(groups.images), *(groups.without(group) for group in range(groups.count))]
    ap = {name: np.array([scored(cell, images) for images in kept]) for name, cell in cells.items()}
    corrupted = np.mean([values for name, values in ap.items() if name != "clean"], axis=0)
    expected = {"clean": 100 * ap["clean"], "mpc": 100 * corrupted, "rpc": 100 * corrupted / ap["clean"]}
    summary = blurred.summary()
    for name, values in expected.items():
        scale = "ratio" if name == "rpc" else "proportion"
        interval = score_interval(values, scale=scale, images=groups.images, whole=100)
        assert (summary[name].low, summary[name].high) == pytest.approx((interval.low, interval.high), abs=1e-9)
        assert summary[name].low <= summary[name].value <= summary[name].high
    assert summary["ap50"].low < summary["ap50"].value
    assert math.isnan(summary["ar100"].low)  # recalls have no replicates
    assert "few images" in summary.interval_note
    assert "classes have fewer than 10" in summary.interval_note


def test_a_detector_against_itself_differs_by_nothing(blurred, measured):
    alone = holdfast.compare(blurred, blurred).differences["mpc"].interval
    assert (alone.value, alone.low, alone.high) == (0, 0, 0)
    other = holdfast.compare(blurred, measured).differences["mpc"]
    assert other.interval.high < 0
    assert other.verdict == "worse"


def test_sizes_that_do_not_occur_have_no_score(measured):
    assert "aps" in measured.summary(intervals=False)
    assert "apl" not in measured.summary(intervals=False)


def test_records_hold_boxes_masks_and_ground_truth_of_every_image(measured):
    source, cell = scenes(), measured.cells["clean"]
    for index in range(len(source)):
        objects = source.target(index)
        np.testing.assert_allclose(cell.boxes[index], objects.boxes, atol=1e-4)
        assert cell.labels[index].tolist() == cell.true_labels[index].tolist() == objects.labels.tolist()
        assert cell.mask_lengths[index].sum() == len(cell.masks[index])
    assert cell.right.tolist() == [1.0] * 3
    assert TASK.scoring.rows(cell)["found"].tolist() == [len(source.target(i)) for i in range(3)]


@pytest.mark.parametrize(
    "options",
    [{"compute": ComputeConfig(batch_size=64)}, {"workers": 2}, {"compute": ComputeConfig(shard_size=1)}],
    ids=str,
)
def test_batches_workers_and_shards_do_not_change_records(tmp_path, options):
    """Images of different sizes, a detector on random weights: one at a time, whatever was asked for."""
    data = coco_folder(tmp_path)
    one = holdfast.evaluate(plain_mask_rcnn(), data, "clean", **QUICK)
    other = holdfast.evaluate(plain_mask_rcnn(), data, "clean", **QUICK | options)
    for cell, again in zip(one.cells.values(), other.cells.values(), strict=True):
        by_id = dict(zip(again.ids, range(len(again)), strict=True))
        for name, values in cell.fields.items():
            for number, id in enumerate(cell.ids):
                np.testing.assert_array_equal(values[number], again.fields[name][by_id[id]], err_msg=name)


def test_a_plain_torchvision_mask_rcnn_goes_through_the_whole_evaluation(tmp_path):
    """Its labels are category ids with gaps; it knows nothing of Holdfast."""
    model = plain_mask_rcnn()
    data = coco_folder(tmp_path, images=2)
    records = holdfast.evaluate(model, data, "clean,coco-c-fan", out=tmp_path / "run", **QUICK)
    summary = records.summary(intervals=False)
    assert len(records.cells) == 1 + 16 * 5
    assert {"clean", "mpc_fan", "mask_clean", "mask_mpc_fan"} <= set(summary.scores)
    assert "mpc" not in summary
    assert "mpc_partial" not in summary
    labels = np.concatenate(records.cells["clean"].labels)
    assert len(labels) > 0
    assert set(labels) <= set(range(len(IDS)))
    picture = torch.from_numpy(np.array(holdfast.data.open_data(data).image(0))).permute(2, 0, 1) / 255
    kept = [label for label in model.eval()([picture])[0]["labels"].tolist() if label in IDS]
    assert [IDS[label] for label in records.cells["clean"].labels[0]] == kept


LEFT = [40]  # no part of the model: another one would be measured anew


class Dies(Finder):
    """Is interrupted after so many images."""

    def found(self, image):
        LEFT[0] -= 1
        if LEFT[0] < 0:
            raise KeyboardInterrupt
        return super().found(image)


def test_a_killed_evaluation_goes_on_where_it_was(tmp_path, measured):
    source = scenes()
    model = Dies(source)
    with pytest.raises(KeyboardInterrupt):
        holdfast.evaluate(model, source, "clean,coco-c", out=tmp_path, **QUICK)
    units = {path: path.read_bytes() for path in tmp_path.rglob("*.0*.safetensors")}
    assert 0 < len(units) < 76
    LEFT[0] = 1000
    records = holdfast.evaluate(model, source, "clean,coco-c", out=tmp_path, **QUICK)
    assert all(path.read_bytes() == content for path, content in units.items())
    asked = 1 + 8 + 2  # a grey image, the probe images, and two of them once more
    assert 1000 - LEFT[0] == asked + 3 * (76 - len(units))
    assert records.summary()["mpc"].value == measured.summary(intervals=False)["mpc"].value


# ---------------------------------------------------------------------- scores


def cells_of(kinds, severities=(1, 2, 3, 4, 5)):
    return [CLEAN, *(corruption_cell(kind, severity) for kind in kinds for severity in severities)]


def names_of(cells, quantity="box_AP"):
    return {formula.name for formula in detection_formulas(cells, columns=[column(c.name, quantity) for c in cells])}


def test_the_two_protocols_are_never_mixed():
    fifteen, sixteen = names_of(cells_of(STANDARD)), names_of(cells_of(COCO_C_FAN))
    assert {"mpc", "rpc"} <= fifteen
    assert not any("fan" in name for name in fifteen)
    assert {"mpc_fan", "rpc_fan"} <= sixteen
    assert not {"mpc", "rpc", "mpc_partial", "rpc_partial"} & sixteen
    both = names_of(cells_of(dict.fromkeys([*STANDARD, *COCO_C_FAN])))
    assert {"mpc", "rpc", "mpc_fan", "rpc_fan"} <= both


def test_an_incomplete_protocol_is_called_partial():
    assert {"mpc_partial", "rpc_partial"} <= names_of(cells_of(["pixelate", "fog"]))
    assert "mpc_fan_partial" in names_of(cells_of(["saturate", "fog"]))
    assert "ap/fog_partial" in names_of(cells_of(["fog"], severities=(1, 3)))


def test_rpc_of_a_detector_that_finds_nothing_is_undefined():
    cells = cells_of(STANDARD)
    means = {column(cell.name, "box_AP"): 0.0 for cell in cells}
    formulas = {formula.name: formula for formula in detection_formulas(cells, columns=list(means))}
    assert formulas["mpc"].compute(means) == 0
    assert math.isnan(formulas["rpc"].compute(means))


# ---------------------------------------------------------------------- what is refused


class Says(nn.Module):
    """Answers every image alike."""

    def __init__(self, answer, **later):
        super().__init__()
        self.answer, self.later, self.asked = answer, later, 0

    def forward(self, images):
        self.asked += 1
        if self.later and self.asked > 1:  # the first question is only a test of what kind of model it is
            return [{**one, **self.later} for one in self.answer]
        return self.answer


GOOD = {"boxes": torch.tensor([[1.0, 2, 9, 9]]), "labels": torch.tensor([1]), "scores": torch.tensor([0.5])}


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (Says(torch.zeros(1, 10)), "must return a list with boxes, labels and scores for each image.*got Tensor"),
        (Says([GOOD, GOOD]), "got 2 entries for 1 images"),
        (Says([{"boxes": GOOD["boxes"]}]), "but labels, scores is missing"),
        (Says([GOOD | {"boxes": torch.zeros(1, 5)}]), r"boxes must have shape \(detections, 4\).*got \(1, 5\)"),
        (Says([GOOD | {"scores": torch.zeros(2)}]), "must have equal lengths.*'scores': 2"),
        (Says([GOOD], scores=torch.tensor([math.nan])), "finite boxes and scores, got NaN or infinity in clean"),
        (Says([GOOD], labels=torch.tensor([0])), "labels must start at 1 in clean"),
        (Says([GOOD], labels=torch.tensor([11])), "labels must be at most 10 in clean.*got 11"),
        (Says([GOOD], masks=torch.zeros(1, 1, 4, 4)), r"masks must have the image's size 64×80 in clean"),
    ],
    ids=range(9),
)
def test_answers_that_are_no_detections_are_refused(model, sentence):
    with pytest.raises(holdfast.HoldfastError, match=sentence):
        holdfast.evaluate(model, scenes(1), "clean", **QUICK)


@pytest.mark.parametrize(
    ("suite", "options", "sentence"),
    [
        ("pgd5", {}, "attacks on detectors are not supported"),
        ("perturbations", {}, "suite 'perturbations'"),
        ("clean", {"protocol": EvalProtocol(preset="imagenet")}, "preset must be 'any' for detection"),
        ("clean", {"protocol": EvalProtocol(stored_jpeg=True)}, "stored_jpeg is a setting of ImageNet-C"),
    ],
)
def test_what_detectors_have_not_got_is_refused(suite, options, sentence):
    with pytest.raises(holdfast.HoldfastError, match=sentence):
        holdfast.evaluate(Finder(scenes(1)), scenes(1), suite, **QUICK | options)


def test_a_detector_of_other_classes_is_refused(tmp_path):
    with pytest.raises(holdfast.HoldfastError, match=r"must have the 3 classes of the data .*up to 13.*, got 20"):
        holdfast.evaluate(plain_mask_rcnn(20), coco_folder(tmp_path), "clean", **QUICK)


def test_the_suites_of_coco_c_need_objects():
    with pytest.raises(holdfast.HoldfastError, match="suite 'coco-c' needs data with objects"):
        holdfast.evaluate(nn.Flatten(), "digits", "coco-c", limit=2, **QUICK)


# ---------------------------------------------------------------------- validation in training


def test_validation_counts_add_up_over_batches():
    source = scenes()
    model = Finder(source, shift=0)
    images = [torch.from_numpy(np.array(source.image(i))).permute(2, 0, 1) / 255 for i in range(3)]
    targets = [
        {"boxes": torch.from_numpy(o.boxes).float(), "labels": torch.from_numpy(o.labels) + 1}
        for o in (source.target(i) for i in range(3))
    ]
    tally = TASK.training.tally
    counts = sum(
        (tally(model([x]), [t]) for x, t in zip(images, targets, strict=True)),
        tally(None, None),
    )
    assert counts.tolist() == tally(model(images), targets).tolist()
    assert TASK.training.validation_scores(counts) == {"f1": 100.0}
    assert TASK.training.validation_scores(tally(None, None)) == {"f1": 0.0}


def test_an_image_without_objects_is_right_if_nothing_is_found_there(tmp_path):
    data = coco_folder(tmp_path)
    found = holdfast.evaluate(Says([GOOD]), data, "clean", **QUICK).cells["clean"]
    nothing = {name: values[:0] for name, values in GOOD.items()}
    silent = holdfast.evaluate(Says([nothing]), data, "clean", **QUICK).cells["clean"]
    assert found.right.tolist() == [0, 0, 0]
    assert silent.right.tolist() == [0, 0, 1]
    assert match_image(found.fields, 2) == (0, 1, 0)
