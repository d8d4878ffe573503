"""No division of work changes a sample, and streams are independent."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.core.records import GREEDY as GREEDY_INDEX
from gapft_harness.core.records import Decoding, Problem
from gapft_harness.core.streams import SampleStreams, derive_key
from gapft_harness.engine.store import Store
from gapft_harness.hooks.judge import Judge
from gapft_harness.hooks.protocols import Generated, ReportGeneration, Request, report_nothing
from gapft_harness.stages.generation.chunks import (
    DecodePhase,
    build_sample_phases,
    build_single_phase,
)
from gapft_harness.stages.generation.generation import Decodes, generate_and_judge
from tests.generated import generate_missing
from tests.kit.scripted import PrefixVerifier, SeededSampler

GREEDY = Decoding(do_sample=False, max_gen_toks=4)
SAMPLED = Decoding(do_sample=True, max_gen_toks=4, temperature=0.7)


def build_problems(count: int) -> list[Problem]:
    return [Problem(f"p{i}", "x" * (derive_key(i) % 7), "gold") for i in range(count)]


class SlowSampler(SeededSampler):
    """Takes a while for each call."""

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        time.sleep(0.02)
        return super().generate(requests, decoding, report)


def make_table(folder: Path, k: int) -> dict[str, Any]:
    """Search six problems in three chunks, as a command does; return the table's facts."""
    facts, *_ = generate_and_judge(
        Decodes({}, {"name": "prefixes"}, 2, SampleStreams(3, "search", "pool")),
        build_problems(6),
        [build_single_phase(GREEDY), *build_sample_phases(SAMPLED, k)],
        folder / "table.parquet",
        store=Store(folder / "store"),
        run="run",
        load_sampler=SlowSampler,
        require_same_model=lambda source: None,
        judge=Judge(PrefixVerifier()),
        progress=report_nothing,
    )
    return facts


def test_seconds_are_those_of_all_parts_that_a_table_uses(tmp_path: Path) -> None:
    """Not those of the last command, which may have generated only a few of them."""
    seconds = [make_table(tmp_path, k)["seconds"] for k in (8, 16, 16, 8)]
    assert seconds[0] >= 3 * 0.02
    assert seconds[1] >= seconds[0] + 3 * 0.02
    assert seconds[2:] == [seconds[1], seconds[0]]


def draw_samples(
    folder: Path,
    parts: Sequence[Sequence[Problem]],
    chunk: int,
    rounds: Sequence[Sequence[int]],
    workers: int = 1,
) -> dict[tuple[str, int], str]:
    """Return the text of every response of a divided search."""
    texts = {}
    phases = [DecodePhase(SAMPLED, tuple(r)) for r in rounds]
    for part in parts:
        for number in range(workers):
            responses = generate_missing(
                folder, part, [build_single_phase(GREEDY), *phases], SeededSampler(),
                streams=SampleStreams(3, "search", "pool"), chunk=chunk, share=(number, workers),
            )  # fmt: skip
        for entry in responses.read([p.id for p in part]):
            for response in entry.responses:
                texts[entry.problem_id, response.index] = response.text
    return texts


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_no_division_changes_samples(data: st.DataObject) -> None:
    """For any order, parts, chunks, rounds and workers, each sample has its own stream."""
    problems, k = build_problems(9), 4
    shuffled = data.draw(st.permutations(problems))
    part = data.draw(st.lists(st.integers(0, 2), min_size=9, max_size=9))
    parts = [[p for p, s in zip(shuffled, part, strict=True) if s == number] for number in range(3)]
    size, chunk = data.draw(st.integers(1, k)), data.draw(st.integers(1, 9))
    rounds = [range(start, min(start + size, k)) for start in range(0, k, size)]
    divided, workers = [part for part in parts if part], data.draw(st.integers(1, 3))
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        alone = draw_samples(Path(first), [problems], 9, [range(k)])
        assert draw_samples(Path(second), divided, chunk, rounds, workers) == alone
    sampled = [text for (_, index), text in alone.items() if index >= 0]
    assert len(set(sampled)) == len(sampled) == 9 * k, "all samples differ"


NAMED = (7, "search", "pool", None, "p", 1, 0)


@pytest.mark.parametrize("place", range(7))
def test_stream_depends_on_each_key(place: int) -> None:
    other = list(NAMED)
    other[place] = {0: 8, 1: "decode", 2: "audit", 3: 13, 4: "q", 5: 2, 6: 1}[place]
    seeds = []
    for seed, purpose, split, training, problem, attempt, index in (NAMED, other):
        streams = SampleStreams(seed, purpose, split, training)
        seeds += streams.derive_seeds(problem, attempt, (index,))
    assert seeds[0] != seeds[1]
    assert all(0 <= seed < 2**63 for seed in seeds)


@given(st.text(), st.integers(0, 2**63))
def test_seeds_differ_in_31_bits(problem: str, seed: int) -> None:
    seeds = SampleStreams(seed, "search", "pool").derive_seeds(problem, 1, range(64))
    assert len({seed % 2**31 for seed in seeds}) == 64
    assert SampleStreams(seed, "search", "pool").derive_seeds(problem, 1, (GREEDY_INDEX,)) == (0,)
