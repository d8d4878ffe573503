"""A finished run under another rule: judged, counted and chosen again beside it, never in it."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import write_json
from gapft_harness.core.records import State
from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.hooks.protocols import Progress
from gapft_harness.recipe.called_plugins import find_selector
from gapft_harness.rejudge.choice import RejudgeChoice, Rule
from gapft_harness.rejudge.flips import Flips
from gapft_harness.rejudge.judge import judging
from gapft_harness.rejudge.run.conclusions import Conclusion, conclusions
from gapft_harness.rejudge.run.sets import Sets, choose_again
from gapft_harness.rejudge.run.tables import Rewriting, Tally, require_golds, rewrite_states
from gapft_harness.report.findings.whole import Findings, compute
from gapft_harness.report.reading.audits import read_audit, read_decisions
from gapft_harness.report.reading.inputs import ReportInputs, read_inputs
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import SPLITS, RunDirectory, splits_of
from gapft_harness.run_directory.manifest import Manifest, naming_plugins
from gapft_harness.run_directory.tables import read_states
from gapft_harness.stages.experiment import every_experiment
from gapft_harness.stages.integrity.differences import Differences
from gapft_harness.stages.report import require_sealed
from gapft_harness.stages.search.states import Window
from gapft_harness.stages.selection.other_runs import is_copied
from gapft_harness.stages.selection.stage import arms
from gapft_harness.stages.verify.files import open_run
from gapft_harness.verification.reasons import Reasons

#: How many problems are in a state under the run's rule, and in one under the new.
Crossed = Mapping[tuple[State, State], int]


@dataclass(frozen=True, slots=True)
class RunJudged:
    """A run that was judged again.

    Attributes:
        was: the run's own rule.
        taken: by split whose verdicts were imported, what in the files told them: not this rule.
        flips: the responses whose verdict flipped.
        tallies: ``audit``, every arm's name and ``pool``: their verdicts under both rules.
        reasons: the new verdicts, counted.
        states: by split, from state to state.
        stopped: pool problems in U where search stopped at a success that is none any more.
        inputs: what the report reads, under both rules.
        findings: what the report finds, under both rules, of the adapters as they were trained.
        conclusions: of every contrast of the report.
        left: what of the run was not judged again.
    """

    path: Path
    choice: RejudgeChoice
    was: Rule
    taken: Mapping[str, str]
    flips: Flips
    tallies: Mapping[str, Tally]
    reasons: Reasons
    states: Mapping[str, Crossed]
    stopped: int
    sets: Sets
    inputs: tuple[ReportInputs, ReportInputs]
    findings: tuple[Findings, Findings]
    conclusions: tuple[Conclusion, ...]
    left: tuple[str, ...]


def judge_run(
    path: Path, choice: RejudgeChoice, flips: Flips, progress: Progress = lambda *_: None
) -> RunJudged:
    """Judges a finished run again. Nothing in its folder is written.

    Raises:
        UserError: it is not finished, a file of it was changed since it was sealed, a plugin of
            the recipe is not there, or the verifier does not take the run's gold answers.
    """
    with naming_plugins(path):
        return _judge_run(path, choice, flips, progress)


def _judge_run(path: Path, choice: RejudgeChoice, flips: Flips, progress: Progress) -> RunJudged:
    run, manifest = _opened(path)
    plugins = load_plugins(choice.plugin_files)
    task = manifest["task"]
    rule = plugins.get("response rule", task["keep"])
    for condition in run.recipe.conditions:
        find_selector(run.recipe, condition, plugins)
    reasons = Reasons()
    with tempfile.TemporaryDirectory(prefix="gapft-rejudge-") as folder:
        scratch = RunDirectory(Path(folder), run.recipe)
        with judging(choice.now, choice.plugin_files) as judge:
            judge.progress = progress
            for split in SPLITS:
                problems = layout.problems(split)
                require_golds(judge, run.path / problems)
                (scratch.path / split).mkdir()
                shutil.copyfile(run.path / problems, scratch.path / problems)
            tallies = _rewrite(run, scratch, Rewriting(judge, flips, reasons))
        states, stopped = {}, 0
        for split in SPLITS:
            found, open_ones = rewrite_states(
                scratch.path / layout.responses(split),
                scratch.path / layout.states(split),
                run.recipe.search,
                rule,
            )
            stopped += open_ones
            was = read_states(run.path / layout.states(split))
            pairs = zip(was, found, strict=True)
            states[split] = Counter((before.state, now.state) for before, now in pairs)
        for k in run.recipe.windows():
            responses = scratch.path / layout.responses("pool")
            table = scratch.path / layout.states("pool", (0, k))
            table.parent.mkdir(exist_ok=True)
            rewrite_states(responses, table, run.recipe.search, rule, Window(0, k))
        before = replace(read_inputs(run.path, manifest), further=(), failures=())
        after = _under_new_rule(before, scratch.path, states["pool"])
        _seal(run, manifest, scratch)
        sets = choose_again(run, scratch, plugins, choice.plugin_files)
    taken = {of: before.imported[of]["told_by"] for of in before.taken if of in SPLITS}
    findings = compute(before), compute(after)
    return RunJudged(
        *(path, choice, Rule(task["verifier"], task["verifier_params"]), taken, flips, tallies),
        *(reasons, states, stopped, sets, (before, after), findings),
        conclusions=tuple(
            conclusions((before, after), findings, Sets(sets.n) if stopped else sets)
        ),
        left=(*_foreign(taken, task["verifier"]), *_left(run, plugins)),
    )


def _opened(path: Path) -> tuple[RunDirectory, Manifest]:
    """A run whose recipe is that of its manifest, and whose files are as they were sealed."""
    found = Differences()
    opened = open_run(path, found)
    if found.differences or opened is None:
        raise UserError(f"{path}: {'; '.join(found.differences)}; gapft verify {path} says more")
    require_sealed(opened[0])
    return opened


def _rewrite(run: RunDirectory, scratch: RunDirectory, rewriting: Rewriting) -> dict[str, Tally]:
    """Judges the audit, the arms' decisions on it, and the pool."""
    budgets = run.manifest()["budgets"]
    decided = {arm.name: layout.decisions(arm) for arm in arms(run.recipe) if arm.name in budgets}
    tables = {"audit": layout.responses("audit"), **decided, "pool": layout.responses("pool")}
    return {
        name: rewriting.table(
            name,
            run.path / table,
            run.path / layout.problems("pool" if name == "pool" else "audit"),
            scratch.path / table,
        )
        for name, table in tables.items()
    }


