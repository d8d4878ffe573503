"""The pool's prompts for online training, with golds, verifier, states and solve rates.

The formats are those of TRL 1.16 (``GRPOTrainer``: a column ``prompt``, and every other goes to the
reward functions), verl 0.9 ("Prepare Data for Post-Training" in its documentation), prime-rl
(``TaskData`` of verifiers 0.4, with fields of its own) and NeMo Gym (``BaseRunRequest`` and its
page "Prepare and Validate Data").
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.core.files import replace_file, write_text
from gapft_harness.core.records import State
from gapft_harness.exporting.cards import asked, card, model_name, seals
from gapft_harness.exporting.dataset import AT_ONCE, COLUMNS, MEANINGS, SPLITS, require_same
from gapft_harness.exporting.formats import Record, turns
from gapft_harness.report.frame import Frame
from gapft_harness.report.rendering.blocks import Block, Code, Section, Text
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.parquet import read_rows, write_batches
from gapft_harness.run_directory.tables import ProblemState, read_states

if TYPE_CHECKING:
    import pyarrow as pa

#: What every row says of its problem, whatever the format.
FACTS = {
    **{name: COLUMNS[name] for name in ("problem_id", "origin", "gold", "state")},
    "samples": COLUMNS["samples"],
    "passing_samples": COLUMNS["passing_samples"],
    "solve_rate": "passing_samples / samples; null where the search stopped before K samples",
    "greedy_passed": "whether the greedy response passed",
    "verifier": "who judged, by the name that gapft_harness.load_verifier takes",
    "verifier_params": "its parameters, as JSON",
}
_PLACES = (layout.problems("pool"), layout.states("pool"))


@dataclass(frozen=True, slots=True)
class Prompt:
    """One problem to generate for.

    Attributes:
        number: its place in the file, from 0.
        text: the task's prompt, before any chat template.
        messages: the same as turns, with the system's first.
        asked: what the search asked: the messages, or the text where it used no chat template.
        answer: the gold answer; JSON if it is no text.
        facts: the values of ``FACTS``.
    """

    number: int
    text: str
    messages: list[Record]
    asked: str | list[Record]
    answer: str
    facts: Record


@dataclass(frozen=True, slots=True)
class PromptFormat:
    """How a library takes prompts.

    Attributes:
        library: its name.
        own: the fields that it reads itself.
        under: the field that holds ``FACTS``; empty: each is a field of the row.
        parquet: whether it reads Parquet, else JSON lines.
        chat: whether it always applies a chat template.
    """

    library: str
    own: Callable[[Prompt], Record]
    under: str
    parquet: bool
    chat: bool

    @property
    def file(self) -> str:
        """Where the rows stand in the folder."""
        return "train.parquet" if self.parquet else "train.jsonl"

    def row(self, prompt: Prompt) -> Record:
        """A row of the file."""
        own = self.own(prompt)
        if not self.under:
            return {**own, **prompt.facts}
        return {**own, self.under: {**own.get(self.under, {}), **prompt.facts}}


def write_prompt_set(
    run: RunDirectory, to: str, out: Path, states: Sequence[str] = ()
) -> list[Path]:
    """Writes the pool's prompts in the order of their ids, and ``README.md``, a dataset card.

    Args:
        run: the run; its pool has states.
        to: of ``PROMPT_FORMATS``.
        out: the folder.
        states: only problems in these; none: all.

    Returns:
        The files.

    Raises:
        UserError: no such state, no problem in any of them, the pool has no states yet, or a table
            was changed after it was sealed.
        GapftError: tables contradict each other.
    """
    known = get_args(State)
    for one in states:
        if one not in known:
            raise UserError(f"--states {one}: {did_you_mean(one, known)}")
    form, chosen = PROMPT_FORMATS[to], states or known
    problems, stated = (run.sealed(place) for place in _PLACES)
    counts = Counter[str](one.state for one in read_states(stated))
    if not any(counts[state] for state in chosen):
        raise UserError(
            f"--states {','.join(chosen)}: no problem of {run.path}'s pool is in them; it has "
            f"{', '.join(f'{counts[state]} in {state}' for state in known)}"
        )
    rows = map(form.row, _prompts(run, problems, read_states(stated), chosen))
    replace = _write_parquet if form.parquet else _write_lines
    replace(out / form.file, rows)
    kept = Counter({state: counts[state] for state in chosen})
    write_text(out / "README.md", _card(run, form, kept))
    return [out / form.file, out / "README.md"]


def _prompts(
    run: RunDirectory, problems: Path, states: Iterable[ProblemState], chosen: Sequence[str]
) -> Iterator[Prompt]:
    recipe, task = run.recipe, run.manifest()["task"]
    judged = {
        "verifier": task["verifier"],
        "verifier_params": json.dumps(task["verifier_params"], ensure_ascii=False),
    }
    number = 0
    for problem, state in zip(read_rows(problems, AT_ONCE), states, strict=True):
        require_same(run, "pool", problem["problem_id"], state.problem_id)
        if state.state not in chosen:
            continue
        gold = json.loads(problem["gold"])
        messages = turns(problem["prompt"], recipe)
        whole = state.samples == recipe.search.k
        facts = {
            "problem_id": state.problem_id,
            "origin": task["name"],
            "gold": problem["gold"],
            "state": state.state,
            "samples": state.samples,
            "passing_samples": state.passing_samples,
            "solve_rate": state.passing_samples / state.samples if whole else None,
            "greedy_passed": state.state == "G",
            **judged,
        }
        yield Prompt(
            number,
            problem["prompt"],
            messages,
            messages if recipe.model.chat_template else problem["prompt"],
            gold if isinstance(gold, str) else problem["gold"],
            facts,
        )
        number += 1


def _write_lines(path: Path, rows: Iterator[Record]) -> None:
    def write(beside: Path) -> None:
        with beside.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)

    replace_file(path, write)


def _write_parquet(path: Path, rows: Iterator[Record]) -> None:
    import pyarrow as pa

    first = next(rows)
    schema = pa.schema([(name, _type(name, value)) for name, value in first.items()])

    def tables() -> Iterator[pa.Table]:
        batch = [first, *islice(rows, AT_ONCE - 1)]
        while batch:
            yield pa.Table.from_pylist(batch, schema)
            batch = [*islice(rows, AT_ONCE)]

    write_batches(path, schema, tables())


def _type(name: str, value: object) -> pa.DataType:
    """The column's type, by the first row; a solve rate may be null there."""
    import pyarrow as pa

    if name == "solve_rate":
        return pa.float64()
    if isinstance(value, dict):
        return pa.struct([(key, _type(key, within)) for key, within in value.items()])
    if isinstance(value, list):
        return pa.list_(_type("", value[0]))
    return pa.scalar(value).type


