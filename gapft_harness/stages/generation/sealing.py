"""Verify generated responses, and write them as a table with their verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gapft_harness.core.records import (
    CONTEXT_EXCEEDED,
    GREEDY,
    Gold,
    Problem,
    Response,
    Verdict,
)
from gapft_harness.hooks.judge import Judge, VerdictAndAnswer
from gapft_harness.outcomes.copies import CopyDetector
from gapft_harness.run_directory.parquet import Values, read_facts, write_batches
from gapft_harness.run_directory.tables import build_response_row, response_schema
from gapft_harness.stages.generation.episodes import Episodes
from gapft_harness.stages.generation.stored_files import ProblemResponses, Responses
from gapft_harness.verification.reasons import Reasons


def find_majority(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the label of an odd number of executions.

    It is a pass if most passed; else the most common other status, the first one in a tie. If the
    statuses differ, the reason gives the number of passes.
    """
    passes = sum(verdict.passed for verdict in verdicts)
    is_passed = 2 * passes > len(verdicts)
    agreeing = [verdict for verdict in verdicts if verdict.passed == is_passed]
    (status, _), *_ = Counter(verdict.status for verdict in agreeing).most_common(1)
    label = next(verdict for verdict in agreeing if verdict.status == status)
    if all(verdict.status == status for verdict in verdicts):
        return label
    count_text = f"{passes} of {len(verdicts)} executions passed"
    return Verdict(status, f"{label.reason}; {count_text}" if label.reason else count_text)


@dataclass
class RepeatedExecutions:
    """Repeats the execution of deployment episodes, and records those whose outcome changed.

    Attributes:
        times: total number of executions, odd.
        episodes: number of episodes executed repeatedly.
        verdicts_differ: problems whose executions did not all get the same status.
        feedback_differs: problems with a public test whose result or message changed when it was
            run again: the episode might have continued differently.
    """

    times: int
    episodes: int = 0
    verdicts_differ: list[str] = field(default_factory=list)
    feedback_differs: list[str] = field(default_factory=list)

    def find_labels(
        self,
        responses: Sequence[Response],
        golds: Sequence[Gold],
        first: Sequence[Verdict],
        judge: Judge,
        episodes: Episodes | None,
    ) -> list[Verdict]:
        """Label responses by majority.

        Args:
            responses: deployment responses, with the earlier attempts of episodes.
            golds: their golds.
            first: the verdicts of the first execution.
            judge: the verifier.
            episodes: gives the feedback on earlier attempts again, if there are any.
        """
        rounds = [list(first)]
        for _ in range(self.times - 1):
            rounds.append([verdict for verdict, _ in judge.judge_responses(responses, golds)])
            if episodes is not None:
                self._repeat_feedback(responses, golds, episodes)
        self.episodes += len(responses)
        labels = []
        for response, verdicts in zip(responses, zip(*rounds, strict=True), strict=True):
            labels.append(find_majority(verdicts))
            if len({verdict.status for verdict in verdicts}) > 1:
                self.verdicts_differ.append(response.problem_id)
        return labels

    def count_stored(self, entry: ProblemResponses) -> None:
        """Count a problem's episodes whose repeated executions are stored."""
        if entry.differing is None:
            return
        self.episodes += 1
        for key in entry.differing:
            self._problems_by_fact[key].append(entry.problem_id)

    def list_differing(self, problem_id: str) -> list[str]:
        """List the facts in which an episode's executions differed."""
        return [key for key, problems in self._problems_by_fact.items() if problem_id in problems]

    @property
    def _problems_by_fact(self) -> dict[str, list[str]]:
        return {
            "verdicts_differ": self.verdicts_differ,
            "feedback_differs": self.feedback_differs,
        }

    def build_facts(self) -> dict[str, Any]:
        """Return the facts for the manifest, with sorted problem ids."""
        return {
            "times": self.times,
            "episodes": self.episodes,
            "verdicts_differ": sorted(set(self.verdicts_differ)),
            "feedback_differs": sorted(set(self.feedback_differs)),
        }

    def build_warning(self) -> str:
        """Return a warning, empty if every execution repeated the first."""
        changed_ids = set(self.verdicts_differ) | set(self.feedback_differs)
        if not changed_ids:
            return ""
        return (
            f"{len(changed_ids)} of {self.episodes} greedy episodes did not repeat in "
            f"{self.times} executions ({len(set(self.verdicts_differ))} got different verdicts, "
            f"and are labelled by majority); first: {min(changed_ids)}"
        )

    def _repeat_feedback(
        self, responses: Sequence[Response], golds: Sequence[Gold], episodes: Episodes
    ) -> None:
        """Request all feedback again, also the missing feedback that ended an episode early."""
        earlier_feedback: list[tuple[str, str, Gold, str | None]] = []
        for response, gold in zip(responses, golds, strict=True):
            problem = response.problem_id
            earlier_feedback += [(problem, a.text, gold, a.feedback) for a in response.attempts]
            is_ended = response.finish_reason == CONTEXT_EXCEEDED
            if len(response.attempts) + 1 < episodes.attempts and not is_ended:
                earlier_feedback.append((problem, response.text, gold, None))
        repeated_feedback = episodes.feedback(
            [text for _, text, _, _ in earlier_feedback],
            [gold for _, _, gold, _ in earlier_feedback],
        )
        for (problem, _, _, first_text), repeated_text in zip(
            earlier_feedback, repeated_feedback, strict=True
        ):
            if repeated_text != first_text:
                self.feedback_differs.append(problem)


