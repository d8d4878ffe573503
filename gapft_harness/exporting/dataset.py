"""The evidence as a dataset of Hugging Face's datasets: a Parquet file a split, and a card."""

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

#: Problems in memory at a time: one gold may be megabytes of packed tests.
AT_ONCE = 64

#: The columns of the evidence, with what they mean.
COLUMNS = {
    "problem_id": "of the data itself, never a row number",
    "split": "pool: what training sets are chosen from; audit: what trained models are judged on",
    "origin": "the lm-eval task that the problem is of",
    "prompt": "as the task renders it, before any chat template",
    "gold": "the right answer, as JSON",
    "state": "G: the greedy response passes; S: it does not, and a sample does; U: none does",
    "samples": "how many were drawn",
    "passing_samples": "how many of them passed",
    "first_success": "number of the first that passed; null: none",
    "kept_index": "the response kept as evidence: -1 the greedy one, else a sample; null: none",
    "responses": "each with index (-1: greedy), text, verdict (pass, fail, timeout or error), "
    "reason, answer (what the verifier read; null: nothing), finish_reason, and attempts (earlier "
    "ones of an episode, each with its feedback)",
}


@functools.cache
def schema() -> pa.Schema:
    """The columns, which the card explains."""
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
    """Writes the evidence of every split that has states, and ``README.md``, the card.

    Args:
        run: the run; its pool has states.
        out: the folder.

    Returns:
        The files.

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
        require(name not in files, f"two splits of the dataset would be named {name!r}")
        files[name] = Path("data") / f"{name}.parquet"
        counts[split] = _write(run, split, out / files[name])
    write_text(out / "README.md", _card(run, files, counts))
    return [*(out / file for file in files.values()), out / "README.md"]


def _write(run: RunDirectory, split: Split, path: Path) -> Counter[str]:
    """Writes a split's file, and counts its states."""
    rows, counts = _rows(run, split), Counter[str]()
    position = schema().get_field_index("state")

    def counted() -> Iterator[list[Values]]:
        while batch := list(islice(rows, AT_ONCE)):
            counts.update(row[position] for row in batch)
            yield batch

    write_batches(path, schema(), counted())
    return counts


def _places(splits: Iterable[Split]) -> list[str]:
    """The tables of splits, three of each."""
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
    """Ends the command where rows of a split's tables are of different problems."""
    require(len({*ids}) == 1, f"{run.path / split}: its tables are of other problems: {ids[-1]}")


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
        f"{model_name(run.recipe)}, one greedy and up to {run.recipe.search.k} samples each, their "
        "verdicts and the states that follow. The problems are those of the benchmark, under its "
        "licence."
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
    """A dataset's README.md.

    Args:
        run: whose it is.
        title: its name.
        tag: what the hub files it under.
        files: by split, within the folder; ``load_dataset`` finds them by the card.
        opening: what it is.
        columns: their heading, and what each means.
        places: the sealed files that it is made of.
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
_NAMES = "of the run, of the dataset"
_MANY = "how many"
SPLITS: tuple[Column[SplitRow], ...] = (
    Column("", _NAMES, lambda row: row[0], "split"),
    Column("", _NAMES, lambda row: row[1], "its name here"),
    Column("", _MANY, lambda row: row[2]["G"], "G", whole),
    Column("", _MANY, lambda row: row[2]["S"], "S", whole),
    Column("", _MANY, lambda row: row[2]["U"], "U", whole),
    Column("", _MANY, lambda row: row[2].total(), "problems", whole),
)
_OF_DATASET = "of the dataset"
MEANINGS: tuple[Column[tuple[str, str]], ...] = (
    Column("", _OF_DATASET, lambda row: row[0], "column"),
    Column("", _OF_DATASET, lambda row: row[1], "meaning"),
)


def _tasks(run: RunDirectory, splits: dict[Split, Counter[str]]) -> set[str]:
    return {task_of(run.manifest(), split)["name"] for split in splits}
