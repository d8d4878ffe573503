"""A task of letters that a random model sometimes solves, as files for the real command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

_TASK = """
task: letters
class: !function gapft_harness.lm_eval_bridge.task.GapTask
dataset_path: json
dataset_kwargs: {data_files: {train: pool.jsonl, test: audit.jsonl}}
training_split: train
test_split: test
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {do_sample: false, max_gen_toks: 12}
metadata: {version: 1, gapft: {verifier: contains, keep: KEEP, id: "{{id}}"}}
"""

#: The plugin with the task's verifier.
CONTAINS = '''
from gapft_harness import hookimpl
from gapft_harness.core.records import Verdict


class Contains:
    """Passes a response that contains the gold letter."""

    def verify(self, responses, golds):
        return [Verdict("pass" if g in r else "fail") for r, g in zip(responses, golds)]


@hookimpl
def register_verifiers(register):
    register("contains", Contains)
'''


def write_letters(folder: Path, sizes: Mapping[str, int], keep: str = "shortest") -> None:
    """Write ``tasks/``: the task and its data.

    Args:
        folder: the folder that gets ``tasks/``.
        sizes: how many problems ``pool`` and ``audit`` have.
        keep: the task's response rule.
    """
    tasks = folder / "tasks"
    tasks.mkdir()
    (tasks / "letters.yaml").write_text(_TASK.replace("KEEP", keep))
    for name, count in sizes.items():
        lines = (
            json.dumps(
                {"id": f"{name}{i}", "question": f"{name} {i * i}?", "answer": "aeiou"[i % 5]}
            )
            for i in range(count)
        )
        (tasks / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
