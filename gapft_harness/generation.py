"""Generating and sealing responses: what search and audit share.

Chunks are fixed by the problems and the settings, never by what is left to do, so a resumed run
regenerates exactly the chunk that was in flight, with the same seed.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gapft_harness.errors import UserError
from gapft_harness.files import replace_file
from gapft_harness.journal import Entry, Journal
from gapft_harness.protocols import Request, Sampler, Verifier
from gapft_harness.records import GREEDY, Decoding, Problem, Verdict
from gapft_harness.streams import derive
from gapft_harness.verification import verify_unique

#: Problems verified and written at a time.
_BATCH = 1000

#: Columns of a sealed response that are the record's own fields as they are.
_PLAIN = (
    "problem_id", "index", "text", "token_ids", "finish_reason", "seed", "tokens_from",
    "context_ids",
)  # fmt: skip

ReportProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Phase:
    """One decoding of every problem: the greedy decode, or the K samples."""

    name: str
    decoding: Decoding
    indices: tuple[int, ...]


def greedy_phase(decoding: Decoding) -> Phase:
    """The deployment decode d(x)."""
    return Phase("greedy", decoding, (GREEDY,))


def generate(
    problems: Sequence[Problem],
    phases: Sequence[Phase],
    sampler: Sampler,
    journal: Journal,
    *,
    purpose: str,
    source: Mapping[str, Any],
    seed: int,
    chunk: int,
    progress: ReportProgress,
) -> None:
    """Generates what the journal lacks, chunk by chunk.

    Problems are taken longest prompt first, so that batches hold prompts of like length.

    Args:
        purpose: names the random streams, e.g. ``search/pool``.
        source: the sampler's description; journalled chunks of another model are refused.
        seed: the recipe's ``search.seed``.
        chunk: problems per chunk.
        progress: called with responses done and wanted.

    Raises:
        UserError: the journal holds chunks of other problems, prompts, settings or weights.
    """
    ordered = sorted(problems, key=lambda p: (-len(p.prompt), p.id))
    chunks = [ordered[start : start + chunk] for start in range(0, len(ordered), chunk)]
    total = len(problems) * sum(len(phase.indices) for phase in phases)
    keys = {
        (phase.name, number): _chunk_key(phase, members, source)
        for phase in phases
        for number, members in enumerate(chunks)
    }
    if journal.committed - set(keys.values()):
        raise UserError(
            f"{journal.path}: holds responses to other problems or prompts, or of other weights, "
            "than the task and the model give now; restore them, or start a new run directory"
        )
    done = 0
    progress(done, total)
    for phase in phases:
        for number, members in enumerate(chunks):
            ids = [problem.id for problem in members]
            key = keys[phase.name, number]
            if key not in journal.committed:
                chunk_seed = derive(seed, purpose, phase.name, *ids) >> 33
                requests = [Request(p.id, p.prompt, phase.indices) for p in members]
                generated = sampler.generate(requests, phase.decoding, chunk_seed)
                journal.append(key, chunk_seed, ids, [phase.indices] * len(ids), generated)
            done += len(ids) * len(phase.indices)
            progress(done, total)


def _chunk_key(phase: Phase, members: Sequence[Problem], source: Mapping[str, Any]) -> str:
    """Names a chunk by all that its responses depend on, but for the machine."""
    weights = (source.get("weights_sha256"), source.get("adapter"))
    prompts = [part for problem in members for part in (problem.id, problem.prompt)]
    return f"{phase.name}/{derive(repr(phase.decoding), repr(weights), *prompts):016x}"


def decoding_from(task: Mapping[str, Any]) -> Decoding:
    """The greedy deployment decode that a task's facts in the manifest describe."""
    return Decoding(False, task["decoding"]["max_gen_toks"], tuple(task["decoding"]["until"]))


@contextlib.contextmanager
def closing_verifier(verifier: Verifier) -> Iterator[Verifier]:
    """Closes a verifier that has something to close (worker processes)."""
    try:
        yield verifier
    finally:
        close = getattr(verifier, "close", None)
        if close is not None:
            close()


def judged(
    journal: Journal, problems: Sequence[Problem], verifier: Verifier
) -> Iterator[tuple[list[Entry], list[list[Verdict]]]]:
    """Yields batches of entries, ordered by problem id, each with its responses' verdicts."""
    ordered = sorted(problems, key=lambda problem: problem.id)
    for start in range(0, len(ordered), _BATCH):
        members = ordered[start : start + _BATCH]
        entries = list(journal.read([problem.id for problem in members]))
        texts = [response.text for entry in entries for response in entry.responses]
        golds = [
            problem.gold
            for problem, entry in zip(members, entries, strict=True)
            for _ in entry.responses
        ]
        verdicts = iter(verify_unique(verifier, texts, golds))
        yield entries, [[next(verdicts) for _ in entry.responses] for entry in entries]


