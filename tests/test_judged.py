"""Verdicts that hold in their own run only, and what the key of the others contains."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import read_searches
from gapft_harness.stages import descriptions
from tests.kit.plugins import write_plugin
from tests.kit.recording_run import LettersTask, write_letters_task

POOL = 24

#: Responses without an answer time out while the file ``busy`` exists.
_VERIFIER = """
import pathlib

HERE = pathlib.Path(__file__).parent


class Busy:
    def verify(self, responses, golds):
        with (HERE / "judged.log").open("a") as file:
            file.writelines(text + "\\n" for text in responses)
        is_busy = (HERE / "busy").exists()
        return [
            Verdict("pass") if gold in text
            else Verdict("timeout" if is_busy else "fail", "no " + gold)
            for text, gold in zip(responses, golds, strict=True)
        ]
"""


class JudgedLetters(LettersTask):
    """The letters task with a verifier that logs the judged texts."""

    @property
    def plugins(self) -> list[str]:
        return [*super().plugins, str(self.folder / "verifier.py")]

    def search(self, name: str) -> RunDirectory:
        """Search the pool of a run."""
        return self.run(name, search={"k": 4, "chunk": 8}, verifier={"name": "busy"})

    def take_judged(self) -> set[str]:
        """Return the texts that were judged since the last call."""
        log = self.folder / "judged.log"
        texts = set(log.read_text().splitlines()) if log.exists() else set()
        log.unlink(missing_ok=True)
        return texts


def count_verdicts(run: RunDirectory) -> dict[str, int]:
    counts: dict[str, int] = read_searches(run)["pool"]["verdicts"]
    return counts


def test_timeouts_count_only_in_their_run(tmp_path: Path) -> None:
    task = JudgedLetters(write_letters_task(tmp_path).folder)
    write_plugin(tmp_path / "verifier.py", _VERIFIER, verifiers=['"busy", Busy'])
    (tmp_path / "busy").touch()
    counts = count_verdicts(task.search("first"))
    assert counts["timeout"] == 2 * POOL, "the greedy response and sample 2 are wrong"
    task.take_judged()
    (tmp_path / "busy").unlink()
    assert count_verdicts(task.search("first")) == counts, "the run keeps its own verdicts"
    assert task.take_judged() == set()
    parts = [path.read_text() for path in tmp_path.glob(".store/judge_chunks/*/*/*.jsonl")]
    assert parts
    assert not [text for text in parts if "timeout" in text]
    assert count_verdicts(task.search("second")) == {"pass": 3 * POOL, "fail": 2 * POOL}
    assert task.take_judged() == {"?"}, "only these are judged again"


def test_key_has_the_patch_version_of_a_judging_library(monkeypatch: pytest.MonkeyPatch) -> None:
    judge: Any = SimpleNamespace(describe=dict)
    monkeypatch.setattr(descriptions, "find_version", lambda name: "0.8.1")
    assert descriptions.describe_judging_machine(judge)["libraries"]["math-verify"] == "0.8.1"
