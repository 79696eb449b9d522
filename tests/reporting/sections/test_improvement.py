"""Card of ``holdfast improve``: its decision, which was made before this page and is not made again by it."""

import json
from types import SimpleNamespace

from holdfast.improvement.decide import plain_domains
from holdfast.reporting.sections.improvement import domain_lines, improve_cards


def test_a_decision_tells_the_domains_of_every_model_as_means_over_seeds(tmp_path):
    first, second = (SimpleNamespace(domains={"art": art, "sketch": 50.0}) for art in (60.0, 70.0))
    domains = plain_domains({"start": [first], "plain": [first, second], "challenger": [second, second]})
    assert domains["plain"] == {"art": 65.0, "sketch": 50.0}
    lines = domain_lines(domains, challenger="augmix")
    assert lines[1:] == [
        "Clean accuracy of plain by domain: art 65.0 %, sketch 50.0 %.",
        "Clean accuracy of augmix by domain: art 70.0 %, sketch 50.0 %.",
    ]
    values = {
        "seeds": 2,
        "candidates": 2,
        "tried": 3,
        "images": 30,
        "data": "domains:x",
        "remarks": [],
        "name": "plain",
    }
    values |= {"verdict": "plain", "commands": [], "gate": "", "sentence": "", "challenger": "augmix"}
    for name, more in (("old", {}), ("new", {"domains": domains})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "decision.json").write_text(json.dumps(values | more))
    old, new = (improve_cards([SimpleNamespace(folder=tmp_path / name)])[0] for name in ("old", "new"))
    assert list(new.facts) == [*old.facts, *lines]
