"""Safety checks and metadata of ONNX files."""

import onnx
import pytest
from onnx import helper

from holdfast.deploy.onnx_files import METADATA
from holdfast.errors import HoldfastError
from tests.deploy.test_onnx_model import measured
from tests.models.onnx_graphs import PLAIN, brightest


@pytest.mark.parametrize(
    "told",
    ["[]", "{}", "no", PLAIN.text().replace('"logits"', '"guesses"'), PLAIN.text().replace("1.0, 1.0", "0.0, 1.0")],
)
def test_metadata_that_we_did_not_write_are_refused(tmp_path, told):
    path = brightest(tmp_path / "m.onnx")
    model = onnx.load(str(path))
    helper.set_model_props(model, {METADATA: told})
    path.write_bytes(model.SerializeToString())
    with pytest.raises(HoldfastError, match="must be as `holdfast export` writes them"):
        measured(path)
