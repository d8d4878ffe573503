"""What a report is made of: a run's sealed files as typed arrays. Reading only, no statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.decomposition import partition
from gapft_harness.core.records import GREEDY, Arm, Budget, State
from gapft_harness.report.reading.columns import PASS, STATUSES, codes, columns
from gapft_harness.report.reading.episodes import EpisodeFacts, read_episodes
from gapft_harness.report.reading.failures import Failures, read_failures
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import require

__all__ = ["PASS", "STATUSES", "Audit", "ReportInputs", "TrainedArm", "read_inputs"]


@dataclass(frozen=True, slots=True)
class Audit:
    """The audit split under the source model. Every array's first axis is the problem.

    Attributes:
        ids: shape (P,), distinct.
        prompts: P prompts as rendered.
        golds: P gold answers as JSON.
        states: shape (P,), ``G``, ``S`` or ``U``.
        greedy: shape (P,), status codes of the greedy decode.
        greedy_texts: P responses.
        samples: shape (P, K), status codes of the samples by sample number.
    """

    ids: NDArray[np.str_]
    prompts: tuple[str, ...]
    golds: tuple[str, ...]
    states: NDArray[np.str_]
    greedy: NDArray[np.uint8]
    greedy_texts: tuple[str, ...]
    samples: NDArray[np.uint8]

    @property
    def greedy_passed(self) -> NDArray[np.bool_]:
        """Shape (P,), V of the source's greedy decode."""
        passed: NDArray[np.bool_] = self.greedy == PASS
        return passed

    @property
    def passing_samples(self) -> NDArray[np.int64]:
        """Shape (P,), c of the Pass@k estimator."""
        passing: NDArray[np.int64] = (self.samples == PASS).sum(axis=1, dtype=np.int64)
        return passing


@dataclass(frozen=True, slots=True)
class TrainedArm:
    """One trained model on the audit, in the order of ``Audit.ids``.

    Attributes:
        arm: condition and seed.
        statuses: shape (P,), status codes of its greedy decode.
        texts: P responses.
        budget: what it was trained on.
        matched: whether the budget is the comparison's matched one, not a reference's own.
        problems: distinct problems among the budget's n example slots.
    """

    arm: Arm
    statuses: NDArray[np.uint8]
    texts: tuple[str, ...]
    budget: Budget
    matched: bool
    problems: int

    @property
    def passed(self) -> NDArray[np.bool_]:
        """Shape (P,), V of its greedy decode."""
        passed: NDArray[np.bool_] = self.statuses == PASS
        return passed


@dataclass(frozen=True, slots=True)
class Taken:
    """An experiment's part of the report (``report.part.Part``) with what it read of a run."""

    part: Any
    read: Any


@dataclass(frozen=True, slots=True)
class ReportInputs:
    """Everything the report says comes from here.

    Attributes:
        recipe: the resolved recipe (``Recipe.model_dump``).
        task: name, version, fingerprint, dropped, verifier and its parameters, keep, decoding.
        k: K.
        conditions: in the recipe's order; empty if there was nothing to train on.
        seeds: ascending.
        pool_states: how many pool problems are in G, S and U.
        audit: the audit split under the source model.
        arms: conditions times seeds, in that order.
        source: the sampler's own description of the source model.
        verdict_counts: ``pool``, ``audit`` and every arm: responses by status.
        judged_by: of the same, what the verifier said of itself, such as a sandbox's tier.
        training: every arm's facts from its trainer.
        warnings: sentences gathered by earlier stages.
        seconds: wall time of earlier stages.
        versions: of the packages that made the run.
        drawn: ``pool``, ``audit``: ``samples`` drawn and their ``tokens``.
        episodes: how decodes of several attempts went; None where a decode is one response.
        parts: the experiments that the run has, each with what it read.
        failures: why so little passes, where nothing or little does.
    """

    recipe: Mapping[str, Any]
    task: Mapping[str, Any]
    k: int
    conditions: tuple[str, ...]
    seeds: tuple[int, ...]
    pool_states: Mapping[State, int]
    audit: Audit
    arms: tuple[TrainedArm, ...]
    source: Mapping[str, Any] = field(default_factory=dict)
    verdict_counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    judged_by: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    training: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    drawn: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    episodes: EpisodeFacts | None = None
    parts: tuple[Taken, ...] = ()
    failures: tuple[Failures, ...] = ()

    def of(self, condition: str) -> tuple[TrainedArm, ...]:
        """A condition's arms, by ascending seed."""
        return tuple(arm for arm in self.arms if arm.arm.condition == condition)

    def read(self, name: str) -> Any:
        """What an experiment's part read; None if the run has none of that name."""
        return next((of.read for of in self.parts if of.part.name == name), None)

    def in_order(self) -> ReportInputs:
        """The same content with problems by id and seeds ascending, so that order says nothing."""
        order = np.argsort(self.audit.ids)
        audit = replace(
            self.audit,
            ids=self.audit.ids[order],
            prompts=_take(self.audit.prompts, order),
            golds=_take(self.audit.golds, order),
            states=self.audit.states[order],
            greedy=self.audit.greedy[order],
            greedy_texts=_take(self.audit.greedy_texts, order),
            samples=self.audit.samples[order],
        )
        by_arm = {
            trained.arm: replace(
                trained, statuses=trained.statuses[order], texts=_take(trained.texts, order)
            )
            for trained in self.arms
        }
        seeds = tuple(sorted(self.seeds))
        wanted = [Arm(condition, seed) for condition in self.conditions for seed in seeds]
        require(
            sorted(by_arm, key=lambda a: a.name) == sorted(wanted, key=lambda a: a.name),
            f"the report needs every condition under every seed: expected "
            f"{[arm.name for arm in wanted]}, found {[arm.name for arm in by_arm]}",
        )
        return replace(
            self,
            seeds=seeds,
            audit=audit,
            arms=tuple(by_arm[arm] for arm in wanted),
            parts=tuple(replace(of, read=of.part.in_order(of.read, seeds)) for of in self.parts),
        )


