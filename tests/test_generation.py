"""Chunks are fixed by the problems, resumption repeats them, and look-alike samples are noticed."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY as GREEDY_INDEX
from gapft_harness.core.records import Decoding, Problem, Verdict
from gapft_harness.core.streams import SampleStreams, derive
from gapft_harness.hooks.protocols import (
    Generated,
    Generation,
    ReportGeneration,
    ReportProgress,
    Request,
    report_nothing,
)
from gapft_harness.run_directory.journal import Journal
from gapft_harness.stages.generation.generation import Phase, generate, greedy_phase
from gapft_harness.stages.generation.sealing import write_responses
from gapft_harness.verdicts.copies import AlikeWatch

GREEDY = Decoding(do_sample=False, max_gen_toks=4)
SAMPLED = Decoding(do_sample=True, max_gen_toks=4, temperature=0.7)
PHASES = [greedy_phase(GREEDY), Phase("samples", SAMPLED, (0, 1, 2))]


class SeededSampler:
    """Answers from each sample's seed alone."""

    def __init__(self, fail_after: int | None = None) -> None:
        self.calls: list[list[str]] = []
        self._left = fail_after

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        if self._left is not None and len(self.calls) >= self._left:
            raise KeyboardInterrupt
        self.calls.append([request.problem_id for request in requests])
        answers = []
        for number, request in enumerate(requests, start=1):
            texts = [str(random.Random(seed).randrange(10**9)) for seed in request.seeds]
            generations = tuple(Generation(text, (int(text) % 99,), "stop") for text in texts)
            answers.append(Generated((1, len(request.prompt)), generations))
            report(number * len(request.indices), number)
        return answers

    def describe(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass


class Odd:
    """Passes odd numbers."""

    def verify(self, responses: Sequence[str], golds: Sequence[Any]) -> list[Verdict]:
        return [Verdict("pass" if int(text) % 2 else "fail") for text in responses]


def problems(count: int) -> list[Problem]:
    return [Problem(f"p{i}", "x" * (derive(i) % 7), "gold") for i in range(count)]


def run(
    sampler: SeededSampler,
    of: Sequence[Problem],
    journal: Journal,
    seed: int = 0,
    source: Mapping[str, Any] | None = None,
    progress: ReportProgress = report_nothing,
) -> None:
    generate(
        of, PHASES, sampler, journal, streams=SampleStreams(seed, "search", "pool"),
        source=source or {}, chunk=4, progress=progress,
    )  # fmt: skip


def sealed(folder: Path, of: Sequence[Problem], journal: Journal) -> bytes:
    path = folder / "responses.parquet"
    write_responses(path, journal, of, Odd(), extra={})
    journal.close()
    return path.read_bytes()


def test_progress_counts_every_response_and_ends_complete(tmp_path: Path) -> None:
    seen: list[tuple[int, int, int]] = []
    journal = Journal(tmp_path / "j")

    def progress(done: int, total: int, tokens: int = 0, note: str = "") -> None:
        seen.append((done, total, tokens))

    run(SeededSampler(), problems(10), journal, progress=progress)
    journal.close()
    assert seen[0] == (0, 40, 0)
    assert seen[-1] == (40, 40, 40)
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert {1, 2, 3} <= {done for done, _, _ in seen}, "within the first chunk, too"
    assert [done for done, _, _ in seen].count(40) == 1, "complete only when it is journalled"


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
        run(SeededSampler(), of, journal, source=source)
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
    folder: Path, parts: Sequence[Sequence[Problem]], chunk: int, rounds: Sequence[Sequence[int]]
) -> dict[tuple[str, int], str]:
    """Every response's text of a search that is divided so."""
    found = {}
    phases = [Phase(f"samples from {r[0]}", SAMPLED, tuple(r)) for r in rounds]
    for number, part in enumerate(parts):
        journal = Journal(folder / f"{number}.jsonl")
        generate(
            part, [greedy_phase(GREEDY), *phases], SeededSampler(), journal,
            streams=SampleStreams(3, "search", "pool"), source={}, chunk=chunk,
            progress=report_nothing,
        )  # fmt: skip
        for entry in journal.read([p.id for p in part]):
            for response in entry.responses:
                found[entry.problem_id, response.index] = response.text
    return found


@given(st.data())
@settings(max_examples=30)
def test_no_division_changes_a_sample(data: st.DataObject) -> None:
    """Parts, chunks and rounds of any size: each sample has a stream of its own."""
    of, k = problems(9), 4
    part = data.draw(st.lists(st.integers(0, 2), min_size=9, max_size=9))
    parts = [[p for p, s in zip(of, part, strict=True) if s == number] for number in range(3)]
    size, chunk = data.draw(st.integers(1, k)), data.draw(st.integers(1, 9))
    rounds = [range(start, min(start + size, k)) for start in range(0, k, size)]
    divided = [part for part in parts if part]
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        alone = drawn(Path(one), [of], 9, [range(k)])
        assert drawn(Path(other), divided, chunk, rounds) == alone
    sampled = [text for (_, index), text in alone.items() if index >= 0]
    assert len(set(sampled)) == len(sampled) == 9 * k, "each of its own"


NAMED = (7, "search", "pool", None, "p", 1, 0)


@pytest.mark.parametrize("place", range(7))
def test_a_stream_depends_on_each_of_its_names(place: int) -> None:
    other = list(NAMED)
    other[place] = {0: 8, 1: "decode", 2: "audit", 3: 13, 4: "q", 5: 2, 6: 1}[place]
    seeds = []
    for seed, purpose, split, training, problem, attempt, index in (NAMED, other):
        streams = SampleStreams(seed, purpose, split, training)
        seeds += streams.seeds_of(problem, attempt, (index,))
    assert seeds[0] != seeds[1]
    assert all(0 <= seed < 2**63 for seed in seeds)


@given(st.text(), st.integers(0, 2**63))
def test_the_seeds_of_one_problem_differ_in_31_bits_too(problem: str, seed: int) -> None:
    seeds = SampleStreams(seed, "search", "pool").seeds_of(problem, 1, range(64))
    assert len({seed % 2**31 for seed in seeds}) == 64
    assert SampleStreams(seed, "search", "pool").seeds_of(problem, 1, (GREEDY_INDEX,)) == (0,)


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
