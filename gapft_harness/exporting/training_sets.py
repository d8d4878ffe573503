"""Export training sets as JSON lines for TRL, Axolotl and LLaMA-Factory."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gapft_harness.core.chat_template import render_template
from gapft_harness.core.errors import UserError
from gapft_harness.core.files import write_text
from gapft_harness.core.pretrained import load_tokenizer
from gapft_harness.recipe.recipe import resolve_model_args
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_examples, read_judged, read_problems

#: Where the token ids are that an arm is trained on.
_EXACT_IDS = "read the token ids with gapft_harness.open_run(RUN).selections"
#: Causes of other token ids.
_OTHER_TOKENS = "the tokenizer splits the same text differently than the model sampled it"
_OTHER_TEXT = "the chat template renders another text, such as other white space or end tokens"


def write_training_sets(
    run: RunDirectory, out: Path, report_line: Callable[[str], None]
) -> list[Path]:
    """Write a file for each arm, with an example per line in the order of its selection.

    Args:
        run: the run; it must have selected.
        out: the folder to write.
        report_line: called with a sentence on examples whose texts give other token ids than those
            that the arm is trained on.

    Returns:
        The paths of the files.

    Raises:
        UserError: nothing is selected yet, or the texts of an example would differ from the tokens
            that the arm was trained on.
    """
    names = sorted(run.read_records())
    paths = [name for name in names if layout.find_top_folder(name) == layout.SELECTIONS]
    if not paths:
        raise UserError(
            f"{run.path}: nothing is selected yet; run: gapft run {run.path} --only select"
        )
    template = TemplateCheck.load(run, report_line) if run.recipe.model.chat_template else None
    texts = {}
    for path in paths:
        rows = _build_rows(run, path, template)
        texts[out / f"{Path(path).stem}.jsonl"] = "".join(
            json.dumps(row, ensure_ascii=False) + "\n" for row in rows
        )
    if template:
        template.report_other_ids(report_line)
    for file, text in texts.items():
        write_text(file, text)
    return list(texts)


class TemplateCheck:
    """The chat template by which another trainer renders exported conversations again.

    Args:
        tokenizer: the model's tokenizer.
        arguments: the template's arguments in the recipe.
    """

    def __init__(self, tokenizer: Any, arguments: Mapping[str, Any]) -> None:
        self._tokenizer = tokenizer
        self._arguments = arguments
        self._count = 0
        self._causes = Counter[str]()

    @classmethod
    def load(cls, run: RunDirectory, report_line: Callable[[str], None]) -> TemplateCheck | None:
        """Load the template of a run's model; None, and a sentence, if it is not here."""
        arguments = resolve_model_args(run.recipe)
        try:
            tokenizer = load_tokenizer(arguments)
        except (UserError, ImportError) as error:
            report_line(f"the conversations are not compared with the chat template: {error}")
            return None
        return cls(tokenizer, arguments.get("chat_template_args") or {})

    def find_fault(self, chat: Sequence[Mapping[str, str]], answer: str, ids: Sequence[int]) -> str:
        """Describe why a conversation is not the prompt and then the answer; empty if it is.

        Args:
            chat: the turns of the prompt.
            answer: the response.
            ids: the token ids of both, which are counted if they differ from those of the text.
        """
        render = partial(render_template, self._tokenizer, self._arguments)
        prompt = render([*chat], add_generation_prompt=True)
        text = render([*chat, {"role": "assistant", "content": answer}])
        if not text.startswith(prompt) or not text[len(prompt) :].lstrip().startswith(
            answer.strip()
        ):
            return "the chat template renders its conversation differently than its prompt"
        self._count += 1
        again = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        if again[: len(ids)] != [*ids]:
            is_same = self._tokenizer.decode(again).startswith(self._tokenizer.decode([*ids]))
            self._causes[_OTHER_TOKENS if is_same else _OTHER_TEXT] += 1
        return ""

    def report_other_ids(self, report_line: Callable[[str], None]) -> None:
        """Report how many conversations have other token ids when they are tokenized again."""
        if self._causes:
            causes = " and ".join(f"{count:,} because {why}" for why, count in self._causes.items())
            report_line(
                f"{self._causes.total():,} of {self._count:,} conversations have other token ids "
                "than those of the training sets if their texts are tokenized again: "
                f"{causes}; to train on exactly the sampled tokens, {_EXACT_IDS}"
            )


def _build_rows(
    run: RunDirectory, path: str, template: TemplateCheck | None
) -> Iterator[dict[str, Any]]:
    """Yield a conversation for each example; without a chat template, prompt and completion."""
    model = run.recipe.model
    # Read the examples, their problems and the responses that they were made of
    examples = read_examples(run.file(path))
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
    # Write each as text, if the text gives exactly its tokens
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
        elif template and (
            fault := template.find_fault(
                chat, response.text, (*example.prompt_ids, *example.response_ids)
            )
        ):
            reason = fault
        elif model.chat_template:
            yield {"messages": [*chat, {"role": "assistant", "content": response.text}]}
            continue
        else:
            yield {"prompt": problem.prompt, "completion": response.text}
            continue
        raise UserError(
            f"{run.path / path}, example {slot}: {reason}, so its texts would differ from the "
            f"tokens of the training set; {_EXACT_IDS}"
        )
