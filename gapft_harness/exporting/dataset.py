"""The evidence as a Hugging Face dataset: one Parquet file for each split, and a card."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.files import write_text
from gapft_harness.exporting.cards import (
    build_card,
    build_hash_table,
    describe_search,
    find_model_name,
)
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.rendering.blocks import Block, Code, Section, Text
from gapft_harness.report.rendering.wording import format_count
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import (
    RunDirectory,
    Split,
    require_consistent,
)
from gapft_harness.run_directory.parquet import Values, read_rows, write_batches
from gapft_harness.run_directory.tables import JudgedResponse, read_judged, read_states

if TYPE_CHECKING:
    import pyarrow as pa

#: Problems in memory at a time: one gold may contain megabytes of packed tests.
BATCH_SIZE = 64

#: The columns of the evidence, with their meanings.
COLUMNS = {
    "problem_id": "an id from the data, never a row number",
    "split": "pool: source of training sets; audit: problems on which trained models are judged",
    "origin": "the lm-eval task of the problem",
    "prompt": "as the task renders it, before any chat template",
    "gold": "the right answer, as JSON",
    "state": "G: the deployment decode passes; S: else, a sample passes; U: neither",
    "samples": "the number of drawn samples",
    "passing_samples": "the number of samples that passed",
    "first_success": "the number of the first sample that passed; null: none",
    "kept_index": "the response kept as evidence: below 0: deployment, else a sample; null: none",
    "responses": "each with index (below 0: deployment), text, verdict (pass, fail, timeout or "
    "error), reason, answer (read by the verifier; null: none), finish_reason, and attempts "
    "(earlier attempts of an episode, each with its feedback)",
}


@functools.cache
def build_schema() -> pa.Schema:
    """Build the schema of the columns, which the card explains."""
    import pyarrow as pa

    text, integer = pa.string(), pa.int32()
    attempts = pa.list_(pa.struct([("text", text), ("feedback", text)]))
    names = ("text", "verdict", "reason", "answer", "finish_reason")
    response = pa.struct(
        [("index", integer), *((name, text) for name in names), ("attempts", attempts)]
    )
    numbers = ("samples", "passing_samples", "first_success", "kept_index")
    types = {**dict.fromkeys(numbers, integer), "responses": pa.list_(response)}
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
    sealed_files = run.manifest()["files"]
    splits = [
        split for split in ("pool", "audit") if layout.states_path(split) in sealed_files
    ] or ["pool"]
    for place in _list_tables(splits):
        run.sealed(place)
    files: dict[str, Path] = {}
    counts = {}
    for split in splits:
        files[split] = Path("data") / f"{split}.parquet"
        counts[split] = _write_split(run, split, out / files[split])
    write_text(out / "README.md", _build_evidence_card(run, files, counts))
    return [*(out / file for file in files.values()), out / "README.md"]


def _write_split(run: RunDirectory, split: Split, path: Path) -> Counter[str]:
    """Write a split's file, and count its states."""
    rows, counts = _read_rows(run, split), Counter[str]()
    position = build_schema().get_field_index("state")

    def count_batches() -> Iterator[list[Values]]:
        while batch := list(islice(rows, BATCH_SIZE)):
            counts.update(row[position] for row in batch)
            yield batch

    write_batches(path, build_schema(), count_batches())
    return counts


def _list_tables(splits: Iterable[Split]) -> list[str]:
    """List the tables of splits, three for each split."""
    kinds = (layout.problems_path, layout.states_path, layout.responses_path)
    return [kind(split) for split in splits for kind in kinds]


def _read_rows(run: RunDirectory, split: Split) -> Iterator[Values]:
    problems, states, responses = map(run.sealed, _list_tables([split]))
    task = run.manifest()["task"]["name"]
    table_rows = zip(
        read_rows(problems, BATCH_SIZE), read_states(states), read_judged(responses), strict=True
    )
    for problem, state, (problem_id, judged) in table_rows:
        require_same_problem(run, split, problem["problem_id"], state.problem_id, problem_id)
        _, *state_values = astuple(state)
        problem_values = (problem_id, split, task, problem["prompt"], problem["gold"])
        yield (
            *problem_values,
            *state_values,
            [_build_response(judged_response) for judged_response in judged],
        )


def require_same_problem(run: RunDirectory, split: Split, *ids: str) -> None:
    """Check that rows of a split's tables are of the same problem; raise an error otherwise."""
    require_consistent(
        len({*ids}) == 1,
        f"{run.path / split}: its tables have different problems in one row: {', '.join(ids)}",
    )


def _build_response(judged: JudgedResponse) -> dict[str, Any]:
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


def _build_evidence_card(
    run: RunDirectory, files: dict[str, Path], counts: dict[Split, Counter[str]]
) -> str:
    rows = [
        (split, dataset_split, count)
        for dataset_split, (split, count) in zip(files, counts.items(), strict=True)
    ]
    search = run.recipe.search
    text = (
        f"Problems of {run.manifest()['task']['name']} with the responses of "
        f"{find_model_name(run.recipe)} ({search.describe_deployment('one greedy response')} "
        f"and up to {search.k} samples each), their verdicts, and the resulting states. The "
        "problems come from the benchmark and have its licence."
    )
    return build_dataset_card(
        run,
        f"Evidence of {run.recipe.name}",
        "rejection-sampling",
        files,
        [Text(text), Frame(SPLITS, rows).table(words=2)],
        ("Columns", COLUMNS),
        _list_tables(counts),
    )


def build_dataset_card(
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

    data_files = [{"split": split, "path": path.as_posix()} for split, path in files.items()]
    data = DatasetCardData(
        pretty_name=title,
        tags=["gapft-harness", tag],
        configs=[{"config_name": "default", "data_files": data_files}],
    )
    load = Code("from datasets import load_dataset\n\nload_dataset(FOLDER)")
    heading, meanings = columns
    return build_card(
        data,
        title,
        [
            Section("", [*opening, load]),
            Section(heading, [Frame(MEANINGS, [*meanings.items()]).table(words=2)]),
            Section("How it was made", describe_search(run)),
            Section("Seals", [build_hash_table(run, places)]),
        ],
    )


SplitRow = tuple[Split, str, Counter[str]]
_NAMES = "the split in the run, and in the dataset"
_COUNT = "the number of problems"
SPLITS: tuple[Column[SplitRow], ...] = (
    Column("", _NAMES, lambda row: row[0], "split"),
    Column("", _NAMES, lambda row: row[1], "name in the dataset"),
    Column("", _COUNT, lambda row: row[2]["G"], "G", format_count),
    Column("", _COUNT, lambda row: row[2]["S"], "S", format_count),
    Column("", _COUNT, lambda row: row[2]["U"], "U", format_count),
    Column("", _COUNT, lambda row: row[2].total(), "problems", format_count),
)
_DATASET_COLUMN = "a column of the dataset, and its meaning"
MEANINGS: tuple[Column[tuple[str, str]], ...] = (
    Column("", _DATASET_COLUMN, lambda row: row[0], "column"),
    Column("", _DATASET_COLUMN, lambda row: row[1], "meaning"),
)
