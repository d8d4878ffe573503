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
from gapft_harness.report.reading.columns import PASS, codes, read_columns
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import require_consistent
from gapft_harness.run_directory.parquet import read_facts
from gapft_harness.verdicts.table import Verdicts, encode_answers


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
        answers: shape (P, K), codes of the samples' answers (``verdicts.table.encode_answers``);
            None if unknown.
    """

    ids: NDArray[np.str_]
    prompts: tuple[str, ...]
    golds: tuple[str, ...]
    greedy: NDArray[np.uint8]
    greedy_texts: tuple[str, ...]
    samples: NDArray[np.uint8]
    answers: NDArray[np.int64] | None = None

    def select_problems(self, positions: NDArray[np.intp]) -> Audit:
        """Return the audit on some of its problems, by their positions."""
        return Audit(
            ids=self.ids[positions],
            prompts=_select_items(self.prompts, positions),
            golds=_select_items(self.golds, positions),
            greedy=self.greedy[positions],
            greedy_texts=_select_items(self.greedy_texts, positions),
            samples=self.samples[positions],
            answers=None if self.answers is None else self.answers[positions],
        )

    @cached_property
    def verdicts(self) -> Verdicts:
        """Whether the greedy decode and each sample passed."""
        return Verdicts.of(self.greedy == PASS, self.samples == PASS, self.answers)

    @cached_property
    def states(self) -> NDArray[np.str_]:
        """Shape (P,), ``G``, ``S`` or ``U``."""
        return self.verdicts.states


@dataclass(frozen=True, slots=True)
class TrainedArm:
    """One trained model on the audit, in the order of ``Audit.ids``.

    Attributes:
        arm: condition and training seed.
        statuses: shape (P,), status codes of its greedy decode.
        texts: P responses.
        budget: the budget of its training set.
        matched: whether the budget is matched with the comparison's, not a reference's own.
        problems: distinct problems in the budget's n example slots.
        foreign_set: for a training set of another run: that ``run`` and ``arm``, the file's
            ``sha256``, and the ``k`` and ``replay`` of that run; else None.
        unverified: examples whose response did not pass.
        reasoning: counts of reasoning that is not trained on (``ReasoningFacts``); None if it is.
    """

    arm: Arm
    statuses: NDArray[np.uint8]
    texts: tuple[str, ...]
    budget: Budget
    matched: bool
    problems: int
    foreign_set: Mapping[str, Any] | None = None
    unverified: int = 0
    reasoning: Mapping[str, int] | None = None

    def select_problems(self, positions: NDArray[np.intp]) -> TrainedArm:
        """Return the arm on some of the audit's problems, by their positions."""
        return replace(
            self, statuses=self.statuses[positions], texts=_select_items(self.texts, positions)
        )

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
    table, states_table = (
        run_path / layout.responses_path(split),
        run_path / layout.states_path(split),
    )
    problems = read_columns(
        run_path / layout.problems_path(split), ("problem_id", "prompt", "gold")
    )
    states = read_columns(states_table, ("problem_id", "state"))
    responses = read_columns(table, ("problem_id", "index", "status", "answer"))
    greedy = read_columns(table, ("problem_id", "text"), filters=[("index", "=", GREEDY)])
    ids = problems["problem_id"]
    require_consistent(
        ids == sorted({*ids}), f"{table.parent}: the problems are not ordered by their ids"
    )
    require_consistent(
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
        answers=_encode_samples(responses["answer"], k),
    )
    require_consistent(
        audit.states.tolist() == states["state"],
        f"{states_table}: states do not follow from the verdicts in responses.parquet",
    )
    return audit


def _encode_samples(answers: Sequence[str | None], k: int) -> NDArray[np.int64]:
    """Encode the samples' answers of a complete table: a greedy decode, then K samples."""
    starts = range(0, len(answers), k + 1)
    return encode_answers(answers[start + 1 : start + 1 + k] for start in starts)


