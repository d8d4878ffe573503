"""``compare`` for notebooks and scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gapft_harness.compare.comparison import compare as compare_logs
from gapft_harness.compare.options import SHOWN, CompareOptions
from gapft_harness.compare.page import build_page
from gapft_harness.core.errors import UserError
from gapft_harness.presentation.page import Page

Place = str | Path


def compare(
    before: Place,
    after: Place | Sequence[Place] | Mapping[str, Place],
    *,
    metric: str | None = None,
    filter: str | None = None,
    tasks: Sequence[str] = (),
    on: Sequence[str] = (),
    cluster: str | None = None,
    by: str | None = None,
    common: bool = False,
    seeds: bool = False,
    source_samples: Place | Sequence[Place] = (),
    higher_is_better: bool | None = None,
    latest: bool = False,
    show: int = SHOWN,
) -> Page:
    """Compare sample logs of lm_eval document by document, as ``gapft compare`` does.

    Args:
        before: the log of the model before: a file, folder or glob.
        after: the logs of one or more models after; a mapping gives them names.
        metric: its name; None: for each task, the first metric in BEFORE's log.
        filter: lm_eval's filter; None: for each task, the first in BEFORE's log.
        tasks: compare only these tasks.
        on: fields of the document to join by; empty: the complete document.
        cluster: documents with the same value of this field are not independent.
        by: also compare for each value of this field.
        common: leave out documents that some logs do not contain or score; otherwise these are an
            error.
        seeds: all AFTERs are training seeds of the same model.
        source_samples: logs of several samples of the model before, for G, S and U.
        higher_is_better: the direction of the metric, where lm_eval's results are not next to the
            logs.
        latest: use the newest of several logs of one task in a folder.
        show: the number of gained and of lost documents that are shown for each model.

    Returns:
        The comparison: a notebook shows it as tables, ``list_results`` returns the rows of each
        table by its name, and ``write`` writes the files of ``--out`` and replaces earlier ones.

    Raises:
        UserError: a log is missing or damaged, or logs cannot be compared.
    """
    if isinstance(after, Mapping):
        places_after = [f"{name}={place}" for name, place in after.items()]
    else:
        places_after = _list_places(after)
    if not places_after:
        raise UserError(
            "compare: 'after' is empty; expected a folder, a list, or a mapping of names"
        )
    options = CompareOptions(
        *(metric, filter, tasks, on, cluster, by, common, seeds, _list_places(source_samples)),
        higher_is_better=higher_is_better,
        latest=latest,
        shown=show,
    )
    return build_page(compare_logs(str(before), places_after, options), written=True)


def _list_places(places: Place | Sequence[Place]) -> list[str]:
    return [str(place) for place in ([places] if isinstance(places, str | Path) else places)]
