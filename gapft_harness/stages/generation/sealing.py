"""Verify generated responses, and write them as a table with their verdicts."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gapft_harness.core.records import CONTEXT, GREEDY, Gold, Problem, Response, Verdict
from gapft_harness.hooks.checked import answers_of, plain_facts
from gapft_harness.hooks.protocols import Verifier
from gapft_harness.hooks.registered import owner_of
from gapft_harness.run_directory.parquet import Values, read_facts, write_batches
from gapft_harness.run_directory.tables import response_row, response_schema
from gapft_harness.stages.generation.episodes import Episodes
from gapft_harness.stages.generation.parts import Entry, Responses
from gapft_harness.verdicts.copies import AlikeWatch
from gapft_harness.verification.judging import (
    VerdictAndAnswer,
    judge_and_answer,
    verify_responses,
)
from gapft_harness.verification.reasons import Reasons


def majority(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the label of an odd number of executions.

    It is a pass if most passed; else the most common other status, the first one in a tie. If the
    statuses differ, the reason gives the number of passes.
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
    """Repeats the execution of greedy episodes, and records those whose outcome changed.

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

    def label(
        self,
        responses: Sequence[Response],
        golds: Sequence[Gold],
        first: Sequence[Verdict],
        verifier: Verifier,
        episodes: Episodes | None,
    ) -> list[Verdict]:
        """Label responses by majority.

        Args:
            responses: greedy responses, with the earlier attempts of episodes.
            golds: their golds.
            first: the verdicts of the first execution.
            verifier: the verifier.
            episodes: gives the feedback on earlier attempts again, if there are any.
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

    def add(self, entry: Entry) -> None:
        """Count an episode whose repeated executions are stored."""
        if entry.differing is None:
            return
        self.episodes += 1
        for key in entry.differing:
            self._differing[key].append(entry.problem_id)

    def differing(self, problem_id: str) -> list[str]:
        """List the facts in which an episode's executions differed."""
        return [key for key, problems in self._differing.items() if problem_id in problems]

    @property
    def _differing(self) -> dict[str, list[str]]:
        return {
            "verdicts_differ": self.verdicts_differ,
            "feedback_differs": self.feedback_differs,
        }

    def facts(self) -> dict[str, Any]:
        """Return the facts for the manifest, with sorted problem ids."""
        return {
            "times": self.times,
            "episodes": self.episodes,
            "verdicts_differ": sorted(self.verdicts_differ),
            "feedback_differs": sorted(set(self.feedback_differs)),
        }

    def warning(self) -> str:
        """Return a warning, empty if every execution repeated the first."""
        changed = set(self.verdicts_differ) | set(self.feedback_differs)
        if not changed:
            return ""
        return (
            f"{len(changed)} of {self.episodes} greedy episodes did not repeat in {self.times} "
            f"executions ({len(self.verdicts_differ)} got different verdicts, and are labelled by "
            f"majority); first: {min(changed)}"
        )

    def _replay(
        self, responses: Sequence[Response], golds: Sequence[Gold], episodes: Episodes
    ) -> None:
        """Request all feedback again, also the missing feedback that ended an episode early."""
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


#: Problems read and written at a time.
_BATCH = 1000
#: Responses verified at a time, after which progress is reported.
_JUDGED = 256

#: Responses by problem, and for each problem the verdicts and answers.
Batch = tuple[list[Entry], list[list[VerdictAndAnswer]]]


@contextlib.contextmanager
def closing_verifier(verifier: Verifier) -> Iterator[Verifier]:
    """Close a verifier at the end, if it has a ``close`` method (worker processes)."""
    try:
        yield verifier
    finally:
        close = getattr(verifier, "close", None)
        if close is not None:
            with owner_of("verifier", verifier).blamed():
                close()


def description_of(verifier: Verifier) -> dict[str, Any]:
    """Return a verifier's description for the manifest; empty for most."""
    describe = getattr(verifier, "describe", None)
    if describe is None:
        return {}
    owner = owner_of("verifier", verifier)
    with owner.blamed():
        found = describe()
    return plain_facts(owner, found, "a description", describe)


def judge_entries(
    entries: Sequence[Entry],
    problems: Sequence[Problem],
    verifier: Verifier,
    episodes: Episodes | None,
    repeats: Executions,
    progress: Callable[[int], None] = lambda judged: None,
) -> list[list[VerdictAndAnswer]]:
    """Judge the responses whose verdicts are not stored yet.

    Args:
        entries: the responses; stored verdicts are kept and not judged again.
        problems: the problem of each entry.
        verifier: the verifier.
        episodes: gives the feedback on earlier attempts again.
        repeats: labels greedy responses and counts them, also those with stored labels.
        progress: called with the number of responses that have a verdict.

    Returns:
        The verdicts and answers of each entry's responses.
    """
    read_answers = answers_of(verifier)
    rows = [
        (response, problem.gold, entry)
        for problem, entry in zip(problems, entries, strict=True)
        for response in entry.responses
    ]
    new = [
        (response, gold, entry.verdicts.get(response.index))
        for response, gold, entry in rows
        if response.index not in entry.answers
    ]
    pairs: list[VerdictAndAnswer] = []
    while len(pairs) < len(new):
        part = new[len(pairs) : len(pairs) + _JUDGED]
        pairs += judge_and_answer(
            verifier,
            read_answers,
            [response for response, _, _ in part],
            [gold for _, gold, _ in part],
            [verdict for _, _, verdict in part],
        )
        progress(len(rows) - len(new) + len(pairs))
    if repeats.times > 1:
        for entry in entries:
            repeats.add(entry)
        places = [at for at, (response, _, _) in enumerate(new) if response.index == GREEDY]
        labels = repeats.label(
            [new[at][0] for at in places],
            [new[at][1] for at in places],
            [pairs[at][0] for at in places],
            verifier,
            episodes,
        )
        for at, label in zip(places, labels, strict=True):
            pairs[at] = (label, pairs[at][1])
    judged = iter(pairs)
    return [
        [
            (entry.verdicts[response.index], entry.answers[response.index])
            if response.index in entry.answers
            else next(judged)
            for response in entry.responses
        ]
        for entry in entries
    ]


