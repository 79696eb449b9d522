"""The small model that ships with the lab: FAN-nano trained on scikit-learn's digits, in half precision."""

from pathlib import Path

SHIPPED = Path(__file__).parent / "digits_model"
SHIPPED_NAME, SHIPPED_DATA = "FAN-nano", "digits:test"
