"""A published checkpoint becomes a folder that timm loads."""

import timm
import torch

from holdfast.cli.main import main


def test_a_checkpoint_becomes_a_folder_with_the_same_answers(tmp_path, capsys):
    torch.manual_seed(0)
    plain = timm.create_model("vit_nano", num_classes=7).eval()
    state = {f"module.{key}": value for key, value in plain.state_dict().items()}
    torch.save({"state_dict": state}, tmp_path / "vit.pth")
    assert main(["convert", str(tmp_path / "vit.pth"), str(tmp_path / "out"), "--model", "vit_nano"]) == 0
    said = capsys.readouterr().out
    assert f"7 classes → {tmp_path / 'out'}" in said
    assert f'timm.create_model("local-dir:{tmp_path / "out"}", pretrained=True)' in said
    loaded = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True).eval()
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(loaded(images), plain(images))


def test_weights_of_another_architecture_are_one_sentence_and_leave_nothing(tmp_path, capsys):
    torch.save(timm.create_model("vit_nano").state_dict(), tmp_path / "vit.pth")
    assert main(["convert", str(tmp_path / "vit.pth"), str(tmp_path / "out"), "--model", "fan_nano"]) == 2
    assert capsys.readouterr().err.startswith("holdfast: error: ")
    assert not (tmp_path / "out").exists()