#: Problems read and written at a time.
_PROBLEM_BATCH = 1000
#: Responses verified at a time, after which progress is reported.
_VERDICT_BATCH = 256

#: Responses by problem, and for each problem the verdicts and answers.
JudgedBatch = tuple[list[ProblemResponses], list[list[VerdictAndAnswer]]]


def judge_entries(
    entries: Sequence[ProblemResponses],
    problems: Sequence[Problem],
    judge: Judge,
    episodes: Episodes | None,
    repeats: RepeatedExecutions,
    progress: Callable[[int], None] = lambda new_pairs: None,
) -> list[list[VerdictAndAnswer]]:
    """Judge the responses whose verdicts are not stored yet.

    Args:
        entries: the responses; stored verdicts are kept and not judged again.
        problems: the problem of each entry.
        judge: the verifier.
        episodes: gives the feedback on earlier attempts again.
        repeats: labels deployment responses and counts them, also those with stored labels.
        progress: called with the number of responses that have a verdict.

    Returns:
        The verdicts and answers of each entry's responses.
    """
    rows = [
        (response, problem.gold, entry)
        for problem, entry in zip(problems, entries, strict=True)
        for response in entry.responses
    ]
    unjudged = [
        (response, gold, entry.verdicts.get(response.index))
        for response, gold, entry in rows
        if response.index not in entry.answers
    ]
    pairs: list[VerdictAndAnswer] = []
    while len(pairs) < len(unjudged):
        part = unjudged[len(pairs) : len(pairs) + _VERDICT_BATCH]
        pairs += judge.judge_responses(
            [response for response, _, _ in part],
            [gold for _, gold, _ in part],
            [verdict for _, _, verdict in part],
        )
        progress(len(rows) - len(unjudged) + len(pairs))
    if repeats.times > 1:
        for entry in entries:
            repeats.count_stored(entry)
        places = [
            position
            for position, (response, _, _) in enumerate(unjudged)
            if response.index == GREEDY
        ]
        labels = repeats.find_labels(
            [unjudged[position][0] for position in places],
            [unjudged[position][1] for position in places],
            [pairs[position][0] for position in places],
            judge,
            episodes,
        )
        for position, label in zip(places, labels, strict=True):
            pairs[position] = (label, pairs[position][1])
    new_pairs = iter(pairs)
    return [
        [
            (entry.verdicts[response.index], entry.answers[response.index])
            if response.index in entry.answers
            else next(new_pairs)
            for response in entry.responses
        ]
        for entry in entries
    ]


