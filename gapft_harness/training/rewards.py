"""Rewards of drawn responses: a verifier in its own process, which may hang or die.

A verifier must neither raise nor hang, but TRL has no time limit for one; a verifier that does is
stopped, and its response has no reward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.processes import Closing
from gapft_harness.core.records import Gold
from gapft_harness.hooks.judge import Judge
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import TaskVerifier
from gapft_harness.recipe.sections import Grpo
from gapft_harness.verification.pool import WorkerPool

#: Rewards by a verdict's status: 0 for anything that the audit counts as not passed; no reward
#: without a verdict.
REWARD_BY_STATUS: Mapping[str, float] = {"pass": 1.0, "fail": 0.0, "timeout": 0.0}


def select_reward_verifier(task: TaskVerifier, settings: Grpo) -> TaskVerifier:
    """Return the verifier that decides the rewards.

    Raises:
        UserError: the recipe asks for a more permissive verifier, but the task's declares none.
    """
    if settings.reward == "task":
        return task
    if task.permissive is None:
        raise UserError(
            f"training.grpo.reward: found permissive, but the verifier {task.name} declares no "
            "more permissive rule for its parameters; set it to task"
        )
    return task.permissive


class Rewards(Closing):
    """Judges groups of responses, each within a time limit.

    Args:
        verifier: the verifier.
        seconds: time limit in s for a group; if it is exceeded, for each of its responses alone.
    """

    def __init__(self, verifier: TaskVerifier, seconds: float) -> None:
        self._pool = WorkerPool(
            f"{__name__}:judge",
            workers=1,
            timeout_s=seconds,
            setup=f"{__name__}:load",
            setup_arguments=[list(verifier.files), verifier.name, dict(verifier.params)],
        )

    def judge_groups(
        self, groups: Sequence[tuple[Sequence[str], Gold]]
    ) -> list[list[float | None]]:
        """Return the rewards of each group's responses; None without a verdict."""
        rewards_by_group: list[list[float | None]] = []
        items = [[list(texts), gold] for texts, gold in groups]
        for (texts, gold), group_outcome in zip(items, self._pool.map(items), strict=True):
            outcomes = [group_outcome]
            if group_outcome.status != "done":
                outcomes = self._pool.map([[[text], gold] for text in texts])
            rewards: list[float | None] = []
            for outcome in outcomes:
                statuses = outcome.value if outcome.status == "done" else [""]
                rewards += [REWARD_BY_STATUS.get(status) for status in statuses]
            rewards_by_group.append(rewards)
        return rewards_by_group

    def close(self) -> None:
        """Stop the worker."""
        self._pool.close()


_verifier: list[Judge] = []


def load(files: Sequence[str], name: str, params: Mapping[str, Any]) -> None:
    """Create the verifier. Runs in the worker."""
    _verifier[:] = [load_plugins(files).create_verifier(name, params)]


def judge(item: tuple[Sequence[str], Gold]) -> list[str]:
    """Return the statuses of a group's responses. Runs in the worker."""
    texts, gold = item
    return [verdict.status for verdict in _verifier[0].verify(texts, [gold] * len(texts))]
