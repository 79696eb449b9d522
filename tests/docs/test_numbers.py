"""Numbers on pages that come from a result are those of the result that is stored."""

import csv
import json
import re

import numpy as np
import pytest

from holdfast.studies.results import read_result
from tests.docs.blocks import ROOT, blocks_of
from tests.docs.test_complete import made_by

RESULTS = ROOT / "perf" / "results"


def stored(name: str) -> dict:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def page(name: str) -> str:
    """A page in one line, so that sentences can be found."""
    return " ".join((ROOT / "docs" / name).read_text(encoding="utf-8").split())


def test_tables_that_were_measured_once_are_those_of_their_files():
    maker = made_by("make_measured")
    pages = maker.pages()
    shown = {"tora.md", "cifar10.md", "imagenette.md", "reliability.md", "different-data.md", "improve.md", "claims.md"}
    assert {page.name for page in pages} == shown
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert text == maker.with_figures(text), "run python docs/tools/make_measured.py"


def test_claims_about_improve_are_what_it_measured():
    def rows(name: str) -> list[list[str]]:
        with (ROOT / "docs" / "measured" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            return list(csv.reader(file))[1:]

    for (_, _, seen, *_), test in zip(
        rows("improve_claims"), ("improve_imagenette_test", "improve_pacs_test"), strict=True
    ):
        (measured,) = (corrupted for what, _, corrupted in rows(test) if what.endswith("interpolated 0.5 − plain"))
        assert seen.replace("*", "") == measured


def test_what_afat_and_adl_cost_is_what_the_benchmark_measured():
    steps, adl = stored("methods")["steps"], stored("methods")["adl"]
    assert f"takes {steps['AFAT']:.2f} times as long" in page("afat.md")
    assert f"takes {steps['TAP + ADL']:.2f} times as long" in page("adl.md")
    for form, row in (("explicit", "maps written out"), ("chunked", "64 rows at a time")):
        cells = " | ".join(f"{adl[form][tokens]['megabytes']:.0f} MB" for tokens in ("1024", "4096"))
        assert f"| {row} | {cells} |" in page("adl.md")


def test_what_fan_and_tap_cost_is_what_the_benchmark_measured():
    ratios = {(row["what"], row["how"]): row["ratio"] for row in stored("models")["rows"]}
    fan, deit = "fan_tiny_8_p4_hybrid / convnext_tiny", "fan_tiny_12_p16_224 / deit_tiny_patch16_224"
    text = page("fan.md")
    assert f"convnext_tiny, forward | {ratios[fan, 'forward']:.2f} |" in text
    assert f"convnext_tiny, training step | {ratios[fan, 'training step']:.2f}" in text
    both = f"{ratios[deit, 'forward'] + 1e-9:.2f} and {ratios[deit, 'training step']:.2f}"
    assert f"forward and training step | {both} |" in text
    slower = {what: ratio for (what, _), ratio in ratios.items() if "TAP" in what}
    assert sorted(f"{100 * (ratio - 1):.0f} %" for ratio in slower.values()) == sorted(
        re.search(r"TAP adds (\d+ %) .*? and (\d+ %)", page("tap.md")).groups()
    )


def test_what_tora_costs_is_what_the_benchmark_measured():
    found = stored("tora")
    text = page("tora.md")
    assert f"**{found['steps']['deit_small_patch16_224']['tora']:.2f} times**" in text
    assert f"{found['steps']['deit_tiny_patch16_224']['tora']:.2f} times with DeiT-T" in text
    assert f"{found['megabytes']['tora']:.0f} MB against {found['megabytes']['whole']:.0f} MB" in text
    assert f"The gate itself takes {found['gate']['ratio']:.2f} of the time" in text
    for method in ("head-only", "single-adapter", "adapter-fusion", "tora"):
        cost = found["costs"][method]
        assert re.search(rf"\| `{method}` \| {cost['parameters_m']:.1f} \| [\d.]+ \| {cost['gmacs']:.1f} \|", text)


def test_memory_of_an_analysis_is_what_the_benchmark_measured():
    gibibytes = {name: found["megabytes"] / 1024 for name, found in stored("analysis")["models"].items()}
    said = (
        f"FAN-T-Hybrid took {gibibytes['fan_tiny_8_p4_hybrid']:.1f} GiB of memory in all, PyTorch included, of ViT-S "
        f"{gibibytes['vit_small_patch16_224']:.1f} and of FAN-B-Hybrid {gibibytes['fan_base_16_p4_hybrid']:.1f}"
    )
    assert said in page("analysis/overview.md")


@pytest.mark.parametrize("name", ["corruptions", "corruption_fidelity"])
def test_tables_of_the_corruptions_are_those_of_the_benchmark(name):
    rows = [line for line in (RESULTS / f"{name}.md").read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    shown = (ROOT / "docs" / "corruptions.md").read_text(encoding="utf-8").splitlines()
    assert len(rows) > 10
    assert [row for row in rows if row not in shown] == []


@pytest.fixture(scope="module")
def cifar10():
    return made_by("make_results")


def rows_of(table: str) -> list[list[str]]:
    """The cells of a table, line by line, without what is said below it."""
    return [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("|")]


def test_the_short_answer_on_cifar10_says_how_large_an_effect_may_be(cifar10):
    study, results = cifar10.finished_study("cifar10/main")
    lines = rows_of(cifar10.PARTS["differences"](study, results))
    at = [cell.strip() for cell in lines[0]].index("C")
    ends = [abs(float(end)) for line in lines[2:] for end in re.findall(r"[+-][\d.]+", line[at])[1:]]
    assert f"effects of up to {max(ends):.1f} points under corruption" in page("results/cifar10.md")


def test_when_the_quick_adversary_settles_is_what_its_training_logged(cifar10):
    _, results = cifar10.finished_study("cifar10/ablations")
    steps, shares = np.asarray(results["AFAT quick"][0].traces["selection_change"]).reshape(-1, 2).T
    after = f"at most {100 * shares[steps > 40].max():.2f} % after it"
    assert f"`selection_change` is {100 * shares[steps == 40][0]:.1f} % at step 40 and {after}" in page(
        "results/cifar10.md"
    )


def models_with_their_cost() -> list[list[str]]:
    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    table = text.partition("| model | image | params M | GMACs |")[2].partition("\n\n")[0]
    return [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


@pytest.mark.parametrize("row", models_with_their_cost(), ids=lambda row: row[0])
def test_what_the_page_says_of_a_model_is_what_is_counted(row):
    from holdfast.models.flops import measure_cost

    name, image, parameters, gmacs, *_ = row
    cost = measure_cost(name)
    assert (str(cost.image_size[0]), f"{cost.parameters / 1e6:.2f}", f"{cost.gmacs:.2f}") == (image, parameters, gmacs)


def test_what_ray_and_several_processes_are_worth_is_what_the_benchmark_measured():
    found = stored("cluster")["scaling"]
    text = page("cluster.md")
    assert f"two processes evaluate {found['speed_up']:.2f} times as quickly as one" in text
    assert f"take {100 * found['ray_overhead']:.1f} % longer per unit than two processes" in text
    assert f"with tasks of {found['task_seconds']:.0f} s" in text
    first, second = (stored("cluster")["folders"][name] for name in ("first", "second"))
    assert (
        f"take {first['wall']:.1f} s to open for the first time (warm) and {second['wall']:.1f} s from the cache"
        in text
    )
    assert f"with {first['MiB']:.0f} MiB of memory in all" in text


def test_what_an_image_costs_is_what_the_benchmark_measured():
    maker = made_by("make_how_long")
    assert maker.PAGE.read_text(encoding="utf-8") == maker.page(), "run python docs/tools/make_how_long.py"


def test_the_short_answer_on_detection_is_what_the_study_says(cifar10):
    study, results = cifar10.finished_study("scenes/detection")
    text = page("results/detection.md")
    claims = rows_of(cifar10.PARTS["claims"](study, results))[2:]
    assert len(claims) == 8
    assert all("**not resolved**" in line[3] for line in claims)
    seen = {line[1].strip(): line[2].strip() for line in claims}
    assert f"AFAT changes mask AP under corruption by {seen['AFAT − baseline, mask mPC']} points" in text
    assert f"TAP+ADL by {seen['TAP+ADL − baseline, mask mPC']};" in text
    table = rows_of(cifar10.PARTS["differences"](study, results))
    at = [cell.strip() for cell in table[0]].index("box mPC")
    ends = [abs(float(end)) for line in table[2:] for end in re.findall(r"[+-][\d.]+", line[at])[1:]]
    assert f"beyond {max(ends):.1f} points are ruled out" in text
    row = next(line for line in cifar10.PARTS["breaks"](study, results).splitlines() if line.startswith("| baseline"))
    clean, corrupted = row.split("|")[2].strip(), row.split("|")[6].strip()
    assert f"the baseline finds {clean} % of the objects on clean scenes and {corrupted} % under corruption" in text


def test_the_short_answer_on_street_scenes_is_what_the_study_says(cifar10):
    study, results = cifar10.finished_study("camvid/main")
    text = page("results/camvid.md").partition("## Set-up")[0]
    table = cifar10.PARTS["claims"](study, results).splitlines()[2:]
    seen = {line.split("|")[2].strip(): line.split("|")[3].strip().replace("*", "") for line in table}
    for measured in (
        "FAN − ViT, mIoU-C",
        "FAN − ViT, mIoU dusk",
        "FAN − ResNet, mIoU-C",
        "FAN − ResNet, mIoU dusk",
        "FAN − ResNet, mIoU retention",
        "TAP+ADL − FAN, mIoU dusk",
        "TAP+ADL − FAN, mIoU-C",
        "AFAT − FAN, mIoU-C",
        "AFAT − FAN, mIoU dusk",
    ):
        assert seen[measured] in text, measured
    rows = {line.split("|")[1].strip(): line for line in cifar10.PARTS["table"](study, results).splitlines()[2:]}
    days = [rows[name].split("|")[5].split("±")[0].strip() for name in ("ResNet", "FAN")]
    assert "({} mIoU against {})".format(*days) in text
    assert {line.split("|")[7].strip() for line in rows.values()} == {"3"}
    for line in cifar10.PARTS["claims"](*cifar10.finished_study("camvid/pretrained")).splitlines()[2:]:
        assert line.split("|")[3].strip().replace("*", "") in text, line


def test_the_short_answer_on_photographs_is_what_the_studies_say(cifar10):
    text = page("results/imagenette.md").partition("## Set-up")[0]
    study, results = cifar10.finished_study("imagenette/pretrained")
    head, _, *lines = rows_of(cifar10.PARTS["differences"](study, results))
    titles = [cell.strip() for cell in head]
    seen = {(line[0].strip(), title): cell.strip() for line in lines for title, cell in zip(titles, line, strict=True)}
    for row, title in (
        *(("AFAT", title) for title in ("clean", "C", "occluded", "occlusion-learned:epochs=5", "PGD-5")),
        *(("AFAT attention", title) for title in ("clean", "C", "occlusion-learned:epochs=5")),
        *(("AFAT attention", title) for title in ("occlusion-attention", "PGD-5")),
        *(("AFAT random", title) for title in ("C", "PGD-5")),
        ("plain 6 epochs", "PGD-5"),
        *(("TAP+ADL", title) for title in ("C", "stability", "top share")),
        ("ADL", "C"),
        *(("TAP", title) for title in ("C", "stability")),
        *(("adversarial", title) for title in ("clean", "C", "PGD-5")),
    ):
        assert seen[row, title].replace("*", "") in text, (row, title)
    assert {row: len(results.get(row, ())) for row in study.rows} == dict.fromkeys(study.rows, 3)
    rows = {line.split("|")[1].strip(): line for line in cifar10.PARTS["table"](study, results).splitlines()[2:]}
    steady = [rows[row].split("|")[9].split("±")[0].strip() for row in ("plain 6 epochs", "AFAT")]
    assert "({} under noise against {} of AFAT)".format(*steady) in text
    alone = {row: float(line.split("|")[9].split("±")[0]) for row, line in rows.items()}
    assert f"Attention is the steadiest under noise of all rows ({max(alone.values()):.3f})" in text
    assert max(alone, key=alone.__getitem__) == "adversarial"
    said = {line.split("|")[2].strip(): line for line in cifar10.PARTS["claims"](study, results).splitlines()[2:]}
    found = {measured: line.split("|")[3].strip().replace("*", "") for measured, line in said.items()}
    assert f"under corruption AFAT has {found['AFAT − plain 6 epochs, C']} against them" in text
    assert f"by attention {found['AFAT attention − plain 6 epochs, C']}." in text
    assert (
        f"beats random patches under corruption, as the paper says, is not resolved ({found['AFAT − AFAT random, C']})"
        in text
    )
    assert f"nor that attention's choice does ({found['AFAT attention − AFAT random, C']})" in text
    unresolved = ("AFAT − plain, C", "AFAT − plain, PGD-5", "AFAT − plain 6 epochs, C", "AFAT − AFAT random, C")
    unresolved += ("AFAT attention − plain, C", "AFAT attention − AFAT random, C")
    assert all("**not resolved**" in said[measured] for measured in unresolved)
    with (ROOT / "studies" / study.name / "table.csv").open(encoding="utf-8", newline="") as file:
        seeds = [f"{float(line['corrupted']):.1f}" for line in csv.DictReader(file) if line["row"] == "plain"]
    assert "Plain fine-tuning has {}, {} and {} % under corruption".format(*seeds) in text
    tora = cifar10.finished_study("imagenette/tora")
    attacked = {
        line[0].strip(): line[4].strip().replace("*", "") for line in rows_of(cifar10.PARTS["differences"](*tora))
    }
    rows = ("TORA 0.1", "TORA 0.5", "TORA 0.9", "adapter fusion 0.5", "single adapter 0.5", "head only 0.5")
    assert all(attacked[row] in text for row in rows)
    thrice = {"ViT", "TORA 0.1", "TORA 0.5", "TORA 0.9", "single adapter 0.5"}
    assert {row for row, runs in tora[1].items() if len(runs) == 3} == thrice
    judged = [line.replace("*", "").split("|") for line in cifar10.PARTS["claims"](*tora).splitlines()]
    found = {line[2].strip(): line[3].strip() for line in judged}
    compared = ("TORA 0.5 − adapter fusion 0.5", "TORA 0.5 − single adapter 0.5", "TORA 0.9 − TORA 0.1")
    assert all(found[f"{pair}, PGD-5"] in text for pair in compared)
    fallen = found["TORA 0.9 − TORA 0.1, C"].split()[0].lstrip("-")
    assert f"accuracy under corruption falls by {fallen} points" in text
    assert f"is not resolved with three ({found['TORA 0.9 − TORA 0.1, clean']})" in text


def test_a_run_that_was_trained_again_gives_the_answers_that_the_page_says():
    first, again = (
        read_result(ROOT / "studies" / f"cifar10-{name}-seed0.safetensors").right
        for name in ("main/results/TAP", "tap_branches/results/kwargs.tap-branches=4")
    )
    assert first.keys() == again.keys()
    revised = [cell for cell in first if cell.startswith(("motion_blur/", "snow/"))]
    alike = [cell for cell in first if cell not in revised]
    assert all(np.array_equal(first[cell], again[cell]) for cell in alike)
    answers = sum(len(first[cell]) for cell in revised)
    differ = sum(int((first[cell] != again[cell]).sum()) for cell in revised)
    text = page("results/cifar10.md")
    assert (
        f"in all {len(alike)} other cells; of the {answers:,} answers under motion blur and snow {differ} differ"
        in text
    )


def test_what_the_page_says_of_the_adversary_is_what_was_measured():
    stronger, again = (
        {line.split(",")[0]: int(line.split(",")[5].removesuffix(" %")) for line in file.splitlines()[1:]}
        for file in (
            (ROOT / "docs" / "measured" / f"{name}.csv").read_text() for name in ("adversary", "adversary_again")
        )
    )
    text, method = page("results/imagenette.md"), page("afat.md")
    assert f"weaker than chance** (−{-stronger['released']} %; untrained it was at +{stronger['untrained']} %)" in text
    assert f"learning rate of 1 makes it stronger than chance by {stronger['lr 1']} %" in text
    assert f"rate of 10 brings little more ({stronger['lr 10']} %), four updates a batch less" in text
    assert f"four updates a batch less ({stronger['lr 1 four times']} %)" in text
    assert f"the most attention are stronger than chance by {stronger['the most attention']} %" in text
    assert f"features {-stronger['released']} % *less* than random ones" in method
    assert f"`lr: 1.0`: {1 + stronger['lr 1'] / 100:.1f} times" in method
    assert f"{1 + stronger['the most attention'] / 100:.1f} times, with no corruption model" in method
    attention, rate = again["the most attention"], again["lr 1"]
    assert f"stronger than chance by {attention} %, {1 + attention / 100:.1f} times the error" in text
    assert f"learn nothing ({again['released']} %), and a learning rate of 1 brings {rate} %" in text
    assert f"{-again['released']} % less" in method
    assert f"patches, {1 + rate / 100:.1f} times the second time" in method
    assert f"and {1 + attention / 100:.1f} times the second time" in method


def test_how_quick_the_lab_is_is_what_the_benchmark_measured():
    nano, tiny = (stored("lab")["milliseconds"][name] for name in ("fan_nano", "fan_tiny_12_p16_224"))
    said = " ".join(page("lab.md").split())
    assert f"{nano['severity']:.0f} ms for `fan_nano` and {tiny['severity']:.0f} ms for `fan_tiny_12_p16_224`" in said
    assert f"{nano['ratio']:.1f} and {tiny['ratio']:.1f} times the bare" in said
    assert f"from a new token to its maps {tiny['token']:.0f} ms" in said


def test_the_table_of_the_demo_in_the_readme_is_what_a_demo_measured():
    scores = ("clean", "mean_corruption_accuracy", "retention", "attack/pgd5-rspc", "attack/occlusion-random")
    lines = (ROOT / "docs" / "measured" / "demo.csv").read_text(encoding="utf-8").splitlines()[1:]
    found = {tuple(line.split(",")[:2]): [float(value) for value in line.split(",")[2:]] for line in lines}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for model in ("baseline", "tap_adl", "afat"):
        shown = " ".join("{:.1f} ({:.0f}–{:.0f})".format(*found[model, score]) for score in scores)
        assert f"{model} {shown}" in " ".join(readme.split())


@pytest.mark.full
def test_the_page_on_evaluation_shows_what_its_example_prints(tmp_path, monkeypatch, capsys):
    """To the last digit on the same kind of CPU; within three points elsewhere."""
    from holdfast.cli.main import main

    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "evaluate.md"
    example = next(block for block in blocks_of(page) if "fan_nano_afat" in block.text)
    shown = next(block.text for block in blocks_of(page) if block.text.startswith("run:runs/digits"))
    for line in example.text.strip().splitlines():
        capsys.readouterr()
        assert main(line.split()[1:]) == 0
    printed = capsys.readouterr().out
    pattern = re.compile(r"\d+\.\d+")
    for line in shown.splitlines():
        words = pattern.sub("#", line).split()
        (found,) = [told for told in printed.splitlines() if pattern.sub("#", told).split() == words and told] or [""]
        values = [[float(value) for value in pattern.findall(text)] for text in (line, found)]
        assert values[0] == pytest.approx(values[1], abs=3), line


def test_the_guide_to_a_model_that_holds_quotes_the_studies():
    quoted = re.findall(r"[+-]\d+\.\d \[[+-]\d+\.\d, [+-]\d+\.\d\]", page("improve.md"))
    studies = page("results/imagenette.md").replace("**", "")
    assert len(quoted) >= 10
    assert [figure for figure in quoted if figure not in studies] == []


def test_what_improve_decided_is_what_is_stored():
    text = page("results/improve.md")
    tables = sorted((ROOT / "docs" / "measured").glob("improve_*.csv"))
    stored_tables = "\n".join(table.read_text(encoding="utf-8") for table in tables)
    quoted = re.findall(r"[+-]\d+\.\d \[[+-]\d+\.\d, [+-]\d+\.\d\]", text)
    assert len(quoted) >= 5
    assert [figure for figure in quoted if figure not in stored_tables] == []


def test_what_a_pass_in_rounds_costs_is_what_the_benchmark_measured():
    free, vit = (
        stored("anytime_passes")["models"][name]["ratio"] for name in ("next to free, 224 px", "ViT-S, 224 px")
    )
    assert f"{free:.2f} × as much with a model that is next to free, and {vit:.2f} × with ViT-S" in page("how-long.md")
