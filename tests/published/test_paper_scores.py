"""The printed scores as tables and under the names of ours: two readings of the same file, compared with it."""

import pytest

from holdfast.published import published
from holdfast.published.paper_scores import IMAGENET, TABLES, paper_says

SCORES = published("scores")


def test_every_row_of_a_tables_lists_is_shown_with_its_printed_numbers():
    for table in TABLES:
        raw = [row for name in table.lists for row in SCORES[name]]
        assert len(raw) == len(table.rows)
        for row, shown in zip(raw, table.rows, strict=True):
            names = [column.name for column in table.columns if column.name in row]
            assert shown.printed == {name: row[name] for name in names}
            assert shown.where == f"{row['source']}, {row['table']}"
            assert shown.name.startswith(row.get("name") or row["model"])


def test_every_column_is_defined_in_the_file_and_has_the_direction_of_its_quantity():
    for table in TABLES:
        for column in table.columns:
            assert column.definition
            assert (column.better == "low") == (
                "error" in column.label or column.error or column.name[:3] in ("mce", "mfr")
            )


def test_an_error_is_read_as_the_accuracy_that_we_measure():
    (printed,) = (row for row in SCORES["imagenet_c_bar"] if row["model"] == "resnet50" and not row.get("trained_with"))
    (ours,) = (row for row in paper_says("resnet50") if "accuracy/sparkles" in row.values and not row.how)
    assert ours.values["accuracy/sparkles"] == pytest.approx(100 - printed["sparkles"])
    assert ours.values["mean_c_bar_accuracy"] == pytest.approx(100 - printed["c_bar_error"])


@pytest.mark.parametrize(
    ("header", "titles"),
    [
        ({"preset": "imagenet", "classes": 1000}, ["ImageNet and its variants", "ImageNet-C-bar, errors"]),
        ({"preset": "imagenet", "classes": 10}, []),
        ({"data": "cifar10-c:x"}, ["CIFAR", "CIFAR-10-C-bar, errors"]),
        ({"data": "cityscapes:x", "task": "segmentation", "classes": 19}, ["Cityscapes, segmentation"]),
        ({"data": "cityscapes:x", "task": "segmentation", "classes": 34}, []),
        ({"data": "coco:x", "task": "detection", "classes": 80}, ["COCO, detection"]),
        ({"data": "digits"}, []),
    ],
)
def test_tables_belong_to_records_of_the_same_data_task_and_classes(header, titles):
    assert [table.title for table in TABLES if table.fits(header)] == titles


def test_scores_of_ours_have_one_column_each():
    for table in (IMAGENET, *TABLES):
        scores = [column.score for column in table.columns if column.score]
        assert len(scores) == len(set(scores))
