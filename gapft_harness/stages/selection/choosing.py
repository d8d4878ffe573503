"""Build one arm's training set: call its selector and check the selector's contract."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from reprlib import repr as short
from typing import Any

from gapft_harness.core.errors import PoolTooSmallError, UserError
from gapft_harness.core.records import Arm, Evidence, Example, Pool, Response
from gapft_harness.core.streams import Stream
from gapft_harness.hooks.protocols import Selector
from gapft_harness.hooks.registration import Registration, SelectorTraits
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.evidence import read_evidence
from gapft_harness.stages.generation.generation import read_decoding
from gapft_harness.stages.selection.budgets import set_replay_aside
from gapft_harness.stages.selection.reasoning import require_exact_reasoning


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """One arm's training set.

    Attributes:
        examples: the examples, in order.
        is_matched: whether its budget is the comparison's matched budget.
        ends_unknown: number of examples whose generator did not report how they ended.
        unverified: number of examples whose response did not pass.
    """

    examples: list[Example]
    is_matched: bool
    ends_unknown: int
    unverified: int = 0

    def build_facts(self) -> dict[str, Any]:
        """Return the set's entries in the manifest's ``budgets``, besides the budget itself."""
        facts: dict[str, Any] = {"matched": self.is_matched, "ends_unknown": self.ends_unknown}
        return facts | ({"unverified": self.unverified} if self.unverified else {})


def group_by_state(evidence: Sequence[Evidence]) -> Pool:
    """Group evidence by state."""
    by_state = {state: tuple(e for e in evidence if e.state == state) for state in ("G", "S", "U")}
    return Pool(solved=by_state["G"], recovered=by_state["S"], missed=by_state["U"])


def count_slots(setting: int | str, pool: Pool) -> int:
    """Return n, the number of slots of a matched selector.

    Args:
        setting: a number, ``recovered`` (|E_S,K|, which may be 0) or ``verified``
            (|E_G| + |E_S,K|).
        pool: the pool.
    """
    if isinstance(setting, int):
        return setting
    return len(pool.recovered) if setting == "recovered" else len(pool.verified)


def count_condition_slots(recipe: Recipe, pool_of: Callable[[str], Pool]) -> dict[str, int]:
    """Return n of every condition, without replay.

    Raises:
        UserError: a condition has its own n or K, and n is 0.
    """
    slots = {
        name: count_slots(recipe.find_slots(name), pool_of(name)) for name in recipe.conditions
    }
    if empty := [name for name, n in slots.items() if not n]:
        name = empty[0]
        key = "k" if recipe.conditions[name].n is None else "n"
        raise UserError(
            f"key {f'conditions.{name}.{key}'!r}: n is {recipe.find_slots(name)}, and search "
            f"recovered nothing in {recipe.find_k(name)} samples; remove the condition, or change "
            f"its {key}"
        )
    return slots


class ConditionPools:
    """Reads a run's pool for each condition; conditions may use different numbers of samples.

    Args:
        run: the run; its search is finished, and it has the states for each condition's K.
        check_hashes: whether to check that the tables have the hashes in the manifest.
    """

    def __init__(self, run: RunDirectory, *, check_hashes: bool = True) -> None:
        self._run, self._check_hashes = run, check_hashes
        self._by_k: dict[int, tuple[list[Evidence], Pool]] = {}

    def read_evidence(self, condition: str | None = None) -> list[Evidence]:
        """Return the evidence from a condition's K samples; for None, from all samples."""
        return self._read_condition(condition)[0]

    def read_pool(self, condition: str | None = None) -> Pool:
        """Return a condition's evidence grouped by state."""
        return self._read_condition(condition)[1]

    def _read_condition(self, condition: str | None) -> tuple[list[Evidence], Pool]:
        run, recipe = self._run, self._run.recipe
        k = recipe.search.k if condition is None else recipe.find_k(condition)
        if k not in self._by_k:
            window = None if k == recipe.search.k else (0, k)
            tables = (layout.problems_path("pool"), layout.responses_path("pool"))
            for table in (
                (*tables, layout.states_path("pool", window)) if self._check_hashes else ()
            ):
                run.sealed(table)
            limit = read_decoding(run.manifest()["task"]).max_gen_toks
            evidence = read_evidence(run.path, "pool", recipe.evidence.context, limit, window)
            require_exact_reasoning(evidence)
            self._by_k[k] = evidence, group_by_state(evidence)
        return self._by_k[k]


