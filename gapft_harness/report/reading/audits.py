"""Read an audit as arrays: the source's responses, and the decisions of the trained models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.records import GREEDY, Arm, Budget
from gapft_harness.report.reading.columns import PASS, codes, columns
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import require
from gapft_harness.run_directory.parquet import read_facts
from gapft_harness.verdicts.table import Verdicts


@dataclass(frozen=True)
class Audit:
    """The audit split under the source model. Every array's first axis is the problem.

    Attributes:
        ids: shape (P,), distinct.
        prompts: P prompts as rendered.
        golds: P gold answers as JSON.
        greedy: shape (P,), status codes of the greedy decode.
        greedy_texts: P responses.
        samples: shape (P, K), status codes of the samples by sample number.
    """

    ids: NDArray[np.str_]
    prompts: tuple[str, ...]
    golds: tuple[str, ...]
    greedy: NDArray[np.uint8]
    greedy_texts: tuple[str, ...]
    samples: NDArray[np.uint8]

    def at(self, positions: NDArray[np.intp]) -> Audit:
        """Return the audit on some of its problems, by their positions."""
        return Audit(
            ids=self.ids[positions],
            prompts=_take(self.prompts, positions),
            golds=_take(self.golds, positions),
            greedy=self.greedy[positions],
            greedy_texts=_take(self.greedy_texts, positions),
            samples=self.samples[positions],
        )

    @cached_property
    def verdicts(self) -> Verdicts:
        """Whether the greedy decode and each sample passed."""
        return Verdicts.of(self.greedy == PASS, self.samples == PASS)

    @cached_property
    def states(self) -> NDArray[np.str_]:
        """Shape (P,), ``G``, ``S`` or ``U``."""
        return self.verdicts.states


@dataclass(frozen=True, slots=True)
class TrainedArm:
    """One trained model on the audit, in the order of ``Audit.ids``.

    Attributes:
        statuses: shape (P,), status codes of its greedy decode.
        arm: condition and training seed.
        statuses: shape (P,), status codes of its greedy decode.
        texts: P responses.
        budget: the budget of its training set.
        matched: whether the budget is matched with the comparison's, not a reference's own.
        problems: distinct problems in the budget's n example slots.
        reused_set: for a training set of another run: that ``run`` and ``arm``, the file's
            ``sha256``, and the ``k`` and ``replay`` of that run; else None.
    """

    arm: Arm
    statuses: NDArray[np.uint8]
    texts: tuple[str, ...]
    budget: Budget
    matched: bool
    problems: int
    taken: Mapping[str, Any] | None = None

    def at(self, positions: NDArray[np.intp]) -> TrainedArm:
        """Return the arm on some of the audit's problems, by their positions."""
        return replace(self, statuses=self.statuses[positions], texts=_take(self.texts, positions))

    @property
    def passed(self) -> NDArray[np.bool_]:
        """Whether its greedy decode passes (V), shape (P,)."""
        passed: NDArray[np.bool_] = self.statuses == PASS
        return passed


def read_audit(run_path: Path, k: int, split: str = "audit") -> Audit:
    """Read an audit's problems, the source's responses and their states.

    Raises:
        GapftError: the tables contradict each other.
    """
    table, states_table = run_path / layout.responses(split), run_path / layout.states(split)
    problems = columns(run_path / layout.problems(split), ("problem_id", "prompt", "gold"))
    states = columns(states_table, ("problem_id", "state"))
    responses = columns(table, ("problem_id", "index", "status"))
    greedy = columns(table, ("problem_id", "text"), filters=[("index", "=", GREEDY)])
    ids = problems["problem_id"]
    require(ids == sorted({*ids}), f"{table.parent}: the problems are not ordered by their ids")
    require(
        states["problem_id"] == ids
        and greedy["problem_id"] == ids
        and responses["index"] == [GREEDY, *range(k)] * len(ids),
        f"{table.parent}: problems, responses and states have different problems or a different "
        "order",
    )
    statuses = codes(responses["status"]).reshape(len(ids), k + 1)
    audit = Audit(
        ids=np.array(ids, dtype=np.str_),
        prompts=tuple(problems["prompt"]),
        golds=tuple(problems["gold"]),
        greedy=statuses[:, 0],
        greedy_texts=tuple(greedy["text"]),
        samples=statuses[:, 1:],
    )
    require(
        audit.states.tolist() == states["state"],
        f"{states_table}: states do not follow from the verdicts in responses.parquet",
    )
    return audit


def read_verdicts(table: Path, k: int) -> Verdicts:
    """Read a split's verdicts in the table's order; samples that were not drawn did not pass."""
    found = columns(table, ("index", "status"))
    index, passed = np.array(found["index"], dtype=np.int64), codes(found["status"]) == PASS
    greedy = index == GREEDY
    samples = np.zeros((int(greedy.sum()), k), dtype=np.bool_)
    samples[(np.cumsum(greedy) - 1)[~greedy], index[~greedy]] = passed[~greedy]
    return Verdicts.of(passed[greedy], samples)