def read_verdicts(table: Path, k: int) -> Verdicts:
    """Read a split's verdicts in the table's order; samples that were not drawn did not pass.

    The answers are read if all samples were drawn.
    """
    table_columns = read_columns(table, ("index", "status", "answer"))
    index, passed = (
        np.array(table_columns["index"], dtype=np.int64),
        codes(table_columns["status"]) == PASS,
    )
    greedy = index == GREEDY
    samples = np.zeros((int(greedy.sum()), k), dtype=np.bool_)
    samples[(np.cumsum(greedy) - 1)[~greedy], index[~greedy]] = passed[~greedy]
    is_complete = len(index) == len(samples) * (k + 1)
    answers = _encode_samples(table_columns["answer"], k) if is_complete else None
    return Verdicts.of(passed[greedy], samples, answers)


def read_decisions(table: Path, ids: Sequence[str], owner: str = "the audit") -> NDArray[np.uint8]:
    """Read the status codes of a table's greedy decodes, shape (P,).

    Args:
        table: a table of decisions, or of a split's responses.
        ids: the expected problems, in order.
        owner: the owner of these problems, for the error message.

    Raises:
        GapftError: the table contains other problems.
    """
    table_columns = read_columns(table, ("problem_id", "status"), [("index", "=", GREEDY)])
    require_consistent(
        table_columns["problem_id"] == [*ids], f"{table}: contains other problems than {owner}"
    )
    return codes(table_columns["status"])


def read_samples(table: Path, ids: Sequence[str], k: int) -> NDArray[np.bool_]:
    """Read whether each sample of a table of samples passed, shape (P, k).

    Args:
        table: a table that ``decode_split`` writes with ``samples``.
        ids: the audit's problems, in order.
        k: samples of each problem.

    Raises:
        GapftError: the table contains other problems or samples.
    """
    table_columns = read_columns(table, ("problem_id", "index", "status"))
    require_consistent(
        table_columns["problem_id"] == [problem for problem in ids for _ in range(k)]
        and table_columns["index"] == [*range(k)] * len(ids),
        f"{table}: expected {k} samples of each problem of the audit, in order",
    )
    passed: NDArray[np.bool_] = codes(table_columns["status"]).reshape(len(ids), k) == PASS
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
    path = run_path / layout.audit_decisions_path(arm, audit)
    table_columns = read_columns(path, ("problem_id", "text", "status"))
    require_consistent(
        table_columns["problem_id"] == ids.tolist(),
        f"{path}: contains other problems than the audit",
    )
    entry = budgets[arm.name]
    selection = run_path / layout.selection_path(arm)
    slot_ids = read_columns(selection, ("problem_id",))["problem_id"]
    budget = read_sealed_budget(arm, entry, selection)
    require_consistent(
        len(slot_ids) == budget.n,
        f"{selection}: has {len(slot_ids)} slots, but its budget has n = {budget.n}",
    )
    return TrainedArm(
        arm=arm,
        statuses=codes(table_columns["status"]),
        texts=tuple(table_columns["text"]),
        budget=budget,
        matched=entry.get("matched", True),
        problems=len(set(slot_ids)),
        foreign_set=entry.get("taken"),
        unverified=entry.get("unverified", 0),
        reasoning=entry.get("reasoning"),
    )


def read_sealed_budget(arm: Arm, entry: Mapping[str, Any], selection: Path) -> Budget:
    """Read the budget that is sealed with an arm's training set, and compare the manifest's.

    Raises:
        GapftError: the manifest has a different budget.
    """
    budget = Budget(**read_facts(selection))
    for key in ("n", "repetitions", "exposures", "steps"):
        recorded, sealed = entry[key], getattr(budget, key)
        require_consistent(
            recorded == sealed,
            f"manifest.json: the budget of {arm.name} has {key} = {recorded}, but its training set "
            f"{selection} is sealed with {sealed}; restore the manifest",
        )
    return budget


def _select_items(values: Sequence[str], positions: NDArray[np.intp]) -> tuple[str, ...]:
    return tuple(values[position] for position in positions)


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
    reason: str = ""
    source: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, dtype=np.uint8))
    arms: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)
    answer_codes: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)
    reads_openings: bool = False