def fill_slots(
    selector: Selector, entry: Registration, pool: Pool, n: int, replay: int, arm: Arm
) -> list[Evidence]:
    """Fill one arm's slots: its selector's choice, then the replay that all arms of a seed share.

    A matched selector chooses from the pool without the replay. A reference with its own budget
    chooses from the whole pool and gets no replay.

    Raises:
        UserError: the pool is too small for n or for the replay.
        PluginError: see ``run_selector``.
    """
    if entry.require_traits(SelectorTraits).has_own_budget:
        return run_selector(selector, entry, pool, n, arm)
    replay_evidence, remaining_pool = set_replay_aside(pool, replay, arm.seed)
    return [*run_selector(selector, entry, remaining_pool, n, arm), *replay_evidence]


def build_training_set(
    selector: Selector, entry: Registration, pool: Pool, n: int, replay: int, arm: Arm
) -> TrainingSet:
    """Build one arm's training set with its facts for the manifest.

    Args:
        selector: the arm's selector.
        entry: its registration.
        pool: the pool of its condition.
        n: the slots of a matched selector.
        replay: the number of replay examples.
        arm: the arm.

    Raises:
        UserError: the pool is too small for n or for the replay.
        PluginError: see ``run_selector``.
    """
    traits = entry.require_traits(SelectorTraits)
    evidence = fill_slots(selector, entry, pool, n, replay, arm)
    return TrainingSet(
        [build_example(e) for e in evidence],
        not traits.has_own_budget,
        sum(e.response is not None and e.response.finish_reason == "unknown" for e in evidence),
        sum(map(_has_failed, evidence)) if traits.can_use_samples else 0,
    )


def _has_failed(example: Evidence) -> bool:
    """Return whether a selected response is a sample that did not pass."""
    return any(example == sample and status != "pass" for sample, status in example.each_sample())


def run_selector(
    selector: Selector, entry: Registration, pool: Pool, n: int, arm: Arm
) -> list[Evidence]:
    """Run one selector and check its contract.

    Raises:
        UserError: the pool is too small.
        PluginError: the selector failed, or returned the wrong number of examples, evidence that
            is not of this pool, unverified responses, or undeclared repeats.
    """
    traits = entry.require_traits(SelectorTraits)
    slots = len(pool.verified) if traits.has_own_budget else n
    rng = Stream(arm.seed, f"select/{entry.name}")
    try:
        with entry.wrap_errors():
            returned = list(selector(pool, slots, rng))
    except PoolTooSmallError as error:
        raise UserError(
            f"condition {arm.condition!r} cannot fill the budget of {slots} examples: {error} "
            f"(available: {len(pool.solved)} G, {len(pool.recovered)} S, {len(pool.missed)} U). "
            "Leave the condition out (list the others with --condition), set budget.n or the "
            "condition's own n, or enlarge the pool"
        ) from error
    pool_evidence = {e.problem_id: e for e in (*pool.solved, *pool.recovered, *pool.missed)}
    for example in returned:
        if fault := _find_evidence_fault(example, pool_evidence, traits):
            raise entry.contract_error(f"returned {fault}")
    if not returned if traits.has_own_budget else len(returned) != slots:
        raise entry.contract_error(f"returned {len(returned)} examples, expected {slots}")
    if not traits.repeats:
        counts = Counter(e.problem_id for e in returned)
        if repeated_ids := sorted(i for i, count in counts.items() if count > 1):
            raise entry.contract_error(
                f"returned {len(repeated_ids)} problems more than once (first: {repeated_ids[0]}); "
                "register it with repeats=True if that is intended"
            )
    return returned


