"""The commands behind the numbers: the command line reads them back as the settings that were measured."""

import shlex

import pytest

from holdfast import EvalProtocol
from holdfast.cli.main import build_parser
from holdfast.cli.shared_options import protocol_of
from holdfast.reporting.runs import read_runs
from holdfast.reporting.sections.reproduce import commands
from tests.reporting.helpers import make_run


@pytest.mark.parametrize(
    "protocol",
    [
        EvalProtocol(),
        EvalProtocol(size=(40, 48), mean=[0.5, 0.25, 0.1], std=[1.0, 1.0, 0.3], pixel_range=255),
        EvalProtocol(size=(64, 64), preset="tiny", probabilities=False, classes_differ=True, exif="apply"),
        EvalProtocol(window=512, stride=384, interpolation="bicubic", crop_pct=0.9),
        EvalProtocol(outputs="yolov8", resize="letterbox", nms="none", nms_iou=0.6, score_threshold=0.001),
    ],
)
def test_the_command_of_an_evaluation_repeats_every_given_option(tmp_path, protocol):
    folder = make_run(tmp_path / "run", cells=("clean",), options=protocol.given())
    (command,) = [line for line in commands(read_runs([folder])[0]) if " evaluate " in line]
    again = protocol_of(build_parser("evaluate").parse_args(shlex.split(command)[2:]))
    assert again.given() == protocol.given()