def _card(run: RunDirectory, form: PromptFormat, counts: Counter[str]) -> str:
    from huggingface_hub import DatasetCardData

    name = run.recipe.name
    data = DatasetCardData(
        pretty_name=f"Prompts of {name}",
        tags=["gapft-harness", "reinforcement-learning"],
        configs=[{"config_name": "default", "data_files": [{"split": "train", "path": form.file}]}],
    )
    return card(
        data,
        f"Prompts of {name}",
        [
            Section("", _opening(run, form, counts)),
            Section(
                f"Fields of {form.under}" if form.under else "Columns beside prompt",
                [Frame(MEANINGS, [*FACTS.items()]).table(words=2)],
            ),
            Section("How it was made", asked(run)),
            Section("Seals", [seals(run, _PLACES)]),
        ],
    )


def _opening(run: RunDirectory, form: PromptFormat, counts: Counter[str]) -> list[Block]:
    manifest = run.manifest()
    blocks: list[Block] = [
        Text(
            f"Prompts of {manifest['task']['name']} in the format of {form.library}, with what "
            f"{run.recipe.search.k} samples and the greedy response of {model_name(run.recipe)} "
            "say of each problem. The problems are those of the benchmark, under its licence."
        ),
        Frame(SPLITS, [("pool", "train", counts)]).table(words=2),
        Code('from datasets import load_dataset\n\nload_dataset(FOLDER, split="train")'),
    ]
    if form.chat and not run.recipe.model.chat_template:
        blocks.append(
            Text(
                f"{form.library} applies a chat template, and the search used none: states and "
                "solve rates are of the plain prompts.",
                "warning",
            )
        )
    attempts = manifest["task"].get("episode", {}).get("attempts", 1)
    if attempts > 1:
        blocks.append(
            Text(
                f"A response of the search was an episode of up to {attempts} attempts: the prompt "
                "is the first turn, states and solve rates are of whole episodes.",
                "warning",
            )
        )
    return blocks


def _trl(prompt: Prompt) -> Record:
    return {"prompt": prompt.asked}


def _verl(prompt: Prompt) -> Record:
    return {
        "data_source": prompt.facts["origin"],
        "prompt": prompt.messages,
        "ability": prompt.facts["origin"],
        "reward_model": {"style": "rule", "ground_truth": prompt.answer},
        "extra_info": {"split": "train", "index": prompt.number},
    }


def _prime_rl(prompt: Prompt) -> Record:
    system = {turn["role"]: turn["content"] for turn in prompt.messages}.get("system")
    return {
        "id": prompt.facts["problem_id"],
        "prompt": prompt.text,
        **({"system_prompt": system} if system else {}),
        "answer": prompt.answer,
    }


def _nemo_gym(prompt: Prompt) -> Record:
    return {
        "responses_create_params": {"input": prompt.messages},
        "id": prompt.facts["problem_id"],
        "expected_answer": prompt.answer,
    }


#: By the name that ``--to`` takes.
PROMPT_FORMATS = {
    "trl-grpo": PromptFormat("TRL's GRPOTrainer", _trl, "", parquet=True, chat=False),
    "verl": PromptFormat("verl", _verl, "extra_info", parquet=True, chat=True),
    "prime-rl": PromptFormat("prime-rl", _prime_rl, "info", parquet=False, chat=True),
    "nemo-gym": PromptFormat("NeMo Gym", _nemo_gym, "verifier_metadata", parquet=False, chat=True),
}
