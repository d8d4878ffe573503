"""Early stop: samples are drawn in rounds, and a problem leaves once it has what it needs.

On the pool, selection needs one verified response a problem: a problem that the source solves in
one decode (state G) keeps that decode, a recovered one (state S) the first sample that passed,
under a response rule that looks no further. Neither needs another sample. The audit always draws
all K: Pass@K and K_eq are estimated from them (Section 4.1), also on problems in state G.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Problem, Verdict
from gapft_harness.hooks.protocols import Verifier
from gapft_harness.hooks.registered import Registered, ResponseRuleTraits
from gapft_harness.recipe.sections import Search
from gapft_harness.run_directory.journal import Journal
from gapft_harness.verification.judging import verify_responses

#: New verdicts by problem id and decode index.
Judgements = Mapping[str, Mapping[int, Verdict]]


def stops(search: Search, split: str) -> bool:
    """Whether the search of a split may leave samples out."""
    return search.stop == "first_pass" and split == "pool"


def check_early_stop(search: Search, rule: Registered, task: Mapping[str, Any]) -> None:
    """Refuses an early stop that would change what is selected, before anything is generated.

    Args:
        task: the task's facts: ``episode``.

    Raises:
        UserError: the rule needs all samples, or greedy episodes are executed repeatedly.
    """
    if search.stop == "never":
        return
    if not rule.declared(ResponseRuleTraits).stops_early:
        raise UserError(
            f"search.stop: first_pass needs a response rule that is settled by the first sample "
            f"that passes; {rule.name!r} compares all that pass (it is not registered with "
            "stops_early=True), so it needs all K. Use evidence.keep: first, or search.stop: never"
        )
    if task["episode"]["executions"] > 1:
        raise UserError(
            f"search.stop: first_pass cannot go with episode.executions: "
            f"{task['episode']['executions']}: whether samples are drawn would hang on the first "
            "execution, the label on the majority. Set episode.executions: 1, or search.stop: never"
        )


def unsolved(
    problems: Sequence[Problem], journal: Journal, verifier: Verifier
) -> tuple[list[Problem], Judgements]:
    """The problems that no journalled response solves yet.

    Args:
        journal: holds their greedy responses and the earlier rounds' samples.
        verifier: judges those that no earlier round has judged.

    Returns:
        Those that need another sample; and the new verdicts that say so, to be journalled with
        the round: a verdict that decided something is the one that is sealed.
    """
    entries = list(journal.read([problem.id for problem in problems]))
    new = [
        (problem, response)
        for problem, entry in zip(problems, entries, strict=True)
        if not any(verdict.passed for verdict in entry.verdicts.values())
        for response in entry.responses
        if response.index not in entry.verdicts
    ]
    verdicts = verify_responses(verifier, [r for _, r in new], [p.gold for p, _ in new])
    judged: dict[str, dict[int, Verdict]] = {}
    for (problem, response), verdict in zip(new, verdicts, strict=True):
        judged.setdefault(problem.id, {})[response.index] = verdict
    solved = {
        entry.problem_id
        for entry in entries
        for verdict in (*entry.verdicts.values(), *judged.get(entry.problem_id, {}).values())
        if verdict.passed
    }
    return [problem for problem in problems if problem.id not in solved], judged
