"""Chunks depend on the problems only and can be resumed; equal samples cause a warning."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.core.records import GREEDY as GREEDY_INDEX
from gapft_harness.core.records import Decoding, Problem, Verdict
from gapft_harness.core.streams import SampleStreams, derive_key
from gapft_harness.hooks.protocols import (
    Generated,
    Generation,
    ReportGeneration,
    ReportProgress,
    Request,
    report_nothing,
)
from gapft_harness.stages.generation.chunks import DecodePhase
from gapft_harness.stages.generation.generation import build_greedy_phase, divide_into_chunks
from gapft_harness.stages.generation.sealing import write_responses
from gapft_harness.stages.generation.stored_files import StoredResponses
from gapft_harness.verdicts.copies import CopyDetector
from tests.generated import generate_missing, place_chunks, read_contents, read_response_files

GREEDY = Decoding(do_sample=False, max_gen_toks=4)
SAMPLED = Decoding(do_sample=True, max_gen_toks=4, temperature=0.7)
PHASES = [build_greedy_phase(GREEDY), DecodePhase("samples", SAMPLED, (0, 1, 2))]


class SeededSampler:
    """Derives each answer from the sample's seed alone."""

    def __init__(self, fail_after: int | None = None) -> None:
        self.calls: list[list[str]] = []
        self.indices: set[int] = set()
        self._fail_after = fail_after

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        if self._fail_after is not None and len(self.calls) >= self._fail_after:
            raise KeyboardInterrupt
        self.calls.append([request.problem_id for request in requests])
        self.indices.update(index for request in requests for index in request.indices)
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


class OddVerifier:
    """Passes odd numbers."""

    def verify(self, responses: Sequence[str], golds: Sequence[Any]) -> list[Verdict]:
        return [Verdict("pass" if int(text) % 2 else "fail") for text in responses]


def build_problems(count: int) -> list[Problem]:
    return [Problem(f"p{i}", "x" * (derive_key(i) % 7), "gold") for i in range(count)]


def generate_responses(
    folder: Path,
    sampler: SeededSampler,
    problems: Sequence[Problem],
    *,
    seed: int = 0,
    model: str = "",
    progress: ReportProgress = report_nothing,
    share: tuple[int, int] = (0, 1),
) -> StoredResponses:
    return generate_missing(
        folder, problems, PHASES, sampler, streams=SampleStreams(seed, "search", "pool"), chunk=4,
        progress=progress, model=model, share=share,
    )  # fmt: skip


def seal_responses(folder: Path, problems: Sequence[Problem], responses: StoredResponses) -> bytes:
    path = folder / "responses.parquet"
    write_responses(path, responses, problems, OddVerifier(), extra={})
    return path.read_bytes()


def test_progress_counts_every_response(tmp_path: Path) -> None:
    problems = build_problems(10)
    seen: list[tuple[int, int, int]] = []
    stored: list[int] = []

    def progress(done: int, total: int, tokens: int = 0, note: str = "") -> None:
        seen.append((done, total, tokens))
        stored.append(len(read_response_files(tmp_path)))

    generate_responses(tmp_path, SeededSampler(), problems, progress=progress)
    assert seen[0] == (0, 40, 0)
    assert seen[-1] == (40, 40, 40)
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert {4, 8, 12} <= {done for done, _, _ in seen}, "also within the first chunk"
    assert [done for done, _, _ in seen].count(40) == 1
    assert stored[-1] == 3 * len(PHASES), "complete only after everything is stored"


def test_progress_includes_work_of_other_commands(tmp_path: Path) -> None:
    problems = build_problems(10)
    seen: list[tuple[int, int]] = []

    class Overtaken(SeededSampler):
        """Another command generates the rest during the first request."""

        def generate(self, *arguments: Any) -> list[Generated]:
            if not self.calls:
                generate_responses(tmp_path, SeededSampler(), problems, share=(1, 2))
                generate_responses(tmp_path, SeededSampler(), problems, share=(2, 3))
            return super().generate(*arguments)

    sampler = Overtaken()
    generate_responses(
        tmp_path,
        sampler,
        problems,
        progress=lambda done, total, *_, **__: seen.append((done, total)),
    )
    assert len(sampler.calls) == 1
    assert seen[-1] == (40, 40)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