def judged(
    responses: Responses,
    problems: Sequence[Problem],
    verifier: Verifier,
    episodes: Episodes | None,
    repeats: Executions,
    progress: Callable[[int, int], None],
) -> Iterator[Batch]:
    """Yield batches of responses, ordered by problem id, with their verdicts and answers.

    Args:
        responses: the responses to the problems; stored verdicts are kept.
        problems: the problems, in any order.
        verifier: judges the other responses.
        episodes: see ``judge_entries``.
        repeats: see ``judge_entries``.
        progress: called with the number of verdicts so far and the expected total, extrapolated
            from the responses per problem so far.
    """
    ordered, before = sorted(problems, key=lambda problem: problem.id), 0
    for start in range(0, len(ordered), _BATCH):
        members = ordered[start : start + _BATCH]
        entries = list(responses.read([problem.id for problem in members]))
        count = sum(len(entry.responses) for entry in entries)
        total = before + count * (len(ordered) - start) // len(members)

        def tell(done: int, before: int = before, total: int = total) -> None:
            progress(before + done, total)

        tell(0)
        found = judge_entries(entries, members, verifier, episodes, repeats, tell)
        before += count
        progress(before, total)
        yield entries, found


def write_responses(
    path: Path,
    responses: Responses,
    problems: Sequence[Problem],
    verifier: Verifier,
    *,
    extra: dict[str, Any],
    episodes: Episodes | None = None,
    executions: int = 1,
    judges: bool = True,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Judge responses without a stored verdict, and write them all as a table.

    The table is described at ``run_directory/tables.py``.

    Args:
        path: the table.
        responses: the responses.
        problems: the problems.
        verifier: the verifier.
        extra: further facts; its ``warnings`` come first.
        episodes: the settings of episodes.
        executions: how often greedy responses are verified; the majority labels them.
        judges: whether the verdicts are the verifier's; otherwise ``judged_by`` is left out.
        progress: see ``iterate_judged``.

    Returns:
        Facts for the manifest, also kept in the file's metadata: ``verdicts`` (count by status),
        ``finish_reasons``, ``drawn`` (``samples`` and their ``tokens``), ``warnings`` (sentences),
        ``judged_by``, ``executions`` if there was more than one, and ``extra``.
    """
    reasons = Reasons()
    finishes: Counter[str] = Counter()
    drawn = {"samples": 0, "tokens": 0}
    beyond: dict[str, int] = {}
    watch = AlikeWatch()
    repeats = Executions(executions)
    facts: dict[str, Any] = {}

    def rows(batch: Batch) -> Iterator[Values]:
        for entry, pairs in zip(*batch, strict=True):
            watch.see([r.text for r in entry.responses if r.index != GREEDY])
            for response, (verdict, answer) in zip(entry.responses, pairs, strict=True):
                yield response_row(response, verdict, answer)
                reasons.see(verdict)
                finishes[response.finish_reason] += 1
                if response.finish_reason == CONTEXT:
                    beyond[entry.problem_id] = beyond.get(entry.problem_id, 0) + 1
                if response.index != GREEDY:
                    drawn["samples"] += 1
                    drawn["tokens"] += tokens_of(response)

    def batches() -> Iterator[Iterator[Values]]:
        for batch in judged(responses, problems, verifier, episodes, repeats, progress):
            yield rows(batch)

    def closing() -> dict[str, Any]:
        warnings = (
            context_warning(beyond),
            watch.warning(),
            reasons.warning(),
            repeats.warning(),
        )
        facts.update(
            extra,
            verdicts=dict(sorted(reasons.statuses.items())),
            finish_reasons=dict(sorted(finishes.items())),
            drawn=drawn,
            judged_by=description_of(verifier),
            warnings=[*extra.get("warnings", ()), *filter(None, warnings)],
        )
        if not judges:
            del facts["judged_by"]
        if executions > 1:
            facts["executions"] = repeats.facts()
        return facts

    write_batches(path, response_schema(), batches(), closing)
    return facts


def tokens_of(response: Response) -> int:
    """Count all tokens generated for a response, including earlier attempts."""
    return len(response.token_ids) + sum(len(a.token_ids) for a in response.attempts)


def context_warning(beyond: Mapping[str, int]) -> str:
    """Warn of responses that were not generated because the context was too small.

    Args:
        beyond: the number of such responses by problem id.
    """
    if not beyond:
        return ""
    problems = "1 problem has" if len(beyond) == 1 else f"{len(beyond)} problems have"
    return (
        f"{problems} a prompt (or an episode's conversation) that does not fit the model's "
        f"context with the new tokens; responses not generated: {sum(beyond.values())}, counted "
        f"as not passed; first: {min(beyond)}"
    )


def take_up(path: Path, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Return the facts of an existing table, and report its responses as finished."""
    facts = read_facts(path)
    count = sum(facts["verdicts"].values())
    progress(count, count)
    return facts
