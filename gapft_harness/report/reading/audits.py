"""Read an audit as arrays: the source's responses, and the decisions of the trained models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.records import (
    GREEDY,
    Arm,
    Budget,
)
from gapft_harness.outcomes.verdicts import Verdicts, encode_answers
from gapft_harness.report.reading.columns import DEPLOYED, PASS, codes, read_columns
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import require_consistent


@dataclass(frozen=True)
class DeploymentDecodes:
    """The deployment decodes of one model on P problems.

    Attributes:
        statuses: shape (P,), status codes.
        texts: P responses.
    """

    statuses: NDArray[np.uint8]
    texts: tuple[str, ...]

    @cached_property
    def passed(self) -> NDArray[np.bool_]:
        """Whether each decode passed (V), shape (P,)."""
        passed: NDArray[np.bool_] = self.statuses == PASS
        return passed


@dataclass(frozen=True)
class Audit:
    """The audit split under the source model. Every array's first axis is the problem.

    Attributes:
        ids: shape (P,), distinct.
        prompts: P prompts as rendered.
        golds: P gold answers as JSON.
        deployed: the source's deployment decodes.
        samples: shape (P, K), status codes of the samples by sample number.
        answers: shape (P, K), codes of the samples' answers (``outcomes.verdicts.encode_answers``);
            None if unknown.
    """

    ids: NDArray[np.str_]
    prompts: tuple[str, ...]
    golds: tuple[str, ...]
    deployed: DeploymentDecodes
    samples: NDArray[np.uint8]
    answers: NDArray[np.int64] | None = None

    @cached_property
    def verdicts(self) -> Verdicts:
        """Whether each deployment decode and each sample passed."""
        return Verdicts.of(self.deployed.passed, self.samples == PASS, self.answers)

    @cached_property
    def states(self) -> NDArray[np.str_]:
        """Shape (P,), ``G``, ``S`` or ``U``."""
        return self.verdicts.states


@dataclass(frozen=True, slots=True)
class TrainedArm:
    """One trained model on the audit, in the order of ``Audit.ids``.

    Attributes:
        arm: condition and training seed.
        deployed: its deployment decodes.
        budget: the budget of its training set.
        matched: whether the budget is matched with the comparison's, not a reference's own.
        problems: distinct problems in the budget's n example slots.
        unverified: examples whose response did not pass.
    """

    arm: Arm
    deployed: DeploymentDecodes
    budget: Budget
    matched: bool
    problems: int
    unverified: int = 0


def read_audit(run_path: Path, k: int) -> Audit:
    """Read the audit's problems, the source's responses and their states.

    Args:
        run_path: the run directory.
        k: samples of each problem.

    Raises:
        GapftError: the tables contradict each other.
    """
    # Read the three tables
    table = run_path / layout.responses_path("audit")
    states_table = run_path / layout.states_path("audit")
    problems = read_columns(
        run_path / layout.problems_path("audit"), ("problem_id", "prompt", "gold")
    )
    states = read_columns(states_table, ("problem_id", "state"))
    responses = read_columns(table, ("problem_id", "index", "status", "answer"))
    deployed = read_columns(table, ("text",), DEPLOYED)
    # Check that they have the same problems in the same order
    ids = problems["problem_id"]
    indices = [GREEDY, *range(k)]
    require_consistent(
        ids == sorted({*ids}), f"{table.parent}: the problems are not ordered by their ids"
    )
    require_consistent(
        states["problem_id"] == ids
        and responses["problem_id"] == [name for name in ids for _ in indices]
        and responses["index"] == indices * len(ids),
        f"{table.parent}: problems, responses and states have different problems or a different "
        "order",
    )
    # Check the states against the verdicts
    statuses = codes(responses["status"]).reshape(len(ids), len(indices))
    audit = Audit(
        ids=np.array(ids, dtype=np.str_),
        prompts=tuple(problems["prompt"]),
        golds=tuple(problems["gold"]),
        deployed=DeploymentDecodes(statuses[:, 0], tuple(deployed["text"])),
        samples=statuses[:, 1:],
        answers=_encode_samples(responses["answer"], k),
    )
    require_consistent(
        audit.states.tolist() == states["state"],
        f"{states_table}: states do not follow from the verdicts in responses.parquet",
    )
    return audit


def _encode_samples(answers: Sequence[str | None], k: int) -> NDArray[np.int64]:
    """Encode the samples' answers of a complete table: the deployment decode, then K samples."""
    starts = range(1, len(answers), 1 + k)
    return encode_answers(answers[start : start + k] for start in starts)


