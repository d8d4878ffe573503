"""Items with their texts before and after, read again from the logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gapft_harness.compare.comparison import Comparison
from gapft_harness.outcomes.logs import Log
from gapft_harness.outcomes.samples import Sample
from gapft_harness.outcomes.table import Outcomes
from gapft_harness.presentation.explorer import (
    Explored,
    ExploredModel,
    ExploredProblem,
    ExploredResponse,
)

#: Maximum number of documents in explorer.html.
MAX_EXPLORED = 20_000


@dataclass(frozen=True, slots=True)
class ChangedItem:
    """A changed item under one seed of a model.

    Attributes:
        model: the model's name.
        seed: number of the run, from 1.
        position: the item's index in the comparison's arrays.
        is_gained: whether its number rose.
        before: the first response of the log before.
        after: the first response after.
    """

    model: str
    seed: int
    position: int
    is_gained: bool
    before: Sample
    after: Sample


def find_changed_items(comparison: Comparison, limit: int | None = None) -> Iterator[ChangedItem]:
    """Yield gained and lost items: by model, by seed, in the order of the log before.

    Args:
        comparison: the comparison.
        limit: maximum number of gained, and of lost, items of each model.
    """
    changes = [*_list_changes(comparison, limit)]
    wanted = []
    for model, seed, position, _ in changes:
        outcomes, documents = comparison.after[model][seed - 1]
        wanted.append((comparison.before, int(comparison.rows_before[position])))
        wanted.append((outcomes, int(documents[position])))
    with _open_documents(wanted) as read_document:
        for change, before, after in zip(changes, wanted[::2], wanted[1::2], strict=True):
            yield ChangedItem(*change, read_document(*before), read_document(*after))


def _list_changes(
    comparison: Comparison, limit: int | None
) -> Iterator[tuple[str, int, int, bool]]:
    """Yield model, seed, position and direction of changed items; see ``find_changed_items``."""
    before = comparison.numbers.before
    for model, values in comparison.numbers.after.items():
        remaining = {True: limit, False: limit}
        for seed, seed_values in enumerate(values, start=1):
            differs = np.flatnonzero(seed_values != before)
            for position in differs[np.argsort(comparison.rows_before[differs])].tolist():
                is_gained = bool(seed_values[position] > before[position])
                if (count := remaining[is_gained]) is not None:
                    if not count:
                        continue
                    remaining[is_gained] = count - 1
                yield model, seed, position, is_gained


def _read_first_responses(
    comparison: Comparison, positions: Sequence[int]
) -> Iterator[list[Sample]]:
    """Yield the first response of each log to items, given by their indices in the arrays."""
    runs = [
        (comparison.before, comparison.rows_before),
        *(run for model_runs in comparison.after.values() for run in model_runs),
    ]
    wanted = [
        [(run, int(documents[position])) for run, documents in runs] for position in positions
    ]
    with _open_documents([document for row in wanted for document in row]) as read_document:
        for row in wanted:
            yield [read_document(*document) for document in row]


def format_gold(gold: Any) -> str:
    """Format a gold answer as text."""
    return "" if gold is None else str(gold)


def item_rows(comparison: Comparison, rose: str, fell: str) -> Iterator[tuple[object, ...]]:
    """Yield a row for each document and seed whose number changed, with complete texts."""
    states, groups = comparison.findings.states, comparison.numbers.groups
    yield (
        "model", "seed", "seed_name", "change", "task", "doc_id", "document", "group", "state",
        "value_before", "value_after", "prompt", "gold", "before", "after",
    )  # fmt: skip
    for item in find_changed_items(comparison):
        task, digest, _ = comparison.items[item.position]
        yield (
            *(item.model, item.seed, comparison.seeds[item.model][item.seed - 1]),
            *(rose if item.is_gained else fell, task),
            *(item.before.number, digest.hex()),
            None if groups is None else groups[item.position],
            None if states is None else states[item.position],
            comparison.numbers.before[item.position],
            comparison.numbers.after[item.model][item.seed - 1, item.position],
            *(item.before.question, format_gold(item.before.gold)),
            *(item.before.response, item.after.response),
        )


def build_explored(comparison: Comparison, limit: int = MAX_EXPLORED) -> Explored:
    """Build the content of explorer.html."""
    positions = choose_positions(comparison, limit)
    tasks = [comparison.items[position][0] for position in positions]
    left_out = ""
    if len(positions) < len(comparison.items):
        left_out = (
            f" This page has {len(positions):,} of {len(comparison.items):,} documents: changed "
            "ones first, then others, chosen by a hash."
        )
    return Explored(
        f"{', '.join(dict.fromkeys(filter(None, tasks))) or 'Comparison'}: before and after",
        [
            ExploredModel("before"),
            *(
                ExploredModel(name, seed if len(seeds) > 1 else "")
                for name, seeds in comparison.seeds.items()
                for seed in seeds
            ),
        ],
        lambda: _read_problems(comparison, positions),
        f"Before: {comparison.before_name}.{left_out}",
    )


def _read_problems(comparison: Comparison, positions: list[int]) -> Iterator[ExploredProblem]:
    numbers = np.vstack([comparison.numbers.before, *comparison.numbers.after.values()])
    names = name_documents(comparison, positions)
    facts = _list_facts(comparison)
    is_judged = comparison.is_judged()
    samples = _read_first_responses(comparison, positions)
    for name, position, row in zip(names, positions, samples, strict=True):
        verdicts = numbers[:, position].tolist()
        if is_judged:
            verdicts = ["right" if value else "wrong" for value in verdicts]
        yield ExploredProblem(
            name,
            {fact: values[position] for fact, values in facts.items()},
            row[0].question,
            format_gold(row[0].gold),
            [
                ExploredResponse(sample.response, verdict, sample.reason)
                for sample, verdict in zip(row, verdicts, strict=True)
            ],
        )


def _list_facts(comparison: Comparison) -> dict[str, list[str]]:
    """List what the page shows of every item, in the order of the comparison's arrays."""
    facts = {}
    if comparison.findings.states is not None:
        facts["state"] = comparison.findings.states.tolist()
    if (samples := comparison.samples) is not None:
        facts["samples"] = [f"{count}/{samples.k}" for count in samples.passing.tolist()]
    tasks = [task for task, *_ in comparison.items]
    if len(set(tasks)) > 1:
        facts["task"] = tasks
    if comparison.choice.by is not None and comparison.numbers.groups is not None:
        facts[comparison.choice.by] = [str(group) for group in comparison.numbers.groups]
    return facts


