"""Read an audit as arrays: the source's responses, and the decisions of the trained models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.records import (
    Arm,
    Budget,
    count_required_passes,
    list_deployment_indices,
)
from gapft_harness.recipe.sections import Deployment
from gapft_harness.report.reading.columns import DEPLOYED, PASS, codes, read_columns
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import require_consistent
from gapft_harness.run_directory.parquet import read_facts
from gapft_harness.verdicts.table import Verdicts, encode_answers


def find_deployment(recipe: Mapping[str, Any]) -> Deployment | None:
    """Find the settings of a sampled deployment decode in a recipe; None: it is greedy."""
    settings = recipe["search"].get("deployment")
    return None if settings is None else Deployment.model_validate(settings)


@dataclass(frozen=True)
class DeploymentDecodes:
    """The deployment decodes of one model on P problems, r of each; one if they are greedy.

    Attributes:
        statuses: shape (P, r), status codes.
        texts: P r responses, ordered as the statuses.
        solved_share: the share of a problem's decodes that must pass, so that it is solved.
    """

    statuses: NDArray[np.uint8]
    texts: tuple[str, ...]
    solved_share: float = 1.0

    @property
    def repeats(self) -> int:
        """The number r of decodes of each problem."""
        return int(self.statuses.shape[1])

    @cached_property
    def passed(self) -> NDArray[np.bool_]:
        """Whether each decode passed (V), shape (P, r)."""
        passed: NDArray[np.bool_] = self.statuses == PASS
        return passed

    @cached_property
    def passing(self) -> NDArray[np.int64]:
        """How many decodes of each problem passed, shape (P,)."""
        passing: NDArray[np.int64] = self.passed.sum(axis=1, dtype=np.int64)
        return passing

    @cached_property
    def solved(self) -> NDArray[np.bool_]:
        """Whether the model solves each problem, shape (P,): enough of its decodes passed."""
        required = count_required_passes(self.repeats, self.solved_share)
        solved: NDArray[np.bool_] = self.passing >= required
        return solved

    @cached_property
    def shown(self) -> NDArray[np.intp]:
        """The decode of each problem that is shown, shape (P,).

        It is the first that passed on a solved problem, and the first that did not on another.
        """
        shown: NDArray[np.intp] = (self.passed == self.solved[:, None]).argmax(axis=1)
        return shown

    @cached_property
    def shown_statuses(self) -> NDArray[np.uint8]:
        """The status codes of the shown decodes, shape (P,)."""
        statuses: NDArray[np.uint8] = self.statuses[np.arange(len(self.statuses)), self.shown]
        return statuses

    @cached_property
    def shown_texts(self) -> tuple[str, ...]:
        """The P shown responses."""
        return _select_items(self.texts, np.arange(len(self.statuses)) * self.repeats + self.shown)


@dataclass(frozen=True)
class Audit:
    """The audit split under the source model. Every array's first axis is the problem.

    Attributes:
        ids: shape (P,), distinct.
        prompts: P prompts as rendered.
        golds: P gold answers as JSON.
        deployed: the source's deployment decodes.
        samples: shape (P, K), status codes of the samples by sample number.
        answers: shape (P, K), codes of the samples' answers (``verdicts.table.encode_answers``);
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
        deployed = self.deployed
        return Verdicts.of(
            deployed.passed, self.samples == PASS, self.answers, deployed.solved_share
        )

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


def read_audit(
    run_path: Path, k: int, split: str = "audit", deployment: Deployment | None = None
) -> Audit:
    """Read an audit's problems, the source's responses and their states.

    Args:
        run_path: the run directory.
        k: samples of each problem.
        split: the audit's split.
        deployment: how the deployment decodes are sampled; None: one greedy decode.

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
    deployed = read_columns(table, ("text",), DEPLOYED)
    ids, indices = problems["problem_id"], [*_list_indices(deployment), *range(k)]
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
    statuses = codes(responses["status"]).reshape(len(ids), len(indices))
    repeats = len(indices) - k
    audit = Audit(
        ids=np.array(ids, dtype=np.str_),
        prompts=tuple(problems["prompt"]),
        golds=tuple(problems["gold"]),
        deployed=_build_decodes(statuses[:, :repeats], deployed["text"], deployment),
        samples=statuses[:, repeats:],
        answers=_encode_samples(responses["answer"], repeats, k),
    )
    require_consistent(
        audit.states.tolist() == states["state"],
        f"{states_table}: states do not follow from the verdicts in responses.parquet",
    )
    return audit


def _list_indices(deployment: Deployment | None) -> range:
    return list_deployment_indices(deployment.repeats if deployment else 1)


def _build_decodes(
    statuses: NDArray[np.uint8], texts: Sequence[str], deployment: Deployment | None
) -> DeploymentDecodes:
    return DeploymentDecodes(statuses, tuple(texts), deployment.solved if deployment else 1.0)


def _encode_samples(answers: Sequence[str | None], repeats: int, k: int) -> NDArray[np.int64]:
    """Encode the samples' answers of a complete table: deployment decodes, then K samples."""
    starts = range(repeats, len(answers), repeats + k)
    return encode_answers(answers[start : start + k] for start in starts)


