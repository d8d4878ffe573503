"""What a run's manifest says, section by section: a wrong key is found by the type checker.

Sections that a stage writes are missing before it; readers of these use ``get``.
What a plugin says of itself is any JSON object: a sampler's ``source``, and a trainer's entry of
``training``, which also has ``trained_as`` where an arm took another's adapter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypedDict

#: How the reason of a verdict begins that was taken over from an imported file, not computed here.
TAKEN: Final = "the imported file's verdict"


class DecodingFacts(TypedDict):
    """How a task's responses end."""

    max_gen_toks: int
    until: list[str]


class TaskEpisodeFacts(TypedDict):
    """How a task's episodes go."""

    attempts: int
    executions: int


class TaskFacts(TypedDict, total=False):
    """Section ``task``, written by the search; empty before it."""

    name: str
    version: str
    fingerprint: str
    dropped: list[str]
    warnings: list[str]
    verifier: str
    verifier_params: dict[str, Any]
    keep: str
    decoding: DecodingFacts
    episode: TaskEpisodeFacts


class TakenFacts(TypedDict):
    """Where a training set of another run comes from: its folder, whose set, the file's hash.

    ``k`` and ``replay`` are those that it was chosen by there: a condition's own before the run's.
    """

    run: str
    arm: str
    sha256: str
    k: int
    replay: int | float


class BudgetFacts(TypedDict, total=False):
    """An entry of ``budgets``, by arm, written by the selection: ``records.Budget`` and more."""

    n: int
    repetitions: int
    exposures: int
    tokens: int
    supervised_tokens: int
    steps: int
    matched: bool
    ends_unknown: int
    condition: dict[str, Any]
    taken: TakenFacts


class AuditFacts(TypedDict):
    """An entry of ``audits``, by name, written by the search of a further audit.

    Attributes:
        task: the facts of its task.
        said: what the recipe says of it, without defaults.
    """

    task: TaskFacts
    said: Mapping[str, Any]


class ImportFacts(TypedDict):
    """An entry of ``imported``, by split: its responses were taken from files (``gapft import``).

    Attributes:
        files: of each ``path``, ``sha256``, ``format`` and ``holds`` (greedy, samples or both).
        responses: how many were taken.
        samples: how many samples of each problem the files hold; the first K were taken.
        left_out: responses whose problem the split has not.
        verdicts: ``file``, those that the files have, or ``judged``, by the task's verifier.
        told_by: what in the files says whether a response passed; empty where it was judged.
        choice: all that was chosen, as ``gapft import`` was told it.
    """

    files: list[dict[str, str]]
    responses: int
    samples: int
    left_out: int
    verdicts: str
    told_by: str
    choice: dict[str, Any]


class StageFacts(TypedDict):
    """An entry of ``stages``.

    Attributes:
        seconds: wall time, over all sittings.
        day: in UTC, as ``2026-11-23``, on which it last sealed a file.
    """

    seconds: float
    day: str


class Manifest(TypedDict, total=False):
    """``manifest.json``. Sections by split and arm have the keys of ``layout.Place.name``."""

    format: int
    gapft_harness: str
    recipe: dict[str, Any]
    task: TaskFacts
    source: dict[str, Any]
    files: dict[str, str]
    replaced: dict[str, list[str]]
    plugins: dict[str, dict[str, str]]  # ``Plugins.origins`` of what its commands were given
    rests_on: dict[str, Any]  # its shape: stages/foundation/shape.py
    shards: dict[str, int]
    imported: dict[str, ImportFacts]
    n: int
    budgets: dict[str, BudgetFacts]
    audits: dict[str, AuditFacts]
    training: dict[str, dict[str, Any]]
    scaling: dict[str, dict[str, Any]]
    experiments: dict[str, dict[str, Any]]
    verdict_counts: dict[str, dict[str, int]]
    finish_reasons: dict[str, dict[str, int]]
    drawn: dict[str, dict[str, int]]
    judged_by: dict[str, dict[str, Any]]
    executions: dict[str, dict[str, Any]]
    warnings: list[str]
    stages: dict[str, StageFacts]
    versions: dict[str, str]
    hardware: dict[str, Any]
