"""Chunks are fixed by the problems, resumption repeats them, and look-alike samples are noticed."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Decoding, Problem, Verdict
from gapft_harness.core.streams import derive
from gapft_harness.hooks.protocols import Generated, Generation, Request
from gapft_harness.run_directory.journal import Journal
from gapft_harness.stages.generation.generation import Phase, generate, greedy_phase
from gapft_harness.stages.generation.sealing import write_responses
from gapft_harness.verdicts.copies import AlikeWatch

GREEDY = Decoding(do_sample=False, max_gen_toks=4)
SAMPLED = Decoding(do_sample=True, max_gen_toks=4, temperature=0.7)
PHASES = [greedy_phase(GREEDY), Phase("samples", SAMPLED, (0, 1, 2))]


class SeededSampler:
    """Answers from (chunk seed, place in the chunk) alone, as a batched model does."""

    def __init__(self, fail_after: int | None = None) -> None:
        self.calls: list[list[str]] = []
        self._left = fail_after

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, seed: int
    ) -> list[Generated]:
        if self._left is not None and len(self.calls) >= self._left:
            raise KeyboardInterrupt
        self.calls.append([request.problem_id for request in requests])
        rng = random.Random(seed)
        return [
            Generated(
                (1, len(request.prompt)),
                tuple(
                    Generation(str(rng.randrange(9)), (rng.randrange(99),), "stop")
                    for _ in request.indices
                ),
            )
            for request in requests
        ]

    def describe(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass


class Odd:
    """Passes odd numbers."""

    def verify(self, responses: Sequence[str], golds: Sequence[Any]) -> list[Verdict]:
        return [Verdict("pass" if int(text) % 2 else "fail") for text in responses]


class SamplewiseSampler(SeededSampler):
    """Answers from (seed, problem, index) alone, as an engine with a seed a request does."""

    seeds_each_sample = True

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, seed: int
    ) -> list[Generated]:
        return [
            Generated(
                (1, len(request.prompt)),
                tuple(
                    Generation(str(derive(seed, request.problem_id, index)), (index + 2,), "stop")
                    for index in request.indices
                ),
            )
            for request in requests
        ]


def problems(count: int) -> list[Problem]:
    return [Problem(f"p{i}", "x" * (derive(i) % 7), "gold") for i in range(count)]


def run(sampler: SeededSampler, of: Sequence[Problem], journal: Journal, seed: int = 0) -> None:
    generate(
        of, PHASES, sampler, journal, purpose="test", source={}, seed=seed, chunk=4,
        progress=lambda done, total: None,
    )  # fmt: skip


def sealed(folder: Path, of: Sequence[Problem], journal: Journal) -> bytes:
    path = folder / "responses.parquet"
    write_responses(path, journal, of, Odd(), extra={})
    journal.close()
    return path.read_bytes()


def test_progress_counts_every_response_and_ends_complete(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    journal = Journal(tmp_path / "j")
    generate(
        problems(10), PHASES, SeededSampler(), journal, purpose="test", source={}, seed=0, chunk=4,
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    journal.close()
    assert seen[0] == (0, 40)
    assert seen[-1] == (40, 40)
    assert seen == sorted(seen)


@pytest.mark.parametrize("calls", range(6))
def test_an_interrupted_run_repeats_only_what_was_in_flight(tmp_path: Path, calls: int) -> None:
    of = problems(10)
    whole = Journal(tmp_path / "whole")
    run(SeededSampler(), of, whole)
    expected = sealed(tmp_path, of, whole)

    journal = Journal(tmp_path / "cut")
    with pytest.raises(KeyboardInterrupt):
        run(SeededSampler(fail_after=calls), of, journal)
    journal.close()
    journal = Journal(tmp_path / "cut")
    again = SeededSampler()
    run(again, of, journal)
    assert len(again.calls) == 6 - calls
    assert sealed(tmp_path, of, journal) == expected


def test_the_order_of_the_problems_changes_nothing(tmp_path: Path) -> None:
    of = problems(13)
    results = []
    for turn in range(3):
        journal = Journal(tmp_path / f"j{turn}")
        shuffled = random.Random(turn).sample(of, len(of))
        run(SeededSampler(), shuffled, journal)
        results.append(sealed(tmp_path, shuffled, journal))
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("what", ["prompt", "problem", "weights"])
def test_a_journal_of_other_prompts_problems_or_weights_is_refused(
    tmp_path: Path, what: str
) -> None:
    of = problems(6)
    journal = Journal(tmp_path / "j")
    run(SeededSampler(), of, journal)
    source = {}
    if what == "prompt":
        of[3] = Problem(of[3].id, of[3].prompt + "!", of[3].gold)
    elif what == "problem":
        of.append(Problem("new", "", "gold"))
    else:
        source = {"weights_sha256": "other"}
    before = (tmp_path / "j").read_bytes()
    with pytest.raises(UserError, match="other problems or prompts, or of other weights"):
        generate(
            of, PHASES, SeededSampler(), journal, purpose="test", source=source, seed=0, chunk=4,
            progress=lambda done, total: None,
        )  # fmt: skip
    journal.close()
    assert (tmp_path / "j").read_bytes() == before


def test_another_seed_gives_other_samples(tmp_path: Path) -> None:
    of = problems(13)
    results = []
    for seed in (0, 1):
        journal = Journal(tmp_path / f"j{seed}")
        run(SeededSampler(), of, journal, seed)
        results.append(sealed(tmp_path, of, journal))
    assert results[0] != results[1]


def drawn(
    folder: Path,
    sampler: SeededSampler,
    parts: Sequence[Sequence[Problem]],
    chunk: int,
    rounds: Sequence[Sequence[int]],
) -> dict[tuple[str, int], str]:
    """Every response's text of a search that is divided so."""
    found = {}
    phases = [Phase(f"samples from {r[0]}", SAMPLED, tuple(r)) for r in rounds]
    for number, part in enumerate(parts):
        journal = Journal(folder / f"{number}.jsonl")
        generate(
            part, [greedy_phase(GREEDY), *phases], sampler, journal, purpose="search/pool",
            source={}, seed=3, chunk=chunk, progress=lambda done, total: None,
        )  # fmt: skip
        for entry in journal.read([p.id for p in part]):
            for response in entry.responses:
                found[entry.problem_id, response.index] = response.text
    return found


