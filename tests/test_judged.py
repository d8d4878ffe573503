"""Stored verdicts: which changes cause a new judgement."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gapft_harness.core.records import GREEDY
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import read_searches
from gapft_harness.run_directory.tables import read_judged
from gapft_harness.stages import descriptions
from tests.kit.recording_run import LettersTask, write_letters_task

SEARCH = {"k": 4, "chunk": 8}
POOL = 24

#: Verdicts depend on the end of the response, on parameters and on files beside the plugin:
#: ``rules`` is an edition that the verifier reports; texts in ``slow`` time out.
_VERIFIER = '''
import json
import pathlib

from gapft_harness.api import Verdict, hookimpl

HERE = pathlib.Path(__file__).parent


def lines(name):
    return (HERE / name).read_text().splitlines() if (HERE / name).exists() else []


class Counting:
    """Passes what contains the gold; logs every text that it is given; reads the last word."""

    def __init__(self, word="", names=None):
        self._word = word
        self._extra = pathlib.Path(names).read_text() if names else ""

    def verify(self, responses, golds):
        if (HERE / "stop").exists() and lines("judged.log"):
            raise KeyboardInterrupt
        with (HERE / "judged.log").open("a") as file:
            file.writelines(json.dumps(text) + "\\n" for text in responses)
        slow, fickle = lines("slow"), lines("fickle")
        if fickle:
            (HERE / "fickle").write_text("\\n".join(fickle[1:]))
        return [
            Verdict("timeout", "busy") if any(text.endswith(end) for end in slow)
            else Verdict("pass") if gold in text and self._word in text and fickle[:1] != ["-"]
            else Verdict("fail", "no " + gold + self._extra)
            for text, gold in zip(responses, golds, strict=True)
        ]

    def answer(self, text):
        return text.split()[-1]

    def describe(self):
        return {"rules": lines("rules")}


@hookimpl
def register_verifiers(register):
    register("counting", Counting)
'''


@dataclass(frozen=True)
class JudgedLetters(LettersTask):
    """A task with distinct responses and a verifier that logs the judged texts."""

    @property
    def plugins(self) -> list[str]:
        """The files of the sampler and of the verifier."""
        return [*super().plugins, str(self.folder / "verifier.py")]

    def search(self, name: str, **keys: Any) -> RunDirectory:
        """Search the pool of a run."""
        return self.run(name, **{"search": SEARCH, "verifier": {"name": "counting"}, **keys})

    def take_judged(self) -> list[str]:
        """Return the texts that were judged since the last call."""
        log = self.folder / "judged.log"
        texts = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        log.unlink(missing_ok=True)
        return texts

    def forget_tables(self) -> None:
        """Remove the searches from the store, so that it has only their parts."""
        shutil.rmtree(self.folder / ".store/search_split")

    def list_parts(self) -> list[Path]:
        """The files of verdicts."""
        return sorted((self.folder / ".store/judge_chunks").glob("*/*/*.jsonl"))


@pytest.fixture
def task(tmp_path: Path) -> JudgedLetters:
    letters_task, plugin = write_letters_task(tmp_path), tmp_path / "plugin.py"
    text, old = plugin.read_text(), "        return Generation(text,"
    assert old in text
    own = """
        text += " " + "".join(filter(str.isdigit, prompt)) + f".{index}"
"""
    plugin.write_text(text.replace(old, own + old))
    (tmp_path / "verifier.py").write_text(_VERIFIER)
    return JudgedLetters(letters_task.folder)


def read_table(run: RunDirectory, split: str = "pool") -> Any:
    """Read a table's rows and its facts, without those of their origin."""
    facts = {**read_searches(run)[split]}
    for key in ("stored", "source", "seconds"):
        del facts[key]
    return list(read_judged(run.path / f"{split}/responses.parquet")), facts


def parse_index(text: str) -> int:
    return int(text.rpartition(".")[2])


def test_timeouts_count_only_in_their_run(task: JudgedLetters) -> None:
    (task.folder / "slow").write_text(".2\n")
    first = task.search("first")
    task.take_judged()
    facts = read_searches(first)["pool"]["verdicts"]
    assert facts["timeout"] == POOL
    (task.folder / "slow").unlink()
    assert read_table(task.search("first"))[1]["verdicts"]["timeout"] == POOL, (
        "the run keeps its own verdicts"
    )
    assert task.take_judged() == []
    assert not [path for path in task.list_parts() if "timeout" in path.read_text()]
    second = task.search("second")
    assert {parse_index(text) for text in task.take_judged()} == {2}
    assert "timeout" not in read_searches(second)["pool"]["verdicts"]


def test_repeated_executions_are_stored(task: JudgedLetters) -> None:
    keys = {"episode": {"executions": 3}}
    (task.folder / "fickle").write_text("+\n-\n+\n" * 50)
    first = task.search("first", **keys)
    assert len(task.take_judged()) == POOL * (4 + 3)
    task.forget_tables()
    second = task.search("second", **keys)
    assert task.take_judged() == []
    assert read_searches(second)["pool"]["executions"] == read_searches(first)["pool"]["executions"]
    assert read_table(second) == read_table(first)
    task.search("once")
    assert {parse_index(text) for text in task.take_judged()} == {GREEDY}, (
        "samples are judged once anyway"
    )


def test_key_has_the_patch_version_of_a_judging_library(monkeypatch: pytest.MonkeyPatch) -> None:
    judge: Any = SimpleNamespace(describe=dict)
    monkeypatch.setattr(descriptions, "find_version", lambda name: "0.8.1")
    assert descriptions.describe_judging_machine(judge)["libraries"]["math-verify"] == "0.8.1"
