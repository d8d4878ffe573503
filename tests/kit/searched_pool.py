"""Searched pools with any outcomes, and the training sets that selectors choose from them.

This is the only module of the suite of selectors that knows how the package calls a selector.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from hypothesis import strategies as st

from gapft_harness.api import GREEDY, Arm, Evidence, Pool, Response
from gapft_harness.core.records import STATUSES, Budget, State, Status
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import Selector
from gapft_harness.hooks.registration import Registration, SelectorTraits
from gapft_harness.recipe.called_plugins import find_selector
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.recipe.sections import Training
from gapft_harness.stages.selection.choosing import build_example, build_pool, fill_slots
from gapft_harness.training.plan import budget

#: The number of samples of each problem.
K = 4
LONGEST = 30


@dataclass(frozen=True)
class Outcome:
    """What a search found for one problem; position 0 is the greedy response, then K samples.

    Attributes:
        state: G, S or U.
        statuses: the verdicts' statuses.
        lengths: the responses' tokens; a response of the greatest length was cut.
        prompt: the prompt's tokens.
        letter: the gold answer.
        is_bare: whether responses are the letter alone.
        subject: the field of the problem's record that defines its stratum.
    """

    state: State
    statuses: tuple[Status, ...]
    lengths: tuple[int, ...]
    prompt: int = 5
    letter: str = "A"
    is_bare: bool = True
    subject: str = "x"


def plain_outcome(state: State) -> Outcome:
    """Return an outcome in which problems of a state differ only by their ids."""
    greedy: Status = "pass" if state == "G" else "fail"
    sample: Status = "fail" if state == "U" else "pass"
    return Outcome(state, (greedy, "fail", sample, sample, "fail"), (20,) * (K + 1))


@dataclass(frozen=True)
class SearchedPool:
    """The evidence of a searched pool.

    Attributes:
        evidence: all problems, ordered by id.
        judged: every response with its verdict's status, by problem id and index.
    """

    evidence: tuple[Evidence, ...]
    judged: Mapping[tuple[str, int], tuple[Response, Status]]

    @property
    def pool(self) -> Pool:
        """The pool that a selector gets."""
        return self.in_order(range(len(self.evidence)))

    def in_order(self, order: Sequence[int]) -> Pool:
        """Return the pool with its problems in another order."""
        return build_pool([self.evidence[place] for place in order])


def build_searched_pool(outcomes: Sequence[Outcome]) -> SearchedPool:
    """Build the evidence of a searched pool; problem ids begin with the state."""
    judged: dict[tuple[str, int], tuple[Response, Status]] = {}

    prompts: dict[str, tuple[int, ...]] = {}

    def read_responses(problem_id: str) -> list[tuple[Response, tuple[int, ...], Status]]:
        rows = [judged[problem_id, index] for index in (GREEDY, *range(K))]
        return [(response, prompts[problem_id], status) for response, status in rows]

    evidence = []
    for number, outcome in enumerate(outcomes):
        name = f"{outcome.state}{number:03d}"
        prompts[name] = (number,) * outcome.prompt
        for index in range(-1, K):
            length = outcome.lengths[index + 1]
            text = outcome.letter if outcome.is_bare else f"{outcome.letter}, for a reason"
            ids = (*range(1, length), 100 + index) if length else ()
            ending = "length" if length == LONGEST else "stop"
            response = Response(name, index, text, ids, ending, 0)
            judged[name, index] = response, outcome.statuses[index + 1]
        passing = [index for index in range(K) if judged[name, index][1] == "pass"]
        kept = {
            "G": GREEDY,
            "S": min(passing, key=lambda index: outcome.lengths[index + 1], default=None),
        }.get(outcome.state)
        evidence.append(
            Evidence(
                problem_id=name,
                state=outcome.state,
                response=None if kept is None else judged[name, kept][0],
                prompt_ids=prompts[name],
                passing_samples=len(passing),
                first_success=min(passing, default=None),
                document={"subject": outcome.subject},
                gold={"answer": outcome.letter},
                samples=K,
                read_responses=read_responses,
            )
        )
    return SearchedPool(tuple(sorted(evidence, key=lambda e: e.problem_id)), judged)


@st.composite
def outcomes(draw: st.DrawFn, state: State) -> Outcome:
    """Draw an outcome of one state."""
    statuses = [draw(st.sampled_from(STATUSES)) for _ in range(K + 1)]
    if state == "G":
        statuses[0] = "pass"
    else:
        statuses = ["fail" if status == "pass" else status for status in statuses]
        for place in draw(st.sets(st.integers(1, K), min_size=1)) if state == "S" else ():
            statuses[place] = "pass"
    lengths = [
        draw(st.integers(LONGEST - 10 if status == "pass" else 0, LONGEST)) for status in statuses
    ]
    return Outcome(
        state,
        tuple(statuses),
        tuple(lengths),
        prompt=draw(st.integers(5, 8)),
        letter=draw(st.sampled_from("AB")),
        is_bare=draw(st.booleans()),
        subject=draw(st.sampled_from("xy")),
    )


@st.composite
def searched_pools(draw: st.DrawFn, slots: int = 4, replay: int = 0) -> SearchedPool:
    """Draw a pool with enough recovered and solved problems to fill slots and replay."""
    counts: list[tuple[State, int]] = [
        ("G", slots + replay + draw(st.integers(0, 4))),
        ("S", slots + draw(st.integers(0, 3))),
        ("U", draw(st.integers(0, 3))),
    ]
    return build_searched_pool(
        [draw(outcomes(state)) for state, count in counts for _ in range(count)]
    )


def list_selectors() -> dict[str, SelectorTraits]:
    """Return the traits of every selector that the plugin manager has, by name."""
    return {
        entry.name: entry.require_traits(SelectorTraits)
        for entry in load_plugins().all()
        if entry.kind == "selector"
    }


@cache
def _bind_selector(selector: str, params: str) -> tuple[Selector, Registration]:
    condition = {"selector": selector, "params": json.loads(params)}
    recipe = check_recipe(
        {
            "name": "r",
            "data": {"task": "t"},
            "model": {"args": {"pretrained": "m"}},
            "conditions": {"chosen": condition},
        },
        "test",
    )
    return find_selector(recipe, "chosen", load_plugins())


def choose(
    pool: Pool,
    selector: str,
    slots: int,
    seed: int = 13,
    replay: int = 0,
    params: Mapping[str, Any] | None = None,
) -> list[Evidence]:
    """Choose one arm's training set as a run does, with the shared replay at its end.

    Raises:
        UserError: the pool is too small, or a parameter is invalid.
    """
    bound, entry = _bind_selector(selector, json.dumps(params or {}))
    return fill_slots(bound, entry, pool, slots, replay, Arm("chosen", seed))


def compute_budget(chosen: Sequence[Evidence], **training: Any) -> Budget:
    """Compute the budget of a training set."""
    return budget([build_example(example) for example in chosen], Training(**training))
