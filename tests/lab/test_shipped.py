"""The small model that ships with the lab: FAN-nano trained on scikit-learn's digits, in half precision."""

from holdfast.lab import open_model
from holdfast.lab.session import Session, ViewState
from holdfast.lab.shipped import SHIPPED, SHIPPED_DATA


def test_the_model_that_ships_is_small_and_knows_digits():
    files = {path.name: path for path in SHIPPED.iterdir()}
    assert sum(path.stat().st_size for path in files.values()) <= 2_000_000
    header = files["recipe.yaml"].read_text().splitlines()[:6]
    assert "#   holdfast train digits/fan_nano" in header
    assert any(line.startswith("# licence: Apache-2.0") for line in header)
    session = Session([open_model(f"run:{SHIPPED}", SHIPPED_DATA)])
    verdicts = [session.inspect(ViewState(n))["panels"][0]["verdict"] for n in range(40)]
    assert sum("good" in verdict for verdict in verdicts) >= 38
