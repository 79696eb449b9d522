"""Datasets, DataLoaders and tensors as data: by position, as pixels, always the same; everything else is a sentence."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import holdfast
from holdfast.data import from_torch
from holdfast.errors import HoldfastError
from tests.evaluation.toys import Brightest, plain

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.5)
QUICK = {"workers": 0, "show": False}


@pytest.fixture(scope="module")
def pixels():
    """Twelve images of three classes: uint8 (N, 3, H, W) and labels."""
    source = plain([0, 1, 2] * 4, margin=[8] * 6 + [120] * 6)
    return torch.from_numpy(source.images).permute(0, 3, 1, 2), torch.from_numpy(source.targets)


def normalised(images):
    return (images / 255 - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]


class Normalising(torch.nn.Module):
    """A model of normalised images that looks at pixels."""

    def forward(self, images):
        return Brightest()(images * torch.tensor(STD)[:, None, None] + torch.tensor(MEAN)[:, None, None])


def assert_equal(one, other):
    for name, cell in one.cells.items():
        np.testing.assert_allclose(cell.nll, other.cells[name].nll, rtol=1e-4, atol=1e-4, err_msg=name)
        assert (cell.ids == other.cells[name].ids).all()


def test_bytes_floats_and_normalised_values_are_the_same_pixels(pixels):
    images, labels = pixels
    sources = [
        from_torch((images, labels)),
        from_torch(TensorDataset(images / 255, labels)),
        from_torch(DataLoader(TensorDataset(normalised(images), labels), batch_size=5), mean=MEAN, std=STD),
        from_torch((images.permute(0, 2, 3, 1).numpy(), labels.numpy())),
    ]
    for source in sources:
        assert [source.id(0), source.id(11)] == ["000000", "000011"]
        assert source.targets.tolist() == labels.tolist()
        for index in range(12):
            assert np.array_equal(np.asarray(source.image(index)), images[index].permute(1, 2, 0).numpy())


def test_a_loader_is_evaluated_like_the_images_that_it_holds(pixels):
    images, labels = pixels
    loader = DataLoader(TensorDataset(normalised(images), labels), batch_size=4, num_workers=2)
    scale = holdfast.EvalProtocol(mean=MEAN, std=STD)
    suites = ["clean", "corruptions-135", "fgsm"]
    ours = holdfast.evaluate(Normalising(), loader, suites, protocol=scale, **QUICK)
    bare = holdfast.evaluate(Brightest(), (images, labels), suites, **QUICK)
    assert ours.cells["clean"].accuracy == 1
    for name in ("clean", "fog/3", "jpeg_compression/5"):
        np.testing.assert_allclose(ours.cells[name].nll, bare.cells[name].nll, rtol=1e-3, atol=1e-3)
    assert (ours.header["data"], ours.header["preset"]) == ("TensorDataset", "cifar")


def test_images_that_come_prepared_stay_as_they_are():
    images = torch.randint(0, 256, (2, 3, 40, 48), dtype=torch.uint8)

    class Seen(torch.nn.Module):
        def forward(self, batch):
            self.last = batch
            return torch.zeros(len(batch), 2)

    model = Seen()
    records = holdfast.evaluate(model, (images, torch.tensor([0, 1])), "clean", **QUICK)
    assert torch.equal((model.last * 255).round().byte(), images)
    assert records.header["preset"] == "any"


def test_other_contents_have_another_fingerprint(pixels, tmp_path):
    images, labels = pixels
    changed = images.clone()
    changed[7, 1, 2, 3] += 1
    one, other, again = (
        holdfast.evaluate(Brightest(), (each, labels), "clean", out=tmp_path, **QUICK)
        for each in (images, changed, images)
    )
    assert one.folder != other.folder
    assert one.folder == again.folder


class Jittery(Dataset):
    """Every look at an image shows another."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return torch.rand(3, 32, 32), index


class Endless(IterableDataset):
    def __iter__(self):
        yield torch.zeros(3, 32, 32), 0


