"""Write judged responses as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gapft_harness.core.identities import content_hash
from gapft_harness.core.records import CONTEXT_EXCEEDED, GREEDY, Problem, Response, Verdict
from gapft_harness.outcomes.copies import CopyDetector
from gapft_harness.run_directory.parquet import Values, write_batches
from gapft_harness.run_directory.tables import build_response_row, response_schema
from gapft_harness.stages.generation.judging import FEEDBACK_DIFFERS, VERDICTS_DIFFER
from gapft_harness.stages.generation.lines import Responses
from gapft_harness.verification.reasons import Reasons

#: The key of a table's metadata with ``hash_parts`` of its facts.
PARTS = b"parts"

#: Problems read and written at a time.
_PROBLEM_BATCH = 1000


class TableCounts:
    """Counts the responses of a table by verdict and by how they ended."""

    def __init__(self) -> None:
        self.reasons = Reasons()
        self._finishes: Counter[str] = Counter()
        self._samples = self._tokens = 0

    def add(self, response: Response, verdict: Verdict) -> None:
        """Count a response."""
        self.reasons.add(verdict)
        self._finishes[response.finish_reason] += 1
        if response.index != GREEDY:
            self._samples += 1
            self._tokens += count_tokens(response)

    def build_facts(self) -> dict[str, Any]:
        """Return the facts ``verdicts``, ``finish_reasons`` and ``drawn``."""
        return {
            "verdicts": dict(sorted(self.reasons.statuses.items())),
            "finish_reasons": dict(sorted(self._finishes.items())),
            "drawn": {"samples": self._samples, "tokens": self._tokens},
        }


def hash_parts(facts: Mapping[str, Any]) -> str:
    """Hash the places of a table's generated responses, so that no table takes another's place.

    They contain the adapter and its scale. Places of verdicts are left out: a verifier that
    changes no verdict changes no table.
    """
    stored = facts.get("stored")
    return content_hash(stored.get("responses") if isinstance(stored, Mapping) else stored)


def write_responses(
    path: Path,
    responses: Responses,
    problems: Sequence[Problem],
    *,
    extra: Mapping[str, Any],
    executions: int = 1,
) -> dict[str, Any]:
    """Write judged responses as a table, ordered by problem id, then index.

    The table is described at ``run_directory/tables.py``.

    Args:
        path: the table.
        responses: the responses, all with a verdict.
        problems: the problems.
        extra: further facts.
        executions: how often deployment responses were verified.

    Returns:
        The facts of the table: ``verdicts`` (count by status), ``finish_reasons``, ``drawn``
        (``samples`` and their ``tokens``), ``warnings`` (sentences), ``executions`` if there was
        more than one, and ``extra``.
    """
    counts = TableCounts()
    unfitting_counts: Counter[str] = Counter()
    watch = CopyDetector()
    differing: dict[str, tuple[str, ...]] = {}
    # Write the rows in the order of ids, and count while they are written
    ordered = sorted(problem.id for problem in problems)

    def build_rows(problem_ids: Sequence[str]) -> Iterator[Values]:
        for entry in responses.read(problem_ids):
            if entry.differing is not None:
                differing[entry.problem_id] = entry.differing
            watch.add([r.reasoning + r.text for r in entry.responses if r.index != GREEDY])
            for response in entry.responses:
                verdict, answer = entry.judged[response.index]
                yield build_response_row(response, verdict, answer)
                counts.add(response, verdict)
                if response.finish_reason == CONTEXT_EXCEEDED:
                    unfitting_counts[entry.problem_id] += 1

    starts = range(0, len(ordered), _PROBLEM_BATCH)
    batches = (build_rows(ordered[start : start + _PROBLEM_BATCH]) for start in starts)
    schema = response_schema().with_metadata({PARTS: hash_parts(extra)})
    write_batches(path, schema, batches)
    # Describe them
    facts: dict[str, Any] = {}
    if executions > 1:
        facts["executions"] = describe_executions(executions, differing)
    warnings = (
        build_context_warning(unfitting_counts),
        watch.format_warning(),
        counts.reasons.describe_failures(),
        build_executions_warning(facts["executions"]) if executions > 1 else "",
    )
    return {
        **facts,
        **extra,
        **counts.build_facts(),
        "warnings": [*filter(None, warnings)],
    }


def count_tokens(response: Response) -> int:
    """Count all tokens generated for a response, including earlier attempts."""
    return len(response.token_ids) + sum(len(a.token_ids) for a in response.attempts)


def describe_executions(times: int, differing: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Describe the repeated executions of deployment episodes.

    Args:
        times: total number of executions.
        differing: in which facts the executions of each problem's episode differed.

    Returns:
        ``times``, the number of ``episodes``, and sorted problem ids by fact.
    """
    problems_by_fact = {
        fact: sorted(problem for problem, facts in differing.items() if fact in facts)
        for fact in (VERDICTS_DIFFER, FEEDBACK_DIFFERS)
    }
    return {"times": times, "episodes": len(differing), **problems_by_fact}


def build_executions_warning(executions: Mapping[str, Any]) -> str:
    """Warn of episodes that did not repeat; empty if every execution repeated the first."""
    changed_ids = {*executions[VERDICTS_DIFFER], *executions[FEEDBACK_DIFFERS]}
    if not changed_ids:
        return ""
    return (
        f"{len(changed_ids)} of {executions['episodes']} greedy episodes did not repeat in "
        f"{executions['times']} executions ({len(executions[VERDICTS_DIFFER])} got different "
        f"verdicts, and are labelled by majority); first: {min(changed_ids)}"
    )


def build_context_warning(unfitting_counts: Mapping[str, int]) -> str:
    """Warn of responses that were not generated because the context was too small.

    Args:
        unfitting_counts: the number of such responses by problem id.
    """
    if not unfitting_counts:
        return ""
    problems = (
        "1 problem has" if len(unfitting_counts) == 1 else f"{len(unfitting_counts)} problems have"
    )
    return (
        f"{problems} a prompt (or an episode's conversation) that does not fit the model's "
        f"context with the new tokens; responses not generated: {sum(unfitting_counts.values())}, "
        f"counted as not passed; first: {min(unfitting_counts)}"
    )
