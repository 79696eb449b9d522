"""The page: its numbers are the records', its text is escaped, what is missing is not missed."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import holdfast
from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.metrics.comparison import compare
from holdfast.records.records import load_records
from holdfast.reporting.page import report, script
from tests.reporting.helpers import CORRUPTIONS, make_records, make_run, make_training

HOSTILE = '<script>alert("x")</script> & \'"><img src=x onerror=alert(1)> $x_2$ {{ 7*7 }} \x1b[31m \x00'


class Page(HTMLParser):
    """What a test asks about a page: elements by tag, ids, text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def all(self, tag: str, **attributes) -> list[dict]:
        names = {key.replace("_", "-"): value for key, value in attributes.items()}
        return [a for t, a in self.elements if t == tag and names.items() <= a.items()]


def _rows_of(text: str, table: str) -> list[dict]:
    found = re.search(rf'<table class="{table}">(.*?)</table>', text, re.DOTALL)
    return [row for row in Page(found[1]).all("tr") if "data-run" in row]


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    runs = [make_run(root / "plain", hold=0.4), make_run(root / "robust", hold=0.8)]
    make_training(runs[1], parameters=1_000_000)
    return runs


SMALL = ("clean", *(f"fog/{severity}" for severity in range(1, 6)), "pgd5")


@pytest.fixture(scope="module")
def small_runs(tmp_path_factory):
    """Fewer cells, for tests that are not about all of them."""
    root = tmp_path_factory.mktemp("small")
    return [make_run(root / "plain", hold=0.4, cells=SMALL), make_run(root / "robust", hold=0.8, cells=SMALL)]


@pytest.fixture(scope="module")
def text(two_runs):
    return report(two_runs)


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def test_headline_numbers_are_those_of_the_records(page, two_runs):
    shown = [(cell["data-score"], float(cell["data-value"])) for cell in page.all("td") if "data-value" in cell]
    for run in two_runs:
        (records,) = load_records(run)
        corrupted = np.mean([records.cells[cell].accuracy for cell in CORRUPTIONS])
        clean = records.cells["clean"].accuracy
        for name, value in {
            "clean": 100 * clean,
            "mean_corruption_accuracy": 100 * corrupted,
            "retention": 100 * corrupted / clean,
            "attack/pgd5": 100 * records.cells["pgd5"].accuracy,
        }.items():
            assert any(score == name and value == pytest.approx(other) for score, other in shown), name


def test_every_cell_of_the_heat_maps_is_the_accuracy_of_its_record(text, two_runs):
    squares = re.findall(r'data-cell="([^"]+)">(\d+)<', text)
    assert len(squares) == 2 * len(CORRUPTIONS)
    expected = [
        (cell, f"{100 * records.cells[cell].accuracy:.0f}")
        for run in two_runs
        for records in load_records(run)
        for cell in CORRUPTIONS
    ]
    assert sorted(squares) == sorted(expected)


def test_a_kind_has_one_number_in_the_strip_and_in_the_heat_map(text, two_runs):
    for run in two_runs:
        (records,) = load_records(run)
        fog = np.mean([100 * records.cells[f"fog/{severity}"].accuracy for severity in range(1, 6)])
        assert f'<td class="mean">{fog:.1f}</td>' in text
        assert re.search(rf"--error: [\d.]+\">{fog:.1f}</td>", text)


def test_the_comparison_shows_the_paired_difference(page, two_runs):
    plain, robust = (load_records(run)[0] for run in two_runs)
    fog = compare(robust, plain).differences["accuracy/fog"].interval
    assert f"+{fog.value:.1f}" in page.text
    assert f"{fog.low:.1f} to {fog.high:.1f}".replace("-", "−") in page.text
    assert re.search(r"robust is better than plain under corruption \(mCA\): accuracy [\d.]+ vs. [\d.]+, \+", page.text)


