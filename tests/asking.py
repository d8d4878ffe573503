"""Requests to samplers, with the seeds of their samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gapft_harness.core.records import Attempt, Decoding, Turn
from gapft_harness.core.streams import SampleStreams
from gapft_harness.hooks.protocols import Generated, Request


def make_request(
    problem_id: str,
    prompt: str,
    indices: Sequence[int],
    attempts: Sequence[Attempt] = (),
    turns: Sequence[Turn] = (),
    *,
    seed: int = 0,
) -> Request:
    """Make the request for a problem of the pool."""
    seeds = SampleStreams(seed, "search", "pool").derive_seeds(
        problem_id, len(attempts) + 1, indices
    )
    return Request(problem_id, prompt, tuple(indices), seeds, tuple(attempts), tuple(turns))


def ignore_progress(finished: int, tokens: int, note: str = "") -> None:
    """Ignore a sampler's progress."""


def generate_all(
    sampler: Any, requests: Sequence[Request], decoding: Decoding, seed: int = 0
) -> list[Generated]:
    """Generate answers to requests, with sample seeds derived from a search's seed."""
    again = [
        replace(request, seeds=make_request(*_list_fields(request), seed=seed).seeds)
        for request in requests
    ]
    generated: list[Generated] = sampler.generate(again, decoding, ignore_progress)
    return generated


def _list_fields(request: Request) -> tuple[str, str, tuple[int, ...], tuple[Attempt, ...]]:
    return request.problem_id, request.prompt, request.indices, request.attempts