def iterate_judged(
    responses: Responses,
    problems: Sequence[Problem],
    judge: Judge,
    episodes: Episodes | None,
    repeats: RepeatedExecutions,
    progress: Callable[[int, int], None],
) -> Iterator[JudgedBatch]:
    """Yield batches of responses, ordered by problem id, with their verdicts and answers.

    Args:
        responses: the responses to the problems; stored verdicts are kept.
        problems: the problems, in any order.
        judge: judges the other responses.
        episodes: see ``judge_entries``.
        repeats: see ``judge_entries``.
        progress: called with the number of verdicts so far and the expected total, extrapolated
            from the responses per problem so far.
    """
    ordered, judged_count = sorted(problems, key=lambda problem: problem.id), 0
    for start in range(0, len(ordered), _PROBLEM_BATCH):
        members = ordered[start : start + _PROBLEM_BATCH]
        entries = list(responses.read([problem.id for problem in members]))
        count = sum(len(entry.responses) for entry in entries)
        total = judged_count + count * (len(ordered) - start) // len(members)

        def report_progress(
            done: int, judged_count: int = judged_count, total: int = total
        ) -> None:
            progress(judged_count + done, total)

        report_progress(0)
        verdicts = judge_entries(entries, members, judge, episodes, repeats, report_progress)
        judged_count += count
        progress(judged_count, total)
        yield entries, verdicts


def write_responses(
    path: Path,
    responses: Responses,
    problems: Sequence[Problem],
    judge: Judge,
    *,
    extra: dict[str, Any],
    episodes: Episodes | None = None,
    executions: int = 1,
    has_verifier: bool = True,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Judge responses without a stored verdict, and write them all as a table.

    The table is described at ``run_directory/tables.py``.

    Args:
        path: the table.
        responses: the responses.
        problems: the problems.
        judge: the verifier.
        extra: further facts; its ``warnings`` come first.
        episodes: the settings of episodes.
        executions: how often deployment responses are verified; the majority labels them.
        has_verifier: whether the verdicts are the verifier's; otherwise ``judged_by`` is left out.
        progress: see ``iterate_judged``.

    Returns:
        Facts for the manifest, also kept in the file's metadata: ``verdicts`` (count by status),
        ``finish_reasons``, ``drawn`` (``samples`` and their ``tokens``), ``warnings`` (sentences),
        ``judged_by``, ``executions`` if there was more than one, and ``extra``.
    """
    reasons = Reasons()
    finishes: Counter[str] = Counter()
    drawn = {"samples": 0, "tokens": 0}
    unfitting_counts: dict[str, int] = {}
    watch = CopyDetector()
    repeats = RepeatedExecutions(executions)
    facts: dict[str, Any] = {}

    def build_rows(batch: JudgedBatch) -> Iterator[Values]:
        for entry, pairs in zip(*batch, strict=True):
            watch.add([r.reasoning + r.text for r in entry.responses if r.index != GREEDY])
            for response, (verdict, answer) in zip(entry.responses, pairs, strict=True):
                yield build_response_row(response, verdict, answer)
                reasons.add(verdict)
                finishes[response.finish_reason] += 1
                if response.finish_reason == CONTEXT_EXCEEDED:
                    unfitting_counts[entry.problem_id] = (
                        unfitting_counts.get(entry.problem_id, 0) + 1
                    )
                if response.index != GREEDY:
                    drawn["samples"] += 1
                    drawn["tokens"] += count_tokens(response)

    def build_batches() -> Iterator[Iterator[Values]]:
        for batch in iterate_judged(responses, problems, judge, episodes, repeats, progress):
            yield build_rows(batch)

    def build_table_facts() -> dict[str, Any]:
        warnings = (
            build_context_warning(unfitting_counts),
            watch.format_warning(),
            reasons.describe_failures(),
            repeats.build_warning(),
        )
        facts.update(
            extra,
            verdicts=dict(sorted(reasons.statuses.items())),
            finish_reasons=dict(sorted(finishes.items())),
            drawn=drawn,
            judged_by=judge.describe(),
            warnings=[*extra.get("warnings", ()), *filter(None, warnings)],
        )
        if not has_verifier:
            del facts["judged_by"]
        if executions > 1:
            facts["executions"] = repeats.build_facts()
        return facts

    write_batches(path, response_schema(), build_batches(), build_table_facts)
    return facts


def count_tokens(response: Response) -> int:
    """Count all tokens generated for a response, including earlier attempts."""
    return len(response.token_ids) + sum(len(a.token_ids) for a in response.attempts)


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


def report_existing_table(path: Path, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Return the facts of an existing table, and report its responses as finished."""
    facts = read_facts(path)
    count = sum(facts["verdicts"].values())
    progress(count, count)
    return facts