def test_all_parts_are_there(page):
    named = {attributes.get("id") for _, attributes in page.elements}
    assert {"data-1", "data-1-comparison", "data-1-heat", "training", "reproduce", "meanings"} <= named
    figures = [attributes["id"] for attributes in page.all("figure")]
    assert {
        "data-1-severity",
        "data-1-cost",
        "data-1-by-accuracy-1",
        "data-1-by-accuracy-2",
        "training-loss",
        "training-top1",
    } <= set(figures)
    assert len(page.all("svg")) == len(figures)


def test_ids_are_unique_and_links_lead_somewhere(page):
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {a["href"][1:] for a in page.all("a") if a.get("href", "").startswith("#")}
    assert targets <= set(ids)


def test_the_page_needs_nothing_else(page, text):
    assert text.count("<script") == 1
    digest = base64.b64encode(
        hashlib.sha256(text.split("<script>")[1].split("</script>")[0].encode()).digest()
    ).decode()
    (policy,) = [meta["content"] for meta in page.all("meta", http_equiv="Content-Security-Policy")]
    assert f"script-src 'sha256-{digest}'" in policy  # and no other script, wherever it comes from
    assert [link["href"] for link in page.all("link")] == ["data:,"]
    assert not re.search(r"""(src|href)=["'](https?:|//)""", text)
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    assert len(text.encode()) < 5e6


def test_definitions_stand_beside_the_names(page):
    opened = {button["popovertarget"] for button in page.all("button") if "popovertarget" in button}
    assert opened == {box["id"] for box in page.all("div") if "popover" in box}
    assert page.text.count("mean top-1 accuracy over 15 kinds × 5 severities") >= 2  # beside the name, and at the end
    assert "top-1 accuracy under PGD, L∞ 1/255, 5 steps" in page.text


def test_commands_to_reproduce_are_given(page, two_runs):
    plain = two_runs[0]
    assert f"holdfast train {plain / 'recipe.yaml'} --out {plain}-again" in page.text
    suites = "clean,corruptions,occlusion-random,pgd5"
    assert f"holdfast evaluate {plain} --data digits --suite {suites}" in page.text
    assert "torch 2.15.0" in page.text


def test_hostile_names_are_text_everywhere(tmp_path):
    plain = make_run(tmp_path / "plain", data=HOSTILE, model=HOSTILE, preset=HOSTILE, cells=SMALL)
    named = make_run(tmp_path / "named", data=HOSTILE, hold=0.9, preset=HOSTILE, cells=SMALL)
    (named / "recipe.yaml").write_text('model: {name: "<script>alert(2)</script>"}\ndata: "</code><script>"\n')
    (named / "log.jsonl").write_text(
        '{"event": "step", "step": 1, "epoch": 0, "loss": 1.0, "<script>alert(3)</script>": 2.0}\n'
    )
    text = report([plain, named], names=[HOSTILE, HOSTILE], title=HOSTILE)
    page = Page(text)
    assert text.count("<script") == 1
    assert script() in text  # the same for every report: no data in it
    assert not page.all("img")
    assert not [a for _, a in page.elements if any(key.startswith("on") for key in a)]
    assert "{{ 7*7 }}" in page.text
    assert "\x1b" not in text
    assert "\x00" not in text
    assert page.text.count("$x_2$") > 5  # also in figures: never read as mathematics


def test_runs_of_one_name_are_told_apart(tmp_path):
    runs = [make_run(tmp_path / parent / "same", cells=("clean",), trained=False) for parent in ("a", "b")]
    page = Page(report(runs))
    assert "a/same" in page.text
    assert "b/same" in page.text
    assert "x (2)" in Page(report(runs, names=["x", "x"])).text


def test_different_images_are_kept_apart(tmp_path):
    one = make_run(tmp_path / "one", cells=("clean", "fog/1"))
    make_run(tmp_path / "two", cells=("clean", "fog/1"), count=20, trained=False)
    page = Page(report([one, tmp_path / "two"]))
    sections = [a["id"] for a in page.all("section")]
    assert sections[:2] == ["data-1", "data-2"]
    assert "digits, 40 images" in page.text
    assert "digits, 20 images" in page.text
    assert "are not compared" in page.text
    assert not [a for a in page.all("figure") if "against" in a["id"]]