GREY = torch.full((3, 3, 32, 32), 0.5)
LABELS = torch.tensor([0, 1, 2])


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (DataLoader(TensorDataset(GREY, LABELS), shuffle=True), "must read its data in order, got one that shuf"),
        (Endless(), "must be a map-style Dataset, got an IterableDataset"),
        (DataLoader(Endless()), "must be a map-style Dataset, got an IterableDataset"),
        (DataLoader(TensorDataset(GREY, LABELS), collate_fn=list), "must use torch's default_collate"),
        ((GREY * 4 - 3, LABELS), r"'tensors' must be uint8 or lie in \[0, 1\], got -1 to -1: if they are normalised"),
        ((GREY * 200, LABELS), r"got 100 to 100"),
        ((GREY[:2], LABELS), "x and y must have the same length, got 2 and 3"),
        ((GREY[:, :2], LABELS), r"must have the shape \(3, H, W\), got \(2, 32, 32\)"),
        ((GREY * float("nan"), LABELS), "must be finite, got NaN"),
        ((GREY, LABELS / 2), "must be whole numbers from 0, got 0.0"),
        ((GREY.int(), LABELS), "must be uint8 or floats, got int32"),
        (TensorDataset(GREY), r"must return \(image, class\), got tuple"),
        (Jittery(), "must return the same image every time, but number 0 has changed"),
        ({"x": GREY}, "data must be a spec such as 'folder:DIR', a source, .* got dict"),
        (TensorDataset(GREY[:0], LABELS[:0]), "must hold at least one image"),
    ],
)
def test_what_does_not_fit_is_one_sentence(data, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        holdfast.evaluate(Brightest(), data, "clean", **QUICK)


def test_means_that_do_not_fit_are_one_sentence(pixels):
    images, labels = pixels
    with pytest.raises(HoldfastError, match=r"mean and std must bring the values of 'tensors' back to \[0, 1\]"):
        from_torch((normalised(images), labels), mean=(0, 0, 0), std=(9, 9, 9))
    with pytest.raises(HoldfastError, match="mean and std must be given together"):
        from_torch((images, labels), mean=MEAN)


RECIPE = {
    "model": {"name": "vit_nano", "kwargs": {"depth": 1, "embed_dim": 32, "num_heads": 2}},
    "train": {"epochs": 1, "batch_size": 6},
    "data": {"workers": 0},
}


def test_own_data_are_trained_on_analysed_and_resumed(pixels, tmp_path):
    images, labels = pixels
    train, val = DataLoader(TensorDataset(images / 255, labels)), (images[:5], labels[:5])
    result = holdfast.train(RECIPE, out=tmp_path / "run", data=(train, val), show=False)
    assert result.step == 2
    analysed = holdfast.analyze(tmp_path / "run", train, "diversity", limit=2, show=False)
    assert analysed.results["diversity"].header["images"] == 2
    again = holdfast.train(RECIPE, out=tmp_path / "run", data=(train, val), resume=True, show=False)
    assert again.step == 2
    with pytest.raises(HoldfastError, match=r"is a run of another recipe: data\.train"):
        holdfast.train(RECIPE, out=tmp_path / "run", data=(val, val), resume=True, show=False)
    with pytest.raises(HoldfastError, match="were passed as Python objects and are not available here"):
        holdfast.train(tmp_path / "run" / "recipe.yaml", out=tmp_path / "run", resume=True, show=False)
    with pytest.raises(HoldfastError, match="data must be a pair, training and validation data"):
        holdfast.train(RECIPE, out=tmp_path / "other", data=train, show=False)


def test_a_model_with_more_classes_than_labels_is_refused_with_the_argument_that_helps(pixels):
    images, labels = pixels
    some = labels < 2
    data = (images[some], labels[some])
    with pytest.raises(HoldfastError, match=r"end at 1, but the model has 3 classes; .*from_torch\(data, classes=3\)"):
        holdfast.evaluate(Brightest(), data, **QUICK)
    assert holdfast.evaluate(Brightest(), from_torch(data, classes=3), **QUICK).header["classes"] == 3
