"""The YAML of a task with two local files, which most tests of runs need."""

from __future__ import annotations

_YAML = """\
task: {name}
class: !function gapft_harness.lm_eval_bridge.task.GapTask
dataset_path: json
dataset_kwargs: {{data_files: {{train: pool.jsonl, test: audit.jsonl}}}}
training_split: train
test_split: test
doc_to_text: "{text}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{do_sample: false, max_gen_toks: {tokens}}}
metadata: {{version: 1, gapft: {{{section}}}}}
"""


def build_task(
    name: str,
    section: str,
    *,
    text: str = "{{question}}",
    tokens: int = 12,
) -> str:
    """Build the YAML of a task with ``pool.jsonl`` and ``audit.jsonl`` beside it.

    Args:
        name: the task's name.
        section: the entries of its section ``gapft``, as YAML in one line.
        text: the template of a prompt.
        tokens: the most tokens of a response.
    """
    return _YAML.format(name=name, section=section, text=text, tokens=tokens)
