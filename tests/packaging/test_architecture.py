"""Rules of the architecture that no import contract can say."""

import ast
import re

from tests.packaging.test_mirror import ROOT

SOURCE = ROOT / "src" / "holdfast"
NAMES = r"(?:\"(?:classification|segmentation|detection)\"|CLASSIFICATION\b|SEGMENTATION\b|DETECTION\b)"
TASK = r"\btask(?:_of\([^()]*\))?(?:\.name)?|\.get\(\"task\"[^()]*\)"
ASKS = re.compile(rf"(?:{TASK}) (?:==|!=|is|is not) {NAMES}|{NAMES} (?:==|!=) [\w.]*\btask\b")


def test_nothing_asks_for_the_name_of_a_task_but_for_what_it_can():
    found = [
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if ASKS.search(line)
    ]
    assert not found, "give the parts of a task a member with a default instead, see holdfast.tasks.base"
    assert ASKS.search('if records.task == "detection":')
    assert ASKS.search("    if task_of(source).name != CLASSIFICATION:")
    assert ASKS.search('    if header.get("task", CLASSIFICATION) != CLASSIFICATION:')


def test_a_toy_task_is_at_most_120_lines():
    counting = (ROOT / "tests" / "tasks" / "counting.py").read_text(encoding="utf-8")
    assert len(counting.splitlines()) <= 120


def calls_of(name):
    """Modules in which a function or class of this name is called."""
    found = [
        module
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and name in (getattr(node.func, "id", ""), getattr(node.func, "attr", ""))
    ]
    return set(found)


def test_a_model_is_opened_for_inference_in_one_place():
    assert calls_of("NormalizedModel") == {"holdfast.evaluation.predictor"}
    assert calls_of("check_answers") == {"holdfast.evaluation.predictor"}


def test_average_precision_is_computed_in_one_place_for_scores_and_replicates():
    assert calls_of("COCOeval_faster") == {"holdfast.metrics.average_precision", "holdfast.metrics.ap_jackknife"}
    assert calls_of("record_scores") == calls_of("cell_replicates") == {"holdfast.metrics.scoring.detection"}


def test_retention_is_divided_in_one_place():
    """Nothing else divides by a clean score, so 0 has one answer: NaN."""
    divisions = {
        module
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and "clean" in ast.unparse(node.right)
    }
    assert divisions == {"holdfast.metrics.scoring.domains"}  # by the share of a domain's images in the cell "clean"
    assert calls_of("percent_of_clean") == {
        "holdfast.analysis.attention_stability",
        "holdfast.lab.session",
        "holdfast.metrics.average_precision",
        "holdfast.metrics.corruption",
        "holdfast.reporting.figures.severity",
    }


def test_packages_reach_upwards_by_a_name_in_few_places_only():
    """Late imports by name hide an edge from the contracts, so they are counted."""
    places = {
        str(path.relative_to(SOURCE)): found
        for path in SOURCE.rglob("*.py")
        if (found := len(re.findall(r"\bload\(\"holdfast", path.read_text(encoding="utf-8"))))
    }
    assert places == {"records/records.py": 2, "models/factory.py": 2}


def test_imports_within_functions_keep_torch_out():
    """Commands import what they run when they run; elsewhere such an import leads to torch, or is one of these few."""
    late = {(name, target) for name, target in late_imports() if not name.startswith("holdfast.cli.")}
    found = {f"{name} → {target}" for name, target in late if not TORCH & (reached(target) - reached(name))}
    assert found == {
        # registries whose rows import what looks them up
        "holdfast.analysis.results → holdfast.analysis.registry",
        "holdfast.analysis.settings → holdfast.analysis.registry",
        "holdfast.reporting.page → holdfast.reporting.leaderboard",
        "holdfast.studies.runner → holdfast.studies.runner_ray",
        # the text of a function that runs in other processes
        "holdfast.runtime.ray → holdfast._version",
        "holdfast.runtime.ray → holdfast.runtime.ray",
        # with an import of torch in the same function
        "holdfast.gate.decide_in_rounds → holdfast.evaluation.until",
        "holdfast.gate.evaluate_candidate → holdfast.evaluation.config",
        "holdfast.studies.runner → holdfast.training.loop",
    }


def test_imports_within_functions_of_commands_keep_their_help_quick():
    """They lead to torch, or to numpy and what needs it, such as scipy: together half a second of processor time."""
    late = {(name, target) for name, target in late_imports() if name.startswith("holdfast.cli.")}
    found = {f"{name} → {target}" for name, target in late if not SLOW & (reached(target) - reached(name))}
    assert found == {
        # `holdfast --help`, without a command, imports no package but ours
        "holdfast.cli.main → holdfast.cli.console",
        "holdfast.cli.main → holdfast.cli.shared_options",
        "holdfast.cli.main → holdfast.io.validation",
        "holdfast.cli.main → holdfast.runtime.plugins",
    }


TORCH = {"torch", "torchvision"}
SLOW = TORCH | {"numpy", "scipy", "cv2", "matplotlib"}


def late_imports():
    """Modules, and modules of ours that a function of theirs imports."""
    for name, tree in TREES.items():
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from ((name, target) for target in imported(function))


def module_trees():
    paths = {".".join(path.relative_to(SOURCE.parent).with_suffix("").parts): path for path in SOURCE.rglob("*.py")}
    return {name.removesuffix(".__init__"): ast.parse(path.read_text("utf-8")) for name, path in paths.items()}


TREES = module_trees()


def imported(tree):
    """Our own modules that the statements below import."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {node.module for node in nodes if (node.module or "").startswith("holdfast")}


def loaded(name):
    """What a module imports when it is imported, its packages included."""
    todo, found = [*getattr(TREES.get(name), "body", [])], {name[:at] for at in range(len(name)) if name[at] == "."}
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)} & TREES.keys()
            found.add(node.module.partition(".")[0])
        elif isinstance(node, ast.If | ast.Try | ast.With) and "TYPE_CHECKING" not in ast.unparse(node):
            todo += ast.iter_child_nodes(node)
    return found


def reached(name, known={}):  # noqa: B006 (a cache)
    if name not in known:
        seen, todo = set(), {name}
        while todo:
            seen |= todo
            todo = {each for one in todo for each in loaded(one)} - seen
        known[name] = seen
    return known[name]
