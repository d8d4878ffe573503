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
from gapft_harness.hooks.registered import Registered, SelectorTraits
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.evidence import read_evidence
from gapft_harness.run_directory.manifest import TakenFacts
from gapft_harness.stages.generation.generation import decoding_from
from gapft_harness.stages.selection.budgets import set_replay_aside


@dataclass(frozen=True, slots=True)
class Selected:
    """One arm's training set.

    Attributes:
        examples: the examples, in order.
        matched: whether its budget is the comparison's matched budget.
        ends_unknown: number of examples whose generator did not report how they ended.
        taken: the source of a set of another run.
    """

    examples: list[Example]
    matched: bool
    ends_unknown: int
    taken: TakenFacts | None = None

    def said(self) -> dict[str, Any]:
        """Return the set's entries in the manifest's ``budgets``, besides the budget itself."""
        found = {"matched": self.matched, "ends_unknown": self.ends_unknown}
        return found | ({"taken": self.taken} if self.taken else {})


@dataclass(frozen=True, slots=True)
class SourceSet:
    """The training set of another run (``other_runs.py``).

    Attributes:
        evidence: for each example, in order, a problem of that run's pool with its response.
        matched: whether its budget is that run's matched budget, not a reference's own.
        facts: its source.
    """

    evidence: tuple[Evidence, ...]
    matched: bool
    facts: TakenFacts


def make_pool(evidence: Sequence[Evidence]) -> Pool:
    """Group evidence by state."""
    by_state = {state: tuple(e for e in evidence if e.state == state) for state in ("G", "S", "U")}
    return Pool(solved=by_state["G"], recovered=by_state["S"], missed=by_state["U"])


def slots_of(wanted: int | str, pool: Pool) -> int:
    """Return n, the slots of a matched selector; 0 if it is the recovered count and that is 0.

    Args:
        wanted: a number, ``recovered`` (|E_S,K|) or ``verified`` (|E_G| + |E_S,K|).
        pool: the pool.
    """
    if isinstance(wanted, int):
        return wanted
    return len(pool.recovered) if wanted == "recovered" else len(pool.verified)


def slots_by_condition(recipe: Recipe, pool_of: Callable[[str], Pool]) -> dict[str, int]:
    """Return n of every condition, without replay.

    Raises:
        UserError: a condition has its own n or K, and n is 0.
    """
    slots = {name: slots_of(recipe.slots(name), pool_of(name)) for name in recipe.conditions}
    if empty := [name for name, n in slots.items() if not n]:
        name = empty[0]
        key = "k" if recipe.conditions[name].n is None else "n"
        raise UserError(
            f"key {f'conditions.{name}.{key}'!r}: n is {recipe.slots(name)}, and search recovered "
            f"nothing in {recipe.k(name)} samples; remove the condition, or change its {key}"
        )
    return slots


class Pools:
    """The pool of a run for each of its conditions, which may use different samples.

    Args:
        run: the run; its pool is searched and has the states of each window.
        sealed: whether to check the tables' hashes.
    """

    def __init__(self, run: RunDirectory, *, sealed: bool = True) -> None:
        self._run, self._sealed = run, sealed
        self._known: dict[int, tuple[list[Evidence], Pool]] = {}

    def evidence(self, condition: str | None = None) -> list[Evidence]:
        """Return the evidence from a condition's K samples; from all samples for None."""
        return self._of(condition)[0]

    def of(self, condition: str | None = None) -> Pool:
        """Return a condition's evidence grouped by state."""
        return self._of(condition)[1]

    def _of(self, condition: str | None) -> tuple[list[Evidence], Pool]:
        run, recipe = self._run, self._run.recipe
        k = recipe.search.k if condition is None else recipe.k(condition)
        if k not in self._known:
            window = None if k == recipe.search.k else (0, k)
            tables = (layout.problems("pool"), layout.responses("pool"))
            for table in (*tables, layout.states("pool", window)) if self._sealed else ():
                run.sealed(table)
            limit = decoding_from(run.manifest()["task"]).max_gen_toks
            found = read_evidence(run.path, "pool", recipe.evidence.context, limit, window)
            self._known[k] = found, make_pool(found)
        return self._known[k]


