import numpy as np
import pytest

from tests.data.test_label_maps import SIZE, save_image, save_labels


@pytest.fixture
def folders(tmp_path):
    """Two images with index and palette labels, one in a subfolder."""
    save_image(tmp_path / "images" / "a.jpg")
    save_image(tmp_path / "images" / "deep" / "b.png")
    save_labels(tmp_path / "labels" / "a.png", np.arange(48).reshape(SIZE) % 3)
    save_labels(tmp_path / "labels" / "deep" / "b.png", np.arange(48).reshape(SIZE) % 4, palette=True)
    return tmp_path