def read_verdicts(table: Path, k: int, deployment: Deployment | None = None) -> Verdicts:
    """Read a split's verdicts in the table's order.

    Args:
        table: the split's responses.
        k: samples of each problem.
        deployment: how the deployment decodes are sampled; None: one greedy decode.

    Raises:
        GapftError: a problem does not have all decodes.
    """
    table_columns = read_columns(table, ("index", "status", "answer"))
    repeats = len(_list_indices(deployment))
    indices = [*_list_indices(deployment), *range(k)]
    problems = len(table_columns["index"]) // len(indices)
    require_consistent(
        table_columns["index"] == indices * problems,
        f"{table}: expected the decodes {indices} of each problem, in order",
    )
    passed = (codes(table_columns["status"]) == PASS).reshape(problems, len(indices))
    return Verdicts.of(
        passed[:, :repeats],
        passed[:, repeats:],
        _encode_samples(table_columns["answer"], repeats, k),
        deployment.solved if deployment else 1.0,
    )


def read_decisions(table: Path, ids: Sequence[str], owner: str = "the audit") -> NDArray[np.uint8]:
    """Read the status codes of a table's deployment decodes, shape (P, r).

    Args:
        table: a table of decisions, or of a split's responses.
        ids: the expected problems, in order.
        owner: the owner of these problems, for the error message.

    Raises:
        GapftError: the table contains other problems.
    """
    table_columns = read_columns(table, ("problem_id", "status"), DEPLOYED)
    repeats = len(table_columns["problem_id"]) // max(1, len(ids))
    require_consistent(
        table_columns["problem_id"] == [name for name in ids for _ in range(repeats)],
        f"{table}: contains other problems than {owner}",
    )
    return codes(table_columns["status"]).reshape(len(ids), repeats)


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
    deployment: Deployment | None = None,
) -> TrainedArm:
    """Read an arm's decisions on the audit, and its budget.

    Args:
        run_path: the run directory.
        arm: condition and training seed.
        budgets: the manifest's budgets by arm.
        ids: the audit's problems, shape (P,).
        deployment: how the deployment decodes are sampled; None: one greedy decode.

    Raises:
        GapftError: the decisions are on other problems, or the budget differs from the sealed one.
    """
    path = run_path / layout.decisions_path(arm)
    table_columns = read_columns(path, ("problem_id", "index", "text", "status"))
    indices = _list_indices(deployment)
    require_consistent(
        table_columns["problem_id"] == [name for name in ids.tolist() for _ in indices]
        and table_columns["index"] == [*indices] * len(ids),
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
        deployed=_build_decodes(
            codes(table_columns["status"]).reshape(len(ids), len(indices)),
            table_columns["text"],
            deployment,
        ),
        budget=budget,
        matched=entry.get("matched", True),
        problems=len(set(slot_ids)),
        unverified=entry.get("unverified", 0),
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
    """The verdicts of another verifier on the deployment decodes of the audit.

    Attributes:
        name: the verifier; empty where no other verifier is available.
        params: the verifier's parameters.
        permissive: whether it accepts more forms of answers than the run's verifier, or fewer.
        reason: the reason where no other verifier is available.
        source: codes of its verdicts on the source's responses, shape (P, r).
        arms: codes of its verdicts on an arm's responses, by the arm's name, shape (P, r).
        answer_codes: whether the run's rule finds an answer, for the source (under an empty name)
            and each arm, shape (P, r): ``VALID``, ``INVALID`` or ``OPENS_RIGHT``. Empty where the
            verifier gives no answers.
        reads_openings: whether the verifier can read the beginning of a response.
    """

    name: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    permissive: bool = True
    reason: str = ""
    source: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 1), dtype=np.uint8))
    arms: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)
    answer_codes: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)
    reads_openings: bool = False