def fill(
    selector: Selector, entry: Registered, pool: Pool, n: int, replay: int, arm: Arm
) -> list[Evidence]:
    """Fill one arm's slots: its selector's choice, then the replay that its seed's arms share.

    A matched selector chooses from the pool without the replay. A reference with its own budget
    chooses from the whole pool and gets no replay.

    Raises:
        UserError: the pool is too small for n or for the replay.
        PluginError: see ``run_selector``.
    """
    if entry.declared(SelectorTraits).own_budget:
        return choose(selector, entry, pool, n, arm)
    shared, rest = set_replay_aside(pool, replay, arm.seed)
    return [*choose(selector, entry, rest, n, arm), *shared]


def choose_set(
    selector: Selector,
    entry: Registered,
    pool: Pool,
    n: int,
    replay: int,
    arm: Arm,
    source: SourceSet | None = None,
) -> Selected:
    """Build one arm's training set with its facts for the manifest.

    Args:
        selector: the arm's selector.
        entry: its registration.
        pool: the pool of its condition.
        n: the slots of a matched selector.
        replay: the number of replay examples.
        arm: the arm.
        source: the set of another run, for a selector of such sets. Its slots include the replay
            that it was chosen with.

    Raises:
        UserError: the pool is too small for n or for the replay, or the set has other slots.
        PluginError: see ``run_selector``.
    """
    matched = not entry.declared(SelectorTraits).own_budget
    if source is None:
        evidence = fill(selector, entry, pool, n, replay, arm)
    else:
        slots = n + replay if source.matched else len(source.evidence)
        pool, matched = replace(pool, foreign=source.evidence), matched and source.matched
        evidence = choose(selector, entry, pool, slots, arm)
    return Selected(
        [to_example(e) for e in evidence],
        matched,
        sum(e.response is not None and e.response.finish_reason == "unknown" for e in evidence),
        source.facts if source else None,
    )


def choose(selector: Selector, entry: Registered, pool: Pool, n: int, arm: Arm) -> list[Evidence]:
    """Run one selector and check its contract.

    Raises:
        UserError: the pool is too small.
        PluginError: the selector failed, or returned the wrong number of examples, evidence of
            another pool, or undeclared repeats or unverified responses.
    """
    traits = entry.declared(SelectorTraits)
    slots = len(pool.verified) if traits.own_budget else n
    rng = Stream(arm.seed, f"select/{entry.name}")
    try:
        with entry.blamed():
            returned = list(selector(pool, slots, rng))
    except PoolTooSmallError as error:
        raise UserError(
            f"condition {arm.condition!r} cannot fill the budget of {slots} examples: {error} "
            f"(available: {len(pool.solved)} G, {len(pool.recovered)} S, {len(pool.missed)} U). "
            "Leave the condition out (list the others with --condition), set budget.n or the "
            "condition's own n, or enlarge the pool"
        ) from error
    known = {e.problem_id: e for e in (*pool.solved, *pool.recovered, *pool.missed)}
    offered: dict[str, list[Evidence]] = {}
    for evidence in pool.foreign:
        offered.setdefault(evidence.problem_id, []).append(evidence)
    for example in returned:
        if traits.foreign:
            is_evidence = isinstance(example, Evidence)
            is_offered = is_evidence and example in offered.get(example.problem_id, ())
            fault = "" if is_offered else f"an example not in the other run's set: {short(example)}"
        else:
            fault = _evidence_fault(example, known, traits)
        if fault:
            raise entry.broke(f"returned {fault}")
    if not returned if traits.own_budget else len(returned) != slots:
        raise entry.broke(f"returned {len(returned)} examples, expected {slots}")
    if not traits.repeats:
        counts = Counter(e.problem_id for e in returned)
        if repeated := sorted(i for i, count in counts.items() if count > 1):
            raise entry.broke(
                f"returned {len(repeated)} problems more than once (first: {repeated[0]}); "
                "register it with repeats=True if that is intended"
            )
    return returned


