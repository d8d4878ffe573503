"""WorkerPool: every item gets its own outcome, whatever other items do to their worker."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gapft_harness.core.errors import GapftError
from gapft_harness.verification.pool import BATCH, Outcome, WorkerPool
from gapft_harness.verification.pool_child import ORPHAN_SECONDS


@pytest.fixture(autouse=True)
def functions_on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture
def pool():
    with WorkerPool("worker_functions:misbehave", workers=2, timeout_s=1.0) as worker_pool:
        yield worker_pool


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_outcomes_keep_item_order():
    with WorkerPool("worker_functions:square", workers=2) as pool:
        items = list(range(10 * BATCH))
        assert pool.map(items) == [Outcome("done", i * i) for i in items]
        assert pool.map([]) == []
        assert pool.map([3]) == [Outcome("done", 9)]


@pytest.mark.parametrize("item", ["hang in C", "sleep", "swallow"])
def test_hanging_item_times_out_alone(pool, item):
    items = [*range(5), item, *range(5, 3 * BATCH)]
    outcomes = pool.map(items)
    assert outcomes.pop(5) == Outcome("timeout", reason="no result within 1 s")
    assert outcomes == [Outcome("done", i) for i in range(3 * BATCH)]


def test_item_that_kills_workers_twice_fails(pool):
    items = ["die", *range(BATCH), "die loudly"]
    first, *middle, last = pool.map(items)
    assert first == Outcome("died", reason="its worker died twice (exit status 3)")
    assert middle == [Outcome("done", i) for i in range(BATCH)]
    assert last == Outcome("died", reason="its worker died twice (signal SIGABRT: out of luck)")


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ("raise", "KeyError: 'a key'"),
        ("exit", "SystemExit: 4"),
        ("unprintable", "Unprintable"),
        ("no JSON", "TypeError: Object of type set is not JSON serializable"),
    ],
)
def test_exception_is_reported_and_worker_kept(pool, item, reason):
    assert pool.map([item, 1]) == [Outcome("raised", reason=reason), Outcome("done", 1)]


def test_memory_is_limited():
    with WorkerPool("worker_functions:misbehave", workers=1, memory_bytes=1 << 30) as pool:
        assert pool.map(["exhaust memory", 1]) == [
            Outcome("raised", reason="MemoryError"),
            Outcome("done", 1),
        ]


def test_workers_persist_with_one_hash_seed():
    with WorkerPool("worker_functions:environment", workers=1) as pool:
        seen = [outcome.value for outcome in pool.map([1, 2]) + pool.map([3])]
    assert len({s["pid"] for s in seen}) == 1
    assert {s["hash_seed"] for s in seen} == {"0"}


def test_cpu_limit_outlives_the_parent():
    """The kernel must end a busy worker whose parent was killed."""
    with WorkerPool("worker_functions:environment", workers=1, timeout_s=2) as pool:
        (outcome,) = pool.map([1])
    assert ORPHAN_SECONDS + 20 <= outcome.value["cpu_limit"] <= ORPHAN_SECONDS + 30


def test_setup_runs_before_first_item():
    function, setup = "worker_functions:was_prepared", "worker_functions:prepare"
    with WorkerPool(function, workers=1, setup=setup) as pool:
        assert pool.map([0]) == [Outcome("done", True)]
    with WorkerPool(function, workers=1) as pool:
        assert pool.map([0]) == [Outcome("done", False)]


def test_close_ends_the_workers_for_good():
    pool = WorkerPool("worker_functions:environment", workers=1)
    (outcome,) = pool.map([1])
    assert is_alive(outcome.value["pid"])
    pool.close()
    pool.close()
    assert not is_alive(outcome.value["pid"])
    with pytest.raises(ValueError, match="closed"):
        pool.map([1])


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("no_such_module:f", "cannot start: ModuleNotFoundError"),
        ("worker_functions:no_such_name", "cannot start: AttributeError"),
    ],
)
def test_missing_function_is_an_error(function, reason):
    with WorkerPool(function) as pool, pytest.raises(GapftError, match=reason):
        pool.map([1])


def test_retries_item_after_worker_death(pool, tmp_path):
    assert pool.map([["die once", str(tmp_path / "flag")]]) == [Outcome("done", "survived")]


PROGRAM = """
from gapft_harness.verification.pool import WorkerPool
pool = WorkerPool("worker_functions:environment", workers=1)
print(pool.map([1])[0].value["pid"])
"""


def test_unclosed_pool_leaves_no_process():
    """Its program needs no guard of ``__main__``."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not is_alive(int(done.stdout))
