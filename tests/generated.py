"""Generate responses with a store, as search and audit do, without a run."""

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
from gapft_harness.stages.generation.generating import ChunkGenerator, generate_chunks
from gapft_harness.stages.generation.lines import Responses
from tests.kit.scripted import PrefixVerifier

STREAMS = SampleStreams(0, "search", "pool")
SILENT = Judge(PrefixVerifier())


def place_chunks(
    problems: Sequence[Problem],
    phases: Sequence[DecodePhase],
    chunk: int = 2,
    *,
    streams: SampleStreams = STREAMS,
    attempts: int = 1,
    model: str = "",
) -> list[Chunk]:
    """Divide problems into chunks, with the parts of their responses."""
    several = attempts > 1
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
    judge: Judge = SILENT,
    attempts: int = 1,
    model: str = "",
    share: tuple[int, int] = (0, 1),
) -> Responses:
    """Generate missing responses into the store in a folder; return the stored ones."""
    store = Store(folder)
    chunks = place_chunks(problems, phases, chunk, streams=streams, attempts=attempts, model=model)
    generate_chunks(
        store,
        chunks,
        lambda: ChunkGenerator(sampler, {}, streams, judge, attempts),
        progress,
        share,
    )
    responses = Responses()
    for placed in chunks:
        for part in placed.find_parts(store).values():
            responses.add(part)
    return responses