def choose_positions(comparison: Comparison, limit: int = MAX_EXPLORED) -> list[int]:
    """Choose changed documents first, then others up to the limit; return them in log order."""
    unchanged = np.ones(len(comparison.items), dtype=bool)
    for after in comparison.numbers.after.values():
        unchanged &= (after == comparison.numbers.before).all(axis=0)
    # items are sorted by hash, so this choice is random but reproducible
    positions_shown = np.argsort(unchanged, kind="stable")[:limit]
    positions: list[int] = positions_shown[
        np.argsort(comparison.rows_before[positions_shown])
    ].tolist()
    return positions


def name_documents(comparison: Comparison, positions: list[int]) -> list[str]:
    """Return distinct names of documents: ``doc_id``, with task or hash if needed."""
    rows = comparison.rows_before[positions].tolist()
    tasks_and_ids = [
        (comparison.items[p][0], str(comparison.before.numbers[row]))
        for p, row in zip(positions, rows, strict=True)
    ]
    has_tasks = len({task for task, _ in tasks_and_ids}) > 1
    names = [" ".join(name if has_tasks else name[1:]) for name in tasks_and_ids]
    if len(set(names)) == len(names):
        return names
    return [f"{n} {comparison.items[p][1].hex()}" for n, p in zip(names, positions, strict=True)]


@contextmanager
def _open_documents(
    documents: Sequence[tuple[Outcomes, int]],
) -> Iterator[Callable[[Outcomes, int], Sample]]:
    """Provide a function that reads the first response to a document, of these documents."""
    lines: dict[Path, tuple[Log, set[int]]] = {}
    for outcomes, document in documents:
        log = outcomes.logs[outcomes.log[document]]
        lines.setdefault(log.path, (log, set()))[1].add(outcomes.lines[document])
    with ExitStack() as stack:
        readers = {
            path: stack.enter_context(log.open_lines(wanted))
            for path, (log, wanted) in lines.items()
        }

        def read_document(outcomes: Outcomes, document: int) -> Sample:
            path = outcomes.logs[outcomes.log[document]].path
            return readers[path](outcomes.lines[document])[0]

        yield read_document
