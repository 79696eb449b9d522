"""What a decision says about speed is counted on the networks themselves."""

import holdfast
from holdfast.improvement.decide import speed_of
from holdfast.models.flops import measure_cost


def test_the_speed_of_another_network_is_told_in_multiply_adds(tmp_path):
    kwargs = {"plain": {"depth": 2}, "tap": {"depth": 2, "tap": "tap"}}
    for name, each in kwargs.items():
        holdfast.train(
            "digits/fan_nano",
            out=tmp_path / name,
            overrides={
                "data": {"train_subset": 20, "val_subset": 20, "workers": 0},
                "model": {"kwargs": each},
                "schedule": {"warmup_epochs": 0},
                "train": {"steps": 1, "batch_size": 10, "device": "cpu"},
            },
            show=False,
        )
    plain, tap = (measure_cost("fan_nano", **each, num_classes=10).gmacs for each in kwargs.values())
    said = speed_of(tmp_path / "tap", tmp_path / "plain")
    assert tap > 1.01 * plain
    assert said == f"+{100 * (tap / plain - 1):.1f} % multiply-adds for an image"
    assert speed_of(tmp_path / "plain", tmp_path / "plain") == "+0.0 % multiply-adds for an image"
