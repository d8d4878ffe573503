"""What the user of ``gapft compare`` chose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Bootstrap replicates of every interval.
REPLICATES = 2_000
#: Sign flips drawn where there are too many to take them all.
PERMUTATIONS = 10_000
#: Of a model's gained documents, and of its lost ones, how many are shown.
SHOWN = 3


@dataclass(frozen=True, slots=True)
class CompareChoice:
    """Which figure is compared, and how.

    Attributes:
        metric: the metric's name; None: of each task the first that BEFORE's log names.
        filter: the name of lm-eval's filter; None: of each task the first in BEFORE's log.
        tasks: only these tasks; none: all that the logs hold.
        on: fields of the document that make two documents the same; none: the whole document.
            ``A=B``: the field A before and the field B after.
        cluster: the field that documents of one cluster share.
        by: the field to compare group by group.
        common: compare the documents that all logs hold and score; else a missing one is an error.
        seeds: all AFTERs are training seeds of one model.
        source_samples: logs with several samples a document of the model before.
        tuned_samples: likewise of the models after; none: their own logs may have several.
        drop_copies: leave out samples that are the same as an earlier one on every document.
        higher_is_better: of the metric; None: as lm_eval's results files say.
        latest: of several logs of one task in a folder, take the newest.
        margin: by how much a model may be worse; None: nothing is held to it.
        shown: gained and lost documents of each model on the terminal.
        plugin_files: files given by ``--plugin``, whose log readers are asked first.
    """

    metric: str | None = None
    filter: str | None = None
    tasks: Sequence[str] = ()
    on: Sequence[str] = ()
    cluster: str | None = None
    by: str | None = None
    common: bool = False
    seeds: bool = False
    source_samples: Sequence[str] = ()
    tuned_samples: Sequence[str] = ()
    drop_copies: bool = False
    higher_is_better: bool | None = None
    latest: bool = False
    margin: float | None = None
    shown: int = SHOWN
    plugin_files: Sequence[str] = ()
