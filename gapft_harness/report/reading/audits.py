"""An audit as arrays: the source's responses to its problems, and the trained models' decisions."""

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
        """Some of its problems, by their positions."""
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
        """What passed."""
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
        matched: whether the budget is the comparison's matched one, not a reference's own.
        problems: distinct problems among the budget's n example slots.
        taken: of a set of another run: ``run``, ``arm`` there, the file's ``sha256``, and its
            ``k`` and ``replay``.
    """

    arm: Arm
    statuses: NDArray[np.uint8]
    texts: tuple[str, ...]
    budget: Budget
    matched: bool
    problems: int
    taken: Mapping[str, Any] | None = None

    def at(self, positions: NDArray[np.intp]) -> TrainedArm:
        """It on some of the audit's problems, by their positions."""
        return replace(self, statuses=self.statuses[positions], texts=_take(self.texts, positions))

    @property
    def passed(self) -> NDArray[np.bool_]:
        """Shape (P,), V of its greedy decode."""
        passed: NDArray[np.bool_] = self.statuses == PASS
        return passed


def read_audit(run_path: Path, k: int, split: str = "audit") -> Audit:
    """Reads an audit's problems, the source's responses and their states.

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
        f"{table.parent}: problems, responses and states are not of the same problems in the same "
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
        f"{states_table}: states are not those of the verdicts in responses.parquet",
    )
    return audit


def read_verdicts(table: Path, k: int) -> Verdicts:
    """Reads a split's verdicts, in its table's order; a sample that was not drawn did not pass."""
    found = columns(table, ("index", "status"))
    index, passed = np.array(found["index"], dtype=np.int64), codes(found["status"]) == PASS
    greedy = index == GREEDY
    samples = np.zeros((int(greedy.sum()), k), dtype=np.bool_)
    samples[(np.cumsum(greedy) - 1)[~greedy], index[~greedy]] = passed[~greedy]
    return Verdicts.of(passed[greedy], samples)


def read_decisions(table: Path, ids: Sequence[str], whose: str = "the audit") -> NDArray[np.uint8]:
    """Reads the status codes of a table's greedy decodes, shape (P,).

    Args:
        table: of decisions, or of a split's responses.
        ids: the problems that it must answer, in their order.
        whose: these are, for the message.

    Raises:
        GapftError: it answers others.
    """
    found = columns(table, ("problem_id", "status"), [("index", "=", GREEDY)])
    require(found["problem_id"] == [*ids], f"{table}: holds other problems than {whose}")
    return codes(found["status"])


def read_samples(table: Path, ids: Sequence[str], k: int) -> NDArray[np.bool_]:
    """Read whether each sample of a table of samples passed, shape (P, k).

    Args:
        table: as ``decode_split`` writes it with ``samples``.
        ids: the audit's problems, in their order.
        k: samples of each.

    Raises:
        GapftError: it holds other samples.
    """
    found = columns(table, ("problem_id", "index", "status"))
    require(
        found["problem_id"] == [problem for problem in ids for _ in range(k)]
        and found["index"] == [*range(k)] * len(ids),
        f"{table}: does not hold {k} samples of each problem of the audit",
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
    """Reads an arm's decisions on an audit, a further one by its name, and its budget.

    Raises:
        GapftError: the decisions are on other problems, or the budget is not the sealed one.
    """
    path = run_path / layout.decisions_on(arm, audit)
    found = columns(path, ("problem_id", "text", "status"))
    require(found["problem_id"] == ids.tolist(), f"{path}: holds other problems than the audit")
    entry = budgets[arm.name]
    selection = run_path / layout.selection(arm)
    chosen = columns(selection, ("problem_id",))["problem_id"]
    budget = sealed_budget(arm, entry, selection)
    require(
        len(chosen) == budget.n,
        f"{selection}: has {len(chosen)} slots, and its budget n = {budget.n}",
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
    """An arm's budget as it is sealed with its training set; the manifest must say the same.

    Raises:
        GapftError: it does not.
    """
    budget = Budget(**read_facts(selection))
    for key in ("n", "repetitions", "exposures", "steps"):
        said, sealed = entry[key], getattr(budget, key)
        require(
            said == sealed,
            f"manifest.json: the budget of {arm.name} has {key} = {said}, and {sealed} is sealed "
            f"with its training set {selection}; restore the manifest",
        )
    return budget


def _take(values: Sequence[str], order: NDArray[np.intp]) -> tuple[str, ...]:
    return tuple(values[position] for position in order)


#: A response with an answer; one without; one without that opens with the right answer.
VALID, INVALID, OPENS_RIGHT = range(3)


@dataclass(frozen=True, slots=True)
class OtherRule:
    """What another verifier says of the greedy responses to the audit.

    Attributes:
        name: the verifier; empty where there is none to ask.
        permissive: whether it takes more forms of answers than the run's; else it takes fewer.
        why: where there is none, why.
        source: shape (P,), codes of its verdicts on the source's responses.
        arms: by the arm's name, shape (P,), codes of its verdicts on its responses.
        read: the source's (under an empty name) and each arm's responses by what the run's rule
            reads in them, shape (P,): ``VALID``, ``INVALID`` or ``OPENS_RIGHT``. Empty where the
            verifier gives no answers.
        opens: whether the verifier says what a response opens with.
    """

    name: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    permissive: bool = True
    why: str = ""
    source: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, dtype=np.uint8))
    arms: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)
    read: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)
    opens: bool = False
