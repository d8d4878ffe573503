"""What an online arm drew: its prompts, the groups' rewards, and which were left out of the loss.

No torch here: ``gapft verify`` and the report read what the trainer wrote. A *group* is the
responses drawn for one prompt at one time; it is flat if its rewards are all equal.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import State
from gapft_harness.core.streams import Stream
from gapft_harness.recipe.sections import Grpo

#: In an adapter's folder, a line for each group in the order of drawing.
GROUPS = "groups.jsonl"


@dataclass(frozen=True, slots=True)
class Group:
    """The responses drawn for one prompt.

    Attributes:
        draw: the update that the responses were drawn for, from 1.
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


def json_lines(groups: Iterable[Group]) -> str:
    """Return the text of ``groups.jsonl``."""
    return "".join(json.dumps(asdict(group)) + "\n" for group in groups)


def is_flat(rewards: Iterable[float | None]) -> bool:
    """Whether no two rewards differ, by exact comparison: no mean rounds a group flat."""
    return len({reward for reward in rewards if reward is not None}) < 2


def read_groups(path: Path) -> Iterator[Group]:
    """The groups of an adapter's folder, or nothing where its trainer wrote none."""
    if not (path / GROUPS).is_file():
        return
    with (path / GROUPS).open(encoding="utf-8") as lines:
        for line in lines:
            values = json.loads(line)
            values |= {key: tuple(values[key]) for key in ("rewards", "tokens")}
            yield Group(**values)


def prompted(settings: Grpo, states: Mapping[str, State], examples: Collection[str]) -> list[str]:
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
        raise UserError(
            f"training.grpo.prompts: {settings.prompts}, and the pool has no such problem; "
            "choose other prompts, or enlarge the pool"
        )
    return found


def prompt_plan(ids: Sequence[str], updates: int, settings: Grpo, seed: int) -> list[str]:
    """Whose prompts are drawn for, in order: passes over all of them, each in an order of its own.

    No prompt comes again before all have come. A prompt's place in a pass depends on (seed, id,
    pass) alone.

    Returns:
        ``prompts_per_update`` ids for each update, one update after another.
    """
    rng = Stream(seed, "train/prompts")
    wanted = updates * settings.prompts_per_update
    passes = -(-wanted // len(ids))
    found = [
        id for number in range(passes) for id in sorted(ids, key=lambda i: rng.key(f"{i}/{number}"))
    ]
    return found[:wanted]


def group_facts(groups: Sequence[Group]) -> dict[str, Any]:
    """What an arm's groups come to, for the manifest.

    Returns:
        ``draws``, ``groups``, ``flat`` ones, ``masked`` ones, ``empty_draws`` (all of whose groups
        are flat), ``responses``, ``unjudged`` ones, ``completion_tokens``.
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
        for key, value in right.items():
            if getattr(group, key) != value:
                yield f"{line}: {key} is {getattr(group, key)}, computed again it is {value}"
        if not len(group.rewards) == len(group.tokens) == settings.group_size:
            yield f"{line}: has not {settings.group_size} rewards, each with its tokens"
