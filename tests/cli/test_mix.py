"""``holdfast mix``: average the weights of finished models."""

from holdfast.cli.mix import alphas


def test_alphas_name_both_ends():
    assert alphas("0:1:0.1") == [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1]
    assert alphas("0.75") == [0.75]
