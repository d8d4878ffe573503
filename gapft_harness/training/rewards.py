"""Rewards of drawn responses: a verifier in a process of its own, which may hang or die.

A verifier must neither raise nor hang, and TRL has no limit of time for one; so what does is ended,
and its response has no reward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.processes import Closing
from gapft_harness.core.records import Gold
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import TaskVerifier, Verifier
from gapft_harness.recipe.sections import Grpo
from gapft_harness.verification.pool import WorkerPool

#: By a verdict's status, its reward: what the audit counts as not passed is 0, and what nobody
#: judged is none.
REWARDS: Mapping[str, float] = {"pass": 1.0, "fail": 0.0, "timeout": 0.0}


def reward_verifier(task: TaskVerifier, settings: Grpo) -> TaskVerifier:
    """The verifier that rewards are by.

    Raises:
        UserError: the task's declares no more permissive one, and the recipe asks for it.
    """
    if settings.reward == "task":
        return task
    if task.permissive is None:
        raise UserError(
            f"training.grpo.reward: permissive, and the verifier {task.name} declares no more "
            "permissive rule for its parameters; set it to task"
        )
    return task.permissive


class Rewards(Closing):
    """Judges groups of responses, each within a limit of time.

    Args:
        verifier: who judges.
        seconds: for a group; if it is not judged by then, for each of its responses alone.
    """

    def __init__(self, verifier: TaskVerifier, seconds: float) -> None:
        self._pool = WorkerPool(
            f"{__name__}:judge",
            workers=1,
            timeout_s=seconds,
            setup=f"{__name__}:load",
            setup_arguments=[list(verifier.files), verifier.name, dict(verifier.params)],
        )

    def of(self, groups: Sequence[tuple[Sequence[str], Gold]]) -> list[list[float | None]]:
        """The rewards of each group's responses, None where there is no verdict."""
        found: list[list[float | None]] = []
        items = [[list(texts), gold] for texts, gold in groups]
        for (texts, gold), whole in zip(items, self._pool.map(items), strict=True):
            each = [whole]
            if whole.status != "done":
                each = self._pool.map([[[text], gold] for text in texts])
            rewards: list[float | None] = []
            for outcome in each:
                said = outcome.value if outcome.status == "done" else [""]
                rewards += [REWARDS.get(status) for status in said]
            found.append(rewards)
        return found

    def close(self) -> None:
        """Ends the worker."""
        self._pool.close()


_verifier: list[Verifier] = []


def load(files: Sequence[str], name: str, params: Mapping[str, Any]) -> None:
    """In the worker: makes the verifier."""
    _verifier[:] = [load_plugins(files).verifier(name, params)]


def judge(item: tuple[Sequence[str], Gold]) -> list[str]:
    """In the worker: the statuses of a group's responses."""
    texts, gold = item
    return [verdict.status for verdict in _verifier[0].verify(texts, [gold] * len(texts))]
