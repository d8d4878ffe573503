"""Export training sets for TRL, Axolotl and LLaMA-Factory, with the other files they need."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import write_json, write_text
from gapft_harness.core.records import Arm, Example, Problem, Turn
from gapft_harness.exporting.problem_choice import ProblemChoice, SolveRateBand, count_chosen
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.recipe.sections import Training
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import (
    read_examples,
    read_judged,
    read_problems,
    read_states,
)


@dataclass(frozen=True, slots=True)
class TextExample:
    """An example as texts.

    Attributes:
        prompt: the task's prompt, before any chat template.
        chat: the prompt as turns; a system turn comes first.
        response: the text to train on.
        example: the sealed example.
    """

    prompt: str
    chat: list[Turn]
    response: str
    example: Example


#: By kind of sealed file: its name, the message where none exists, and the stage that writes it.
_KINDS = {
    layout.SELECTIONS: ("training set", "nothing is selected yet", "select"),
    layout.ADAPTERS: ("adapter", "nothing is trained yet", "train"),
    layout.DECISIONS: ("audited model", "nothing is audited yet", "audit"),
}


def select_arms(
    run: RunDirectory,
    conditions: Sequence[str],
    seeds: Sequence[int],
    kind: str = layout.SELECTIONS,
) -> list[Arm]:
    """Select the arms that have a sealed file of a kind.

    Args:
        run: the run.
        conditions: only these conditions; empty: all.
        seeds: only these seeds; empty: all.
        kind: the kind of file: training sets, adapters or decisions.

    Raises:
        UserError: no such file exists yet, or none of a given condition or seed.
    """
    places = [layout.parse_path(path) for path in sorted(run.manifest()["files"])]
    sealed = [
        place.arm
        for place in places
        if place and place.kind == kind and place.arm and not place.experiment
    ]
    noun, missing, stage = _KINDS[kind]
    if not sealed:
        raise UserError(f"{run.path}: {missing}; run: gapft run {run.path} --only {stage}")
    arm_names = ", ".join(arm.name for arm in sealed)
    for option, values, known_values in (
        ("--condition", conditions, {arm.condition for arm in sealed}),
        ("--seed", seeds, {arm.seed for arm in sealed}),
    ):
        for value in values:
            if value not in known_values:
                raise UserError(
                    f"{option} {value}: {run.path} has no such {noun}; it has {arm_names}"
                )
    return [
        arm
        for arm in sealed
        if arm.condition in (conditions or [arm.condition]) and arm.seed in (seeds or [arm.seed])
    ]


def read_text_examples(run: RunDirectory, arm: Arm) -> Iterator[TextExample]:
    """Yield an arm's examples as texts, in their order.

    Raises:
        UserError: an example follows a conversation (episodes), is not a response of this run or
            has separate reasoning, so its texts would differ from the tokens that the arm was
            trained on.
    """
    path = run.sealed(layout.selection_path(arm))
    examples = read_examples(path)
    problems = {item.problem_id for item in examples}
    origins = {(item.origin, item.response_index) for item in examples}
    prompts = {
        problem.id: (problem, ids)
        for problem, ids in read_problems(run.sealed(layout.problems_path("pool")))
        if problem.id in problems
    }
    responses = {
        key: judged.response
        for problem_id, item in read_judged(run.sealed(layout.responses_path("pool")))
        for judged in item
        if (key := (problem_id, judged.response.index)) in origins
    }
    for slot, example in enumerate(examples):
        problem, prompt_ids = prompts.get(example.problem_id, (Problem("", "", None), ()))
        chat = build_chat(problem.prompt, problem.turns, run.recipe)
        response = responses.get((example.origin, example.response_index))
        if prompt_ids != example.prompt_ids:
            reason = "its prompt includes earlier attempts of an episode"
        elif response is None or response.token_ids != example.response_ids:
            reason = "it is not a response of this run"
        elif response.reasoning:
            reason = "its reasoning came apart from its text"
        elif chat[-1]["role"] == "assistant":
            reason = "its response continues a turn that the task began (gen_prefix)"
        else:
            yield TextExample(problem.prompt, chat, response.text, example)
            continue
        raise UserError(
            f"{path}, example {slot}: {reason}, so its texts would differ from the tokens of the "
            "training set; read the token ids with gapft_harness.open_run(RUN).selections"
        )


Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TrainingFormat:
    """The format of a trainer's examples.

    Attributes:
        build_row: builds a line of its file, from an example and the recipe.
        build_files: builds the other files by name, from the names of the datasets' files and the
            recipe.
    """

    build_row: Callable[[TextExample, Recipe], Record]
    build_files: Callable[[Mapping[str, str], Recipe], dict[str, str]]


def write_training_sets(
    run: RunDirectory,
    to: str,
    out: Path,
    conditions: Sequence[str],
    seeds: Sequence[int],
    solve_rates: SolveRateBand | None = None,
) -> list[Path]:
    """Write a dataset for each arm, the trainer's other files, and ``budget.json``.

    Args:
        run: the run; its selections must be sealed.
        to: a key of ``FORMATS``.
        out: the folder to write.
        conditions: only these conditions; empty: all.
        seeds: only these seeds; empty: all.
        solve_rates: only examples of problems whose solve rate is in this band; None: all.

    Returns:
        The paths of the files.

    Raises:
        UserError: nothing is selected, examples cannot be written as texts, or an arm has no
            example of a problem in the band.
    """
    training_format, recipe = FORMATS[to], run.recipe
    arms = select_arms(run, conditions, seeds)
    rows = {arm.name: [*read_text_examples(run, arm)] for arm in arms}
    if solve_rates is not None:
        rows = _select_examples(run, rows, solve_rates)
    files = {name: f"{name}.jsonl" for name in rows}
    for name, examples in rows.items():
        lines = (
            json.dumps(training_format.build_row(example, recipe), ensure_ascii=False) + "\n"
            for example in examples
        )
        write_text(out / files[name], "".join(lines))
    other_files = training_format.build_files(files, recipe)
    for name, text in other_files.items():
        write_text(out / name, text)
    write_json(out / "budget.json", _build_budget(run, to, rows, solve_rates))
    return [out / name for name in (*files.values(), *other_files, "budget.json")]


def _select_examples(
    run: RunDirectory, rows: Mapping[str, Sequence[TextExample]], band: SolveRateBand
) -> dict[str, list[TextExample]]:
    """Select the examples whose problem has a solve rate in a band."""
    choice = ProblemChoice(solve_rates=band)
    count_chosen(run, choice)
    states = read_states(run.sealed(layout.states_path("pool")))
    chosen = {state.problem_id for state in states if choice.includes(state)}
    selected = {
        name: [example for example in examples if example.example.problem_id in chosen]
        for name, examples in rows.items()
    }
    for name, examples in selected.items():
        if not examples:
            raise UserError(
                f"--solve-rate {band}: none of the {len(rows[name])} examples of {name} in "
                f"{run.path} is of a problem with such a solve rate; choose a wider band, or other "
                "arms with --condition"
            )
    return selected


def _build_budget(
    run: RunDirectory,
    to: str,
    rows: Mapping[str, Iterable[TextExample]],
    solve_rates: SolveRateBand | None,
) -> Record:
    """Build ``budget.json``; a budget belongs to a complete training set, not to a band of it."""
    manifest, recipe = run.manifest(), run.recipe.model_dump(mode="json")
    return {
        "schema": 1,
        "format": to,
        "gapft_harness": manifest["gapft_harness"],
        "model": recipe["model"],
        "training": recipe["training"],
        **({} if solve_rates is None else {"solve_rate": str(solve_rates)}),
        "arms": {
            name: {
                "selection_sha256": manifest["files"][f"{layout.SELECTIONS}/{name}.parquet"],
                **({"budget": manifest["budgets"][name]} if solve_rates is None else {}),
                **_build_own_training(run.recipe, name),
                "unended": sum(not example.example.ended for example in examples),
                "truncated": sum(
                    _is_truncated(example.example, _find_training(run.recipe, name))
                    for example in examples
                ),
                "examples": [_build_example_facts(example) for example in examples],
            }
            for name, examples in rows.items()
        },
    }


def _find_training(recipe: Recipe, name: str) -> Training:
    """Return the training settings of an arm, by its name."""
    arm = layout.parse_arm(name)
    return recipe.training if arm is None else recipe.resolve_training(arm.condition)


def _build_own_training(recipe: Recipe, name: str) -> Record:
    """Return an arm's training settings where they differ from the run's; else nothing."""
    training = _find_training(recipe, name)
    return {} if training == recipe.training else {"training": training.model_dump(mode="json")}


def _is_truncated(example: Example, training: Training) -> bool:
    """Return whether an example is too long: this harness would cut or refuse it (too_long)."""
    ends = training.supervise_eos and example.ended
    return len(example.prompt_ids) + len(example.response_ids) + ends > training.max_length


def _build_example_facts(written_example: TextExample) -> Record:
    facts = asdict(written_example.example)
    return {key: value for key, value in facts.items() if not key.endswith("_ids")}


def build_chat(prompt: str, turns: Sequence[Turn], recipe: Recipe) -> list[Turn]:
    """Return a problem's turns; without turns, the recipe's system turn and the user's turn."""
    system = recipe.model.system_instruction
    first = [{"role": "system", "content": system}] if system else []
    return [*turns] or [*first, {"role": "user", "content": prompt}]


