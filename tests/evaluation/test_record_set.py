"""A number is shown for the model that was measured: what changes its answers is measured again, and said."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from holdfast import evaluate
from holdfast.cli.main import main
from holdfast.data.fingerprints import fingerprint
from holdfast.errors import HoldfastError
from holdfast.evaluation.record_set import FINGERPRINTED
from holdfast.gate.compatibility import find_differences, match_record_sets
from holdfast.gate.paired_scores import make_paired_scores
from holdfast.models.fingerprint import first_fingerprint
from holdfast.models.output_probe import probe_images
from holdfast.records.header import read_header, write_header
from holdfast.records.records import load_records
from holdfast.records.shard_files import read_unit, write_unit
from holdfast.reporting.comparable import data_sets
from holdfast.reporting.runs import Run
from tests.evaluation.toys import Brightest, colours

QUICK = {"workers": 0, "show": False}

OWN = """
import torch
from torch import nn
import {helper}

SCALE = 20.0
ORDER = [0, 1, 2]

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("shift", torch.zeros(3), persistent=False)
        self.factor = torch.tensor(1.0)
        self.order = [0, 1, 2]
        self.last = None

    def forward(self, images):  # as it was
        answer = {helper}.answer(images)
        self.last = answer
        return (SCALE * self.factor * answer + self.shift)[:, self.order][:, ORDER]

def build():
    return Net()
"""
HELPER = """
def answer(images):
    return images.mean(dim=(2, 3))
"""


class Own:
    """A module of one's own that can be edited, with a helper beside it; each its own name, since Python keeps them."""

    count = 0

    def __init__(self, folder, monkeypatch):
        self.folder, self.monkeypatch = folder, monkeypatch
        self.source, self.helper = OWN.replace("{helper}", "own_helper"), HELPER
        monkeypatch.syspath_prepend(str(folder))

    def measured(self, out, **options):
        (self.folder / "own_net.py").write_text(self.source)
        (self.folder / "own_helper.py").write_text(self.helper)
        shutil.rmtree(self.folder / "__pycache__", ignore_errors=True)
        for name in ("own_net", "own_helper"):
            sys.modules.pop(name, None)
        return evaluate("python:own_net:build", colours(12), "clean", out=out, **QUICK, **options)


@pytest.fixture
def own(tmp_path, monkeypatch):
    folder = tmp_path / "code"
    folder.mkdir()
    yield Own(folder, monkeypatch)
    for name in ("own_net", "own_helper"):
        sys.modules.pop(name, None)


def accuracy(records):
    return records.cells["clean"].accuracy