def read_verdicts(table: Path, k: int) -> Verdicts:
    """Read a split's verdicts in the table's order.

    Args:
        table: the split's responses.
        k: samples of each problem.

    Raises:
        GapftError: a problem does not have all decodes.
    """
    table_columns = read_columns(table, ("index", "status", "answer"))
    indices = [GREEDY, *range(k)]
    problems = len(table_columns["index"]) // len(indices)
    require_consistent(
        table_columns["index"] == indices * problems,
        f"{table}: expected the decodes {indices} of each problem, in order",
    )
    passed = (codes(table_columns["status"]) == PASS).reshape(problems, len(indices))
    answers = _encode_samples(table_columns["answer"], k)
    return Verdicts.of(passed[:, 0], passed[:, 1:], answers)


def read_decisions(table: Path, ids: Sequence[str], owner: str = "the audit") -> NDArray[np.uint8]:
    """Read the status codes of a table's deployment decodes, shape (P,).

    Args:
        table: a table of decisions, or of a split's responses.
        ids: the expected problems, in order.
        owner: the owner of these problems, for the error message.

    Raises:
        GapftError: the table contains other problems.
    """
    table_columns = read_columns(table, ("problem_id", "status"), DEPLOYED)
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
) -> TrainedArm:
    """Read an arm's decisions on the audit, and its budget.

    Args:
        run_path: the run directory.
        arm: condition and training seed.
        budgets: the facts of training sets and budgets, by arm.
        ids: the audit's problems, shape (P,).

    Raises:
        GapftError: the decisions are on other problems, or the training set has another size.
    """
    path = run_path / layout.decisions_path(arm)
    table_columns = read_columns(path, ("problem_id", "index", "text", "status"))
    require_consistent(
        table_columns["problem_id"] == ids.tolist()
        and table_columns["index"] == [GREEDY] * len(ids),
        f"{path}: contains other problems than the audit",
    )
    entry = budgets[arm.name]
    selection = run_path / layout.selection_path(arm)
    slot_ids = read_columns(selection, ("problem_id",))["problem_id"]
    budget = Budget(**{field.name: entry[field.name] for field in fields(Budget)})
    require_consistent(
        len(slot_ids) == budget.n,
        f"{selection}: has {len(slot_ids)} slots, but its budget has n = {budget.n}",
    )
    return TrainedArm(
        arm=arm,
        deployed=DeploymentDecodes(codes(table_columns["status"]), tuple(table_columns["text"])),
        budget=budget,
        matched=entry.get("matched", True),
        problems=len(set(slot_ids)),
        unverified=entry.get("unverified", 0),
    )


#: Responses with an answer; without one; without one, but beginning with the right answer.
VALID, INVALID, OPENS_RIGHT = range(3)


@dataclass(frozen=True, slots=True)
class OtherVerdicts:
    """The verdicts of another verifier on the deployment decodes of the audit.

    Attributes:
        name: the verifier; empty where no other verifier is available.
        params: the verifier's parameters.
        permissive: whether it accepts more forms of answers than the run's verifier, or fewer.
        reason: the reason where no other verifier is available.
        statuses: codes of its verdicts on the responses of ``SOURCE`` and of each arm, by its name,
            shape (P,).
        answer_codes: by the same names, whether the run's rule finds an answer, shape (P,):
            ``VALID``, ``INVALID`` or ``OPENS_RIGHT``. Empty where the verifier gives no answers.
        reads_openings: whether the verifier can read the beginning of a response.
    """

    name: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    permissive: bool = True
    reason: str = ""
    statuses: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)
    answer_codes: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)
    reads_openings: bool = False
