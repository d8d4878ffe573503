"""Verifying what was generated, and sealing it as a table with its verdicts."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gapft_harness.core.files import replace_file
from gapft_harness.core.records import CONTEXT, GREEDY, Problem, Response, Verdict
from gapft_harness.hooks.checked import plain_facts
from gapft_harness.hooks.protocols import Verifier
from gapft_harness.hooks.registered import owner_of
from gapft_harness.run_directory.journal import Entry, Journal
from gapft_harness.stages.generation.alike import AlikeWatch
from gapft_harness.stages.generation.episodes import Episodes
from gapft_harness.stages.generation.executions import Executions
from gapft_harness.verification.judging import verify_responses
from gapft_harness.verification.reasons import Reasons

#: Problems verified and written at a time.
_BATCH = 1000

#: Columns of a sealed response that are the record's own fields as they are.
_PLAIN = (
    "problem_id", "index", "text", "token_ids", "finish_reason", "seed", "tokens_from",
    "context_ids",
)  # fmt: skip


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
) -> Iterator[tuple[list[Entry], list[list[Verdict]]]]:
    """Yields batches of entries, ordered by problem id, each with its responses' verdicts.

    A journalled verdict stands; the other responses are verified. ``relabel`` may change a batch's
    verdicts before it is yielded.
    """
    ordered = sorted(problems, key=lambda problem: problem.id)
    for start in range(0, len(ordered), _BATCH):
        members = ordered[start : start + _BATCH]
        entries = list(journal.read([problem.id for problem in members]))
        new = [
            (response, problem.gold)
            for problem, entry in zip(members, entries, strict=True)
            for response in entry.responses
            if response.index not in entry.verdicts
        ]
        flat = iter(verify_responses(verifier, [r for r, _ in new], [gold for _, gold in new]))
        verdicts = [
            [entry.verdicts.get(r.index) or next(flat) for r in entry.responses]
            for entry in entries
        ]
        relabel(entries, members, verdicts)
        yield entries, verdicts


def write_responses(
    path: Path,
    journal: Journal,
    problems: Sequence[Problem],
    verifier: Verifier,
    *,
    extra: dict[str, Any],
    episodes: Episodes | None = None,
    executions: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Verifies the journal and writes responses.parquet (``schemas.RESPONSES``), streamed.

    Args:
        extra: further facts.
        episodes: how decodes of several attempts went.
        executions: how often greedy responses are verified; the majority labels them.
        progress: called with problems done and in all.

    Returns:
        Facts for the manifest, also kept in the file's own metadata: ``verdicts`` (count by
        status), ``finish_reasons``, ``drawn`` (``samples`` and their ``tokens``), ``warnings``
        (sentences), ``judged_by``, ``executions`` where there was more than one, and ``extra``.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from gapft_harness.run_directory.schemas import RESPONSES

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

    def write(beside: Path) -> None:
        done = 0
        with pq.ParquetWriter(beside, RESPONSES, compression="zstd") as writer:
            for entries, verdicts in judged(journal, problems, verifier, relabel):
                columns: dict[str, list[Any]] = {name: [] for name in RESPONSES.names}
                for entry, of_entry in zip(entries, verdicts, strict=True):
                    watch.see([r.text for r in entry.responses if r.index != GREEDY])
                    for response, verdict in zip(entry.responses, of_entry, strict=True):
                        for name in _PLAIN:
                            columns[name].append(getattr(response, name))
                        columns["attempts"].append([asdict(a) for a in response.attempts])
                        columns["status"].append(verdict.status)
                        columns["reason"].append(verdict.reason)
                        reasons.see(verdict)
                        finishes[response.finish_reason] += 1
                        if response.finish_reason == CONTEXT:
                            beyond[entry.problem_id] = beyond.get(entry.problem_id, 0) + 1
                        if response.index != GREEDY:
                            drawn["samples"] += 1
                            drawn["tokens"] += tokens_of(response)
                writer.write_table(pa.table(columns, schema=RESPONSES))
                done += len(entries)
                progress(done, len(problems))
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
                warnings=[warning for warning in warnings if warning],
            )
            if executions > 1:
                facts["executions"] = repeats.facts()
            writer.add_key_value_metadata({"gapft": json.dumps(facts)})

    replace_file(path, write)
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


def read_facts(path: Path) -> dict[str, Any]:
    """The facts a sealed table carries in its metadata."""
    import pyarrow.parquet as pq

    facts: dict[str, Any] = json.loads(pq.read_metadata(path).metadata[b"gapft"])
    return facts


def take_up(path: Path, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """The facts of a table that an earlier command has written; its responses count as done."""
    facts = read_facts(path)
    count = sum(facts["verdicts"].values())
    progress(count, count)
    return facts
