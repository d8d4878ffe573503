"""What a run came to, read from its sealed tables into arrays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from controlled_study.driver import SLOTS
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import Judged, read_judged, read_problems, read_states

Flags = NDArray[np.bool_]
Words = NDArray[np.str_]


@dataclass(frozen=True)
class Split:
    """The source on one split; arrays of one length, ordered by problem id.

    Attributes:
        ids: problem ids.
        family: of each problem.
        cell: family and length.
        state: G, S or U.
        solved: whether the greedy response passed.
        passing: samples that passed.
        lucky: how many of them are not the worked response.
        kept_lucky: whether the response kept for training is not the worked one; False for U.
    """

    ids: Words
    family: Words
    cell: Words
    state: Words
    solved: Flags
    passing: NDArray[np.int64]
    lucky: NDArray[np.int64]
    kept_lucky: Flags


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        n: slots of the matched conditions; 0 where there was nothing to train on.
        pool: the source on the pool.
        audit: the source on the audit.
        passed: by condition, (training seeds, audit problems).
        sound: the same for passing responses that are the worked ones.
    """

    n: int
    pool: Split
    audit: Split
    passed: dict[str, Flags]
    sound: dict[str, Flags]

    def gain(self, a: str, b: str, where: Flags | None = None) -> float:
        """Pass@1 of ``a`` minus ``b`` (or ``source``) in points: the mean over seeds and problems.

        NaN where there is no such problem.
        """
        chosen = np.ones(self.audit.solved.shape, bool) if where is None else where
        if not chosen.any():
            return float("nan")
        return 100 * (self._rate(a, chosen) - self._rate(b, chosen))

    def _rate(self, condition: str, where: Flags) -> float:
        passed = self.audit.solved if condition == "source" else self.passed[condition]
        return float(passed[..., where].mean())


def read_run(folder: Path) -> Run | None:
    """Reads a run; None where it is not finished.

    Raises:
        UserError: a sealed file is missing or was changed, or arms of the recipe lack decisions.
    """
    slots = folder / SLOTS
    if not slots.exists():
        return None
    n = int(json.loads(slots.read_text("utf-8"))["n"])
    run = RunDirectory.open(folder)
    pool, audit = (_split(run, name) for name in ("pool", "audit"))
    if not n:
        return Run(0, pool, audit, {}, {})
    if not (folder / layout.REPORT / "results.json").exists():
        return None
    solutions = _solutions(run, "audit")
    passed: dict[str, list[list[bool]]] = {}
    sound: dict[str, list[list[bool]]] = {}
    for arm in filter(None, map(layout.arm_of, sorted(run.manifest()["training"]))):
        judged = _greedy(run, layout.decisions(arm), audit.ids)
        rights = [each.verdict.passed for each in judged]
        passed.setdefault(arm.condition, []).append(rights)
        sound.setdefault(arm.condition, []).append(
            [
                right and each.response.text == solution
                for right, each, solution in zip(rights, judged, solutions, strict=True)
            ]
        )
    if len({len(seeds) for seeds in passed.values()}) > 1:
        raise UserError(f"{folder}: its conditions are not trained under the same seeds")
    return Run(n, pool, audit, *({k: np.array(v) for k, v in x.items()} for x in (passed, sound)))


def _greedy(run: RunDirectory, file: str, ids: Words) -> list[Judged]:
    found = dict(read_judged(run.sealed(file)))
    if list(found) != ids.tolist():
        raise UserError(f"{run.path / file}: answers other problems than the audit's")
    return [judged[0] for judged in found.values()]


def _solutions(run: RunDirectory, split: str) -> list[str]:
    problems = read_problems(run.sealed(layout.problems(split)))
    return [str(problem.document["solution"]) for problem, _ in problems]


def _split(run: RunDirectory, name: str) -> Split:
    problems = [problem for problem, _ in read_problems(run.sealed(layout.problems(name)))]
    states = list(read_states(run.sealed(layout.states(name))))
    solved, passing, lucky, kept_lucky = [], [], [], []
    for problem, state, (_, judged) in zip(
        problems, states, read_judged(run.sealed(layout.responses(name))), strict=True
    ):
        worked = problem.document["solution"]
        passes = [each.response for each in judged if each.verdict.passed]
        wrong = [response.index for response in passes if response.text != worked]
        samples = [response for response in passes if response.index != GREEDY]
        solved.append(state.state == "G")
        passing.append(len(samples))
        lucky.append(sum(index != GREEDY for index in wrong))
        kept_lucky.append(state.kept_index in wrong)
    return Split(
        _array([problem.id for problem in problems]),
        _array([problem.document["family"] for problem in problems]),
        _array([f"{p.document['family']}-{p.document['length']}" for p in problems]),
        _array([state.state for state in states]),
        np.array(solved),
        np.array(passing),
        np.array(lucky),
        np.array(kept_lucky),
    )


def _array(texts: Sequence[str]) -> Words:
    return np.array(texts, dtype=np.str_)
