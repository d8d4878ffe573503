"""Count an arm's slots, fill them with its selector, and check the selector's contract."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from reprlib import repr as short
from typing import Any

from gapft_harness.core.errors import PoolTooSmallError, UserError
from gapft_harness.core.records import Arm, Evidence, Example, Pool, Response
from gapft_harness.core.streams import Stream
from gapft_harness.hooks.protocols import Selector
from gapft_harness.hooks.registration import Registration, SelectorTraits
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.stages.selection.budgets import set_replay_aside


def build_pool(evidence: Sequence[Evidence]) -> Pool:
    """Build the input of selectors: evidence by state."""
    by_state = {state: tuple(e for e in evidence if e.state == state) for state in ("G", "S", "U")}
    return Pool(solved=by_state["G"], recovered=by_state["S"], missed=by_state["U"])


def count_slots(setting: int | str, states: Mapping[str, int]) -> int:
    """Return n, the number of slots of a matched selector.

    Args:
        setting: a number, ``recovered`` (|E_S,K|, which may be 0) or ``verified``
            (|E_G| + |E_S,K|).
        states: the numbers of problems by state.
    """
    if isinstance(setting, int):
        return setting
    return states["S"] if setting == "recovered" else states["G"] + states["S"]


def count_condition_slots(
    recipe: Recipe,
    count_states: Callable[[str], Mapping[str, int]],
    own_budget: Collection[str] = (),
) -> dict[str, int]:
    """Return n of every condition, without replay.

    Args:
        recipe: the recipe.
        count_states: returns the numbers of problems by state, from a condition's K samples.
        own_budget: conditions whose selectors do not use n.

    Raises:
        UserError: a condition has its own n or K, and n is 0.
    """
    slots = {
        name: count_slots(recipe.find_slots(name), count_states(name)) for name in recipe.conditions
    }
    if empty := [name for name, n in slots.items() if not n and name not in own_budget]:
        name = empty[0]
        key = "k" if recipe.conditions[name].n is None else "n"
        raise UserError(
            f"key {f'conditions.{name}.{key}'!r}: n is {recipe.find_slots(name)}, and search "
            f"found no such problem in {recipe.find_k(name)} samples; remove the condition, or "
            f"change its {key}"
        )
    return slots


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
    if entry.require_traits(SelectorTraits).budget == "own":
        return run_selector(selector, entry, pool, n, arm)
    replay_evidence, remaining_pool = set_replay_aside(pool, replay, arm.seed)
    return [*run_selector(selector, entry, remaining_pool, n, arm), *replay_evidence]


def build_training_set(
    selector: Selector, entry: Registration, pool: Pool, n: int, replay: int, arm: Arm
) -> tuple[list[Example], dict[str, Any]]:
    """Build one arm's training set.

    Args:
        selector: the arm's selector.
        entry: its registration.
        pool: the pool of its condition.
        n: the slots of a matched selector.
        replay: the number of replay examples.
        arm: the arm.

    Returns:
        The examples, in order, and the facts that the step ``select`` returns.

    Raises:
        UserError: the pool is too small for n or for the replay.
        PluginError: see ``run_selector``.
    """
    traits = entry.require_traits(SelectorTraits)
    evidence = fill_slots(selector, entry, pool, n, replay, arm)
    _require_exact_reasoning(evidence)
    unknown = [e for e in evidence if e.response and e.response.finish_reason == "unknown"]
    facts = {"matched": traits.budget != "own", "ends_unknown": len(unknown)}
    if traits.responses == "unverified" and (unverified := sum(map(_has_failed, evidence))):
        facts["unverified"] = unverified
    return [build_example(e) for e in evidence], facts


def _require_exact_reasoning(evidence: Sequence[Evidence]) -> None:
    """Refuse to train on reasoning whose token ids are unknown.

    Raises:
        UserError: a server returned reasoning apart from the text, and no token ids.
    """
    responses = [e.response for e in evidence if e.response is not None and e.response.reasoning]
    inexact = [r for r in responses if r.tokens_from != "generator"]
    if inexact:
        raise UserError(
            f"the server returned the reasoning of {len(inexact)} chosen responses apart from "
            f"their text, and no token ids (first: {inexact[0].problem_id}), so the responses as "
            "generated are unknown; use a server that returns token ids (vLLM)"
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
    slots = len(pool.verified) if traits.budget == "own" else n
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
    if traits.budget == "own" and not returned:
        raise entry.contract_error("returned no examples, expected at least one")
    if traits.budget != "own" and len(returned) != slots:
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
    # Is it evidence of this pool, with a response?
    is_evidence = isinstance(example, Evidence) and isinstance(example.problem_id, str)
    if not is_evidence or example.problem_id not in pool_evidence:
        return f"an object that is not evidence of this pool: {short(example)}"
    evidence = pool_evidence[example.problem_id]
    response = example.response
    if not isinstance(response, Response) or not response.token_ids:
        return (
            f"problem {evidence.problem_id} without a response to train on (state {evidence.state})"
        )
    # The kept response is always valid; others as far as the registration allows.
    if example == evidence:
        return ""
    if traits.responses == "unverified" and response.problem_id == evidence.problem_id:
        if any(example == sample for sample, _ in evidence.each_sample()):
            return ""
        return f"a response to problem {evidence.problem_id} that is not one of its samples"
    lender = pool_evidence.get(response.problem_id)
    if lender is not evidence and traits.responses == "borrowed":
        return _find_borrowing_fault(example, evidence, lender)
    if traits.responses != "kept" and example in evidence.each_verified():
        return ""
    if lender is None or response not in lender.verified:
        return f"a response to problem {evidence.problem_id} that is not its verified evidence"
    # Name the fault, and the option that would allow it.
    if lender is not evidence:
        description = (
            f"the response of problem {lender.problem_id} for problem {evidence.problem_id}"
        )
        option = "responses='borrowed'"
    elif traits.responses == "kept":
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
