"""``holdfast.improve``: runs a plan. Everything finished is a file, so a killed run goes on to the same decision."""

import csv
import io
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.data import open_data, stratified_subset
from holdfast.errors import HoldfastError
from holdfast.evaluation.suites import selection_kinds
from holdfast.improvement.candidates import PLAIN, START
from holdfast.improvement.clock import Clock
from holdfast.improvement.costs import measure
from holdfast.improvement.decide import (
    DECISION,
    KEEP_START,
    USE,
    Decision,
    Gain,
    plain_domains,
    plain_gain,
    plain_scores,
    read_decision,
    sentence_of,
    speed_of,
    verdict_of,
)
from holdfast.improvement.halves import LEAST, stopped_by
from holdfast.improvement.plan import LATEST, REPORTED, TARGET, Plan, Step, described, read_plan, turns, with_lengths
from holdfast.improvement.prepare import Request, make_plan, request_of
from holdfast.improvement.scores import Measured, measured
from holdfast.improvement.select import Entry, choose, survivors
from holdfast.improvement.trainings import probe_start, stopped_early, train_run, train_run_there
from holdfast.io import atomic
from holdfast.metrics.scoring.registry import scoring_of
from holdfast.runtime.ray import Cluster, tasks_on
from holdfast.tasks import task_named, task_of
from holdfast.training.mix import mix
from holdfast.training.recipe import Recipe
from holdfast.training.run_folder import RunFolder

Tell = Callable[[str], None]
TABLE = "candidates.csv"
RAY = " on Ray"  # ending of the clock's name for a rung that was trained there
NOT_COPIED = shutil.ignore_patterns("checkpoints", "records")


@dataclass(frozen=True)
class Row:
    """A row of the table of all that was trained and chosen among."""

    stage: str
    name: str
    length: str
    seconds: float
    clean: float
    bad: float
    chosen: bool = False