def read_decisions(table: Path, ids: Sequence[str], whose: str = "the audit") -> NDArray[np.uint8]:
    """Read the status codes of a table's greedy decodes, shape (P,).

    Args:
        table: a table of decisions, or of a split's responses.
        ids: the expected problems, in order.
        owner: the owner of these problems, for the error message.

    Raises:
        GapftError: the table contains other problems.
    """
    found = columns(table, ("problem_id", "status"), [("index", "=", GREEDY)])
    require(found["problem_id"] == [*ids], f"{table}: contains other problems than {whose}")
    return codes(found["status"])


def read_samples(table: Path, ids: Sequence[str], k: int) -> NDArray[np.bool_]:
    """Read whether each sample of a table of samples passed, shape (P, k).

    Args:
        table: a table that ``decode_split`` writes with ``samples``.
        ids: the audit's problems, in order.
        k: samples of each problem.

    Raises:
        GapftError: the table contains other problems or samples.
    """
    found = columns(table, ("problem_id", "index", "status"))
    require(
        found["problem_id"] == [problem for problem in ids for _ in range(k)]
        and found["index"] == [*range(k)] * len(ids),
        f"{table}: expected {k} samples of each problem of the audit, in order",
    )
    passed: NDArray[np.bool_] = codes(found["status"]).reshape(len(ids), k) == PASS
    return passed


def read_arm(
    run_path: Path,
    arm: Arm,
    budgets: Mapping[str, Mapping[str, Any]],
    ids: NDArray[np.str_],
    audit: str = "",
) -> TrainedArm:
    """Read an arm's decisions on an audit, and its budget.

    Args:
        run_path: the run directory.
        arm: condition and training seed.
        budgets: the manifest's budgets by arm.
        ids: the audit's problems, shape (P,).
        audit: the name of a further audit; empty: the run's audit.

    Raises:
        GapftError: the decisions are on other problems, or the budget differs from the sealed one.
    """
    path = run_path / layout.decisions_on(arm, audit)
    found = columns(path, ("problem_id", "text", "status"))
    require(found["problem_id"] == ids.tolist(), f"{path}: contains other problems than the audit")
    entry = budgets[arm.name]
    selection = run_path / layout.selection(arm)
    chosen = columns(selection, ("problem_id",))["problem_id"]
    budget = sealed_budget(arm, entry, selection)
    require(
        len(chosen) == budget.n,
        f"{selection}: has {len(chosen)} slots, but its budget has n = {budget.n}",
    )
    return TrainedArm(
        arm=arm,
        statuses=codes(found["status"]),
        texts=tuple(found["text"]),
        budget=budget,
        matched=entry.get("matched", True),
        problems=len(set(chosen)),
        taken=entry.get("taken"),
    )


def sealed_budget(arm: Arm, entry: Mapping[str, Any], selection: Path) -> Budget:
    """Read the budget that is sealed with an arm's training set, and compare the manifest's.

    Raises:
        GapftError: the manifest has a different budget.
    """
    budget = Budget(**read_facts(selection))
    for key in ("n", "repetitions", "exposures", "steps"):
        said, sealed = entry[key], getattr(budget, key)
        require(
            said == sealed,
            f"manifest.json: the budget of {arm.name} has {key} = {said}, but its training set "
            f"{selection} is sealed with {sealed}; restore the manifest",
        )
    return budget


def _take(values: Sequence[str], order: NDArray[np.intp]) -> tuple[str, ...]:
    return tuple(values[position] for position in order)


#: Responses with an answer; without one; without one, but beginning with the right answer.
VALID, INVALID, OPENS_RIGHT = range(3)


@dataclass(frozen=True, slots=True)
class OtherRule:
    """The verdicts of another verifier on the greedy responses to the audit.

    Attributes:
        name: the verifier; empty where no other verifier is available.
        params: the verifier's parameters.
        permissive: whether it accepts more forms of answers than the run's verifier, or fewer.
        reason: the reason where no other verifier is available.
        source: codes of its verdicts on the source's responses, shape (P,).
        arms: codes of its verdicts on an arm's responses, by the arm's name, shape (P,).
        answer_codes: whether the run's rule finds an answer, for the source (under an empty name)
            and each arm, shape (P,): ``VALID``, ``INVALID`` or ``OPENS_RIGHT``. Empty where the
            verifier gives no answers.
        reads_openings: whether the verifier can read the beginning of a response.
    """

    name: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    permissive: bool = True
    why: str = ""
    source: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, dtype=np.uint8))
    arms: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)
    read: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)
    opens: bool = False