@pytest.mark.parametrize("is_made", [False, True])
def test_claimed_chunk_is_generated_last(tmp_path: Path, is_made: bool) -> None:
    """It is generated here only if the other command ended without it."""
    problems = build_problems(10)
    expected = [[problem.id for problem in members] for members in divide_into_chunks(problems, 4)]
    generate_responses(tmp_path / "other", SeededSampler(), problems)
    chunks = place_chunks(tmp_path / "here", problems, PHASES, 4)
    other = contextlib.ExitStack()

    class Awaited(SeededSampler):
        def generate(self, *arguments: Any) -> list[Generated]:
            if len(self.calls) == 1:
                assert chunks[0].list_missing(), "the claimed chunk is skipped"
                if is_made:
                    source = place_chunks(tmp_path / "other", problems, PHASES, 4)[0]
                    for phase in PHASES:
                        group, name = chunks[0].places[phase]
                        group.store_file(name, source.find_path(phase).read_bytes())
                other.close()
            return super().generate(*arguments)

    sampler = Awaited()
    seen: list[tuple[int, int]] = []
    with other:
        assert other.enter_context(chunks[0].claim_files(wait=False))
        generate_responses(
            tmp_path / "here", sampler, problems,
            progress=lambda done, total, *_, **__: seen.append((done, total)),
        )  # fmt: skip
    assert sampler.calls == [*expected[1:], *([] if is_made else expected[:1])]
    assert read_contents(tmp_path / "here") == read_contents(tmp_path / "other")
    assert seen[-1] == (40, 40)


@pytest.mark.parametrize("calls", range(3))
def test_resume_repeats_only_unfinished_chunks(tmp_path: Path, calls: int) -> None:
    problems = build_problems(10)
    expected = seal_responses(
        tmp_path, problems, generate_responses(tmp_path / "whole", SeededSampler(), problems)
    )

    with pytest.raises(KeyboardInterrupt):
        generate_responses(tmp_path / "cut", SeededSampler(fail_after=calls), problems)
    again = SeededSampler()
    responses = generate_responses(tmp_path / "cut", again, problems)
    assert len(again.calls) == 3 - calls
    assert seal_responses(tmp_path, problems, responses) == expected
    assert read_contents(tmp_path / "cut") == read_contents(tmp_path / "whole")


@pytest.mark.parametrize("lost", PHASES, ids=lambda phase: phase.name)
def test_generates_only_the_missing_phase(tmp_path: Path, lost: DecodePhase) -> None:
    """As after a kill between the two files of a chunk."""
    problems = build_problems(10)
    generate_responses(tmp_path, SeededSampler(), problems)
    whole = read_contents(tmp_path)
    chunk = place_chunks(tmp_path, problems, PHASES, 4)[1]
    chunk.find_path(lost).unlink()
    again = SeededSampler()
    generate_responses(tmp_path, again, problems)
    assert again.calls == [[problem.id for problem in chunk.members]]
    assert again.indices == set(lost.indices)
    assert read_contents(tmp_path) == whole


def test_problem_order_changes_nothing(tmp_path: Path) -> None:
    problems = build_problems(13)
    results = []
    for turn in range(3):
        shuffled = random.Random(turn).sample(problems, len(problems))
        responses = generate_responses(tmp_path / str(turn), SeededSampler(), shuffled)
        results.append(seal_responses(tmp_path, shuffled, responses))
    assert results[0] == results[1] == results[2]
    assert (
        read_contents(tmp_path / "0")
        == read_contents(tmp_path / "1")
        == read_contents(tmp_path / "2")
    )


@pytest.mark.parametrize("what", ["prompt", "problem", "fewer problems", "model"])
def test_changed_inputs_get_their_own_files(tmp_path: Path, what: str) -> None:
    """Existing files stay, and only changed chunks are generated."""
    problems, model = build_problems(13), ""
    generate_responses(tmp_path, SeededSampler(), problems)
    files_before, known_chunks = read_contents(tmp_path), divide_into_chunks(problems, 4)
    place = problems.index(known_chunks[1][2])
    if what == "prompt":
        problems[place] = Problem(
            problems[place].id, problems[place].prompt + "!", problems[place].gold
        )
    elif what == "problem":
        problems.append(Problem("new", "", "gold"))
    elif what == "fewer problems":
        del problems[place]
    else:
        model, known_chunks = "other", []
    sampler = SeededSampler()
    responses = generate_responses(tmp_path, sampler, problems, model=model)
    after = read_contents(tmp_path)
    assert files_before.items() < after.items()
    changed = [
        members for members in divide_into_chunks(problems, 4) if members not in known_chunks
    ]
    assert sampler.calls == [[problem.id for problem in members] for members in changed] != []
    table = seal_responses(tmp_path, problems, responses)
    assert table == seal_responses(
        tmp_path, problems, generate_responses(tmp_path / "alone", SeededSampler(), problems)
    )


