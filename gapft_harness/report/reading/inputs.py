"""Read the inputs of a report: a run's finished files as typed arrays. No statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gapft_harness.core.records import SOURCE, Arm, State
from gapft_harness.presentation.content import Row
from gapft_harness.recipe.sections import Deployment
from gapft_harness.report.reading.audits import (
    Audit,
    OtherVerdicts,
    TrainedArm,
    read_arm,
    read_audit,
)
from gapft_harness.report.reading.columns import read_columns
from gapft_harness.report.reading.endings import read_endings
from gapft_harness.report.reading.episodes import EpisodeFacts, read_episodes
from gapft_harness.report.reading.failures import Failures, read_failures
from gapft_harness.report.reading.published import PublishedValue, measure_search
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import SPLITS, RunDirectory
from gapft_harness.run_directory.recorded import (
    ImportFacts,
    list_warnings,
    read_budgets,
    read_judged_facts,
    read_judges,
    read_source,
    read_training,
)


@dataclass(frozen=True, slots=True)
class LoadedExperiment:
    """An experiment (``stages.experiment.protocol``) with the data that its section read."""

    experiment: Any
    data: Any


@dataclass(frozen=True, slots=True)
class ReportInputs:
    """All inputs of a report; problems are ordered by id, as in the tables.

    Attributes:
        recipe: the resolved recipe (``Recipe.model_dump``).
        task: name, version, fingerprint, dropped, verifier and its parameters, keep, decoding.
        k: K, the samples of each problem.
        conditions: in the recipe's order; empty if there was nothing to train on.
        seeds: training seeds, ascending.
        pool_states: pool problems in G, S and U.
        pool_recovered: at index k - 1, the pool problems that the first k samples recover.
        audit: the audit split under the source model.
        arms: conditions times seeds, in that order.
        source: the sampler's description of the source model.
        verdict_counts: responses by status, of ``pool``, ``audit`` and every arm.
        judged_by: the verifier's description of itself for the same names, such as a sandbox's
            tier.
        training: the trainer's facts on every arm.
        warnings: sentences from earlier stages.
        imported: by split, the origin of imported responses.
        seconds: wall time of earlier stages.
        days: the days on which the stages made their outputs, such as ``2026-11-23``, ascending.
        versions: versions of the packages that made the run.
        endings: rows of a table: how the responses of ``pool``, ``audit``, ``SOURCE`` (the
            deployment decodes of the audit) and every arm ended.
        episodes: facts on decodes with several attempts; None where a decode is one response.
        experiments: the run's experiments, each with the data it read.
        failures: reasons, where no or few responses pass.
        paper: the paper's figures in the recipe with the search's values.
        run_path: the run directory, whose texts the page of every problem shows; None: no texts are
            available.
        other_rule: the audit's responses under another rule; None: they were not judged.
    """

    recipe: Mapping[str, Any]
    task: Mapping[str, Any]
    k: int
    conditions: tuple[str, ...]
    seeds: tuple[int, ...]
    pool_states: Mapping[State, int]
    audit: Audit
    arms: tuple[TrainedArm, ...]
    pool_recovered: tuple[int, ...] = ()
    source: Mapping[str, Any] = field(default_factory=dict)
    verdict_counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    judged_by: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    training: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    imported: Mapping[str, ImportFacts] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    days: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    endings: Mapping[str, Row] = field(default_factory=dict)
    episodes: EpisodeFacts | None = None
    experiments: tuple[LoadedExperiment, ...] = ()
    failures: Failures = field(default_factory=Failures)
    other_rule: OtherVerdicts | None = None
    paper: tuple[PublishedValue, ...] = ()
    run_path: Path | None = None

    @property
    def deployment(self) -> Deployment | None:
        """How the deployment decode is sampled; None: it is greedy."""
        settings = self.recipe["search"].get("deployment")
        return None if settings is None else Deployment.model_validate(settings)

    def find_arms(self, condition: str) -> tuple[TrainedArm, ...]:
        """Return a condition's arms, by ascending seed."""
        return tuple(arm for arm in self.arms if arm.arm.condition == condition)


def read_inputs(
    run: RunDirectory,
    experiments: Sequence[Any] = (),
    notes: Sequence[str] = (),
    reads_answers: bool = False,
) -> ReportInputs:
    """Read a run's finished tables. The caller has checked their contents.

    Args:
        run: the run, with the recipe of the report.
        experiments: the experiments; those without data are left out.
        notes: further warnings.
        reads_answers: whether the run's verifier is known to read answers.

    Raises:
        GapftError: the tables contradict each other.
    """
    run_path = run.path
    # The run as a whole, and the source model on the audit
    budgets = read_budgets(run)
    facts = run.facts()
    recipe = run.recipe.model_dump(mode="json")
    k = recipe["search"]["k"]
    audit = read_audit(run_path, k)
    # The time of this stage is unknown while it writes, and would change the page each time.
    stages = {name: item for name, item in facts["stages"].items() if name != "report"}
    # The arms and their tables
    conditions = tuple(recipe["conditions"])
    seeds = tuple(sorted(recipe["seeds"]))
    arms = [Arm(condition, seed) for condition in conditions for seed in seeds] if budgets else []
    verdict_counts = read_judged_facts(run, "verdicts")
    judged_tables = {split: layout.responses_path(split) for split in SPLITS}
    judged_tables[SOURCE] = layout.responses_path("audit")
    judged_tables |= {arm.name: layout.decisions_path(arm) for arm in arms}
    pool_states, pool_recovered = _read_pool(run_path / layout.states_path("pool"), k)
    return ReportInputs(
        recipe=recipe,
        task=run.task,
        k=k,
        conditions=conditions if arms else (),
        seeds=seeds,
        pool_states=pool_states,
        pool_recovered=pool_recovered,
        audit=audit,
        arms=tuple(read_arm(run_path, arm, budgets, audit.ids) for arm in arms),
        source=read_source(run),
        verdict_counts=verdict_counts,
        judged_by={
            name: description for name, description in read_judges(run).items() if description
        },
        training=read_training(run),
        warnings=(*list_warnings(run), *notes),
        imported=read_judged_facts(run, "imported"),
        seconds={name: entry["seconds"] for name, entry in stages.items()},
        days=tuple(sorted({entry["day"] for entry in stages.values()})),
        versions=facts["versions"],
        endings=read_endings(
            {name: run_path / table for name, table in judged_tables.items() if run.has(table)},
            reads_answers,
        ),
        episodes=read_episodes(run, arms),
        experiments=tuple(
            LoadedExperiment(experiment, data)
            for experiment in experiments
            if (data := experiment.read(run, arms)) is not None
        ),
        failures=read_failures(run_path, verdict_counts, [arm.name for arm in arms]),
        paper=tuple(item for split in SPLITS for item in measure_search(run_path, recipe, split)),
        run_path=run_path,
    )


def _read_pool(path: Path, k: int) -> tuple[dict[State, int], tuple[int, ...]]:
    """Count the problems in each state, and those that the first 1, 2, …, k samples recover.

    "For nested search budgets, the first K samples are reused as a prefix" (Appendix A).
    """
    table_columns = read_columns(path, ("state", "first_success"))
    states = table_columns["state"]
    recovered = zip(states, table_columns["first_success"], strict=True)
    first = np.array([position for state, position in recovered if state == "S"], dtype=np.int64)
    by_k = tuple(int((first < size).sum()) for size in range(1, k + 1))
    return {"G": states.count("G"), "S": states.count("S"), "U": states.count("U")}, by_k
