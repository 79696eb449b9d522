"""A model card: read again by the Hub's own classes, true to the records, without this machine's folders."""

import re

import pytest
import yaml
from huggingface_hub import ModelCard

from holdfast.cli.main import main
from holdfast.metrics.comparison import compare
from holdfast.records.records import load_records
from tests.reporting.helpers import make_records, make_run


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    """A run whose data lie in somebody's folder, and its card."""
    folder = make_run(tmp_path_factory.mktemp("cards") / "my_run", data="folder:/home/me/secret/flowers")
    (folder / "config.json").write_text("{}")
    assert main(["card", str(folder), "--license", "apache-2.0"]) == 0
    return folder


def test_the_hub_reads_every_result_with_its_definition(card):
    data = ModelCard.load(card / "README.md").data
    summary = load_records(card)[0].summary()
    results = {result.metric_type: result for result in data.eval_results}
    assert set(results) == {"clean", "mean_corruption_accuracy", "retention", "attack/pgd5", "attack/occlusion-random"}
    for name, result in results.items():
        score = summary[name]
        assert result.metric_value == round(score.value, 2)
        assert result.metric_args["definition"] == score.definition
        assert (result.metric_args["low"], result.metric_args["high"]) == (round(score.low, 2), round(score.high, 2))
        assert result.dataset_name == "folder:flowers"
    assert (data.license, data.library_name, data.pipeline_tag) == ("apache-2.0", "timm", "image-classification")
    assert data.model_name == "my_run"


def test_record_sets_of_the_same_data_keep_their_own_results(tmp_path):
    folder = make_run(tmp_path / "run")
    make_records(folder, hold=0.5, cells=("clean",), count=20)
    assert main(["card", str(folder)]) == 0
    clean = [each for each in ModelCard.load(folder / "README.md").data.eval_results if each.metric_type == "clean"]
    assert sorted(each.dataset_args["images"] for each in clean) == [20, 40]


def test_the_page_shows_tables_figures_training_and_limits(card):
    text = (card / "README.md").read_text()
    summary = load_records(card)[0].summary()
    assert f"| fog | {summary['accuracy/fog'].value:.1f} % |" in text
    assert "fan_nano, 0.9 million parameters" in text
    assert "name: fan_nano" in text
    assert "not measured: perturbation sequences" in text
    assert "corrupted on the fly" in text
    figures = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert figures == ["robustness-by-severity.png", "robustness-by-kind.png"]
    assert all((card / file).read_bytes().startswith(b"\x89PNG") for file in figures)
    assert "/home" not in text
    assert str(card.parent) not in text


def test_the_upload_names_what_belongs_on_the_hub_and_nothing_else(card, capsys):
    assert main(["card", str(card)]) == 0  # its own card is written again
    out = capsys.readouterr().out
    assert "hf upload USER/my_run" in out
    assert "README.md robustness-by-severity.png robustness-by-kind.png config.json model.safetensors" in out


def test_a_card_is_refused_where_it_would_lie_or_overwrite(tmp_path, capsys):
    bare = make_run(tmp_path / "bare", cells=())
    assert main(["card", str(bare)]) == 2
    assert "a card needs records" in capsys.readouterr().err
    run = make_run(tmp_path / "run", cells=("clean",), trained=False)
    (run / "README.md").write_text("mine")
    assert main(["card", str(run)]) == 2
    assert "was not written by `holdfast card`" in capsys.readouterr().err
    assert (run / "README.md").read_text() == "mine"
    assert main(["card", str(run), "--out", str(tmp_path / "card"), "--name", "a: <b> | c"]) == 0
    card = ModelCard.load(tmp_path / "card" / "README.md")
    assert card.data.model_name == "a: <b> | c"
    assert "Unknown: the run has no recipe" in card.text
    assert r"# a: &lt;b> \| c" in card.text  # text, not markup
    assert "## Intended use" in card.text
    assert sorted(path.name for path in (tmp_path / "card").iterdir()) == ["README.md"]


@pytest.mark.parametrize("count", [40, 100])
def test_a_fine_tuned_model_is_compared_with_its_start(count, tmp_path):
    cells = ("clean", *(f"fog/{severity}" for severity in range(1, 6)))
    start = make_run(tmp_path / "start", hold=0.2, cells=cells, count=count)
    tuned = make_run(tmp_path / "tuned", hold=0.9, cells=cells, count=count)
    recipe = yaml.safe_load((tuned / "recipe.yaml").read_text())
    recipe["model"]["init"] = f"run:{start}"
    (tuned / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    assert main(["card", str(tuned)]) == 0
    text = (tuned / "README.md").read_text()
    mean = compare(load_records(tuned)[0], load_records(start)[0]).differences["mean_corruption_accuracy_partial"]
    assert "## Compared with its start" in text
    assert f"+{mean.interval.value:.1f} ({mean.interval.low:.1f} to {mean.interval.high:.1f}) | better |" in text
    assert str(tmp_path) not in text.split("<details>")[0]
    few = "No verdict of a gate: 40 images, at least 50 are needed."
    assert (few in text) == (count == 40)
    assert ("no worse in" in text) == (count == 100)
