"""Generate responses into a store, as search and audit do, without a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gapft_harness.core.records import Problem
from gapft_harness.core.streams import SampleStreams
from gapft_harness.hooks.judge import Judge
from gapft_harness.hooks.protocols import ReportProgress, report_nothing
from gapft_harness.stages.generation.chunks import Chunk, DecodePhase
from gapft_harness.stages.generation.episodes import Episodes
from gapft_harness.stages.generation.generation import (
    ChunkGenerator,
    divide_into_chunks,
    generate_chunks,
)
from gapft_harness.stages.generation.stored_files import StoredResponses
from gapft_harness.store.store import Store

STREAMS = SampleStreams(0, "search", "pool")


def place_chunks(
    folder: Path,
    problems: Sequence[Problem],
    phases: Sequence[DecodePhase],
    chunk: int = 2,
    *,
    streams: SampleStreams = STREAMS,
    episodes: Episodes | None = None,
    model: str = "",
) -> list[Chunk]:
    """Cut problems into chunks whose responses are stored in a folder, by model and phase."""
    store = Store(folder)
    groups = {}
    for phase in phases:
        made_from = {
            "model": model,
            "decoding": repr(phase.decoding),
            "streams": asdict(streams),
        }
        groups[phase] = store.find_group("generate", 1, made_from)
        groups[phase].create({})
    several = episodes is not None and episodes.attempts > 1
    return [
        Chunk.place_files(members, groups, several)
        for members in divide_into_chunks(problems, chunk)
    ]


def generate_missing(
    folder: Path,
    problems: Sequence[Problem],
    phases: Sequence[DecodePhase],
    sampler: Any,
    *,
    streams: SampleStreams = STREAMS,
    chunk: int = 2,
    progress: ReportProgress = report_nothing,
    episodes: Episodes | None = None,
    judge: Judge | None = None,
    model: str = "",
    share: tuple[int, int] = (0, 1),
) -> StoredResponses:
    """Generate missing responses; return those of a split, or the existing ones of a share."""
    chunks = place_chunks(
        folder, problems, phases, chunk, streams=streams, episodes=episodes, model=model
    )
    generate_chunks(
        chunks,
        lambda: ChunkGenerator(sampler, streams, episodes, judge),
        progress,
        episodes.attempts if episodes else 1,
        share,
    )
    return read_stored(chunks)


def read_stored(chunks: Sequence[Chunk]) -> StoredResponses:
    """Return the stored responses of some chunks."""
    responses = StoredResponses()
    for chunk in chunks:
        for phase in chunk.places:
            if chunk.find_path(phase).exists():
                responses.add(chunk.find_path(phase))
    return responses


def read_contents(folder: Path) -> dict[str, bytes]:
    """Return the content of every file in a folder, by relative path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def read_response_files(folder: Path) -> dict[str, bytes]:
    """Return the content of the response files in a store's folder."""
    return {name: data for name, data in read_contents(folder).items() if name.endswith(".jsonl")}
