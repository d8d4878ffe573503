"""Export training sets as JSON lines for TRL, Axolotl and LLaMA-Factory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import write_text
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_examples, read_judged, read_problems


def write_training_sets(run: RunDirectory, out: Path) -> list[Path]:
    """Write a file for each arm, with an example per line in the order of its selection.

    Args:
        run: the run; it must have selected.
        out: the folder to write.

    Returns:
        The paths of the files.

    Raises:
        UserError: nothing is selected yet, or the texts of an example would differ from the tokens
            that the arm was trained on.
    """
    names = sorted(run.outputs.read_records())
    paths = [name for name in names if layout.find_top_folder(name) == layout.SELECTIONS]
    if not paths:
        raise UserError(
            f"{run.path}: nothing is selected yet; run: gapft run {run.path} --only select"
        )
    texts = {}
    for path in paths:
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in _build_rows(run, path)]
        texts[out / f"{Path(path).stem}.jsonl"] = "".join(lines)
    for file, text in texts.items():
        write_text(file, text)
    return list(texts)


def _build_rows(run: RunDirectory, path: str) -> Iterator[dict[str, Any]]:
    """Yield a conversation for each example; without a chat template, prompt and completion."""
    model, examples = run.recipe.model, read_examples(run.file(path))
    problems = {
        problem.id: (problem, ids)
        for problem, ids in read_problems(run.file(layout.problems_path("pool")))
    }
    origins = {(example.origin, example.response_index) for example in examples}
    responses = {
        key: judged.response
        for problem_id, item in read_judged(run.file(layout.responses_path("pool")))
        for judged in item
        if (key := (problem_id, judged.response.index)) in origins
    }
    system = model.system_instruction
    first = [{"role": "system", "content": system}] if system else []
    for slot, example in enumerate(examples):
        problem, prompt_ids = problems[example.problem_id]
        chat = [*problem.turns] or [*first, {"role": "user", "content": problem.prompt}]
        response = responses.get((example.origin, example.response_index))
        if prompt_ids != example.prompt_ids:
            reason = "its prompt includes earlier attempts of an episode"
        elif response is None or response.token_ids != example.response_ids:
            reason = "it is not a complete response of this run"
        elif response.reasoning:
            reason = "its reasoning came apart from its text"
        elif chat[-1]["role"] == "assistant":
            reason = "its response continues a turn that the task began (gen_prefix)"
        elif model.chat_template:
            yield {"messages": [*chat, {"role": "assistant", "content": response.text}]}
            continue
        else:
            yield {"prompt": problem.prompt, "completion": response.text}
            continue
        raise UserError(
            f"{run.path / path}, example {slot}: {reason}, so its texts would differ from the "
            "tokens of the training set; read the token ids with "
            "gapft_harness.open_run(RUN).selections"
        )
