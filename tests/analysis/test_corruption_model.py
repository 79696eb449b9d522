"""Analysis ``patches``: the patches that a corruption model occludes, and the loss of confidence (AFAT, Fig. 5)."""

from holdfast.analysis import corruption_model


def test_confidence_drops_are_signed():
    assert [corruption_model.signed_number(value) for value in (-0.574, 0.02, -0.001, 0)] == [
        "−0.57",
        "+0.02",
        "0.00",
        "0.00",
    ]
