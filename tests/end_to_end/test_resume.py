"""A run that was killed repeatedly at any moment resumes and ends with the same bytes."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import time
from pathlib import Path

import psutil

from tests.end_to_end.letters_run import (
    CHUNK,
    POOL,
    Call,
    Child,
    K,
    Letters,
    Marker,
    count_decodes,
    find_stored_files,
    read_result,
    store_path,
    wait_for_marker,
)
from tests.kit.patience import PATIENCE_S

KILLS = 10
#: The pool's problems in chunks.
POOL_CHUNKS = -(-POOL // CHUNK)

#: Moments at which a run is killed.
MARKERS: list[Marker] = [
    ("search", lambda run: len(find_stored_files(store_path(run), split="pool")) >= 2),
    (
        "search",
        lambda run: len(find_stored_files(store_path(run), split="pool")) >= POOL_CHUNKS - 5,
    ),
    ("search", lambda run: len(find_stored_files(store_path(run), split="audit")) >= 2),
    ("states", lambda run: True),
    ("select", lambda run: True),
    ("train", lambda run: True),
    ("train", lambda run: any(run.glob("adapters/[!.]*"))),
    ("audit", lambda run: bool(find_stored_files(store_path(run), arm=True))),
    ("audit", lambda run: any(run.glob("decisions/[!.]*.parquet"))),
    ("report", lambda run: True),
]


class Sessions:
    """A run directory that is killed repeatedly; checks that sessions lose nothing."""

    def __init__(self, letters: Letters, name: str) -> None:
        self.letters = letters
        self.run = letters.folder / name
        self.calls: list[list[Call]] = []
        self.kept: dict[Path, bytes] = {}
        self.stages: list[str] = []

    def kill(self, child: Child) -> bool:
        """Kill a session and check that nothing from earlier sessions is lost.

        Returns:
            False if it had already ended.
        """
        if not child.kill():
            return False
        self.stages.append(child.stage())
        self.calls.append(self._new_calls())
        for path, before in self.kept.items():
            assert path.read_bytes() == before, f"{path} was stored, and changed"
        self.kept = {path: path.read_bytes() for path in find_stored_files(store_path(self.run))}
        return True

    def _new_calls(self) -> list[Call]:
        seen = sum(map(len, self.calls))
        return self.letters.calls(self.run.name)[seen:]

    def finish(self) -> None:
        """Finish the run and compare it with the uninterrupted run."""
        self.letters.finish(self.run)
        self.calls.append(self._new_calls())
        whole = read_result(self.letters.folder / "whole")
        assert read_result(self.run) == whole, f"killed in {self.stages}"
        # A decode is repeated only if it was in flight when its session was killed.
        again = count_decodes(call for session in self.calls for call in session)
        in_flight = count_decodes(session[-1] for session in self.calls[:-1] if session)
        assert set(again) == set(count_decodes(self.letters.whole_calls))
        for decode, times in again.items():
            assert times <= 1 + in_flight[decode], f"made {times} times: {decode}"


def test_uninterrupted_run_trains_and_decodes(letters: Letters) -> None:
    results = json.loads((letters.folder / "whole/report/results.json").read_text())
    assert results["pool"]["states"]["S"] > 0
    assert set(results["conditions"]) == {"slow_gapft", "all_verified"}
    assert len(letters.whole_calls) == len(set(letters.whole_calls)) > POOL_CHUNKS


def test_kills_in_every_stage_change_nothing(letters: Letters) -> None:
    """Ten kills of one run directory, each soon after a given moment of a stage."""
    rng = random.Random(4)
    sessions = Sessions(letters, "by-stage")
    for marker in MARKERS:
        child = letters.start(sessions.run)
        wait_for_marker(marker, child, sessions.run)
        time.sleep(rng.uniform(0, 0.05))
        assert sessions.kill(child), "it ended before it was killed"
    assert sessions.stages == [stage for stage, _ in MARKERS]
    sessions.finish()


def test_random_kills_change_nothing(letters: Letters) -> None:
    """Ten kills at seeded fractions of an uninterrupted run's time."""
    rng = random.Random(20)
    kills = runs = 0
    sessions = Sessions(letters, "by-time-0")
    while kills < KILLS:
        child = letters.start(sessions.run)
        try:
            child.process.wait(rng.uniform(0.05, 0.75) * letters.seconds)
        except subprocess.TimeoutExpired:
            if sessions.kill(child):
                kills += 1
                continue
        assert child.process.returncode == 0, child.output.read_text()
        sessions.finish()
        runs += 1
        sessions = Sessions(letters, f"by-time-{runs}")
    sessions.finish()


def test_killed_driver_leaves_no_writing_worker(
    letters: Letters,
) -> None:
    run = letters.folder / "orphan"
    child = letters.start(run)
    wait_for_marker(MARKERS[0], child, run)
    workers = psutil.Process(child.process.pid).children(recursive=True)
    assert workers
    child.process.kill()
    child.process.wait()
    assert psutil.wait_procs(workers, timeout=PATIENCE_S)[1] == [], "workers end with the driver"
    before = find_stored_files(store_path(run), split="pool")
    assert 2 <= len(before) < POOL_CHUNKS
    torn = before[0]
    torn.chmod(0o644)
    torn.write_bytes(torn.read_bytes()[:-7])
    calls = letters.calls("orphan")
    refused = letters.try_(run)
    assert refused.returncode == 2
    assert str(torn) in refused.stderr
    assert "Traceback" not in refused.stderr
    torn.unlink()
    letters.finish(run)
    assert read_result(run) == read_result(letters.folder / "whole")
    lost = {json.loads(line)["problem_id"] for line in torn.read_bytes().splitlines()[1:]}
    again = count_decodes(letters.calls("orphan"))
    repeated = {(None, name, index) for name in lost for index in range(K)}
    in_flight = set(count_decodes(calls[-1:]))
    assert repeated <= {decode for decode, times in again.items() if times > 1}
    assert {decode for decode, times in again.items() if times > 1} <= repeated | in_flight


def test_repeated_command_changes_nothing(letters: Letters) -> None:
    before = read_result(letters.folder / "whole")
    letters.finish(letters.folder / "whole")
    assert read_result(letters.folder / "whole") == before
    assert letters.calls("whole") == letters.whole_calls


def test_small_pool_reports_the_shortfall(letters: Letters) -> None:
    run = letters.folder / "small"
    before_selection = shutil.ignore_patterns("selections", "adapters", "decisions", "report")
    shutil.copytree(letters.folder / "whole", run, ignore=before_selection)
    done = letters.try_(run, "--set", f"budget.n={POOL + 1}")
    assert done.returncode == 2
    assert f"cannot fill the budget of {POOL + 1} examples" in done.stderr
    assert "too few" in done.stderr
    assert not (run / "selections").exists()