@given(st.data())
@settings(max_examples=30)
def test_no_division_changes_a_sample_that_has_a_seed_of_its_own(data: st.DataObject) -> None:
    """Shards, chunks and rounds of any size; a sampler with a seed a chunk does depend on them."""
    of, k = problems(9), 4
    shard = data.draw(st.lists(st.integers(0, 2), min_size=9, max_size=9))
    parts = [[p for p, s in zip(of, shard, strict=True) if s == number] for number in range(3)]
    size, chunk = data.draw(st.integers(1, k)), data.draw(st.integers(1, 9))
    rounds = [range(start, min(start + size, k)) for start in range(0, k, size)]
    whole, divided = [of], [part for part in parts if part]
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        alone = drawn(Path(one), SamplewiseSampler(), whole, 9, [range(k)])
        assert drawn(Path(other), SamplewiseSampler(), divided, chunk, rounds) == alone
    assert len(set(alone.values())) == len(alone) == 9 * (1 + k), "each of its own"


def test_a_seed_of_a_chunk_is_that_chunks_own(tmp_path: Path) -> None:
    texts = []
    for chunk in (3, 4):
        folder = tmp_path / str(chunk)
        folder.mkdir()
        texts.append(drawn(folder, SeededSampler(), [problems(9)], chunk, [range(4)]))
    assert texts[0] != texts[1]


def watched(samples: Sequence[Sequence[str]]) -> str:
    watch = AlikeWatch()
    for of_problem in samples:
        watch.see(of_problem)
    return watch.warning()


def test_one_response_dealt_k_times_is_noticed() -> None:
    assert "all 4 samples are the same on every one of 30 problems" in watched(
        [[str(i)] * 4 for i in range(30)]
    )


def test_a_stream_dealt_twice_is_noticed() -> None:
    rng = random.Random(0)
    samples = []
    for _ in range(30):
        a, b = rng.random(), rng.random()
        samples.append([str(a), str(b), str(a), str(b)])
    assert "samples 0 and 2, 1 and 3 are the same" in watched(samples)


@given(st.integers(1, 29))
def test_short_answers_that_mostly_agree_are_no_alarm(different: int) -> None:
    samples = [["B"] * 4 for _ in range(30)]
    for i in range(4):
        samples[different][i] = f"other {i}"
    assert watched(samples) == ""


def test_few_problems_are_no_evidence() -> None:
    assert watched([["B"] * 4] * 19) == ""