def test_unchanged_chunks_are_reused(tmp_path: Path) -> None:
    """A problem that sorts last does not change the other chunks."""
    problems = build_problems(12)
    generate_responses(tmp_path, SeededSampler(), problems)
    names = (Problem(f"z{i}", "", "gold") for i in range(1000))
    last = next(
        p
        for p in names
        if divide_into_chunks([*problems, p], 4)[:-1] == divide_into_chunks(problems, 4)
    )
    sampler = SeededSampler()
    generate_responses(tmp_path, sampler, [*problems, last])
    assert sampler.calls == [[last.id]]


def test_seeds_give_different_samples(tmp_path: Path) -> None:
    problems = build_problems(13)
    results = [
        seal_responses(
            tmp_path, problems, generate_responses(tmp_path, SeededSampler(), problems, seed=seed)
        )
        for seed in (0, 1)
    ]
    assert results[0] != results[1]


def draw_samples(
    folder: Path,
    parts: Sequence[Sequence[Problem]],
    chunk: int,
    rounds: Sequence[Sequence[int]],
    workers: int = 1,
) -> dict[tuple[str, int], str]:
    """Return the text of every response of a divided search."""
    texts = {}
    phases = [DecodePhase(f"samples from {r[0]}", SAMPLED, tuple(r)) for r in rounds]
    for part in parts:
        for number in range(workers):
            responses = generate_missing(
                folder, part, [build_greedy_phase(GREEDY), *phases], SeededSampler(),
                streams=SampleStreams(3, "search", "pool"), chunk=chunk, share=(number, workers),
            )  # fmt: skip
        for entry in responses.read([p.id for p in part]):
            for response in entry.responses:
                texts[entry.problem_id, response.index] = response.text
    return texts


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_no_division_changes_samples(data: st.DataObject) -> None:
    """For any parts, chunks, rounds and workers, each sample has its own stream."""
    problems, k = build_problems(9), 4
    part = data.draw(st.lists(st.integers(0, 2), min_size=9, max_size=9))
    parts = [[p for p, s in zip(problems, part, strict=True) if s == number] for number in range(3)]
    size, chunk = data.draw(st.integers(1, k)), data.draw(st.integers(1, 9))
    rounds = [range(start, min(start + size, k)) for start in range(0, k, size)]
    divided, workers = [part for part in parts if part], data.draw(st.integers(1, 3))
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        alone = draw_samples(Path(first), [problems], 9, [range(k)])
        assert draw_samples(Path(second), divided, chunk, rounds, workers) == alone
    sampled = [text for (_, index), text in alone.items() if index >= 0]
    assert len(set(sampled)) == len(sampled) == 9 * k, "all samples differ"


def test_worker_generates_only_its_share(tmp_path: Path) -> None:
    problems = build_problems(18)
    calls = []
    for number in range(3):
        sampler = SeededSampler()
        generate_responses(tmp_path, sampler, problems, share=(number, 3))
        calls.append(sampler.calls)
    expected = [[problem.id for problem in members] for members in divide_into_chunks(problems, 4)]
    assert calls == [expected[number::3] for number in range(3)]


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


def detect_copies(samples: Sequence[Sequence[str]]) -> str:
    detector = CopyDetector()
    for texts in samples:
        detector.add(texts)
    return detector.format_warning()


def test_warns_of_identical_samples() -> None:
    assert "all 4 samples are the same on every one of 30 problems" in detect_copies(
        [[str(i)] * 4 for i in range(30)]
    )


def test_warns_of_repeated_stream() -> None:
    rng = random.Random(0)
    samples = []
    for _ in range(30):
        a, b = rng.random(), rng.random()
        samples.append([str(a), str(b), str(a), str(b)])
    assert "samples 0 and 2, 1 and 3 are the same" in detect_copies(samples)


@given(st.integers(1, 29))
def test_ignores_mostly_equal_short_answers(different: int) -> None:
    samples = [["B"] * 4 for _ in range(30)]
    for i in range(4):
        samples[different][i] = f"other {i}"
    assert detect_copies(samples) == ""


def test_ignores_few_problems() -> None:
    assert detect_copies([["B"] * 4] * 19) == ""