class Improvement:
    """A plan being run in a folder."""

    def __init__(self, plan: Plan, out: Path, *, tell: Tell, show: bool | None, cluster: Cluster | None = None) -> None:
        self.plan, self.out, self.tell, self.show, self.cluster = plan, out, tell, show, cluster
        self.clock = Clock(out / "clock.json")
        request = request_of(plan.request)
        self.base: Recipe = replace(request.recipe, data=stopped_by(request.recipe.data, plan.stop))
        self.amp = self.base.train.precision in ("bf16", "fp16")
        self.source = open_data(plan.choosing.data, split="val", exif=self.base.data.exif)
        self.task = task_of(self.source).name
        self.rows: list[Row] = []
        self.trained: dict[str, Path] = {}
        self.rung_of: dict[str, int] = {}  # the last one that a candidate was trained in

    # ------------------------------------------------------------------ the whole

    def run(self) -> Decision:
        """Train, choose, measure and decide."""
        if self.plan.probe:
            self.tell("start: a linear probe")
            with self.clock.counting("start"):
                probe_start(self.base, self.out / START)
        names: Sequence[str] = list(self.plan.candidates)
        scores: dict[str, Measured] = {}
        for number, rung in enumerate(self.plan.rungs):
            if number:
                names = survivors({name: scores[name].values[1] for name in names}, rung.keep)
            self._set_lengths(number, names)
            if self.cluster is not None:
                self._train_on_ray(number, names, self.cluster)
            for name in names:  # what is finished is only looked up
                self._train(number, name)
            self._fit_choosing()
            scores |= {name: self._score(f"rung{number}-{name}", self.trained[name]) for name in names}
            for name in names:
                self._add_row(number, name, scores[name])
        entries = [*(Entry(name, 1.0, (name,), scores[name]) for name in names), *self._mixtures(names)]
        winner = choose(entries)
        self.rows += [
            Row("final", entry.label, "", 0.0, *entry.measured.values, chosen=entry is winner) for entry in entries
        ]
        return self._decide(winner, entries)

    def _set_lengths(self, number: int, names: Sequence[str]) -> None:
        """Freeze the lengths of a rung: what is left of the budget, at the speed that was measured so far."""
        if str(number) in self.plan.lengths:
            return
        left = TARGET * self.plan.budget - self.clock.elapsed - self._measuring_left(number)
        sizes = [rung.keep for rung in self.plan.rungs]
        shares = len(sizes) - number + 2 * (self.plan.seeds - 1) / sizes[-1]
        seconds = max(left / shares / turns(len(names), self.plan.slots), 0.2 * self.plan.rungs[number].seconds)
        rungs = tuple(
            replace(rung, seconds=round(seconds, 2)) if n == number else rung for n, rung in enumerate(self.plan.rungs)
        )
        self._keep(with_lengths(replace(self.plan, rungs=rungs), number, names, slower=self._slower()))

    def _keep(self, plan: Plan) -> None:
        self.plan = plan
        plan.write(self.out)

    # ------------------------------------------------------------------ training

    def _train(self, number: int, name: str, seed: int = 0) -> Path | None:
        """Train a candidate in a rung; None if it no longer fits the budget."""
        key = f"rung{number}/{name}" + (f"/seed{seed}" if seed else "")
        folder = self.out / "runs" / (f"seed{seed}" if seed else "") / f"rung{number}" / name
        length = self.plan.lengths[str(number)][name]
        if key in self.plan.skipped:
            return None
        if not RunFolder(folder).recipe.exists() and self._too_late(name, length, number) and name in self.trained:
            self._keep(replace(self.plan, skipped=(*self.plan.skipped, key)))
            self.tell(f"{key}: skipped, it no longer fits the budget")
            return None
        recipe = self.plan.candidate(name).recipe(self.base, length=length, seed=self.base.seed + seed)
        self.tell(f"{key}: {_length(length)}")
        with self.clock.counting(f"train {key}"):
            probe = (self.base, self.out / START) if self.plan.probe and not seed else None
            found = train_run(recipe, folder, probe=probe, show=self.show)
        if not seed:
            self.trained[name], self.rung_of[name] = found, number
        return found

    def _train_on_ray(self, number: int, names: Sequence[str], cluster: Cluster) -> None:
        """Train the candidates of a rung at once, in folders that all nodes share."""
        self.out.mkdir(parents=True, exist_ok=True)
        probe = (self.base, self.out / START) if self.plan.probe else None
        with self.clock.counting(f"rung{number}{RAY}"), tasks_on(cluster) as tasks:
            for name in names:
                key = f"rung{number}/{name}"
                length = self.plan.lengths[str(number)][name]
                late = self._too_late(name, length, number) and name in self.trained
                if key in self.plan.skipped or late:
                    continue  # as when they are trained one after the other
                recipe = self.plan.candidate(name).recipe(self.base, length=length)
                tasks.submit(name, train_run_there, recipe, self.out, self.out / "runs" / key, probe)
            for name, _ in tasks.results():
                self.tell(f"rung{number}/{name}: trained")

    def _forecast(self, name: str, length: Any) -> float:
        cost = self.plan.costs[name]
        return self.plan.overhead + cost.start + cost.epoch * float(length.get("epochs", length.get("whole", 1)))

    def _last_forecast(self, name: str) -> float:
        """Seconds of a candidate's training in its last rung."""
        return self._forecast(name, self.plan.lengths[str(self.rung_of[name])][name])

    def _slower(self) -> float:
        """Time that trainings took, over their forecasts; on Ray a whole rung is one piece of work."""
        took = said = 0.0
        for key, seconds in self.clock.spent.items():
            rung, *rest = key.removeprefix("train ").removeprefix("rung").removesuffix(RAY).split("/")
            if key.endswith(RAY):
                lengths = self.plan.lengths[rung]
                each = max(self._forecast(name, length) for name, length in lengths.items())
                took, said = took + seconds, said + turns(len(lengths), self.plan.slots) * each
            elif key.startswith("train ") and (rest[1:] or f"rung{rung}{RAY}" not in self.clock.spent):
                took, said = took + seconds, said + self._forecast(rest[0], self.plan.lengths[rung][rest[0]])
        return float(np.clip(took / said, 0.2, 5.0)) if said else 1.0

    def _too_late(self, name: str, length: Any, number: int) -> bool:
        seconds = self._forecast(name, length) * self._slower()
        return self.clock.elapsed + seconds + self._testing_time() > LATEST * self.plan.budget

    # ------------------------------------------------------------------ measuring

    def _score(self, key: str, folder: Path) -> Measured:
        """Scores of a model on the choosing half."""
        with self.clock.counting(f"choose {key}"):
            plan = self.plan.choosing
            few = plan.images < len(self.source)
            records = measure(
                f"run:{folder}",
                stratified_subset(self.source, plan.images, seed=self.base.seed) if few else self.source,
                list(plan.suites),
                amp=self.amp,
                out=self.out / "choosing" / key,
                show=self.show,
            )
        return measured(records)

    def _measuring_left(self, number: int) -> float:
        """Seconds of the measurements that are still to come, as fast as those before."""
        sizes = [rung.keep for rung in self.plan.rungs]
        mixtures = sizes[-1] * (len(self.plan.alphas) - 1) + (2 + sizes[-1]) * self.plan.soups
        return self._choosing_time() * (sum(sizes[number:]) + mixtures) + self._testing_time()

    def _measured(self, what: str) -> list[float]:
        """Seconds of the measurements so far that choose or that are reported."""
        return [value for key, value in self.clock.spent.items() if key.startswith(f"{what} ")]

    def _fit_choosing(self) -> None:
        """Choose by fewer images where trainings took longer than forecast; no image was chosen by before."""
        if self._measured("choose"):
            return
        last = self.plan.rungs[-1].seconds
        trainings = sum(turns(rung.keep, self.plan.slots) * rung.seconds for rung in self.plan.rungs[1:])
        trainings += 2 * (self.plan.seeds - 1) * last
        needed = self._slower() * trainings + self._measuring_left(0)
        self._shorten("choosing", needed, least=LEAST, did="chosen by", images="validation images")

    def _fit_testing(self, members: Sequence[str]) -> None:
        """Report on fewer images where the budget leaves no time for all of them; no test image was seen before."""
        if self._measured("test"):
            return
        seconds = self._testing_time()
        seeds = self._slower() * (self.plan.seeds - 1) * sum(map(self._last_forecast, dict.fromkeys((PLAIN, *members))))
        self._shorten("testing", seconds, besides=seeds, least=REPORTED, did="reported on", images="test images")

    def _shorten(self, name: str, seconds: float, *, least: int, did: str, images: str, besides: float = 0.0) -> None:
        """Take so few images for a measurement that the seconds fit what other work leaves of the budget.

        Where they do not, the machine became slower and may do so again: then some of the budget is kept back.
        """
        step: Step = getattr(self.plan, name)
        used = self.clock.elapsed + besides
        fits = used + seconds <= self.plan.budget
        share = 1.0 if fits else min(1.0, (TARGET * self.plan.budget - used) / max(seconds, 1e-9))
        count = max(min(least, step.images), int(step.images * share))
        if count < step.images:
            remark = f"{did} {count} {images} instead of {step.images}: the machine was slower than forecast"
            changed: dict[str, Any] = {name: replace(step, images=count), "remarks": (*self.plan.remarks, remark)}
            self._keep(replace(self.plan, **changed))

    def _choosing_time(self) -> float:
        """Seconds of a measurement that chooses, as before or as forecast."""
        done = self._measured("choose")
        return float(np.mean(done)) if done else self._slower() * self.plan.choice.of(self.plan.choosing.images)

    def _testing_time(self) -> float:
        """Seconds of what is left of the report as forecast, slower by as much as the measurements that choose."""
        slower = self._choosing_time() / self.plan.choice.of(self.plan.choosing.images)
        models = max(2 * self.plan.seeds + bool(self.plan.start) - len(self._measured("test")), 0)
        return slower * models * self.plan.report.of(self.plan.testing.images)

    def _test(self, folder: Path | str, out: Path) -> Measured:
        """Scores of a model on the test images, kept beside it."""
        spec = folder if isinstance(folder, str) else f"run:{folder}"
        plan = self.plan.testing
        self.tell(f"test images: {out.relative_to(self.out)}")
        with self.clock.counting(f"test {out.relative_to(self.out)}"):
            records = measure(
                spec, plan.data, list(plan.suites), amp=self.amp, limit=plan.images, out=out, show=self.show
            )
        known = set(selection_kinds(task_named(records.task), preset=str(records.header.get("preset"))))
        return measured(records, without=sorted(known) if not scoring_of(self.task).one_class else ())

    # ------------------------------------------------------------------ mixtures

    def _mixtures(self, names: Sequence[str]) -> list[Entry]:
        """Interpolations of the finalists with the start, and their soups; nothing is trained for them."""
        found = []
        whole = [name for name in names if not self.plan.candidates[name].get("model")]  # no adapters, no TAP
        for name in whole:
            for alpha in self.plan.alphas:
                if alpha < 1:
                    found.append(self._mixture(name, alpha, (name,)))
        alike = [name for name in whole if "lp-ft" not in name.split("+")]  # whose heads began alike
        if self.plan.soups and len(alike) > 1:
            found += [self._mixture(f"{rule} soup", 1.0, tuple(alike)) for rule in ("uniform", "greedy")]
        return [entry for entry in found if entry is not None]

    def _mixture(self, name: str, alpha: float, members: tuple[str, ...]) -> Entry | None:
        key = f"{name.replace(' ', '-')}-{alpha:g}"
        folder = self.out / "mixed" / key
        if f"mixed/{key}" in self.plan.skipped:
            return None
        late = self.clock.elapsed + self._testing_time() > LATEST * self.plan.budget
        if late and not RunFolder(folder).finished:
            self._keep(replace(self.plan, skipped=(*self.plan.skipped, f"mixed/{key}")))
            return None
        self.tell(f"mixed: {name} {alpha:g}")
        with self.clock.counting(f"mix {key}"):
            self._mix(folder, name, alpha, [self.trained[member] for member in members])
        return Entry(name, alpha, members, self._score(f"mixed-{key}", folder))

    def _mix(self, folder: Path, name: str, alpha: float, runs: Sequence[Path]) -> None:
        if RunFolder(folder).finished:
            return
        specs = [f"run:{run}" for run in runs]
        if len(specs) > 1:
            mix(*specs, out=folder, soup=name.split(maxsplit=1)[0])  # greedy: by the stopping half
        else:
            mix(self.plan.start, specs[0], out=folder, alpha=alpha)

    # ------------------------------------------------------------------ the decision

    def _decide(self, winner: Entry, entries: Sequence[Entry]) -> Decision:
        """Measure the test images once, and write the decision."""
        others = [entry for entry in entries if not (entry.name == PLAIN and entry.alpha == 1)]
        is_plain = winner.name == PLAIN and winner.alpha == 1
        challenger = choose(others) if is_plain and others else winner
        self._fit_testing(challenger.members)
        start = [self._test(self.plan.start, self.out / START)] if self.plan.start else []
        plain, best = [], []
        for seed in range(self.plan.seeds):
            runs = {name: self._seed_of(name, seed) for name in dict.fromkeys((PLAIN, *challenger.members))}
            if any(run is None for run in runs.values()):
                break
            plain.append(self._test_run(runs[PLAIN]))
            best.append(self._test_run(self._seeded(challenger, runs, seed)))
        over_plain = Gain.of([m for _, m in best], [m for _, m in plain])
        over_start = Gain.of([m for _, m in best], start) if start else None
        plain_over_start = Gain.of([m for _, m in plain], start) if start else None
        verdict = verdict_of(
            chosen_is_plain=is_plain, over_plain=over_plain, over_start=over_start, plain_over_start=plain_over_start
        )
        chosen = best[0][0] if verdict == USE else plain[0][0]
        if verdict == KEEP_START:
            chosen = Path(self.plan.start.removeprefix("run:"))
        folder = self._leave_winner(chosen, measured_in=self.out / START if verdict == KEEP_START else chosen)
        models = {PLAIN: [m for _, m in plain], "challenger": [m for _, m in best]} | ({START: start} if start else {})
        gains = {"challenger − plain": over_plain}
        if over_start is not None and plain_over_start is not None:
            gains |= {"challenger − start": over_start, "plain − start": plain_over_start}
        decision = Decision(
            verdict=verdict,
            sentence=sentence_of(
                verdict,
                model=str(folder),
                challenger=challenger.label,
                speed=self._speed(challenger, best[0][0], plain[0][0]),
                over_plain=over_plain,
                over_start=over_start,
                plain_over_start=plain_over_start,
                bad="attack" if self.plan.against == "attacks" else "corruption",
            ),
            candidates=len(self.plan.candidates),
            tried=len(entries),
            model=str(folder),
            name=challenger.label if verdict == USE else START if verdict == KEEP_START else PLAIN,
            challenger=challenger.label,
            folders={PLAIN: str(plain[0][0]), "challenger": str(best[0][0])},
            images=plain[0][1].images,
            seeds=len(plain),
            data=self.plan.testing.data,
            suites=self.plan.testing.suites,
            scores=plain_scores(models),
            gains={name: plain_gain(each) for name, each in gains.items()},
            commands=self._commands(challenger if verdict == USE else None, verdict, folder),
            gate=f"holdfast gate NEW_RUN --against {folder}",
            skipped=self.plan.skipped,
            spent=round(self.clock.elapsed, 1),
            budget=self.plan.budget,
            remarks=self.plan.remarks,
            domains=plain_domains(models),
        )
        for measured_run in {folder, plain[0][0], best[0][0]}:
            decision.write(measured_run)  # which the report shows
        self._write_table()
        decision.write(self.out)
        return decision

    def _speed(self, entry: Entry, run: Path, plain: Path) -> str:
        """The speed of an entry in words; only TAP and adapters change the network."""
        if not any(self.plan.candidates[name].get("model") for name in entry.members):
            return "the same speed"
        return speed_of(run, plain) if task_named(self.task).evaluation.tensor_outputs else "a slower network"

    def _seed_of(self, name: str, seed: int) -> Path | None:
        return self.trained[name] if seed == 0 else self._train(self.rung_of[name], name, seed)

    def _seeded(self, entry: Entry, runs: Any, seed: int) -> Path:
        """The folder of an entry for a seed."""
        if entry.alpha == 1 and len(entry.members) == 1:
            return Path(runs[entry.members[0]])
        folder = self.out / "mixed" / f"{entry.name.replace(' ', '-')}-{entry.alpha:g}"
        if seed:
            folder = folder.with_name(f"{folder.name}-seed{seed}")
            self._mix(folder, entry.name, entry.alpha, [runs[name] for name in entry.members])
        return folder

    def _test_run(self, folder: Path | None) -> tuple[Path, Measured]:
        assert folder is not None
        return folder, self._test(folder, folder)

    def _leave_winner(self, run: Path, *, measured_in: Path) -> Path:
        """Copy the model to use, with what was measured here."""
        folder = self.out / "winner"
        if folder.exists():
            shutil.rmtree(folder)
        with atomic.new_folder(folder) as unfinished:
            shutil.copytree(run, unfinished, dirs_exist_ok=True, ignore=NOT_COPIED)
            shutil.copytree(measured_in / "records", unfinished / "records")
        return folder

    def _commands(self, entry: Entry | None, verdict: str, folder: Path) -> tuple[str, ...]:
        """Commands that make the winner's weights again, from its recipe or from those of its parents."""
        if verdict == KEEP_START:
            return (f"holdfast train {folder}/recipe.yaml --out again",) if self.plan.probe else ()
        if entry is None:
            entry = Entry(PLAIN, 1.0, (PLAIN,), None)  # type: ignore[arg-type]
        if entry.alpha == 1 and len(entry.members) == 1:
            run = self.trained[entry.members[0]]
            if (whole := RunFolder(run.parent).recipe).is_file():  # several phases
                return (f"holdfast train {whole} --out again # then again/{run.name}",)
            early = stopped_early(run)
            return (f"holdfast train {folder}/recipe.yaml --out again" + (" # then again@best" if early else ""),)
        lines = [f"holdfast train {self.trained[name]}/recipe.yaml --out again/{name}" for name in entry.members]
        ends = [f"run:again/{name}" + "@best" * stopped_early(self.trained[name]) for name in entry.members]
        if len(entry.members) > 1:
            return (*lines, f"holdfast mix {' '.join(ends)} --soup {entry.name.split()[0]} --out again/winner")
        if self.plan.probe:
            lines = [f"holdfast train {self.out / START}/recipe.yaml --out again/start", *lines]
        start = "run:again/start" if self.plan.probe else self.plan.start
        return (*lines, f"holdfast mix {start} {ends[0]} --alpha {entry.alpha:g} --out again/winner")

    # ------------------------------------------------------------------ the table

    def _add_row(self, number: int, name: str, found: Measured) -> None:
        length = self.plan.lengths[str(number)][name]
        seconds = self.clock.spent.get(f"train rung{number}/{name}", 0.0)
        self.rows.append(Row(f"rung {number}", name, _length(length), seconds, *found.values))
        self.tell(f"rung {number} {name}: clean {found.values[0]:.1f}, chosen by {found.values[1]:.1f} %")

    def _write_table(self) -> None:
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(["stage", "candidate", "length", "seconds", "clean", "selection", "chosen"])
        for row in self.rows:
            numbers = (f"{row.seconds:.1f}", f"{row.clean:.2f}", f"{row.bad:.2f}")
            table.writerow([row.stage, row.name, row.length, *numbers, "yes" if row.chosen else ""])
        atomic.write_text(self.out / TABLE, text.getvalue())


