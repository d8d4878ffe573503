"""Groups of an online arm: prompts, rewards, and which groups are masked in the loss.

This module does not import torch: ``gapft verify`` and the report read the trainer's files. A
*group* is the responses drawn for one prompt at one time; it is flat if its rewards are all equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gapft_harness.core.records import State
from gapft_harness.core.streams import Stream
from gapft_harness.recipe.sections import Grpo

#: File in an adapter's folder with one line per group, in the order of drawing.
GROUPS = "groups.jsonl"


@dataclass(frozen=True, slots=True)
class Group:
    """The responses drawn for one prompt.

    Attributes:
        draw: number of the update that the responses were drawn for, from 1.
        problem_id: problem of the prompt.
        state: evidence state of the problem under the source.
        rewards: reward of each response; None if the verdict is an error.
        tokens: new tokens of each response, an end token included.
        masked: whether it was excluded from the loss.
    """

    draw: int
    problem_id: str
    state: State
    rewards: tuple[float | None, ...]
    tokens: tuple[int, ...]
    masked: bool

    @property
    def is_flat(self) -> bool:
        """Whether it has no two different rewards; responses without a reward are ignored."""
        return is_flat(self.rewards)


def format_json_lines(groups: Iterable[Group]) -> str:
    """Return the text of ``groups.jsonl``."""
    return "".join(json.dumps(asdict(group)) + "\n" for group in groups)


def is_flat(rewards: Iterable[float | None]) -> bool:
    """Return whether no two rewards differ, by exact comparison, without rounding."""
    return len({reward for reward in rewards if reward is not None}) < 2


def read_groups(path: Path) -> Iterator[Group]:
    """Yield the groups that an online trainer drew, in order; nothing for other trainers.

    Args:
        path: the adapter's folder.
    """
    if not (path / GROUPS).is_file():
        return
    with (path / GROUPS).open(encoding="utf-8") as lines:
        for line in lines:
            values = json.loads(line)
            values |= {key: tuple(values[key]) for key in ("rewards", "tokens")}
            yield Group(**values)


def plan_prompts(ids: Sequence[str], updates: int, settings: Grpo, seed: int) -> list[str]:
    """Plan the order of prompts: passes over all of them, each in its own random order.

    No prompt repeats before all were used. A prompt's place in a pass depends on (seed, id, pass)
    alone.

    Returns:
        ``prompts_per_update`` ids for each update, one update after another.
    """
    rng = Stream(seed, "train/prompts")
    count = updates * settings.prompts_per_update
    passes = -(-count // len(ids))
    planned_ids = [
        id for number in range(passes) for id in sorted(ids, key=lambda i: rng.key(f"{i}/{number}"))
    ]
    return planned_ids[:count]


def group_facts(groups: Sequence[Group]) -> dict[str, Any]:
    """Count an arm's groups and responses.

    Args:
        groups: all groups of the arm.

    Returns:
        Counts: ``draws``, ``groups``, ``flat`` and ``masked`` groups, ``empty_draws`` (draws with
            flat groups only), ``responses``, ``unjudged`` responses, ``completion_tokens``.
    """
    by_draw: dict[int, bool] = {}
    for group in groups:
        by_draw[group.draw] = by_draw.get(group.draw, True) and group.is_flat
    return {
        "draws": len(by_draw),
        "groups": len(groups),
        "flat": sum(group.is_flat for group in groups),
        "masked": sum(group.masked for group in groups),
        "empty_draws": sum(by_draw.values()),
        "responses": sum(len(group.rewards) for group in groups),
        "unjudged": sum(group.rewards.count(None) for group in groups),
        "completion_tokens": sum(sum(group.tokens) for group in groups),
    }


def find_group_faults(
    path: str,
    groups: Sequence[Group],
    plan: Sequence[str],
    states: Mapping[str, State],
    settings: Grpo,
) -> Iterator[str]:
    """Yield differences of recorded groups from plan, states and rewards, for ``gapft verify``.

    Args:
        path: the file, for messages.
        groups: the recorded groups.
        plan: see ``plan_prompts``.
        states: states of the pool's problems.
        settings: masking and group size.
    """
    if len(groups) != len(plan):
        yield f"{path}: has {len(groups)} groups, but the plan has {len(plan)}"
    for number, (group, id) in enumerate(zip(groups, plan, strict=False)):
        line = f"{path}, line {number + 1}"
        draw = number // settings.prompts_per_update + 1
        is_masked = settings.mask_flat and group.is_flat
        expected = {"draw": draw, "problem_id": id, "state": states.get(id), "masked": is_masked}
        for key, value in expected.items():
            if getattr(group, key) != value:
                yield f"{line}: {key} is {getattr(group, key)}, computed again it is {value}"
        if not len(group.rewards) == len(group.tokens) == settings.group_size:
            yield f"{line}: expected {settings.group_size} rewards and as many token counts"