def _evidence_fault(example: Any, known: Mapping[str, Evidence], traits: SelectorTraits) -> str:
    """Describe why a returned object is not a valid example; empty if it is valid."""
    ours = isinstance(example, Evidence) and isinstance(example.problem_id, str)
    if not ours or example.problem_id not in known:
        return f"an object that is not evidence of this pool: {short(example)}"
    evidence, response = known[example.problem_id], example.response
    if not isinstance(response, Response) or not response.token_ids:
        return (
            f"problem {evidence.problem_id} without a response to train on (state {evidence.state})"
        )
    if example == evidence:
        return ""
    lender = known.get(response.problem_id)
    if lender is not evidence and traits.borrows:
        return _loan_fault(example, evidence, lender)
    if traits.takes_others and example in evidence.each_verified():
        return ""
    if lender is None or response not in lender.verified:
        return f"a response to problem {evidence.problem_id} that is not its verified evidence"
    if lender is not evidence:
        what = f"the response of problem {lender.problem_id} for problem {evidence.problem_id}"
        option = "responses='borrowed'"
    elif not traits.takes_others:
        what = f"a response to problem {evidence.problem_id} other than its kept one"
        option = "responses='verified'"
    else:
        return f"problem {evidence.problem_id} changed in more than its response"
    return f"{what}; register it with {option} if that is intended"


def _loan_fault(example: Evidence, evidence: Evidence, lender: Evidence | None) -> str:
    """Describe the fault of a problem with another problem's response; empty if it is valid."""
    kept = lender is not None and example.response == lender.response  # without reading the table
    if lender is None or not (kept or example.response in lender.verified):
        return f"problem {evidence.problem_id} with a response that no other problem's evidence has"
    if replace(example, response=evidence.response) != evidence:
        return f"problem {evidence.problem_id} changed in more than its response"
    return ""


class NotEvidence(UserError):
    """An example that is not a verified response to a problem of the pool."""


def as_evidence(
    example: Example, known: Mapping[str, Evidence], responses: str = "borrowed"
) -> Evidence:
    """Find the evidence that an example was made from.

    Args:
        example: the example.
        known: the pool's evidence by problem id.
        responses: the allowed responses, as ``SelectorTraits.responses``.

    Raises:
        NotEvidence: there is none; the message continues a sentence about the example.
    """
    evidence, index = known.get(example.problem_id), example.response_index
    if evidence is None:
        raise NotEvidence("is not a problem of the pool")
    if example.origin != example.problem_id:
        lent = f"has the response of problem {example.origin}"
        if responses != "borrowed":
            raise NotEvidence(
                f"{lent}, and its selector is not registered with responses='borrowed'"
            )
        lender = known.get(example.origin)
        if lender is None or lender.response is None:
            raise NotEvidence(f"{lent}, which has no passing response")
        evidence = replace(evidence, response=_with_response(lender, index).response)
    elif responses != "kept":
        evidence = _with_response(evidence, index)
    if evidence.response is None:
        raise NotEvidence("has no passing response: search missed it")
    if example != (made := to_example(evidence)):
        differing = differing_keys(example, made)
        raise NotEvidence(
            f"does not match the evidence in the states table; differing: {differing}"
        )
    return evidence


def differing_keys(one: Example, other: Example) -> str:
    """List the columns in which two examples differ."""
    return ", ".join(
        key for key in one.__dataclass_fields__ if getattr(one, key) != getattr(other, key)
    )


def _with_response(evidence: Evidence, index: int) -> Evidence:
    """Return a problem with its verified response of an index; unchanged if that did not pass."""
    if evidence.response and evidence.response.index == index:
        return evidence
    verified = (of for of in evidence.each_verified() if of.response and of.response.index == index)
    return next(verified, evidence)


def to_example(evidence: Evidence) -> Example:
    """Build the training example, with the exact token ids."""
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