def write_responses(
    path: Path,
    journal: Journal,
    problems: Sequence[Problem],
    verifier: Verifier,
    *,
    extra: dict[str, Any],
    progress: ReportProgress = lambda done, total: None,
) -> dict[str, Any]:
    """Verifies the journal and writes responses.parquet (``schemas.RESPONSES``), streamed.

    Returns:
        Facts for the manifest, also kept in the file's own metadata: ``verdicts`` (count by
        status), ``finish_reasons``, ``warnings`` (sentences), and ``extra``.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from gapft_harness.schemas import RESPONSES

    statuses: Counter[str] = Counter()
    finishes: Counter[str] = Counter()
    watch = AlikeWatch()
    facts: dict[str, Any] = {}

    def write(beside: Path) -> None:
        done = 0
        with pq.ParquetWriter(beside, RESPONSES, compression="zstd") as writer:
            for entries, verdicts in judged(journal, problems, verifier):
                columns: dict[str, list[Any]] = {name: [] for name in RESPONSES.names}
                for entry, of_entry in zip(entries, verdicts, strict=True):
                    watch.see([r.text for r in entry.responses if r.index != GREEDY])
                    for response, verdict in zip(entry.responses, of_entry, strict=True):
                        for name in _PLAIN:
                            columns[name].append(getattr(response, name))
                        columns["attempts"].append([asdict(a) for a in response.attempts])
                        columns["status"].append(verdict.status)
                        columns["reason"].append(verdict.reason)
                        statuses[verdict.status] += 1
                        finishes[response.finish_reason] += 1
                writer.write_table(pa.table(columns, schema=RESPONSES))
                done += len(entries)
                progress(done, len(problems))
            facts.update(
                extra,
                verdicts=dict(sorted(statuses.items())),
                finish_reasons=dict(sorted(finishes.items())),
                warnings=[w for w in (watch.warning(), unjudged_warning(statuses)) if w],
            )
            writer.add_key_value_metadata({"gapft": json.dumps(facts)})

    replace_file(path, write)
    return facts


def unjudged_warning(statuses: Mapping[str, int]) -> str:
    """A sentence if a tenth or more of the verdicts are errors or time-outs, else nothing."""
    unjudged = statuses.get("error", 0) + statuses.get("timeout", 0)
    total = sum(statuses.values())
    if unjudged * 10 < total or not unjudged:
        return ""
    return (
        f"{unjudged} of {total} responses could not be judged ({statuses.get('error', 0)} errors, "
        f"{statuses.get('timeout', 0)} time-outs) and count as not passed; see the column reason"
    )


def read_facts(path: Path) -> dict[str, Any]:
    """The facts a sealed table carries in its metadata."""
    import pyarrow.parquet as pq

    facts: dict[str, Any] = json.loads(pq.read_metadata(path).metadata[b"gapft"])
    return facts


class AlikeWatch:
    """Watches for K samples that are no independent samples.

    Engines that share one random stream deal the same response to two sample numbers on every
    problem; engines that ignore ``do_sample`` deal one response K times. Short answers are often
    alike by right, so only agreement on *every* problem counts, over at least 20 problems, and a
    pair of sample numbers is suspicious only while other pairs do differ.
    """

    _LEAST = 20

    def __init__(self) -> None:
        self.problems = 0
        self._agreeing: dict[tuple[int, int], int] = {}
        self._k = 0

    def see(self, samples: Sequence[str]) -> None:
        """Takes in one problem's samples, in order of their numbers."""
        if len(samples) < 2:
            return
        self.problems += 1
        self._k = len(samples)
        for i, one in enumerate(samples):
            for j in range(i + 1, len(samples)):
                agrees = one == samples[j]
                self._agreeing[i, j] = self._agreeing.get((i, j), 0) + agrees

    def warning(self) -> str:
        """A sentence for people, empty if nothing is suspicious."""
        if self.problems < self._LEAST:
            return ""
        always = [pair for pair, count in self._agreeing.items() if count == self.problems]
        if not always:
            return ""
        if len(always) == len(self._agreeing):
            return (
                f"all {self._k} samples are the same on every one of {self.problems} problems: "
                "the backend may be ignoring the sampling settings or fixing one seed"
            )
        pairs = ", ".join(f"{i} and {j}" for i, j in always[:3])
        return (
            f"samples {pairs} are the same on every one of {self.problems} problems while others "
            "differ: the engine may be dealing one random stream twice"
        )
