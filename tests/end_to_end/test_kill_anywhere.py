"""Kills with several workers, on Ray, and beside another run that shares the store.

``test_resume.py`` kills a one-worker run in every stage. Here other executors make the same run,
and the content must equal that of the uninterrupted one-worker run.
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.end_to_end.letters_run import (
    Letters,
    Marker,
    find_stored_files,
    read_result,
    store_path,
    wait_for_marker,
)
from tests.kit.runs import find_differences


def read_content(run: Path) -> dict[str, Any]:
    """Read a finished run without its executor, number of workers and owner.

    The report's pages contain these too; their figures are in ``results.json``.
    """
    pages = ("report/report.md", "report/index.html", "report/tables/training.csv")
    files: dict[str, Any] = {k: v for k, v in read_result(run).items() if k not in pages}
    manifest = json.loads(files["manifest.json"])
    del manifest["recipe"]["executor"]
    for facts in manifest["training"].values():
        facts.pop("reused", None)
    recipe = yaml.safe_load(files["recipe.yaml"])
    del recipe["executor"]
    return {**files, "manifest.json": manifest, "recipe.yaml": recipe}


def executor_settings(**executor: Any) -> list[str]:
    return [
        word for key, value in executor.items() for word in ("--set", f"executor.{key}={value}")
    ]


SEARCH: Marker = ("search", lambda run: bool(find_stored_files(store_path(run), split="pool")))
JUDGED: Marker = ("search", lambda run: any(store_path(run).glob("judge/*/[!.]*.jsonl")))
STATES: Marker = ("states", lambda run: True)
SELECT: Marker = ("select", lambda run: True)
TRAIN: Marker = ("train", lambda run: any(run.glob("adapters/.*.checkpoint")))
AUDIT: Marker = ("audit", lambda run: bool(find_stored_files(store_path(run), arm=True)))
REPORT: Marker = ("report", lambda run: True)


@pytest.mark.parametrize(
    ("name", "executor", "markers"),
    [
        ("two", {"workers": 2, "checkpoint_steps": 1}, [SEARCH, STATES, TRAIN, REPORT]),
        ("three", {"workers": 3}, [JUDGED, SELECT, AUDIT]),
        ("ray", {"name": "ray", "workers": 2, "checkpoint_steps": 1}, [TRAIN, AUDIT]),
    ],
)
def test_kills_change_nothing_with_any_executor(
    letters: Letters, name: str, executor: dict[str, Any], markers: list[Marker]
) -> None:
    rng = random.Random(f"kills of {name}")
    run, more = letters.folder / f"killed-{name}", executor_settings(**executor)
    for marker in markers:
        child = letters.start(run, *more)
        wait_for_marker(marker, child, run)
        time.sleep(rng.uniform(0, 0.1))
        assert child.kill(), "it ended before it was killed"
    letters.finish(run, *more)
    assert read_content(run) == read_content(letters.folder / "whole")
    assert not [*run.rglob("*.partial"), *run.rglob("*.checkpoint")]


def test_kills_do_not_affect_another_run(letters: Letters) -> None:
    """The other run continues; the killed run's next command uses what both have stored."""
    rng, store = random.Random(39), letters.folder / "twins.store"
    first, second = (letters.folder / f"twin-{name}" for name in "ab")
    living = letters.start(second, store=store)
    kills = 0
    while living.process.poll() is None and kills < 3:
        child = letters.start(first, store=store)
        time.sleep(rng.uniform(0.3, 0.6) * letters.seconds)
        kills += child.kill()
    assert kills
    assert living.process.wait(600) == 0, living.output.read_text()
    letters.finish(first, store=store)
    for run in (first, second):
        assert read_content(run) == read_content(letters.folder / "whole")
    assert find_differences(letters.folder, first) == []
    calls = [*letters.calls("twin-a"), *letters.calls("twin-b")]
    assert set(calls) == set(letters.whole_calls)
    assert len(calls) <= len(letters.whole_calls) + kills * 2, "what was in flight is made again"