def _find_evidence_fault(
    example: Any, pool_evidence: Mapping[str, Evidence], traits: SelectorTraits
) -> str:
    """Describe why a returned object is not a valid example; empty if it is valid."""
    is_evidence = isinstance(example, Evidence) and isinstance(example.problem_id, str)
    if not is_evidence or example.problem_id not in pool_evidence:
        return f"an object that is not evidence of this pool: {short(example)}"
    evidence, response = pool_evidence[example.problem_id], example.response
    if not isinstance(response, Response) or not response.token_ids:
        return (
            f"problem {evidence.problem_id} without a response to train on (state {evidence.state})"
        )
    if example == evidence:
        return ""
    if traits.can_use_samples and response.problem_id == evidence.problem_id:
        if any(example == sample for sample, _ in evidence.each_sample()):
            return ""
        return f"a response to problem {evidence.problem_id} that is not one of its samples"
    lender = pool_evidence.get(response.problem_id)
    if lender is not evidence and traits.can_borrow:
        return _find_borrowing_fault(example, evidence, lender)
    if traits.can_use_other_responses and example in evidence.each_verified():
        return ""
    if lender is None or response not in lender.verified:
        return f"a response to problem {evidence.problem_id} that is not its verified evidence"
    if lender is not evidence:
        description = (
            f"the response of problem {lender.problem_id} for problem {evidence.problem_id}"
        )
        option = "responses='borrowed'"
    elif not traits.can_use_other_responses:
        description = f"a response to problem {evidence.problem_id} other than its kept one"
        option = "responses='verified'"
    else:
        return f"problem {evidence.problem_id} changed in more than its response"
    return f"{description}; register it with {option} if that is intended"


def _find_borrowing_fault(example: Evidence, evidence: Evidence, lender: Evidence | None) -> str:
    """Describe the fault of a problem with another problem's response; empty if it is valid."""
    # compared first, since ``verified`` reads the table
    is_kept_response = lender is not None and example.response == lender.response
    if lender is None or not (is_kept_response or example.response in lender.verified):
        return f"problem {evidence.problem_id} with a response that no other problem's evidence has"
    if replace(example, response=evidence.response) != evidence:
        return f"problem {evidence.problem_id} changed in more than its response"
    return ""


class NotEvidence(UserError):
    """An example that its condition may not train on: not a response of the pool's evidence."""


def find_evidence(
    example: Example, pool_evidence: Mapping[str, Evidence], responses: str = "borrowed"
) -> Evidence:
    """Find the evidence that an example was made from.

    Args:
        example: the example.
        pool_evidence: the pool's evidence by problem id.
        responses: the allowed responses, as ``SelectorTraits.responses``.

    Raises:
        NotEvidence: there is none; the message has no subject: the caller names the example.
    """
    evidence, index = pool_evidence.get(example.problem_id), example.response_index
    if evidence is None:
        raise NotEvidence("is not a problem of the pool")
    if example.origin != example.problem_id:
        description = f"has the response of problem {example.origin}"
        if responses != "borrowed":
            raise NotEvidence(
                f"{description}, and its selector is not registered with responses='borrowed'"
            )
        lender = pool_evidence.get(example.origin)
        if lender is None or lender.response is None:
            raise NotEvidence(f"{description}, which has no passing response")
        evidence = replace(evidence, response=_replace_response(lender, index).response)
    elif responses == "unverified":
        samples = (sample for sample, _ in evidence.each_sample())
        evidence = next((s for s in samples if s.response and s.response.index == index), evidence)
    elif responses != "kept":
        evidence = _replace_response(evidence, index)
    if evidence.response is None:
        raise NotEvidence("has no passing response: search missed it")
    if example != (rebuilt := build_example(evidence)):
        columns = list_differing_columns(example, rebuilt)
        raise NotEvidence(f"does not match the evidence in the states table; differing: {columns}")
    return evidence


def list_differing_columns(example: Example, other: Example) -> str:
    """List the columns in which two examples differ."""
    return ", ".join(
        key for key in example.__dataclass_fields__ if getattr(example, key) != getattr(other, key)
    )


def _replace_response(evidence: Evidence, index: int) -> Evidence:
    """Select the verified response with an index; without one, return the evidence unchanged."""
    if evidence.response and evidence.response.index == index:
        return evidence
    verified = (
        candidate
        for candidate in evidence.each_verified()
        if candidate.response and candidate.response.index == index
    )
    return next(verified, evidence)


def build_example(evidence: Evidence) -> Example:
    """Build the training example of evidence with a response, with the exact token ids."""
    response = evidence.response
    assert response is not None
    return Example(
        evidence.problem_id,
        evidence.state,
        evidence.prompt_ids,
        response.token_ids,
        response.index,
        evidence.first_success,
        evidence.ended,
        response.problem_id,
    )