def test_the_same_images_in_another_place_are_compared(tmp_path):
    here = make_run(tmp_path / "here", cells=("clean",), data="folder:/a", trained=False)
    there = make_run(tmp_path / "there", cells=("clean",), data="folder:/b", seed=1, trained=False)
    page = Page(report([here, there]))
    assert [a["id"] for a in page.all("section")] == ["data-1", "reproduce", "meanings"]
    assert "evaluated with different seeds of corruptions" in page.text
    stored = [
        make_run(tmp_path / name, cells=("clean",), data=f"{name}:/x", label="official", trained=False)
        for name in ("imagenet-r", "imagenet-a")
    ]
    assert "data-2" in {a["id"] for a in Page(report(stored)).all("section")}


def test_records_of_one_run_with_two_seeds_are_told_apart(tmp_path):
    run = make_run(tmp_path / "run", cells=("clean",), trained=False)
    place = make_records(run, hold=0.5, cells=("clean",), seed=7, data_fingerprint="again")
    header = place / "evaluation.json"
    header.write_text(header.read_text().replace('"again"', '"digits-40"'))
    text = Page(report(run)).text
    assert "run (seed 0)" in text
    assert "run (seed 7)" in text


def test_a_run_without_attacks_corruptions_or_training_gives_a_page(tmp_path):
    run = make_run(tmp_path / "run", cells=("clean",), trained=False)
    page = Page(report(run))
    assert "run has accuracy" in page.text
    assert not page.all("svg")
    ids = {a["id"] for a in page.all("section")}
    assert ids == {"data-1", "reproduce", "meanings"}


def test_a_run_that_was_only_trained_gives_a_page(tmp_path):
    run = make_run(tmp_path / "run", cells=())
    page = Page(report(run))
    assert "Not evaluated yet: run" in page.text
    assert "One model, not evaluated yet." in page.text
    assert "scores on clean" not in page.text
    assert "training-loss" in {a["id"] for a in page.all("figure")}


def test_missing_cells_are_said(tmp_path):
    run = make_run(
        tmp_path / "run", cells=("clean", "fog/1", "fog/2", "snow/1", "snow/2", "snow/3", "snow/4", "snow/5")
    )
    text = Page(report(run)).text
    assert "mCA (partial: 1 of 15 kinds)" in text
    place = next((run / "records").iterdir())
    (place / "snow.3.00000.safetensors").write_bytes(b"broken")
    assert "The evaluation of run is incomplete, so snow/3 are missing" in Page(report(run)).text


def test_damaged_logs_and_recipes_are_said_not_fatal(tmp_path):
    run = make_run(tmp_path / "run", cells=("clean",))
    (run / "recipe.yaml").write_text("model: [")
    (run / "model.safetensors").write_bytes(b"broken")
    with (run / "log.jsonl").open("a") as log:
        log.write('{"event": "epoch", "step": 99, "epoch": -1}\n{"event": "ste')
    text = Page(report(run)).text
    for sentence in ("recipe.yaml cannot be read", "model.safetensors cannot be read", "1 lines of log.jsonl"):
        assert sentence in text


def test_several_predictions_of_one_model_are_rows_and_a_curve(tmp_path):
    run = make_run(tmp_path / "tora", views=("joint", "acc", "rob"), cells=("clean", "pgd5"))
    page = Page(report(run))
    assert [a["id"] for a in page.all("figure") if "trade" in a["id"]] == ["data-1-trade-off-1"]
    assert len(page.all("td", data_score="clean")) == 3


