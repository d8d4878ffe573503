"""Repeated execution of greedy episodes: labels by majority, disagreement counted.

The paper runs each deterministic episode three times to see whether the environment repeats
(Table "LiveCodeBench Allocation"). The responses stand; their programs are run again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gapft_harness.core.records import CONTEXT, Gold, Response, Verdict
from gapft_harness.hooks.protocols import Verifier
from gapft_harness.stages.generation.episodes import Episodes
from gapft_harness.verification.judging import verify_responses


def majority(verdicts: Sequence[Verdict]) -> Verdict:
    """The label of an odd number of executions.

    Passed if most passed; else the commonest other status, the first seen among equals. Where the
    statuses differ, the reason says how many passed.
    """
    passes = sum(verdict.passed for verdict in verdicts)
    passed = 2 * passes > len(verdicts)
    agreeing = [verdict for verdict in verdicts if verdict.passed == passed]
    (status, _), *_ = Counter(verdict.status for verdict in agreeing).most_common(1)
    label = next(verdict for verdict in agreeing if verdict.status == status)
    if all(verdict.status == status for verdict in verdicts):
        return label
    words = f"{passes} of {len(verdicts)} executions passed"
    return Verdict(status, f"{label.reason}; {words}" if label.reason else words)


@dataclass
class Executions:
    """Runs greedy episodes again, and keeps account of those that did not repeat.

    Attributes:
        times: executions in all, odd.
        episodes: how many episodes were run so often.
        verdicts_differ: problems whose executions did not all get the same status.
        feedback_differs: problems of which a public test came out otherwise, or was told in other
            words, when it was run again: the episode might have gone another way.
    """

    times: int
    episodes: int = 0
    verdicts_differ: list[str] = field(default_factory=list)
    feedback_differs: list[str] = field(default_factory=list)

    def label(
        self,
        responses: Sequence[Response],
        golds: Sequence[Gold],
        first: Sequence[Verdict],
        verifier: Verifier,
        episodes: Episodes | None,
    ) -> list[Verdict]:
        """Labels by majority.

        Args:
            responses: greedy ones, final attempts with the earlier ones in them.
            golds: one for each.
            first: the verdicts of the first execution.
            verifier: who judged them.
            episodes: gives the feedback of earlier attempts again, if there are any.
        """
        rounds = [list(first)]
        for _ in range(self.times - 1):
            rounds.append(verify_responses(verifier, responses, golds))
            if episodes is not None:
                self._replay(responses, golds, episodes)
        self.episodes += len(responses)
        labels = []
        for response, verdicts in zip(responses, zip(*rounds, strict=True), strict=True):
            labels.append(majority(verdicts))
            if len({verdict.status for verdict in verdicts}) > 1:
                self.verdicts_differ.append(response.problem_id)
        return labels

    def facts(self) -> dict[str, Any]:
        """For the manifest; problem ids sorted."""
        return {
            "times": self.times,
            "episodes": self.episodes,
            "verdicts_differ": sorted(self.verdicts_differ),
            "feedback_differs": sorted(set(self.feedback_differs)),
        }

    def warning(self) -> str:
        """A sentence for people, empty if every execution repeated the first."""
        changed = set(self.verdicts_differ) | set(self.feedback_differs)
        if not changed:
            return ""
        return (
            f"{len(changed)} of {self.episodes} greedy episodes did not repeat in {self.times} "
            f"executions ({len(self.verdicts_differ)} got different verdicts, and the majority's "
            f"label); first: {min(changed)}"
        )

    def _replay(
        self, responses: Sequence[Response], golds: Sequence[Gold], episodes: Episodes
    ) -> None:
        """Asks for all feedback again, also for that which ended an episode before its limit."""
        seen: list[tuple[str, str, Gold, str | None]] = []
        for response, gold in zip(responses, golds, strict=True):
            problem = response.problem_id
            seen += [(problem, a.text, gold, a.feedback) for a in response.attempts]
            ended = response.finish_reason == CONTEXT
            if len(response.attempts) + 1 < episodes.attempts and not ended:
                seen.append((problem, response.text, gold, None))
        told = episodes.feedback([text for _, text, _, _ in seen], [gold for _, _, gold, _ in seen])
        for (problem, _, _, before), again in zip(seen, told, strict=True):
            if again != before:
                self.feedback_differs.append(problem)
