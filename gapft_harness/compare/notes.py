"""What was chosen for the user, and what to know about the logs, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gapft_harness.compare.choice import Choice
from gapft_harness.compare.findings import Table
from gapft_harness.compare.joining import Joined
from gapft_harness.compare.reading import Figure, Rows

#: A run's rows, and which of them are compared.
Selected = tuple[Rows, NDArray[np.int64]]


def notes(
    choice: Choice,
    figure: Figure,
    joined: Joined,
    before: Rows,
    after: Mapping[str, Sequence[Selected]],
    table: Table,
    higher_is_better: bool | None,
) -> Iterator[str]:
    """Yields a sentence each; ``warning:`` begins what may change the meaning of the figures."""
    for option, given, chosen, known in (
        ("metric", choice.metric, figure.metric, before.metrics),
        ("filter", choice.filter, figure.filter, before.filters),
    ):
        rest = ", ".join(name for name in known if name != chosen)
        if given is None and rest:
            yield f"{option} {chosen}, the first in the log; --{option} chooses another: {rest}"
    if higher_is_better is False:
        yield f"{figure.metric} is better when lower: a negative difference is a gain"
    numbers = [name for name in table.after if not table.binary(name)]
    if higher_is_better is None and not numbers:
        yield (
            f"{figure.metric} is taken to be better when higher: lm_eval's results file is not "
            "beside the logs, or does not say; --lower-is-better if it is not"
        )
    if numbers:
        which = "" if len(numbers) == len(table.after) else f" of {', '.join(numbers)}"
        yield (
            f"{figure.metric} is not 0 or 1 for every document{which}: means are compared, and "
            "tested by sign flips"
        )
    if numbers or higher_is_better is False:
        yield "higher and lower count the documents whose number changed"
    if joined.left_out:
        yield f"{joined.left_out:,} documents that not all logs hold are left out"
    if joined.repeated:
        yield (
            f"{joined.repeated:,} documents have a content that occurs more than once; these are "
            "paired by content and doc_id"
        )
    yield from _asked_otherwise(joined, before, after)
    everything = [before, *(rows for runs in after.values() for rows, _ in runs)]
    unknown = [log.path for rows in everything for log in rows.logs if log.version is None]
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        yield (
            "versions of the task are not compared: lm_eval's results file is not beside "
            f"{unknown[0]}{more}"
        )


def _asked_otherwise(
    joined: Joined, before: Rows, after: Mapping[str, Sequence[Selected]]
) -> Iterator[str]:
    """Other prompts, or other gold answers, for the same documents."""
    for field, name in (("prompts", "prompt"), ("targets", "gold answer")):
        mine = getattr(before, field)
        for model, runs in after.items():
            differ = set()
            for rows, by_item in runs:
                theirs = getattr(rows, field)
                for row, other in zip(joined.before.tolist(), by_item.tolist(), strict=True):
                    if mine[row] and theirs[other] and mine[row] != theirs[other]:
                        differ.add(row)
            if differ:
                yield (
                    f"warning: {model} had another {name} than before for {len(differ):,} of "
                    f"{len(joined.items):,} documents"
                )
