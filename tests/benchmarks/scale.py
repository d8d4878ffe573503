"""100,000 and a million responses: stored by two workers, sealed, partitioned.

Generation and verification are nearly free, so the figures measure the harness. Each size runs in
its own processes; the peak memory is that of the largest process.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from gapft_harness.core.records import Decoding, Problem, Verdict
from gapft_harness.hooks.protocols import (
    Generated,
    Generation,
    ReportGeneration,
    Request,
    report_nothing,
)
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import write_problems
from gapft_harness.stages.generation.generation import (
    ChunkGenerator,
    build_greedy_phase,
    build_sample_phases,
    generate_chunks,
)
from gapft_harness.stages.generation.sealing import write_responses
from gapft_harness.stages.search.states import write_split_states
from tests.benchmarks.measure import Figure, run_process
from tests.generated import STREAMS, place_chunks, read_stored

K, CHUNK, WORKERS = 9, 16, 2
TASK = {"name": "none", "fingerprint": "none", "keep": "shortest", "dropped": []}
SMALL, LARGE = 100_000, 1_000_000
PHASES = [build_greedy_phase(Decoding(False, 64)), *build_sample_phases(Decoding(True, 64), K)]

#: A text of about 240 characters and 60 ids, like a short worked solution.
_TEXT = "First, the shop sells twelve boxes of pens and each box holds eight of them. " * 3
_IDS = tuple(range(1000, 1060))


def measure(folder: Path) -> list[Figure]:
    """Measure wall seconds and peak memory of both sizes, and the growth of processor time."""
    worked = {}
    figures = []
    for responses, seconds, gigabytes in ((SMALL, 30.0, 1.0), (LARGE, None, 1.5)):
        run = folder / str(responses)
        done = run_process([sys.executable, "-m", __name__, str(run), str(responses)], Path.cwd())
        seconds_taken, worked[responses] = map(float, (run / "seconds").read_text().split())
        figures += [
            Figure(f"{responses:,} responses", seconds_taken, seconds, "s", format_detail(run)),
            Figure(f"{responses:,} responses, peak memory", done.peak_gb, gigabytes, "GB"),
        ]
    growth = worked[LARGE] / worked[SMALL] / (LARGE / SMALL)
    return [*figures, Figure("processor time of a response, large size / small", growth, 1.2)]


class FromMemory:
    """A sampler that answers at once. A tenth of all problems are solved, a third recovered."""

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        """Return the same text for all requests, except for its last word."""
        return [
            Generated(_IDS, tuple(self._write(r.problem_id, index) for index in r.indices))
            for r in requests
        ]

    def _write(self, problem_id: str, index: int) -> Generation:
        number = int(problem_id[1:])
        right = number % 10 == 0 if index < 0 else number % 3 == 0 and index == number % K
        word = "right" if right else "wrong"
        return Generation(f"{_TEXT}{number} {index} {word}", _IDS, "stop")

    def describe(self) -> dict[str, Any]:
        """Return an empty description."""
        return {}

    def close(self) -> None:
        """Do nothing; there are no resources."""


class LastWord:
    """Passes responses that end with the gold word."""

    def verify(self, responses: Sequence[str], golds: Sequence[Any]) -> list[Verdict]:
        """Return one verdict per response."""
        return [Verdict("pass" if text.endswith("right") else "fail") for text in responses]


def search_pool(path: Path, responses: int) -> None:
    """Search a pool with workers, seal and partition it; write wall and processor seconds."""
    recipe = check_recipe(
        {
            "name": "scale",
            "data": {"task": "none"},
            "model": {"args": {"pretrained": "none"}},
            "search": {"k": K, "chunk": CHUNK},
        },
        "scale",
    )
    run = RunDirectory.create_or_open(path, recipe)
    run.update_manifest(lambda manifest: manifest.update(task=TASK))
    store = path.with_suffix(".store")
    start, marks = time.perf_counter(), Marks()
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        marks.seconds["generate"] = sum(
            pool.map(partial(search_share, store, responses), range(WORKERS))
        )
    problems = build_problems(responses)
    stored_responses = read_stored(place_chunks(store, problems, PHASES, CHUNK))
    (path / "pool").mkdir()
    write_problems(path / "pool/problems.parquet", problems, stored_responses.iterate_prompt_ids)
    extra = {"task": TASK, "source": {"weights_sha256": "none"}}
    write_responses(
        path / "pool/responses.parquet", stored_responses, problems, LastWord(), extra=extra
    )
    for file in ("problems", "responses"):
        run.seal(f"pool/{file}.parquet")
    marks.add("seal")
    facts = write_split_states(str(path), "pool")
    marks.add("partition")
    assert sum(facts["states"].values()) == len(problems)
    (path / "detail").write_text(", ".join(f"{n} {s:.1f} s" for n, s in marks.seconds.items()))
    total = sum(marks.seconds.values())
    (path / "seconds").write_text(f"{time.perf_counter() - start} {total}")


def search_share(store: Path, responses: int, number: int) -> float:
    """Generate one worker's chunks; return its processor seconds."""
    start = time.process_time()
    generate_chunks(
        place_chunks(store, build_problems(responses), PHASES, CHUNK),
        lambda: ChunkGenerator(FromMemory(), STREAMS),
        report_nothing,
        share=(number, WORKERS),
    )
    return time.process_time() - start


def build_problems(responses: int) -> list[Problem]:
    """Build the problems for this number of responses, 1 + K each."""
    return [
        Problem(f"p{i}", f"What is {i} times {i}?", "right") for i in range(responses // (1 + K))
    ]


class Marks:
    """Processor seconds by part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.process_time()

    def add(self, part: str) -> None:
        """Add the time since the last mark to this part."""
        now = time.process_time()
        self.seconds[part] = self.seconds.get(part, 0) + now - self._last
        self._last = now


def format_detail(run: Path) -> str:
    return (run / "detail").read_text()


if __name__ == "__main__":
    search_pool(Path(sys.argv[1]), int(sys.argv[2]))
