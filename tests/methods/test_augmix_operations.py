"""The operations that AugMix chains, on batches: nine of Pillow's kind, none of them a corruption of ImageNet-C."""

from holdfast.methods import augmix_operations as operations


def test_no_operation_is_of_the_kind_of_a_corruption():
    names = {operation.__name__ for operation in operations.OPERATIONS}
    assert len(names) == 9
    assert not names & {"color", "colour", "contrast", "brightness", "sharpness", "blur", "noise"}
