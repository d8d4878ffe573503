"""The evidence as a Hugging Face dataset: one Parquet file for each split, and a card."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.files import write_text
from gapft_harness.exporting.cards import asked, card, model_name, seals
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.rendering.blocks import Block, Code, Section, Text
from gapft_harness.report.rendering.wording import whole
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory, Split, require, stated
from gapft_harness.run_directory.manifest import task_of
from gapft_harness.run_directory.parquet import Values, read_rows, write_batches
from gapft_harness.run_directory.tables import Judged, read_judged, read_states

if TYPE_CHECKING:
    import pyarrow as pa

#: Problems in memory at a time: one gold may contain megabytes of packed tests.
AT_ONCE = 64

#: The columns of the evidence, with their meanings.
COLUMNS = {
    "problem_id": "an id from the data, never a row number",
    "split": "pool: source of training sets; audit: problems on which trained models are judged",
    "origin": "the lm-eval task of the problem",
    "prompt": "as the task renders it, before any chat template",
    "gold": "the right answer, as JSON",
    "state": "G: the greedy response passes; S: only a sample passes; U: no response passes",
    "samples": "the number of drawn samples",
    "passing_samples": "the number of samples that passed",
    "first_success": "the number of the first sample that passed; null: none",
    "kept_index": "the response kept as evidence: -1: greedy, else a sample; null: none",
    "responses": "each with index (-1: greedy), text, verdict (pass, fail, timeout or error), "
    "reason, answer (read by the verifier; null: none), finish_reason, and attempts (earlier "
    "attempts of an episode, each with its feedback)",
}


@functools.cache
def schema() -> pa.Schema:
    """Build the schema of the columns, which the card explains."""
    import pyarrow as pa

    text, number = pa.string(), pa.int32()
    attempts = pa.list_(pa.struct([("text", text), ("feedback", text)]))
    names = ("text", "verdict", "reason", "answer", "finish_reason")
    response = pa.struct(
        [("index", number), *((name, text) for name in names), ("attempts", attempts)]
    )
    numbers = ("samples", "passing_samples", "first_success", "kept_index")
    types = {**dict.fromkeys(numbers, number), "responses": pa.list_(response)}
    return pa.schema([(name, types.get(name, text)) for name in COLUMNS])


def write_dataset(run: RunDirectory, out: Path) -> list[Path]:
    """Write the evidence of every split that has states, and the card ``README.md``.

    Args:
        run: the run; its pool must have states.
        out: the folder to write.

    Returns:
        The paths of the files.

    Raises:
        UserError: the pool has no states yet, or a table was changed after it was sealed.
        GapftError: tables contradict each other.
    """
    known = run.manifest()["files"]
    splits = [split for split in stated(run.recipe) if layout.states(split) in known] or ["pool"]
    for place in _places(splits):
        run.sealed(place)
    files: dict[str, Path] = {}
    counts = {}
    for split in splits:
        name = re.sub(r"\W", "_", split)
        require(name not in files, f"two splits of the dataset would have the name {name!r}")
        files[name] = Path("data") / f"{name}.parquet"
        counts[split] = _write(run, split, out / files[name])
    write_text(out / "README.md", _card(run, files, counts))
    return [*(out / file for file in files.values()), out / "README.md"]


def _write(run: RunDirectory, split: Split, path: Path) -> Counter[str]:
    """Write a split's file, and count its states."""
    rows, counts = _rows(run, split), Counter[str]()
    position = schema().get_field_index("state")

    def counted() -> Iterator[list[Values]]:
        while batch := list(islice(rows, AT_ONCE)):
            counts.update(row[position] for row in batch)
            yield batch

    write_batches(path, schema(), counted())
    return counts


def _places(splits: Iterable[Split]) -> list[str]:
    """List the tables of splits, three for each split."""
    kinds = (layout.problems, layout.states, layout.responses)
    return [kind(split) for split in splits for kind in kinds]


def _rows(run: RunDirectory, split: Split) -> Iterator[Values]:
    problems, states, responses = map(run.sealed, _places([split]))
    task = task_of(run.manifest(), split)["name"]
    read = zip(
        read_rows(problems, AT_ONCE), read_states(states), read_judged(responses), strict=True
    )
    for problem, state, (problem_id, judged) in read:
        require_same(run, split, problem["problem_id"], state.problem_id, problem_id)
        _, *counted = astuple(state)
        told = (problem_id, split, task, problem["prompt"], problem["gold"])
        yield *told, *counted, [_response(one) for one in judged]


