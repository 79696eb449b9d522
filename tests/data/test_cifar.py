"""CIFAR from the files that torchvision reads."""

import pytest

from holdfast.data.cifar import open_cifar10, open_cifar100
from holdfast.errors import HoldfastError


@pytest.mark.parametrize("opened", [open_cifar10, open_cifar100])
def test_missing_files_name_the_option_that_fetches_them(opened, tmp_path):
    with pytest.raises(HoldfastError, match=r"is missing or damaged; add --data.download=true to fetch it"):
        opened(str(tmp_path), split="test")
    assert not any(tmp_path.iterdir())
