"""Verifying what was generated, and sealing it as a table with its verdicts."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from gapft_harness.core.records import CONTEXT, GREEDY, Problem, Response, Verdict
from gapft_harness.hooks.checked import answers_of, plain_facts
from gapft_harness.hooks.protocols import Verifier
from gapft_harness.hooks.registered import owner_of
from gapft_harness.run_directory.journal import Entry, Journal
from gapft_harness.run_directory.tables import read_facts
from gapft_harness.run_directory.tables.parquet import Values, write_batches
from gapft_harness.run_directory.tables.responses import row_of, schema
from gapft_harness.stages.generation.alike import AlikeWatch
from gapft_harness.stages.generation.episodes import Episodes
from gapft_harness.stages.generation.executions import Executions
from gapft_harness.verification.judging import judge_and_answer
from gapft_harness.verification.reasons import Reasons

#: Problems read and written at a time.
_BATCH = 1000
#: Responses verified at a time, after which progress is told.
_JUDGED = 256

#: Entries; for each its responses' verdicts, and their answers.
Batch = tuple[list[Entry], list[list[Verdict]], list[list[str | None]]]


@contextlib.contextmanager
def closing_verifier(verifier: Verifier) -> Iterator[Verifier]:
    """Closes a verifier that has something to close (worker processes)."""
    try:
        yield verifier
    finally:
        close = getattr(verifier, "close", None)
        if close is not None:
            with owner_of("verifier", verifier).blamed():
                close()


def description_of(verifier: Verifier) -> dict[str, Any]:
    """What a verifier says of itself, for the manifest; most say nothing."""
    describe = getattr(verifier, "describe", None)
    if describe is None:
        return {}
    owner = owner_of("verifier", verifier)
    with owner.blamed():
        found = describe()
    return plain_facts(owner, found, "a description", describe)


def judged(
    journal: Journal,
    problems: Sequence[Problem],
    verifier: Verifier,
    relabel: Callable[[list[Entry], list[Problem], list[list[Verdict]]], None],
    progress: Callable[[int, int], None],
) -> Iterator[Batch]:
    """Yields batches of entries, ordered by problem id, each with its responses' verdicts, answers.

    A journalled verdict stands; the other responses are verified. ``relabel`` may change a batch's
    verdicts before it is yielded. ``progress`` is called with the verdicts there are and
    those there will be, by the responses to a problem so far.
    """
    read_answers = answers_of(verifier)
    ordered, before = sorted(problems, key=lambda problem: problem.id), 0
    for start in range(0, len(ordered), _BATCH):
        members = ordered[start : start + _BATCH]
        entries = list(journal.read([problem.id for problem in members]))
        given = [
            (response, problem.gold, entry.verdicts.get(response.index))
            for problem, entry in zip(members, entries, strict=True)
            for response in entry.responses
        ]
        total = before + len(given) * (len(ordered) - start) // len(members)
        progress(before, total)
        pairs: list[tuple[Verdict, str | None]] = []
        while len(pairs) < len(given):
            part = given[len(pairs) : len(pairs) + _JUDGED]
            pairs += judge_and_answer(
                verifier,
                read_answers,
                [response for response, _, _ in part],
                [gold for _, gold, _ in part],
                [verdict for _, _, verdict in part],
            )
            progress(before + len(pairs), total)
        before += len(given)
        flat = iter(pairs)
        found = [list(islice(flat, len(entry.responses))) for entry in entries]
        verdicts = [[verdict for verdict, _ in of_problem] for of_problem in found]
        relabel(entries, members, verdicts)
        yield entries, verdicts, [[answer for _, answer in of_problem] for of_problem in found]


def write_responses(
    path: Path,
    journal: Journal,
    problems: Sequence[Problem],
    verifier: Verifier,
    *,
    extra: dict[str, Any],
    episodes: Episodes | None = None,
    executions: int = 1,
    judges: bool = True,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Verifies the journal and writes a table of responses (``run_directory/tables/responses.py``).

    Args:
        extra: further facts; its ``warnings`` come before those found here.
        episodes: how decodes of several attempts went.
        executions: how often greedy responses are verified; the majority labels them.
        judges: whether a verdict is the verifier's; where none is, ``judged_by`` is not told.
        progress: called with verdicts given and in all.

    Returns:
        Facts for the manifest, also kept in the file's own metadata: ``verdicts`` (count by
        status), ``finish_reasons``, ``drawn`` (``samples`` and their ``tokens``), ``warnings``
        (sentences), ``judged_by``, ``executions`` where there was more than one, and ``extra``.
    """
    reasons = Reasons()
    finishes: Counter[str] = Counter()
    drawn = {"samples": 0, "tokens": 0}
    beyond: dict[str, int] = {}
    watch = AlikeWatch()
    repeats = Executions(executions)
    facts: dict[str, Any] = {}

    def relabel(
        entries: list[Entry], members: list[Problem], verdicts: list[list[Verdict]]
    ) -> None:
        if executions == 1:
            return
        places = [
            (row, place)
            for row, entry in enumerate(entries)
            for place, response in enumerate(entry.responses)
            if response.index == GREEDY
        ]
        labels = repeats.label(
            [entries[row].responses[place] for row, place in places],
            [members[row].gold for row, _ in places],
            [verdicts[row][place] for row, place in places],
            verifier,
            episodes,
        )
        for (row, place), label in zip(places, labels, strict=True):
            verdicts[row][place] = label

    def rows(batch: Batch) -> Iterator[Values]:
        for entry, verdicts, answers in zip(*batch, strict=True):
            watch.see([r.text for r in entry.responses if r.index != GREEDY])
            for response, verdict, answer in zip(entry.responses, verdicts, answers, strict=True):
                yield row_of(response, verdict, answer)
                reasons.see(verdict)
                finishes[response.finish_reason] += 1
                if response.finish_reason == CONTEXT:
                    beyond[entry.problem_id] = beyond.get(entry.problem_id, 0) + 1
                if response.index != GREEDY:
                    drawn["samples"] += 1
                    drawn["tokens"] += tokens_of(response)

    def batches() -> Iterator[Iterator[Values]]:
        for batch in judged(journal, problems, verifier, relabel, progress):
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

    write_batches(path, schema(), batches(), closing)
    return facts


def tokens_of(response: Response) -> int:
    """All tokens that were generated for a response, those of earlier attempts among them."""
    return len(response.token_ids) + sum(len(a.token_ids) for a in response.attempts)


def context_warning(beyond: Mapping[str, int]) -> str:
    """A sentence if responses could not be generated for want of room.

    Args:
        beyond: how many responses, by problem id.
    """
    if not beyond:
        return ""
    problems = "1 problem has" if len(beyond) == 1 else f"{len(beyond)} problems have"
    return (
        f"{problems} a prompt (or an episode's conversation) that does not fit the model's "
        f"context beside the new tokens; responses not generated: {sum(beyond.values())}, counted "
        f"as not passed; first: {min(beyond)}"
    )


def take_up(path: Path, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """The facts of a table that an earlier command has written; its responses count as done."""
    facts = read_facts(path)
    count = sum(facts["verdicts"].values())
    progress(count, count)
    return facts
