"""A task with planted verdicts: runs of the real command, in this process, that need no model.

The sampler answers by a hash of the arm, the problem and the index, so that every verdict is
random, and every run of the same recipe has the same verdicts.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.kit.command import call
from tests.kit.local_tasks import build_task
from tests.kit.plugins import ANSWERING, WRITE_ADAPTER, build_plugin
from tests.kit.tampering import read_rows

K = 4
SEEDS = (13, 21)

_TASK = build_task("planted", 'verifier: first_letter, keep: shortest, id: "{{id}}"')

_SOURCE = '''
import hashlib

from tests.kit.recording_run import InProcessExecutor


def share(*parts):
    """Return a number in [0, 1) that depends only on the parts."""
    text = " ".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "big") / 2**32


class Planted(Answering):
    """Answers with the right letter, the last one of the prompt, in 30% of the responses."""

    def _write(self, request, index):
        parts = (self._arm, request.problem_id, index)
        letter = request.prompt[-1] if share("passes", *parts) < 0.3 else "?"
        return letter + "!" * int(5 + 5 * share("length", *parts))


class FirstLetter:
    """Passes a response that begins with the gold letter."""

    def verify(self, responses, golds):
        return [Verdict("pass" if r[:1] == g else "fail") for r, g in zip(responses, golds)]


def train(job):
    """Write an adapter whose weights differ from every other arm's."""
    write_adapter(job.output, share(job.arm.name))
    return {"seconds": 0.0}
'''

_PLUGIN = build_plugin(
    ANSWERING + WRITE_ADAPTER + _SOURCE,
    samplers=['"planted", Planted, start_tokens=True'],
    verifiers=['"first_letter", FirstLetter'],
    trainers=['"planted", train', '"online", train'],
    executors=['"here", lambda settings, files: InProcessExecutor()'],
)

_RECIPE: dict[str, Any] = {
    "name": "planted",
    "data": {"task": "planted"},
    "model": {"backend": "planted", "args": {"pretrained": "none"}},
    "search": {"k": K, "chunk": 20},
    "seeds": list(SEEDS),
    "training": {"trainer": "planted", "repetitions": 2, "micro_batch": 1, "accumulation": 3},
    "executor": {"name": "here"},
    "statistics": {"replicates": 50},
}


@dataclass(frozen=True)
class PlantedTask:
    """A folder with the task, its data and its plugin; runs in it share one store."""

    folder: Path

    def write_recipe(self, name: str, **keys: Any) -> Path:
        """Write ``NAME.yaml`` with other keys; return its path."""
        recipe = self.folder / f"{name}.yaml"
        sections = {
            key: {**_RECIPE[key], **value} if isinstance(_RECIPE.get(key), dict) else value
            for key, value in keys.items()
        }
        recipe.write_text(yaml.safe_dump({**_RECIPE, **sections}, sort_keys=False))
        return recipe

    def run(self, name: str, *words: str, **keys: Any) -> Path:
        """Run a recipe with other keys; the words are further options."""
        recipe = self.write_recipe(name, **keys)
        options = ("--run-dir", name, "--plugin", "plugin.py", "--include-path", "tasks")
        self._succeed("run", recipe.name, *options, *words)
        return self.folder / name

    def verify(self, name: str) -> str:
        """Return what ``gapft verify`` prints; it must find no difference."""
        return self._succeed("verify", name, "--plugin", "plugin.py")

    def _succeed(self, *words: str) -> str:
        with contextlib.chdir(self.folder):
            done = call(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def write_planted_task(folder: Path, pool: Sequence[int], audit: Sequence[int]) -> PlantedTask:
    """Write the task, its plugin and its data: one problem for each number, in this order."""
    (folder / "tasks").mkdir(parents=True)
    (folder / "tasks/planted.yaml").write_text(_TASK)
    (folder / "plugin.py").write_text(_PLUGIN)
    for split, numbers in (("pool", pool), ("audit", audit)):
        rows = [
            {
                "id": f"{split}{number:03d}",
                "question": f"{split} {number:03d} {'ab'[number % 2]}",
                "answer": "ab"[number % 2],
                "subject": "xy"[number // 2 % 2],
            }
            for number in numbers
        ]
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        (folder / "tasks" / f"{split}.jsonl").write_text(text)
    return PlantedTask(folder)


def read_selection(run: Path, condition: str, seed: int = 13) -> list[dict[str, Any]]:
    """Read the training set of an arm."""
    return read_rows(run / f"selections/{condition}-seed{seed}.parquet")


def read_json(file: Path) -> dict[str, Any]:
    """Read a JSON object of a run."""
    content: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return content
