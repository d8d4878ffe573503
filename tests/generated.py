"""Generate and judge responses with a store, as search and audit do, without a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gapft_harness.core.records import Problem
from gapft_harness.core.streams import SampleStreams
from gapft_harness.engine.step import Part, Step
from gapft_harness.engine.store import Store
from gapft_harness.hooks.judge import Judge
from gapft_harness.hooks.protocols import ReportProgress, report_nothing
from gapft_harness.stages.generation.chunks import Chunk, DecodePhase, divide_into_chunks
from gapft_harness.stages.generation.episodes import Episodes
from gapft_harness.stages.generation.generating import ChunkGenerator, generate_chunks
from gapft_harness.stages.generation.judging import ChunkJudge
from gapft_harness.stages.generation.lines import Responses
from gapft_harness.stages.generation.table import write_responses

STREAMS = SampleStreams(0, "search", "pool")
SINGLE = Episodes(1, lambda texts, golds: [None] * len(texts))


def place_chunks(
    problems: Sequence[Problem],
    phases: Sequence[DecodePhase],
    chunk: int = 2,
    *,
    streams: SampleStreams = STREAMS,
    episodes: Episodes = SINGLE,
    model: str = "",
) -> list[Chunk]:
    """Divide problems into chunks, with the parts of their responses."""
    several = episodes.attempts > 1
    chunks = []
    for members in divide_into_chunks(problems, chunk):
        seen = [[p.id, p.prompt, p.gold if several else ""] for p in members]
        parts = {}
        for phase in phases:
            settings = {"model": model, "decoding": repr(phase.decoding), **asdict(streams)}
            step = Step("responses", generate_chunks, settings)
            parts[phase] = Part(step, {"problems": seen, "indices": [*phase.indices]})
        chunks.append(Chunk(members, parts))
    return chunks


def generate_missing(
    folder: Path,
    problems: Sequence[Problem],
    phases: Sequence[DecodePhase],
    sampler: Any,
    *,
    streams: SampleStreams = STREAMS,
    chunk: int = 2,
    progress: ReportProgress = report_nothing,
    episodes: Episodes = SINGLE,
    judge: Judge | None = None,
    model: str = "",
    share: tuple[int, int] = (0, 1),
) -> Responses:
    """Generate missing responses into the store in a folder; return the stored ones."""
    store = Store(folder)
    chunks = place_chunks(problems, phases, chunk, streams=streams, episodes=episodes, model=model)
    generate_chunks(
        store,
        chunks,
        lambda: ChunkGenerator(sampler, {}, streams, episodes, judge),
        progress,
        share,
    )
    responses = Responses()
    for placed in chunks:
        for part in placed.find_parts(store).values():
            responses.add(part)
    return responses


def judge_and_write(
    path: Path,
    responses: Responses,
    problems: Sequence[Problem],
    judge: Judge,
    episodes: Episodes = SINGLE,
    executions: int = 1,
) -> dict[str, Any]:
    """Judge responses without a store, and write them as a table; return its facts."""
    entries = list(responses.read([problem.id for problem in problems]))
    judged = ChunkJudge(judge, episodes, executions).judge_entries(entries, problems)
    indices = {response.index for entry in entries for response in entry.responses}
    for decided in (True, False):
        responses.add_lines(judged.build_lines(indices, decided=decided))
    return write_responses(path, responses, problems, extra={}, executions=executions)


def read_contents(folder: Path) -> dict[str, bytes]:
    """Return the content of every file in a folder, by relative path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def read_parts(folder: Path) -> dict[str, bytes]:
    """Return the content of the parts in a store's folder."""
    return {name: data for name, data in read_contents(folder).items() if name.endswith(".jsonl")}