CHANGES = {
    "what forward returns": ("[:, ORDER]\n", "[:, ORDER].roll(1, dims=1)\n"),
    "a buffer that is not saved": ("torch.zeros(3)", "torch.tensor([0.0, 90.0, 0.0])"),
    "a tensor that is no buffer": ("torch.tensor(1.0)", "torch.tensor(-1.0)"),
    "a list": ("self.order = [0, 1, 2]", "self.order = [1, 2, 0]"),
    "a list of the module": ("ORDER = [0, 1, 2]\n\n", "ORDER = [2, 0, 1]\n\n"),
    "a number of the module": ("SCALE = 20.0", "SCALE = -20.0"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_code_or_values_is_measured_again_and_said(own, tmp_path, caplog, change):
    before = own.measured(tmp_path / "out")
    assert change.strip()
    assert CHANGES[change][0] in own.source
    own.source = own.source.replace(*CHANGES[change])
    after = own.measured(tmp_path / "out")
    assert accuracy(before) != accuracy(after)
    assert after.header["model_fingerprint"] != before.header["model_fingerprint"]
    assert "was measured with other weights, settings or code of this model: measuring again" in caplog.text


def test_a_change_in_a_file_that_the_model_imports_is_measured_again(own, tmp_path):
    before = own.measured(tmp_path / "out")
    own.helper = own.helper.replace("images.mean(dim=(2, 3))", "-images.mean(dim=(2, 3))")
    assert accuracy(own.measured(tmp_path / "out")) != accuracy(before)


def test_what_runs_counts_where_the_file_was_edited_since_it_was_imported(own, tmp_path):
    before = own.measured(tmp_path / "out")
    own.source = own.source.replace("[:, ORDER]\n", "[:, ORDER].roll(1, dims=1)\n")
    (own.folder / "own_net.py").write_text(own.source)
    same_code = evaluate("python:own_net:build", colours(12), "clean", out=tmp_path / "out", **QUICK)
    assert accuracy(same_code) == accuracy(before)
    assert accuracy(own.measured(tmp_path / "out")) != accuracy(before)


def test_comments_and_layout_are_no_code(own, tmp_path, caplog):
    before = own.measured(tmp_path / "out")
    own.source = own.source.replace("  # as it was", "").replace("[0, 1, 2]\n", "[0,  1, 2]\n\n")
    own.helper = "# a remark\n" + own.helper
    again = own.measured(tmp_path / "out")
    assert again.header == before.header
    assert not caplog.records


@pytest.mark.parametrize("threads", [pytest.param("1", marks=pytest.mark.full), "2"])
def test_the_fingerprint_is_the_same_in_every_process_folder_and_number_of_threads(own, tmp_path, threads):
    here = own.measured(tmp_path / "out").header["model_fingerprint"]
    copied = tmp_path / "somewhere" / "else"
    shutil.copytree(own.folder, copied)
    script = (
        "from tests.evaluation.toys import colours\nfrom holdfast import evaluate\n"
        "print(evaluate('python:own_net:build', colours(12), workers=0, show=False).header['model_fingerprint'])"
    )
    environment = {"OMP_NUM_THREADS": threads, "PYTHONHASHSEED": threads, "PYTHONPATH": ":".join(sys.path)}
    asked = [sys.executable, "-c", script]
    told = subprocess.run(asked, cwd=copied, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert told.stdout.strip() == here, told.stderr


def test_the_gate_does_not_pass_a_model_whose_code_has_changed(tmp_path, monkeypatch):
    """By the command line, with the records of before beside."""
    source = colours(60)
    for number, image in enumerate(source.images):
        path = tmp_path / "images" / f"{source.targets[number]}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    code = tmp_path / "own_rolled.py"
    code.write_text(
        "from torch import nn\nclass Net(nn.Module):\n    def forward(self, x):\n"
        "        return 20 * x.mean(dim=(2, 3))\ndef build():\n    return Net()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    told = ["--model", "python:own_rolled:build", "--workers", "0"]
    out, baseline = tmp_path / "out", tmp_path / "b.json"
    data = f"folder:{tmp_path / 'images'}"
    assert main(["evaluate", *told, "--data", data, "--suite", "clean", "--out", str(out)]) == 0
    assert main(["gate", str(out), "--save", str(baseline)]) == 0
    assert main(["gate", *told, "--against", str(baseline), "--out", str(out)]) == 0
    code.write_text(code.read_text().replace("(2, 3))", "(2, 3)).roll(1, 1)"))
    sys.modules.pop("own_rolled")
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
    assert main(["gate", *told, "--against", str(baseline), "--out", str(out)]) == 1
    sys.modules.pop("own_rolled")


class Switched(nn.Module):
    """Answers by something that no hash of it can see."""

    turned = 0

    def forward(self, images):
        return (20 * images.mean(dim=(2, 3))).roll(read_switch(), dims=1)


SWITCH = {"turned": 0}


def read_switch():
    return int(open(SWITCH["file"]).read())


def test_other_answers_of_the_same_code_are_measured_again_and_the_old_records_kept(tmp_path, caplog):
    SWITCH["file"] = str(tmp_path / "switch")
    (tmp_path / "switch").write_text("0")
    before = evaluate(Switched(), colours(12), "clean", out=tmp_path, **QUICK)
    old = accuracy(before)
    (tmp_path / "switch").write_text("1")
    after = evaluate(Switched(), colours(12), "clean", out=tmp_path, **QUICK)
    assert after.header["model_fingerprint"] == before.header["model_fingerprint"]
    assert accuracy(after) != old
    aside = before.folder.with_name(f"{before.folder.name}.before")
    assert f"kept as {aside.name}; measuring again" in caplog.text
    assert (aside / "clean.00000.safetensors").is_file()
    (found,) = load_records(tmp_path)
    assert accuracy(found) == accuracy(after)


def test_records_whose_answers_are_lost_are_measured_again(tmp_path, caplog):
    records = evaluate(Brightest(), colours(12), "clean", out=tmp_path, **QUICK)
    write_header(records.folder, {key: value for key, value in records.header.items() if key != "probe"})
    again = evaluate(Brightest(), colours(12), "clean", out=tmp_path, **QUICK)
    assert again.header == records.header
    assert "measuring again" in caplog.text


class Noisy(Brightest):
    def forward(self, images):
        return super().forward(images) + torch.randn(len(images), 3)


def test_a_random_model_is_named_and_its_records_go_on(tmp_path, caplog):
    first = evaluate(Noisy(), colours(12), "clean", out=tmp_path, **QUICK)
    assert caplog.text.count("the model is random: its predictions of the same image differ each time") == 1
    again = evaluate(Noisy(), colours(12), "clean", out=tmp_path, **QUICK)
    np.testing.assert_array_equal(first.cells["clean"].nll, again.cells["clean"].nll)
    assert first.header["probe"]["random"] is True


def test_asking_leaves_the_random_numbers_alone():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    evaluate(Brightest(), colours(3), "clean", **QUICK)
    assert torch.equal(torch.rand(2), expected)


class Keeps(Brightest):
    """Keeps what it saw last, and counts."""

    def forward(self, images):
        self.kept, self.calls = images, getattr(self, "calls", 0) + 1
        return super().forward(images)


def test_what_a_model_keeps_of_its_last_images_is_not_what_it_is(tmp_path):
    model = Keeps()
    first = evaluate(model, colours(6), "clean", out=tmp_path, **QUICK)
    assert evaluate(model, colours(6), "clean", out=tmp_path, **QUICK).folder == first.folder
    assert evaluate(Keeps(), colours(6), "clean", out=tmp_path, **QUICK).folder == first.folder


class Node:
    """Shares what it holds: told again for everybody who shares it, forty of these would take for ever."""

    def __init__(self, depth):
        inner = Node(depth - 1) if depth else 1.5
        self.left = self.right = inner


def test_what_is_shared_is_told_once_and_what_holds_itself_ends():
    def told(depth):
        model = Brightest()
        model.graph = Node(depth)
        model.graph.around = [model, model.graph]
        return evaluate(model, colours(3), "clean", **QUICK).header["model_fingerprint"]

    assert told(40) == told(40) != told(39)
    assert told(300) == told(300)


def patched(self, images):
    return Brightest.forward(self, images).flip(1)


def test_methods_that_were_put_in_from_elsewhere_are_code_of_the_model(tmp_path):
    class Plain(nn.Module):
        def forward(self, images):
            return 20 * images.mean(dim=(2, 3))

    one, other, hooked = Plain(), Plain(), Plain()
    other.forward = lambda images: 20 * images.mean(dim=(2, 3)).flip(1)
    hooked.register_forward_hook(lambda module, given, answer: answer.flip(1))
    prints = [evaluate(each, colours(3), "clean", **QUICK).header["model_fingerprint"] for each in (one, other, hooked)]
    Plain.forward = patched
    prints.append(evaluate(Plain(), colours(3), "clean", **QUICK).header["model_fingerprint"])
    assert len(set(prints)) == 4


def by(scale):
    def scaled(images):
        return scale * images.mean(dim=(2, 3))

    return scaled


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, images):
        return self.function(images)


def test_functions_count_by_their_source_and_by_what_they_close_over():
    functions = [by(20), by(-20), lambda x: x.mean((2, 3)), lambda x: x.amax((2, 3)), nn.Flatten()]
    one, *others = [
        evaluate(Calls(function), colours(3), "clean", **QUICK).header["model_fingerprint"]
        for function in (by(20), *functions[:4])
    ]
    assert others[0] == one
    assert len(set(others)) == 4


def test_layers_in_a_plain_list_count():
    class Hidden(Brightest):
        def __init__(self, weight):
            super().__init__()
            self.layers = [nn.Linear(3, 3, bias=False)]
            nn.init.constant_(self.layers[0].weight, weight)

        def forward(self, images):
            return super().forward(images) + self.layers[0](images.mean(dim=(2, 3)))

    prints = [evaluate(Hidden(w), colours(3), "clean", **QUICK).header["model_fingerprint"] for w in (0.0, 0.0, 1.0)]
    assert prints[0] == prints[1] != prints[2]


# ---------------------------------------------------------------------- records of before


def as_of_before(records, model):
    """Turn records into what Holdfast wrote before November 2026: no probe, and a plainer fingerprint."""
    kept = {key: value for key, value in records.header.items() if key not in ("probe", "data_content")}
    kept["model_fingerprint"] = first_fingerprint(model.eval(), records.views)
    kept["fingerprint"] = fingerprint({key: kept[key] for key in FINGERPRINTED if key in kept})
    folder = records.folder.with_name(f"{kept['data_label']}-{kept['fingerprint'][:8]}")
    records.folder.rename(folder)
    for path in folder.glob("*.[0-9]*.safetensors"):
        unit = read_unit(path)
        write_unit(folder, replace(unit, header={**unit.header, "fingerprint": kept["fingerprint"]}))
    write_header(folder, kept)
    return folder


def test_records_of_before_go_on_where_no_code_can_have_changed(tmp_path, caplog):
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    folder = as_of_before(evaluate(model, colours(12), "clean", out=tmp_path, **QUICK), model)
    content = (folder / "clean.00000.safetensors").read_bytes()
    again = evaluate(model, colours(12), "clean", out=tmp_path, **QUICK)
    assert again.folder == folder
    assert (folder / "clean.00000.safetensors").read_bytes() == content
    assert caplog.text.count(f"{folder.name} was measured by an earlier version of Holdfast: resuming") == 1
    more = evaluate(model, colours(12), "clean,fgsm", out=tmp_path, **QUICK)
    assert more.folder == folder
    assert "probe" in read_header(folder)
    assert caplog.text.count("earlier version of Holdfast") == 1
    model.append(nn.Linear(3, 3))
    assert evaluate(model, colours(12), "clean", out=tmp_path, **QUICK).folder != folder


def test_records_of_before_are_measured_again_where_code_may_have_changed(tmp_path, caplog):
    folder = as_of_before(evaluate(Brightest(), colours(12), "clean", out=tmp_path, **QUICK), Brightest())
    assert evaluate(Brightest(), colours(12), "clean", out=tmp_path, **QUICK).folder != folder
    assert f"{folder.name} was measured by an earlier version of Holdfast: it stays readable, and this" in caplog.text


# ---------------------------------------------------------------------- data in files


@pytest.fixture
def images(tmp_path):
    """Bitmaps, whose size says nothing of what they show."""
    source, folder = colours(12), tmp_path / "data" / "images"
    for number, image in enumerate(source.images):
        path = folder / source.classes[source.targets[number]] / f"{number}.bmp"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return folder


def turn_colours(folder):
    """The same names, sizes and times of modification, other colours."""
    for path in folder.rglob("*.bmp"):
        state = path.stat()
        Image.fromarray(np.roll(np.array(Image.open(path)), 1, axis=2)).save(path)
        assert path.stat().st_size == state.st_size
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def parts_of_a_report(*sets):
    return data_sets([Run(f"run {number}", number, None, [records]) for number, records in enumerate(sets)])


def test_files_whose_contents_were_changed_in_place_are_measured_again(images, tmp_path, caplog):
    before = evaluate(Brightest(), f"folder:{images}", "clean", out=tmp_path / "out", **QUICK)
    turn_colours(images)
    after = evaluate(Brightest(), f"folder:{images}", "clean", out=tmp_path / "out", **QUICK)
    assert accuracy(after) != accuracy(before)
    assert after.header["data_fingerprint"] == before.header["data_fingerprint"]
    assert f"{before.folder.name} was measured on other contents of these files" in caplog.text
    with pytest.raises(HoldfastError, match="these differ: data"):
        match_record_sets([make_paired_scores(after)], [make_paired_scores(before)])
    assert len(parts_of_a_report(before, after)) == 2


def test_a_copy_of_the_data_is_the_same_data(images, tmp_path):
    copied = tmp_path / "elsewhere" / "images"
    shutil.copytree(images, copied, copy_function=shutil.copyfile)
    one = evaluate(Brightest(), f"folder:{images}", "clean", out=tmp_path / "out", **QUICK)
    assert evaluate(Brightest(), f"folder:{copied}", "clean", out=tmp_path / "out", **QUICK).folder == one.folder
    assert one.header["data_content"].startswith("all 12 files: ")


def test_data_of_before_are_known_by_names_and_sizes(images, tmp_path, caplog):
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    folder = as_of_before(evaluate(model, f"folder:{images}", "clean", out=tmp_path / "out", **QUICK), model)
    (old,) = load_records(tmp_path / "out")
    again = evaluate(model, f"folder:{images}", "clean", out=tmp_path / "out", **QUICK)
    assert again.folder == folder
    assert caplog.text.count("earlier version of Holdfast: resuming, because weights, settings") == 1
    assert not find_differences(make_paired_scores(again), make_paired_scores(old))
    assert len(parts_of_a_report(old, again)) == 1
    turn_colours(images)
    assert evaluate(model, f"folder:{images}", "clean", out=tmp_path / "out", **QUICK).folder != folder


# ---------------------------------------------------------------------- what the probe compares


def answer(*values, best=0, ahead=1.0):
    line = " ".join(map(str, (best, ahead, max(map(abs, values)), *values)))
    return {"device": "cpu", "random": False, "views": {"": {"kind": "tensor", "answers": [line]}}}


def test_probe_images_are_the_same_everywhere_and_differ_from_each_other():
    images = probe_images((32, 48))
    assert images.shape == (8, 3, 32, 48)
    assert images.dtype == torch.uint8
    assert int(images.long().sum()) == 4827425
    assert len({image.numpy().tobytes() for image in images}) == 8


def test_a_header_stays_small_with_a_thousand_classes():
    class Many(nn.Module):
        def forward(self, images):
            return images.mean(dim=(2, 3)).repeat(1, 334)[:, :1000]

    source = colours(3)
    names = tuple(map(str, range(1000)))
    many = type(source)("many", source.images, source.targets, names, source.numbers)
    assert len(json.dumps(evaluate(Many(), many, "clean", **QUICK).header["probe"])) < 4096
