"""Documents with their texts before and after, read again from the logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
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

#: Returns the first response to a document of an evaluation; see ``open_texts``.
ReadText = Callable[[Outcomes, int], Sample]


def name_changes(comparison: Comparison) -> tuple[str, str]:
    """Return the words for a document whose number rose, and for one whose number fell."""
    return ("gained", "lost") if comparison.is_judged else ("higher", "lower")


@contextmanager
def open_texts(comparison: Comparison, *, written: bool) -> Iterator[ReadText]:
    """Read the texts that a page shows, each once, and keep them in temporary files.

    Args:
        comparison: the comparison.
        written: whether the page has every changed document, and the explorer.

    Yields:
        A function that returns the first response of an evaluation to a document, by its index
        in the evaluation's ``Outcomes``.
    """
    shown = None if written else comparison.options.shown
    before = (comparison.before, comparison.joined.before)
    shown_documents: list[tuple[Outcomes, int]] = []
    for model, seed, position in _find_changes(comparison, shown):
        for outcomes, documents in (before, comparison.after[model][seed]):
            shown_documents.append((outcomes, int(documents[position])))
    if written:
        evaluations = [before, *(run for runs in comparison.after.values() for run in runs)]
        for position in _choose_positions(comparison, MAX_EXPLORED):
            shown_documents += [
                (outcomes, int(documents[position])) for outcomes, documents in evaluations
            ]
    wanted_lines: dict[Path, tuple[Log, set[int]]] = {}
    for outcomes, document in shown_documents:
        log = outcomes.logs[outcomes.log[document]]
        wanted_lines.setdefault(log.path, (log, set()))[1].add(outcomes.lines[document])
    with ExitStack() as stack:
        readers = {
            path: stack.enter_context(log.open_lines(wanted))
            for path, (log, wanted) in wanted_lines.items()
        }

        def read_text(outcomes: Outcomes, document: int) -> Sample:
            path = outcomes.logs[outcomes.log[document]].path
            return readers[path](outcomes.lines[document])[0]

        yield read_text


def list_changed(
    comparison: Comparison, read_text: ReadText, limit: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yield a row for each document and seed whose number changed, with the texts.

    Rows are by model, by seed, in the order of the log before.

    Args:
        comparison: the comparison.
        read_text: returns the texts.
        limit: maximum number of gained, and of lost, documents of each model.
    """
    states = None if comparison.samples is None else comparison.samples.states
    rose, fell = name_changes(comparison)
    for model, seed, position in _find_changes(comparison, limit):
        outcomes, places = comparison.after[model][seed]
        before = read_text(comparison.before, int(comparison.joined.before[position]))
        after = read_text(outcomes, int(places[position]))
        old = comparison.numbers.before[position]
        new = comparison.numbers.after[model][seed, position]
        yield {
            "model": model,
            "seed": comparison.seeds[model][seed],
            "change": rose if new > old else fell,
            "task": comparison.tasks[position],
            "doc_id": before.number,
            "document": comparison.joined.items[position][1].hex(),
            "group": comparison.groups[position] if comparison.groups else None,
            "state": None if states is None else states[position],
            "value_before": old,
            "value_after": new,
            "prompt": before.question,
            "gold": _format_gold(before.gold),
            "before": before.response,
            "after": after.response,
        }


def _find_changes(comparison: Comparison, limit: int | None) -> Iterator[tuple[str, int, int]]:
    """Yield model, seed (from 0) and position of changed documents."""
    before = comparison.numbers.before
    for model, values in comparison.numbers.after.items():
        counts = {True: 0, False: 0}
        for seed, seed_values in enumerate(values):
            differs = np.flatnonzero(seed_values != before)
            for position in differs[np.argsort(comparison.joined.before[differs])].tolist():
                is_gained = bool(seed_values[position] > before[position])
                counts[is_gained] += 1
                if limit is None or counts[is_gained] <= limit:
                    yield model, seed, position


def _format_gold(gold: Any) -> str:
    return "" if gold is None else str(gold)


def build_explored(comparison: Comparison, read_text: ReadText) -> Explored:
    """Build the content of explorer.html."""
    positions = _choose_positions(comparison, MAX_EXPLORED)
    tasks = [comparison.tasks[position] for position in positions]
    left_out = ""
    if len(positions) < len(comparison.joined.items):
        left_out = (
            f" This page has {len(positions):,} of {len(comparison.joined.items):,} documents: "
            "changed ones first, then others, chosen by a hash."
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
        lambda: _read_problems(comparison, read_text, positions),
        f"Before: {comparison.before_name}.{left_out}",
    )


def _read_problems(
    comparison: Comparison, read_text: ReadText, positions: Sequence[int]
) -> Iterator[ExploredProblem]:
    """Yield documents with their texts, given their indices in the comparison's arrays."""
    numbers = np.vstack([comparison.numbers.before, *comparison.numbers.after.values()])
    facts = _list_facts(comparison)
    is_judged = comparison.is_judged
    runs = [
        (comparison.before, comparison.joined.before),
        *(run for model_runs in comparison.after.values() for run in model_runs),
    ]
    for name, position in zip(_name_documents(comparison, positions), positions, strict=True):
        verdicts = numbers[:, position].tolist()
        if is_judged:
            verdicts = ["right" if value else "wrong" for value in verdicts]
        samples = [read_text(run, int(places[position])) for run, places in runs]
        yield ExploredProblem(
            name,
            {fact: values[position] for fact, values in facts.items()},
            samples[0].question,
            _format_gold(samples[0].gold),
            [
                ExploredResponse(sample.response, verdict, sample.reason)
                for sample, verdict in zip(samples, verdicts, strict=True)
            ],
        )


def _list_facts(comparison: Comparison) -> dict[str, Sequence[str]]:
    """List what the page shows of every document, in the order of the comparison's arrays."""
    facts: dict[str, Sequence[str]] = {}
    if (samples := comparison.samples) is not None:
        facts["state"] = samples.states.tolist()
        facts["samples"] = [f"{count}/{samples.k}" for count in samples.passing.tolist()]
    if len(set(comparison.tasks)) > 1:
        facts["task"] = comparison.tasks
    if comparison.options.by is not None:
        facts[comparison.options.by] = comparison.groups
    return facts


def _choose_positions(comparison: Comparison, limit: int) -> list[int]:
    """Choose changed documents first, then others up to the limit; return them in log order."""
    unchanged = np.ones(len(comparison.joined.items), dtype=bool)
    for after in comparison.numbers.after.values():
        unchanged &= (after == comparison.numbers.before).all(axis=0)
    # the hash of the content makes this choice random but reproducible
    hashes = [digest for _, digest, _ in comparison.joined.items]
    order = sorted(range(len(hashes)), key=lambda place: (unchanged[place], hashes[place]))
    chosen = np.array(order[:limit])
    positions: list[int] = chosen[np.argsort(comparison.joined.before[chosen])].tolist()
    return positions


def _name_documents(comparison: Comparison, positions: Sequence[int]) -> list[str]:
    """Return distinct names of documents: ``doc_id``, with task or hash if needed."""
    has_tasks = len({comparison.tasks[position] for position in positions}) > 1
    names = []
    for position in positions:
        number = str(comparison.before.numbers[comparison.joined.before[position]])
        names.append(f"{comparison.tasks[position]} {number}" if has_tasks else number)
    if len(set(names)) == len(names):
        return names
    hashes = [comparison.joined.items[position][1].hex() for position in positions]
    return [f"{name} {digest}" for name, digest in zip(names, hashes, strict=True)]