def run_request(
    request: Request,
    *,
    out: Path,
    tell: Tell = lambda line: None,
    show: bool | None = False,
    cluster: Cluster | None = None,
) -> Decision:
    """Plan, train, choose, measure and decide; call it again to go on."""
    plan = plan_of(request, out=out, tell=tell, slots=1 if (out / "plan.json").exists() else _slots(cluster))
    if (out / DECISION).exists():
        return read_decision(out)
    plan.write(out)
    for line in described(plan):
        tell(line)
    return Improvement(plan, out, tell=tell, show=show, cluster=cluster).run()


def _slots(cluster: Cluster | None) -> int:
    """How many trainings the cluster runs at once."""
    if cluster is None:
        return 1
    with tasks_on(cluster) as tasks:
        return tasks.slots


def plan_of(request: Request, *, out: Path, tell: Tell = lambda line: None, slots: int = 1) -> Plan:
    """The plan that the folder holds, or a new one, which is not written."""
    if (out / "plan.json").exists():
        plan = read_plan(out / "plan.json")
        _check_same(plan, request, out)
        return plan
    _check_new(out)
    return make_plan(request, out=out, tell=tell, slots=slots)


def _check_same(plan: Plan, request: Request, out: Path) -> None:
    old, new = plan.request, request.plain()
    other = [name for name in new if old.get(name) != new[name]]
    if other:
        raise HoldfastError(
            f"{str(out)!r} holds the plan of another request ({', '.join(other)} differ); choose another --out"
        )


def _check_new(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise HoldfastError(f"out must be a new or empty folder, or one that holds a plan, got {str(out)!r}")


def _length(length: Any) -> str:
    epochs = length.get("epochs")
    if epochs is None:
        return f"{int(length['steps'])} steps"
    return f"{int(epochs)} epoch{'' if epochs == 1 else 's'}"
