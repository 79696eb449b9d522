"""Whatever a user's model computes with is in its description: modules of packages, cached functions, settings."""

import importlib
import sys

import pytest

from holdfast.models.description import Parts

HEAD = """
import argparse, dataclasses, functools, json, re
import torch
from torch import nn
"""
NET = """
class Net(nn.Module):
    def forward(self, values):
        {imported}
        return {answer}

def build():
    net = Net()
    net.settings = {settings}
    return net.eval()
"""
SCALED = "def scaled(values):\n    return {} * values\n"


def files(answer="values", *, head="", imported="pass", settings="None", **others):
    net = NET.format(answer=answer, imported=imported, settings=settings)
    return {"described_net.py": HEAD + head + net, **others}


PACKAGE = {"described/__init__.py": "", "described/below/__init__.py": "", "described/below/parts.py": SCALED}
CASES = {
    "a module of a package": files(
        "described.below.parts.scaled(values)", head="import described.below.parts\n", **PACKAGE
    ),
    "a package without __init__": files(
        "described.parts.scaled(values)", head="import described.parts\n", **{"described/parts.py": SCALED}
    ),
    "imported by forward, and not yet": files(
        "scaled(values)", imported="from described.below.parts import scaled", **PACKAGE
    ),
    "a cached function": files("values * scaled(1)", head="@functools.lru_cache\n" + SCALED),
    "a compiled function": files("scaled(values)", head="@torch.jit.script\n" + SCALED),
    "parsed arguments": files(settings="argparse.Namespace(**json.loads('{{\"scale\": {}}}'))"),
    "an object with slots": files(
        head="@dataclasses.dataclass(slots=True)\nclass Settings:\n    scale: float\n",
        settings="Settings(*json.load(open('described.json')))",
        **{"described.json": "[{}]"},
    ),
    "a slice": files(settings="slice(0, json.load(open('described.json')))", **{"described.json": "{}"}),
    "a pattern": files(settings="re.compile(open('described.txt').read())", **{"described.txt": "{}"}),
    "another method of a scripted module": files(
        head="class Inner(nn.Module):\n    @torch.jit.export\n    def helper(self, values):\n"
        "        return {} * values\n    def forward(self, values):\n        return self.helper(values)\n",
        settings="torch.jit.script(Inner())",
    ),
    "an attribute of a scripted module": files(
        head="class Inner(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.scale = {}\n"
        "    def forward(self, values):\n        return values * self.scale\n",
        settings="torch.jit.script(Inner())",
    ),
    "a constant of a traced module": files(
        head="class Inner(nn.Module):\n    def forward(self, values):\n"
        "        return values * torch.tensor([{}.0, 1.0])\n",
        settings="torch.jit.trace(Inner(), torch.ones(2))",
    ),
}


def description(folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.chdir(folder)
        parts = Parts()
        parts.add_model(importlib.import_module("described_net").build())
    for name in [name for name in sys.modules if name.partition(".")[0] in ("described_net", "described")]:
        del sys.modules[name]
    return dict(parts)


@pytest.mark.filterwarnings("ignore:torch.tensor results are registered as constants")
@pytest.mark.filterwarnings("ignore:`torch.jit.(script|trace|trace_method)` is deprecated")
@pytest.mark.parametrize("case", CASES)
def test_what_a_model_computes_with_is_described(case, tmp_path, monkeypatch):
    found = []
    for place, factor in (("one", 1), ("two", 2), ("again", 1)):
        for name, text in CASES[case].items():
            path = tmp_path / place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("{}", str(factor)).replace("{{", "{").replace("}}", "}"))
        found.append(description(tmp_path / place, monkeypatch))
    assert found[0] == found[2]  # in another folder
    assert found[0] != found[1]