def test_runs_below_a_folder_are_found_and_weights_make_a_curve(tmp_path):
    for weight in (0.1, 0.9):
        run = make_run(tmp_path / "tora" / f"lambda={weight}", views=("joint", "acc"), cells=("clean", "pgd5"))
        (run / "recipe.yaml").write_text(
            f"model: {{name: vit_nano, kwargs: 3}}\ntrain: {{phases: {{weights: [{weight}]}}}}\n"
        )
    page = Page(report(tmp_path / "tora"))
    assert len(page.all("td", data_score="clean")) == 4
    assert page.text.count("λ 0.1") == page.text.count("λ 0.9") == 2


def test_runs_that_differ_in_the_seed_alone_have_a_spread(tmp_path):
    runs = [make_run(tmp_path / f"seed{seed}", cells=("clean",), hold=0.1 * seed) for seed in (1, 2, 3)]
    for seed, run in zip((1, 2, 3), runs, strict=True):
        recipe = run / "recipe.yaml"
        recipe.write_text(recipe.read_text().replace("seed: 0", f"seed: {seed}"))
    clean = [100 * load_records(run)[0].cells["clean"].accuracy for run in runs]
    text = Page(report([*runs, make_run(tmp_path / "other", cells=("clean",), trained=False)])).text
    assert "seed1, seed2, seed3" in text
    assert f"{np.mean(clean):.1f} ± {np.std(clean, ddof=1):.1f}" in text
    assert "Variation over seeds" not in Page(report(runs[:1])).text


def test_papers_are_quoted_where_the_classes_are_imagenets(tmp_path):
    run = make_run(tmp_path / "fan", classes=1000, preset="imagenet", model="timm:fan_base_16_p4_hybrid", trained=False)
    page = Page(report(run))
    assert "Published scores" in page.text
    assert "TAP, Table 2" in page.text
    assert "43.7" not in page.text  # that is tap_fan_base's
    assert "mCE" in page.text
    other = make_run(tmp_path / "digits", model="timm:fan_base_16_p4_hybrid", trained=False)
    assert "Published scores" not in Page(report(other)).text


def test_a_stored_set_takes_the_clean_accuracy_of_the_same_model(tmp_path):
    run = make_run(tmp_path / "run", cells=("clean",), trained=False)
    make_records(run, hold=0.5, cells=CORRUPTIONS, data="cifar10-c:x", data_fingerprint="c", label="official")
    page = Page(report(run))
    assert [a["id"] for a in page.all("section")][:2] == ["data-1", "data-2"]
    assert page.all("td", data_score="retention")


def test_records_from_memory_can_be_reported(small_runs):
    (records,) = load_records(small_runs[0])
    assert "run:" in Page(holdfast.report(records)).text


def test_the_package_and_the_function_have_one_name(small_runs):
    import holdfast.reporting.page

    assert "<!doctype html>" in holdfast.report([small_runs[0]])[:2000]


@pytest.mark.parametrize("format", ["md", "csv", "latex", "robustbench"])
def test_other_formats_hold_the_same_numbers(format, small_runs):
    text = report(small_runs, format=format)
    fog = 100 * np.mean([load_records(small_runs[1])[0].cells[f"fog/{severity}"].accuracy for severity in range(1, 6)])
    assert any(f"{fog:.{digits}f}" in text for digits in (1, 2, 4))
    assert "robust" in text


