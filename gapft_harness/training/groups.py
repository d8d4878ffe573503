"""What an online arm drew: its prompts, the groups' rewards, and which were left out of the loss.

No torch here: ``gapft verify`` and the report read what the trainer wrote. A *group* is the
responses drawn for one prompt at one time; it is flat if its rewards are all equal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import State, state_of
from gapft_harness.core.streams import Stream, derive
from gapft_harness.recipe.sections import Grpo

#: In an adapter's folder, a line for each group in the order of drawing.
GROUPS = "groups.jsonl"
#: There too where the arm searched again: a line for each problem of each search.
SEARCHES = "searches.jsonl"


@dataclass(frozen=True, slots=True)
class Group:
    """The responses drawn for one prompt.

    Attributes:
        draw: which time responses were drawn, from 1; with one iteration, the update.
        problem_id: whose prompt it is.
        state: the source's on this problem.
        rewards: of each response; None: the verifier gave none (an error, or out of time).
        tokens: new tokens of each response, an end token included.
        masked: whether it was left out of the loss.
    """

    draw: int
    problem_id: str
    state: State
    rewards: tuple[float | None, ...]
    tokens: tuple[int, ...]
    masked: bool

    @property
    def flat(self) -> bool:
        """Whether it has no two different rewards; a response without one has no say."""
        return is_flat(self.rewards)


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search by an arm's own policy found of one problem.

    Attributes:
        update: optimizer updates that the policy had made.
        problem_id: whose prompt it is.
        greedy: 1 if the greedy response passed the task's verifier, else 0, or None as of rewards.
        samples: the same of each sample.
        state: what follows from these.
        tokens: new tokens of all these responses.
    """

    update: int
    problem_id: str
    greedy: float | None
    samples: tuple[float | None, ...]
    state: State
    tokens: int

    @classmethod
    def of(cls, update: int, id: str, given: Sequence[float | None], tokens: int) -> Searched:
        """By what was given to the greedy response and to each sample, in this order."""
        greedy, *samples = given
        state = state_of(greedy == 1, [verdict == 1 for verdict in samples])
        return cls(update, id, greedy, tuple(samples), state, tokens)


def json_lines(records: Iterable[Group | Searched]) -> str:
    """The text of ``groups.jsonl`` or ``searches.jsonl``."""
    return "".join(json.dumps(asdict(record)) + "\n" for record in records)


def is_flat(rewards: Iterable[float | None]) -> bool:
    """Whether no two rewards differ, by exact comparison: no mean rounds a group flat."""
    return len({reward for reward in rewards if reward is not None}) < 2


def read_groups(path: Path) -> Iterator[Group]:
    """The groups of an adapter's folder, or nothing where its trainer wrote none."""
    return _read(path / GROUPS, Group)


def read_searches(path: Path) -> Iterator[Searched]:
    """The searches of an adapter's folder, or nothing where its arm searched no more."""
    return _read(path / SEARCHES, Searched)


def _read(path: Path, of: Callable[..., Any]) -> Iterator[Any]:
    if not path.is_file():
        return
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            said = json.loads(line).items()
            yield of(**{k: tuple(v) if isinstance(v, list) else v for k, v in said})


def prompted(
    settings: Grpo, states: Mapping[str, State], examples: Collection[str], update: int = 0
) -> list[str]:
    """The problems that an arm is prompted with, by ``grpo.prompts``; ordered by id.

    Raises:
        UserError: there is none.
    """
    if settings.prompts == "pool":
        found = sorted(states)
    elif settings.prompts == "examples":
        found = sorted(set(examples))
    else:
        found = sorted(id for id, state in states.items() if state == settings.prompts)
    if not found:
        after, keep = "", ""
        if update:
            after = f" after {update} updates"
            keep = ", or set training.grpo.search_empty: keep"
        raise UserError(
            f"training.grpo.prompts: {settings.prompts}, and the pool has no such problem{after}; "
            f"take another, or enlarge the pool{keep}"
        )
    return found


