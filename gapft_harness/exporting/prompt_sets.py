"""Export the pool's prompts for online training, with golds, verifier, states and solve rates.

The formats are those of TRL 1.16 (``GRPOTrainer``: a column ``prompt``; all other columns go to the
reward functions), verl 0.9 ("Prepare Data for Post-Training" in its documentation), prime-rl
(``TaskData`` of verifiers 0.4, with additional fields) and NeMo Gym (``BaseRunRequest`` and its
page "Prepare and Validate Data").
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from pathlib import Path

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import replace_file, write_text
from gapft_harness.core.records import Turn
from gapft_harness.exporting.cards import find_model_name
from gapft_harness.exporting.dataset import (
    BATCH_SIZE,
    COLUMNS,
    SPLITS,
    build_dataset_card,
    require_same_problem,
)
from gapft_harness.exporting.formats import Record, build_chat
from gapft_harness.exporting.problem_choice import (
    ProblemChoice,
    compute_solve_rate,
    count_chosen,
    describe_choice,
)
from gapft_harness.report.frame import Frame
from gapft_harness.report.rendering.blocks import Block, Text
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.parquet import read_rows, write_batches
from gapft_harness.run_directory.tables import ProblemState, read_states

_EVIDENCE_COLUMNS = ("problem_id", "origin", "gold", "state", "samples", "passing_samples")
#: Facts on the problem in every row, in all formats.
FACTS = {
    **{name: COLUMNS[name] for name in _EVIDENCE_COLUMNS},
    "solve_rate": "passing_samples / samples",
    "greedy_passed": "whether the deployment decode passed",
    "verifier": "the verifier's name, for gapft_harness.load_verifier",
    "verifier_params": "the verifier's parameters, as JSON",
}
_PLACES = (layout.problems_path("pool"), layout.states_path("pool"))


@dataclass(frozen=True, slots=True)
class Prompt:
    """One problem to generate for.

    Attributes:
        number: its row in the file, from 0.
        text: the task's prompt, before any chat template.
        messages: the prompt as turns, with the system's first.
        chat: whether the search used these messages, with a chat template.
        answer: the gold answer; JSON if it is not a text.
        facts: the values of ``FACTS``.
    """

    number: int
    text: str
    messages: list[Turn]
    chat: bool
    answer: str
    facts: Record


@dataclass(frozen=True, slots=True)
class PromptFormat:
    """The format of a library's prompts.

    Attributes:
        library: its name.
        build_fields: builds the fields that the library reads itself.
        facts_field: the field that contains ``FACTS``; empty: each fact is a field of the row.
        file: the name of the file with the rows: Parquet, or JSON lines.
        chat: whether the library always applies a chat template.
    """

    library: str
    build_fields: Callable[[Prompt], Record]
    facts_field: str
    file: str
    chat: bool

    def build_row(self, prompt: Prompt) -> Record:
        """Build a row of the file."""
        fields = self.build_fields(prompt)
        if not self.facts_field:
            return {**fields, **prompt.facts}
        return {**fields, self.facts_field: {**fields.get(self.facts_field, {}), **prompt.facts}}


def write_prompt_set(run: RunDirectory, to: str, out: Path, choice: ProblemChoice) -> list[Path]:
    """Write the pool's prompts, ordered by problem id, and the dataset card ``README.md``.

    Args:
        run: the run; its pool must have states.
        to: a key of ``PROMPT_FORMATS``.
        out: the folder to write.
        choice: the problems to write.

    Returns:
        The paths of the files.

    Raises:
        UserError: as in ``count_chosen``, or a table was changed after it was sealed.
        GapftError: tables contradict each other.
    """
    prompt_format, counts = PROMPT_FORMATS[to], count_chosen(run, choice)
    problems, state_table = (run.sealed(place) for place in _PLACES)
    write_rows = _write_parquet if prompt_format.file.endswith(".parquet") else _write_lines
    write_rows(
        out / prompt_format.file,
        prompt_format,
        _read_prompts(run, problems, read_states(state_table), choice),
    )
    text = build_dataset_card(
        run,
        f"Prompts of {run.recipe.name}",
        "reinforcement-learning",
        {"train": Path(prompt_format.file)},
        _build_opening(run, prompt_format, choice, counts),
        (
            f"Fields of {prompt_format.facts_field}"
            if prompt_format.facts_field
            else "Other columns",
            FACTS,
        ),
        _PLACES,
    )
    write_text(out / "README.md", text)
    return [out / prompt_format.file, out / "README.md"]


def _read_prompts(
    run: RunDirectory, problems: Path, states: Iterable[ProblemState], choice: ProblemChoice
) -> Iterator[Prompt]:
    recipe, task = run.recipe, run.manifest()["task"]
    params, number = json.dumps(task["verifier_params"], ensure_ascii=False), count()
    for problem, state in zip(read_rows(problems, BATCH_SIZE), states, strict=True):
        require_same_problem(run, "pool", problem["problem_id"], state.problem_id)
        if not choice.includes(state):
            continue
        gold = json.loads(problem["gold"])
        facts = {
            "problem_id": state.problem_id,
            "origin": task["name"],
            "gold": problem["gold"],
            "state": state.state,
            "samples": state.samples,
            "passing_samples": state.passing_samples,
            "solve_rate": compute_solve_rate(state),
            "greedy_passed": state.state == "G",
            "verifier": task["verifier"],
            "verifier_params": params,
        }
        yield Prompt(
            next(number),
            problem["prompt"],
            build_prompt_chat(run, problem),
            bool(recipe.model.chat_template),
            gold if isinstance(gold, str) else problem["gold"],
            facts,
        )


def build_prompt_chat(run: RunDirectory, problem: Record) -> list[Turn]:
    """Return a problem's turns.

    Raises:
        UserError: the last turn is the assistant's: trainers would close it, or answer it.
    """
    chat = build_chat(problem["prompt"], json.loads(problem["turns"]), run.recipe)
    if chat[-1]["role"] == "assistant":
        raise UserError(
            f"{run.path}, problem {problem['problem_id']}: the task begins answers with "
            "gen_prefix, which prompt sets and pairs cannot represent; remove gen_prefix from the "
            "task and search again"
        )
    return chat


def _write_lines(path: Path, prompt_format: PromptFormat, prompts: Iterator[Prompt]) -> None:
    def write(partial_path: Path) -> None:
        with partial_path.open("w", encoding="utf-8") as file:
            for prompt in prompts:
                file.write(json.dumps(prompt_format.build_row(prompt), ensure_ascii=False) + "\n")

    replace_file(path, write)


def _write_parquet(path: Path, prompt_format: PromptFormat, prompts: Iterator[Prompt]) -> None:
    first = next(prompts)
    typed_prompt = replace(
        first, facts={**first.facts, "solve_rate": 0.0}
    )  # null would have no type
    rows = map(prompt_format.build_row, chain([first], prompts))
    write_parquet_rows(path, prompt_format.build_row(typed_prompt), rows)


def write_parquet_rows(path: Path, typed_row: Record, rows: Iterator[Record]) -> None:
    """Write rows as a Parquet table.

    Args:
        path: the table.
        typed_row: a row without nulls, which gives the columns and their types.
        rows: the rows.
    """
    import pyarrow as pa

    schema = pa.Table.from_pylist([typed_row]).schema
    batches = iter(lambda: [*islice(rows, BATCH_SIZE)], [])
    write_batches(path, schema, (pa.Table.from_pylist(batch, schema) for batch in batches))


def _build_opening(
    run: RunDirectory, prompt_format: PromptFormat, choice: ProblemChoice, counts: Counter[str]
) -> list[Block]:
    task, k = run.manifest()["task"], run.recipe.search.k
    text = (
        f"Prompts of {task['name']} in the format of {prompt_format.library}, with the state and "
        f"solve rate of each problem, from {k} samples and the deployment decode of "
        f"{find_model_name(run.recipe)}. {describe_choice(choice)}The problems come from the "
        "benchmark and have its licence."
    )
    blocks: list[Block] = [Text(text), Frame(SPLITS, [("pool", "train", counts)]).table(words=2)]
    if prompt_format.chat and not run.recipe.model.chat_template:
        warning = (
            f"{prompt_format.library} applies a chat template, but the search did not: states and "
            "solve rates belong to the plain prompts."
        )
        blocks.append(Text(warning, "warning"))
    if task.get("episode", {"attempts": 1})["attempts"] > 1:
        warning = (
            "Each response of the search was an episode of several attempts: the prompt is its "
            "first turn, and states and solve rates belong to complete episodes."
        )
        blocks.append(Text(warning, "warning"))
    return blocks


def _build_trl_fields(prompt: Prompt) -> Record:
    return {"prompt": prompt.messages if prompt.chat else prompt.text}


def _build_verl_fields(prompt: Prompt) -> Record:
    return {
        "data_source": prompt.facts["origin"],
        "prompt": prompt.messages,
        "ability": prompt.facts["origin"],
        "reward_model": {"style": "rule", "ground_truth": prompt.answer},
        "extra_info": {"split": "train", "index": prompt.number},
    }


def _build_prime_rl_fields(prompt: Prompt) -> Record:
    system = [turn["content"] for turn in prompt.messages if turn["role"] == "system"]
    others = [turn for turn in prompt.messages if turn["role"] != "system"]
    return {
        "id": prompt.facts["problem_id"],
        "prompt": others if len(others) > 1 else others[0]["content"],
        **({"system_prompt": system[0]} if system else {}),
        "answer": prompt.answer,
    }


def _build_nemo_gym_fields(prompt: Prompt) -> Record:
    return {
        "responses_create_params": {"input": prompt.messages},
        "id": prompt.facts["problem_id"],
        "expected_answer": prompt.answer,
    }


_PARQUET, _LINES = "train.parquet", "train.jsonl"
#: Formats by their value of ``--to``.
PROMPT_FORMATS = {
    "trl-grpo": PromptFormat("TRL's GRPOTrainer", _build_trl_fields, "", _PARQUET, chat=False),
    "verl": PromptFormat("verl", _build_verl_fields, "extra_info", _PARQUET, chat=True),
    "prime-rl": PromptFormat("prime-rl", _build_prime_rl_fields, "info", _LINES, chat=True),
    "nemo-gym": PromptFormat(
        "NeMo Gym", _build_nemo_gym_fields, "verifier_metadata", _LINES, chat=True
    ),
}
