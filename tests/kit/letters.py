"""A task of letters that a random model sometimes solves, as files for the real command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.kit.local_tasks import build_task
from tests.kit.plugins import build_plugin
from tests.kit.tiny_models import write_byte_llama

CONTAINS_SOURCE = '''

class Contains:
    """Passes a response that contains the gold letter, and a word if one is given."""

    def __init__(self, word=""):
        self._word = word

    def verify(self, responses, golds):
        return [
            Verdict("pass" if g in r and self._word in r else "fail")
            for r, g in zip(responses, golds, strict=True)
        ]
'''

#: The plugin with the task's verifier.
CONTAINS = build_plugin(CONTAINS_SOURCE, verifiers=['"contains", Contains'])


def write_problems(path: Path, rows: Mapping[str, int]) -> None:
    """Write a split's file: the problem of a number for each id."""
    split = path.stem
    lines = (
        json.dumps({"id": name, "question": f"{split} {i * i}?", "answer": "aeiou"[i % 5]})
        for name, i in rows.items()
    )
    path.write_text("".join(f"{line}\n" for line in lines))


def write_letters(
    folder: Path,
    sizes: Mapping[str, int],
    text: str = "{{question}}",
    more: str = "",
) -> None:
    """Write ``tasks/``: the task and its data.

    Args:
        folder: the folder that gets ``tasks/``.
        sizes: how many problems ``pool`` and ``audit`` have.
        text: the template of a prompt.
        more: further entries of the task's section ``gapft``, each with a comma.
    """
    tasks = folder / "tasks"
    tasks.mkdir()
    section = f'verifier: contains, keep: shortest, {more}id: "{{{{id}}}}"'
    (tasks / "letters.yaml").write_text(build_task("letters", section, text=text))
    for split, count in sizes.items():
        write_problems(tasks / f"{split}.jsonl", {f"{split}{i}": i for i in range(count)})


def prepare_letters_run(folder: Path, plugin: str = CONTAINS) -> list[str]:
    """Write task, data, plugin, model and recipe of a run with two conditions and seeds.

    Returns:
        The command's arguments, up to the run directory.
    """
    write_byte_llama(folder / "model")
    write_letters(folder, {"pool": 60, "audit": 40})
    (folder / "plugin.py").write_text(plugin)
    (folder / "recipe.yaml").write_text(
        "name: letters\ndata: {task: letters}\n"
        f"model: {{args: {{pretrained: '{folder / 'model'}', dtype: float32, batch_size: 16}}}}\n"
        "search: {k: 4, temperature: 1.0, top_p: 1.0, chunk: 4}\n"
        "conditions: [gapft, all_verified]\nseeds: [13, 21]\n"
        "training: {dtype: float32, repetitions: 2}\nexecutor: {workers: 2}\n"
    )
    return ["run", "recipe.yaml", "--include-path", "tasks", "--plugin", "plugin.py", "--run-dir"]
