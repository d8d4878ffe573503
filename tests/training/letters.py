"""A task of letters that a random model solves now and then: files for runs of the real command."""

from __future__ import annotations

import json
from pathlib import Path

from tests.tiny_models import byte_llama

TASK = """
task: letters
class: !function gapft_harness.lm_eval_bridge.task.GapTask
dataset_path: json
dataset_kwargs: {data_files: {train: pool.jsonl, test: audit.jsonl}}
training_split: train
test_split: test
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {do_sample: false, max_gen_toks: 12}
metadata: {version: 1, gapft: {verifier: contains, keep: shortest, id: "{{id}}"}}
"""

PLUGIN = '''
"""Passes a response that contains the gold letter: a task a random model solves now and then."""
from gapft_harness import hookimpl
from gapft_harness.records import Verdict


class Contains:
    """Passes a response that contains the gold letter."""

    def verify(self, responses, golds):
        return [
            Verdict("pass" if gold in text else "fail")
            for text, gold in zip(responses, golds, strict=True)
        ]


@hookimpl
def register_verifiers(register):
    register("contains", Contains)
'''


def prepare(folder: Path) -> list[str]:
    """Writes task, data, plugin, model and recipe; gives the command's arguments."""
    byte_llama(folder / "model")
    (folder / "tasks").mkdir()
    (folder / "tasks" / "letters.yaml").write_text(TASK)
    for name, count in (("pool", 60), ("audit", 40)):
        with (folder / "tasks" / f"{name}.jsonl").open("w") as file:
            for i in range(count):
                record = {
                    "id": f"{name}{i}",
                    "question": f"{name} {i * i}?",
                    "answer": "aeiou"[i % 5],
                }
                file.write(json.dumps(record) + "\n")
    (folder / "plugin.py").write_text(PLUGIN)
    (folder / "recipe.yaml").write_text(
        "name: letters\ndata: {task: letters}\n"
        f"model: {{args: {{pretrained: '{folder / 'model'}', dtype: float32, batch_size: 16}}}}\n"
        "search: {k: 4, temperature: 1.0, top_p: 1.0, chunk: 4}\n"
        "conditions: [gapft, all_verified]\nseeds: [13, 21]\n"
        "training: {dtype: float32, repetitions: 2}\nexecutor: {workers: 2}\n"
    )
    return ["run", "recipe.yaml", "--include-path", "tasks", "--plugin", "plugin.py", "--run-dir"]