def require_same(run: RunDirectory, split: Split, *ids: str) -> None:
    """Check that rows of a split's tables are of the same problem; raise an error otherwise."""
    require(
        len({*ids}) == 1,
        f"{run.path / split}: its tables have different problems in one row: {', '.join(ids)}",
    )


def _response(judged: Judged) -> dict[str, Any]:
    response = judged.response
    return {
        "index": response.index,
        "text": response.text,
        "verdict": judged.verdict.status,
        "reason": judged.verdict.reason,
        "answer": judged.answer,
        "finish_reason": response.finish_reason,
        "attempts": [
            {key: asdict(attempt)[key] for key in ("text", "feedback")}
            for attempt in response.attempts
        ],
    }


def _card(run: RunDirectory, files: dict[str, Path], counts: dict[Split, Counter[str]]) -> str:
    rows = [
        (split, name_here, count)
        for name_here, (split, count) in zip(files, counts.items(), strict=True)
    ]
    told = (
        f"Problems of {', '.join(sorted(_tasks(run, counts)))} with the responses of "
        f"{model_name(run.recipe)} (one greedy response and up to {run.recipe.search.k} samples "
        "each), their verdicts, and the resulting states. The problems come from the benchmark and "
        "have its licence."
    )
    return dataset_card(
        run,
        f"Evidence of {run.recipe.name}",
        "rejection-sampling",
        files,
        [Text(told), Frame(SPLITS, rows).table(words=2)],
        ("Columns", COLUMNS),
        _places(counts),
    )


def dataset_card(
    run: RunDirectory,
    title: str,
    tag: str,
    files: Mapping[str, Path],
    opening: Sequence[Block],
    columns: tuple[str, Mapping[str, str]],
    places: Iterable[str],
) -> str:
    """Build the README.md of a dataset.

    Args:
        run: the run of the dataset.
        title: the dataset's name.
        tag: a tag for the hub.
        files: paths within the folder, by split; ``load_dataset`` finds them in the card.
        opening: blocks that describe the dataset.
        columns: the heading of the list of columns, and the meaning of each column.
        places: the sealed files behind the dataset.
    """
    from huggingface_hub import DatasetCardData

    of_splits = [{"split": split, "path": path.as_posix()} for split, path in files.items()]
    data = DatasetCardData(
        pretty_name=title,
        tags=["gapft-harness", tag],
        configs=[{"config_name": "default", "data_files": of_splits}],
    )
    load = Code("from datasets import load_dataset\n\nload_dataset(FOLDER)")
    heading, meanings = columns
    return card(
        data,
        title,
        [
            Section("", [*opening, load]),
            Section(heading, [Frame(MEANINGS, [*meanings.items()]).table(words=2)]),
            Section("How it was made", asked(run)),
            Section("Seals", [seals(run, places)]),
        ],
    )


SplitRow = tuple[Split, str, Counter[str]]
_NAMES = "the split in the run, and in the dataset"
_MANY = "the number of problems"
SPLITS: tuple[Column[SplitRow], ...] = (
    Column("", _NAMES, lambda row: row[0], "split"),
    Column("", _NAMES, lambda row: row[1], "name in the dataset"),
    Column("", _MANY, lambda row: row[2]["G"], "G", whole),
    Column("", _MANY, lambda row: row[2]["S"], "S", whole),
    Column("", _MANY, lambda row: row[2]["U"], "U", whole),
    Column("", _MANY, lambda row: row[2].total(), "problems", whole),
)
_OF_DATASET = "a column of the dataset, and its meaning"
MEANINGS: tuple[Column[tuple[str, str]], ...] = (
    Column("", _OF_DATASET, lambda row: row[0], "column"),
    Column("", _OF_DATASET, lambda row: row[1], "meaning"),
)


def _tasks(run: RunDirectory, splits: dict[Split, Counter[str]]) -> set[str]:
    return {task_of(run.manifest(), split)["name"] for split in splits}