def _under_new_rule(before: ReportInputs, scratch: Path, pool: Crossed) -> ReportInputs:
    """The same run by its new tables; what was trained and on what stays."""
    new: dict[State, int] = dict.fromkeys(("G", "S", "U"), 0)
    for (_, state), count in pool.items():
        new[state] += count
    ids = before.audit.ids.tolist()
    arms = tuple(
        replace(of, statuses=read_decisions(scratch / layout.decisions(of.arm), ids))
        for of in before.arms
    )
    return replace(before, audit=read_audit(scratch, before.k), arms=arms, pool_states=new)


def _seal(run: RunDirectory, manifest: Manifest, scratch: RunDirectory) -> None:
    """Makes the folder a run whose pool is searched and of which nothing is chosen.

    Sets of another run are sealed in it as they are: no verdict here chose them.
    """
    shutil.copyfile(run.path / layout.RECIPE, scratch.path / layout.RECIPE)
    taken = [arm for arm in arms(run.recipe) if is_copied(run, manifest, arm)]
    budgets = {arm.name: manifest["budgets"][arm.name] for arm in taken}
    write_json(scratch.path / layout.MANIFEST, {**manifest, "files": {}, "budgets": budgets})
    for arm in taken:
        name = layout.selection(arm)
        (scratch.path / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(run.path / name, scratch.path / name)
        scratch.seal(name)
    for table in (layout.problems, layout.responses, layout.states):
        scratch.seal(table("pool"))
    for k in run.recipe.windows():
        scratch.seal(layout.states("pool", (0, k)))


def _foreign(taken: Mapping[str, str], verifier: str) -> Iterator[str]:
    """Whose the earlier verdicts are that the run's own rule did not give, in words."""
    for split, told_by in taken.items():
        yield (
            f"{split}: the source's verdicts before are those of the imported files ({told_by}), "
            f"not of {verifier}; what differs there may differ between the files and {verifier}"
        )


def _left(run: RunDirectory, plugins: Plugins) -> Iterator[str]:
    """What was not judged again, in words."""
    others = [split for split in splits_of(run.recipe) if split not in SPLITS]
    others += [f"the subset {name}" for name in run.recipe.subsets]
    asked = [of.name for of in every_experiment(plugins) if of.settings(run.recipe) is not None]
    others += [f"the experiment {name}" for name in asked]
    if others:
        yield f"not judged again: {', '.join(others)}"
