"""Figures by domain and by class of shape: their numbers are those of the scores, for every model."""

from dataclasses import replace

import numpy as np
import pytest

from holdfast.records.records import CellRecord, Records
from holdfast.reporting.comparable import data_sets
from holdfast.reporting.figures.kinds import kind_figures
from holdfast.reporting.runs import read_runs


def records(name, seed, *, domains=("photo", "sketch")):
    rng = np.random.default_rng(seed)
    ids = np.array([f"{domain}/{n}.png" for domain in domains for n in range(20)])
    fields = dict.fromkeys(("confidences", "nll", "top5"), np.full(len(ids), 0.5))
    fields["predictions"] = rng.integers(0, 2, len(ids))
    header = {"cell": "clean", "family": "clean", "domains": list(domains)}
    cell = CellRecord(ids, np.zeros(len(ids), np.int64), fields, header=header)
    about = {"model": name, "data": "domains:x", "data_fingerprint": "f", "label": "on-the-fly", "classes": 2}
    return Records.of({"task": "classification", "model_fingerprint": name, **about}, {"clean": cell})


def test_every_model_has_a_point_per_domain_with_its_interval():
    runs = read_runs([records("one", 0), records("other", 1)])
    (data,) = data_sets(runs)
    (figure,) = kind_figures(data, anchor="data-1")
    assert figure.title == "Accuracy by domain"
    assert figure.rows[0] == ["domain", "model", "value", "low", "high"]
    assert len(figure.rows) == 5
    for domain, model, value, low, high in figure.rows[1:]:
        entry = next(entry for entry in data.models if entry.name == model)
        score = entry.summary[f"domain/{domain}"]
        assert [float(value), float(low), float(high)] == pytest.approx([score.value, score.low, score.high], rel=1e-4)
    assert "sketch" in figure.svg
    assert figure.draw().axes[0].get_xlim() == (0, 100)


def test_data_without_domains_have_no_such_figure():
    one = records("one", 0)
    plain = Records.of(one.header, {"clean": replace(one.cells["clean"], header={"cell": "clean", "family": "clean"})})
    (data,) = data_sets(read_runs([plain]))
    assert kind_figures(data, anchor="data-1") == []