def _build_answer(example: TextExample) -> list[Record]:
    return [{"role": "assistant", "content": example.response}]


def _build_trl_row(example: TextExample, recipe: Recipe) -> Record:
    if recipe.model.chat_template:
        return {"prompt": example.chat, "completion": _build_answer(example)}
    return {"prompt": example.prompt, "completion": example.response}


def _build_axolotl_row(example: TextExample, recipe: Recipe) -> Record:
    if recipe.model.chat_template:
        return {"messages": [*example.chat, *_build_answer(example)]}
    return {"prompt": example.prompt, "completion": example.response}


def _build_llama_factory_row(example: TextExample, recipe: Recipe) -> Record:
    if not recipe.model.chat_template:
        return {"instruction": example.prompt, "input": "", "output": example.response}
    system = [turn["content"] for turn in example.chat if turn["role"] == "system"]
    *earlier_turns, question = [
        turn["content"] for turn in example.chat if turn["role"] != "system"
    ]
    return {
        "instruction": question,
        "input": "",
        "output": example.response,
        "system": "".join(system),
        "history": [*zip(earlier_turns[::2], earlier_turns[1::2], strict=True)],
    }


def _build_axolotl_configs(files: Mapping[str, str], recipe: Recipe) -> dict[str, str]:
    """Build a snippet of the config for each arm: the dataset, and the number of epochs."""
    if recipe.model.chat_template:
        kind: Record = {"type": "chat_template", "field_messages": "messages"}
    else:
        fields = {"field_instruction": "prompt", "field_output": "completion"}
        kind = {"type": {**fields, "format": "{instruction}", "no_input_format": "{instruction}"}}
    return {
        f"{name}.yaml": yaml.safe_dump(
            {
                "datasets": [{"path": file, "ds_type": "json", **kind}],
                "train_on_inputs": False,
                "num_epochs": _find_training(recipe, name).repetitions,
            },
            sort_keys=False,
        )
        for name, file in files.items()
    }


def _build_llama_factory_info(files: Mapping[str, str], recipe: Recipe) -> dict[str, str]:
    """Build ``dataset_info.json``, in which LLaMA-Factory finds the files."""
    columns = {"prompt": "instruction", "query": "input", "response": "output"}
    if recipe.model.chat_template:
        columns |= {"system": "system", "history": "history"}
    entries = {name: {"file_name": file, "columns": columns} for name, file in files.items()}
    return {"dataset_info.json": json.dumps(entries, indent=1) + "\n"}


def _build_nothing(files: Mapping[str, str], recipe: Recipe) -> dict[str, str]:
    return {}


#: Formats by their value of ``--to``.
FORMATS = {
    "trl": TrainingFormat(_build_trl_row, _build_nothing),
    "axolotl": TrainingFormat(_build_axolotl_row, _build_axolotl_configs),
    "llama-factory": TrainingFormat(_build_llama_factory_row, _build_llama_factory_info),
}