def test_the_command_line_writes_the_page_in_one_move(small_runs, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main(["report", *map(str, small_runs), "--out", str(out), "--names", "A,B", "--title", "T"]) == 0
    assert "<title>T</title>" in out.read_text()
    assert "page.html" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_the_command_line_prints_tables(small_runs, capsys):
    assert main(["report", str(small_runs[0]), "--format", "csv"]) == 0
    assert "clean" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["nowhere"], "a run must be a folder, but 'nowhere' does not exist"),
        (["RUN", "--out", "/proc/nowhere/page.html"], "out must be a writable file, got '/proc/nowhere/page.html'"),
        (["RUN", "--out", "FOLDER"], "(it is a folder)"),
        (["RUN", "--format", "pdf"], "format must be one of html, md, csv, latex, robustbench, site, got 'pdf'"),
        (["RUN", "--names", "a,b"], "names must be one per run, got 2 for 1 runs"),
        (["RUN", "--names", ","], "--names must be names separated by commas"),
        (["RUN", "--data", "digit"], "data must be one of digits in these runs, got 'digit'"),
        (["RUN", "--suite", "clear"], "suite must be one of clean, corruptions, occlusion-random, pgd5 in these runs"),
        (["EMPTY"], "no results to report in"),
    ],
)
def test_bad_input_is_one_sentence(argv, sentence, two_runs, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    places = {"RUN": str(two_runs[0]), "FOLDER": str(tmp_path), "EMPTY": str(tmp_path / "empty")}
    assert main(["report", *(places.get(word, word) for word in argv)]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_data_sets_and_suites_can_be_chosen(tmp_path):
    run = make_run(tmp_path / "run", cells=("clean", "fog/1", "pgd5"), trained=False)
    make_records(run, hold=0.5, cells=("clean",), data="folder:/x", data_fingerprint="x")
    whole = Page(report(run))
    assert [a["id"] for a in whole.all("section")][:2] == ["data-1", "data-2"]
    some = Page(report(run, data="digits", suites=["clean", "pgd5"]))
    assert [a["id"] for a in some.all("section")] == ["data-1", "reproduce", "meanings"]
    scores = {cell["data-score"] for cell in some.all("td") if "data-score" in cell}
    assert {"clean", "attack/pgd5"} <= scores
    assert "accuracy/fog" not in scores
    assert not [a for a in some.all("td") if "data-cell" in a]
    assert "pgd5" in report(run, format="csv", suites="pgd5")


def test_the_page_says_how_it_was_made(small_runs, tmp_path):
    out = tmp_path / "page.html"
    words = ["--names", "A,B", "--title", "How they $hold$", "--data", "digits", "--suite", "clean,pgd5"]
    assert main(["report", *map(str, small_runs), *words, "--out", str(out)]) == 0
    places = " ".join(map(str, small_runs))
    quoted = "--names A,B --title 'How they $hold$' --data digits --suite clean,pgd5"
    assert f"holdfast report {places} {quoted} --out {out}" in Page(out.read_text()).text


def test_of_many_runs_figures_show_the_first_and_the_best_and_tables_all(tmp_path):
    runs = [
        make_run(tmp_path / f"r{n // 5}" / f"s{n}", cells=("fog/5",), hold=0.05 * n, trained=False) for n in range(15)
    ]
    text = report(runs)
    page = Page(text)
    assert len({row["data-run"] for row in page.all("tr") if "data-run" in row}) == 15
    assert len(page.all("figure")) == 1  # one plot, of the best seven
    fog = [load_records(run)[0].cells["fog/5"].accuracy for run in runs]
    best = sorted(range(1, 15), key=lambda n: -fog[n])
    drawn = {dot["data-label"] for dot in page.all("circle")}
    assert len(drawn) == 7
    assert min(fog[int(label[1:])] for label in drawn) == fog[best[6]]
    compared = {int(row["data-run"]) for row in _rows_of(text, "matrix")}
    assert compared == {0, *compared}
    assert min(fog[n] for n in compared - {0}) == fog[best[10]]
    assert "15 models: tables list all" in page.text
    assert re.findall(r'class="group"><th colspan="\d+">(r\d)', text)[:3] == ["r0", "r1", "r2"]


def test_an_output_that_cannot_be_written_leaves_nothing(small_runs, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(HoldfastError, match=r"out must be a writable file.*No space left"):
        report(small_runs[:1], out=tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_the_baseline_is_the_first_run(small_runs):
    assert "Accuracy by kind: differences from robust" in Page(report(small_runs[::-1])).text


def test_parameters_are_counted_without_a_model(tmp_path):
    run = make_run(tmp_path / "run", cells=("clean",))
    make_training(run, parameters=1_234_567)
    assert "1,234,567" in Page(report(run)).text


def test_the_same_runs_give_the_same_page(small_runs):
    assert report(small_runs) == report(small_runs)