def draws(updates: int, settings: Grpo) -> int:
    """How many times responses are drawn for a number of updates."""
    return -(-updates // settings.iterations)


def stretches(updates: int, settings: Grpo) -> range:
    """The updates before each stretch of one set of prompts; the pool is searched between two."""
    return range(0, updates, settings.search_every or updates)


def arm_plan(
    states: Mapping[str, State],
    examples: Collection[str],
    settings: Grpo,
    seed: int,
    updates: int,
    searches: Iterable[Searched] = (),
) -> list[str]:
    """An arm's ``prompt_plan`` of each stretch, by the states that were found before it.

    Args:
        states: the source's, by problem id.
        updates: the arm's, or those up to the end of a stretch.
        searches: before each stretch but the first.

    Raises:
        UserError: a stretch has no prompts.
    """
    known: dict[int, dict[str, State]] = {0: dict(states)}
    for of in searches:
        known.setdefault(of.update, {})[of.problem_id] = of.state
    plan, chosen = [], list[str]()
    for first in (found := stretches(updates, settings)):
        none = first and settings.prompts not in known[first].values()
        if not (none and settings.search_empty == "keep"):
            chosen = prompted(settings, known[first], examples, first)
        own = derive(seed, "train/stretch", first) if first else seed
        plan += prompt_plan(chosen, min(found.step, updates - first), settings, own)
    return plan


def prompt_plan(ids: Sequence[str], updates: int, settings: Grpo, seed: int) -> list[str]:
    """Whose prompts are drawn for, in order: passes over all of them, each in an order of its own.

    No prompt comes again before all have come. A prompt's place in a pass depends on (seed, id,
    pass) alone.

    Returns:
        ``prompts_per_update`` ids for each draw, one draw after another.
    """
    rng, wanted = Stream(seed, "train/prompts"), draws(updates, settings)
    wanted *= settings.prompts_per_update
    passes = -(-wanted // len(ids))
    found = [
        id for number in range(passes) for id in sorted(ids, key=lambda i: rng.key(f"{i}/{number}"))
    ]
    return found[:wanted]


def group_facts(groups: Sequence[Group], searches: Sequence[Searched] = ()) -> dict[str, Any]:
    """What an arm's groups come to, for the manifest.

    Returns:
        ``draws``, ``groups``, ``flat`` ones, ``masked`` ones, ``empty_draws`` (all of whose groups
        are flat), ``responses``, ``unjudged`` ones, ``completion_tokens``; ``search_tokens`` where
        its policy searched.
    """
    by_draw: dict[int, bool] = {}
    for group in groups:
        by_draw[group.draw] = by_draw.get(group.draw, True) and group.flat
    return {
        "draws": len(by_draw),
        "groups": len(groups),
        "flat": sum(group.flat for group in groups),
        "masked": sum(group.masked for group in groups),
        "empty_draws": sum(by_draw.values()),
        "responses": sum(len(group.rewards) for group in groups),
        "unjudged": sum(group.rewards.count(None) for group in groups),
        "completion_tokens": sum(sum(group.tokens) for group in groups),
        **({"search_tokens": sum(of.tokens for of in searches)} if searches else {}),
    }


def group_faults(
    where: str,
    groups: Sequence[Group],
    plan: Sequence[str],
    states: Mapping[str, State],
    settings: Grpo,
) -> Iterator[str]:
    """For ``gapft verify``: what in sealed groups is not as plan, states and rewards give it.

    Args:
        where: the file.
        groups: as sealed.
        plan: see ``prompt_plan``.
        states: of the pool.
        settings: which groups are masked, and how large one is.
    """
    if len(groups) != len(plan):
        yield f"{where}: has {len(groups)} groups, the plan {len(plan)}"
    for number, (group, id) in enumerate(zip(groups, plan, strict=False)):
        line = f"{where}, line {number + 1}"
        draw = number // settings.prompts_per_update + 1
        masked = settings.mask_flat and group.flat
        right = {"draw": draw, "problem_id": id, "state": states.get(id), "masked": masked}
        yield from _unlike(line, group, right)
        if not len(group.rewards) == len(group.tokens) == settings.group_size:
            yield f"{line}: has not {settings.group_size} rewards, each with its tokens"


def search_faults(
    where: str, searches: Sequence[Searched], due: Sequence[tuple[int, str]], k: int
) -> Iterator[str]:
    """For ``gapft verify``: what in sealed searches is not as their verdicts give it, or not due.

    Due is, after how many updates, which problem with k samples.
    """
    if len(searches) != len(due):
        yield f"{where}: has {len(searches)} lines, {len(due)} are due"
    for number, (found, (after, id)) in enumerate(zip(searches, due, strict=False), 1):
        line = f"{where}, line {number}"
        again = Searched.of(after, id, (found.greedy, *found.samples), found.tokens)
        yield from _unlike(line, found, asdict(again))
        if len(found.samples) != k:
            yield f"{line}: has not {k} samples"


def _unlike(line: str, found: object, right: Mapping[str, Any]) -> Iterator[str]:
    for key, value in right.items():
        if getattr(found, key) != value:
            yield f"{line}: {key} is {getattr(found, key)}, computed again it is {value}"
