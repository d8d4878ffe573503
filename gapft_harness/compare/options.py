"""The user's options of ``gapft compare``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gapft_harness.core.errors import quote_unprintable

#: How many gained and how many lost documents of a model are shown.
SHOWN = 3


@dataclass(frozen=True, slots=True)
class Rule:
    """A verifier by name, with its parameters."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        params_text = ", ".join(f"{key}={value}" for key, value in self.params.items())
        return quote_unprintable(f"{self.name} ({params_text})" if params_text else self.name)


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """Which metric is compared, and how.

    Attributes:
        metric: the metric's name; None: each task's first metric in BEFORE's log.
        filter: the name of lm-eval's filter; None: each task's first filter in BEFORE's log.
        tasks: only these tasks; empty: all tasks in the logs.
        on: fields that identify a document; empty: the complete document. ``A=B``: field A before
            and field B after.
        cluster: the field whose value is shared by documents of one cluster.
        by: the field that defines groups to compare.
        common: compare only documents that all logs contain and score; else a missing one is an
            error.
        seeds: whether all AFTERs are training seeds of one model.
        source_samples: logs with several samples per document of the model before.
        drop_copies: drop samples that are identical to an earlier one on every document.
        higher_is_better: the metric's direction; None: read it from lm_eval's results files.
        latest: use the newest of several logs of one task in a folder.
        shown: how many gained and lost documents of each model the page shows.
        plugin_files: files given by ``--plugin``; their log readers are tried first.
        verifier: judges the responses of all logs before they are compared; None: the logs' scores.
        gold: the document's field with the gold answer for the verifier; None: the first that fits.
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
    drop_copies: bool = False
    higher_is_better: bool | None = None
    latest: bool = False
    shown: int = SHOWN
    plugin_files: Sequence[str] = ()
    verifier: Rule | None = None
    gold: str | None = None