def read_inputs(
    run_path: Path, manifest: Mapping[str, Any], parts: Sequence[Any] = ()
) -> ReportInputs:
    """Reads a run's sealed tables. The caller has checked their hashes.

    Args:
        run_path: the run directory.
        manifest: its manifest.
        parts: experiments' parts (``report.part.Part``); those that find nothing are left out.

    Raises:
        GapftError: the tables contradict each other.
    """
    recipe, budgets = manifest["recipe"], manifest["budgets"]
    audit = _read_audit(run_path, recipe["search"]["k"])
    conditions, seeds = tuple(recipe["conditions"]), tuple(recipe["seeds"])
    arms = [Arm(condition, seed) for condition in conditions for seed in seeds] if budgets else []
    return ReportInputs(
        recipe=recipe,
        task=manifest["task"],
        k=recipe["search"]["k"],
        conditions=conditions if arms else (),
        seeds=seeds,
        pool_states=_count_states(run_path / layout.states("pool")),
        audit=audit,
        arms=tuple(_read_arm(run_path, arm, budgets, audit.ids) for arm in arms),
        source=manifest["source"],
        verdict_counts=manifest["verdict_counts"],
        judged_by={name: said for name, said in manifest["judged_by"].items() if said},
        training=manifest["training"],
        warnings=tuple(manifest["warnings"]),
        # This stage's own time is not known while it writes, and would change the page each time.
        seconds={
            name: entry["seconds"] for name, entry in manifest["stages"].items() if name != "report"
        },
        versions=manifest["versions"],
        drawn=manifest.get("drawn", {}),  # a run made before it was recorded has none
        episodes=read_episodes(run_path, manifest, arms),
        parts=tuple(
            Taken(part, read)
            for part in parts
            if (read := part.read(run_path, manifest, arms)) is not None
        ),
        failures=read_failures(run_path, manifest["verdict_counts"], [arm.name for arm in arms]),
    )


def _read_audit(run_path: Path, k: int) -> Audit:
    table, states_table = run_path / layout.responses("audit"), run_path / layout.states("audit")
    problems = columns(run_path / layout.problems("audit"), ("problem_id", "prompt", "gold"))
    states = columns(states_table, ("problem_id", "state"))
    responses = columns(table, ("problem_id", "index", "status"))
    greedy = columns(table, ("problem_id", "text"), filters=[("index", "=", GREEDY)])
    ids = problems["problem_id"]
    require(
        states["problem_id"] == ids
        and greedy["problem_id"] == ids
        and responses["index"] == [GREEDY, *range(k)] * len(ids),
        f"{table.parent}: problems, responses and states are not of the same problems in the same "
        "order",
    )
    statuses = codes(responses["status"]).reshape(len(ids), k + 1)
    audit = Audit(
        ids=np.array(ids, dtype=np.str_),
        prompts=tuple(problems["prompt"]),
        golds=tuple(problems["gold"]),
        states=np.array(states["state"], dtype=np.str_),
        greedy=statuses[:, 0],
        greedy_texts=tuple(greedy["text"]),
        samples=statuses[:, 1:],
    )
    expected = partition(audit.greedy_passed, audit.samples == PASS)
    require(
        bool((expected == audit.states).all()),
        f"{states_table}: states are not those of the verdicts in responses.parquet",
    )
    return audit


def _read_arm(
    run_path: Path, arm: Arm, budgets: Mapping[str, Mapping[str, Any]], ids: NDArray[np.str_]
) -> TrainedArm:
    path = run_path / layout.decisions(arm)
    found = columns(path, ("problem_id", "text", "status"))
    require(found["problem_id"] == ids.tolist(), f"{path}: holds other problems than the audit")
    entry = budgets[arm.name]
    selection = run_path / layout.selection(arm)
    return TrainedArm(
        arm=arm,
        statuses=codes(found["status"]),
        texts=tuple(found["text"]),
        budget=Budget(
            n=entry["n"],
            repetitions=entry["repetitions"],
            exposures=entry["exposures"],
            tokens=entry["tokens"],
            supervised_tokens=entry["supervised_tokens"],
            steps=entry["steps"],
        ),
        matched=entry.get("matched", True),
        problems=len(set(columns(selection, ("problem_id",))["problem_id"])),
    )


def _count_states(path: Path) -> dict[State, int]:
    states = columns(path, ("state",))["state"]
    return {"G": states.count("G"), "S": states.count("S"), "U": states.count("U")}


def _take(values: Sequence[str], order: NDArray[np.intp]) -> tuple[str, ...]:
    return tuple(values[position] for position in order)
