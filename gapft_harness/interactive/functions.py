"""``compare``, ``pass_at_k`` and ``decompose`` for opened runs, logs and plain arrays."""

from __future__ import annotations

import io
import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.console import Console

from gapft_harness.analysis.decomposition import Decomposition, by_state, find_unstable_states
from gapft_harness.analysis.pass_at_k import mean_pass_at_k
from gapft_harness.compare import document
from gapft_harness.compare.choice import SHOWN, CompareChoice
from gapft_harness.compare.comparison import Comparison
from gapft_harness.compare.comparison import compare as compare_logs
from gapft_harness.compare.findings import ByState, Paired
from gapft_harness.core.errors import UserError
from gapft_harness.interactive.runs import Run, read_split_states
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.reading.inputs import read_inputs
from gapft_harness.report.rendering import markdown
from gapft_harness.report.rendering.blocks import Section
from gapft_harness.report.rendering.terminal import print_sections
from gapft_harness.report.rendering.wording import format_count, percent, points
from gapft_harness.run_directory.recipe_changes import require_recorded_recipe
from gapft_harness.stages.report import require_sealed

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
) -> ComparisonResult:
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
    choice = CompareChoice(
        *(metric, filter, tasks, on, cluster, by, common, seeds, _list_places(source_samples)),
        higher_is_better=higher_is_better,
        latest=latest,
        shown=show,
    )
    return ComparisonResult(compare_logs(str(before), places_after, choice))


def pass_at_k(
    source: Run | ArrayLike,
    k: SupportsIndex | Sequence[SupportsIndex] | None = None,
    *,
    split: str = "audit",
) -> PassAtK:
    """Compute the unbiased Pass@k for every k up to the number of samples.

    Args:
        source: a run with states, or an array of shape (P, n): whether each sample passed.
        k: the values of k; None: 1 to n.
        split: the split of a run.

    Raises:
        UserError: the stage ``states`` has not run, an array has another shape or values other
            than 0 and 1, or k is not a whole number from 1 to n.
    """
    passing, samples = (
        _read_counts(source, split) if isinstance(source, Run) else _count_passing(source)
    )
    k_values = range(1, samples + 1) if k is None else _parse_k(k)
    try:
        by_k = {value: mean_pass_at_k(passing, samples, value) for value in k_values}
    except ValueError as error:
        raise UserError(f"pass_at_k: {error}") from error
    return PassAtK(len(passing), samples, by_k)


@overload
def decompose(source: Run) -> DecompositionResult: ...


@overload
def decompose(
    source: ArrayLike, passed: ArrayLike | Mapping[str, ArrayLike]
) -> DecompositionResult: ...


def decompose(source: Any, passed: Any = None) -> DecompositionResult:
    """Decompose a change of Pass@1 into corrected S, corrected U and regressed G (Equation 9).

    Args:
        source: a run whose audit is done, or an array of shape (P,) with ``G``, ``S`` or ``U``.
        passed: only with an array: whether the trained model solved each problem in its one decode,
            shape (P,) or (seeds, P); a mapping has several models by name.

    Returns:
        Counts over all seeds, by condition or by the model's name (``after`` without names).

    Raises:
        UserError: the run's audit is not done, or the shapes of arrays do not match.
    """
    if isinstance(source, Run):
        if passed is not None:
            raise UserError(
                "decompose: a run has its own decisions; use 'passed' only with an array of states"
            )
        return _decompose_run(source)
    if passed is None:
        raise UserError(
            "decompose: 'passed' is missing; give states and passed, each of shape (P,), or a run"
        )
    models = passed if isinstance(passed, Mapping) else {"after": passed}
    if not models:
        raise UserError("decompose: 'passed' is empty; expected NAME: array for at least one model")
    states = _to_array(source, "decompose: states")
    return DecompositionResult(
        {name: _pool_seeds(states, decisions, name) for name, decisions in models.items()}
    )


def _list_places(places: Place | Sequence[Place]) -> list[str]:
    return [str(place) for place in ([places] if isinstance(places, str | Path) else places)]


def _read_counts(run: Run, split: str) -> tuple[NDArray[np.int64], int]:
    table = read_split_states(run, split)
    return table["passing_samples"].to_numpy().astype(np.int64), run.directory.recipe.search.k


def _count_passing(array: ArrayLike) -> tuple[NDArray[np.int64], int]:
    passed = _to_booleans(array, "pass_at_k")
    if passed.ndim != 2 or not passed.size:
        raise UserError(
            f"pass_at_k: expected a run, or an array of shape (problems, samples), found shape "
            f"{passed.shape}"
        )
    return passed.sum(axis=1), passed.shape[1]


def _pool_seeds(states: NDArray[np.str_], passed: ArrayLike, name: str) -> Decomposition:
    decisions = _to_booleans(passed, f"decompose: {name}")
    if decisions.ndim == 2 and not len(decisions):
        raise UserError(
            f"decompose: {name}: expected at least one seed, found shape {decisions.shape}"
        )
    try:
        return by_state(states, decisions)
    except ValueError as error:
        raise UserError(f"decompose: {name}: {error}") from error


def _parse_k(k: Any) -> list[int]:
    try:
        return [operator.index(value) for value in ([k] if np.ndim(k) == 0 else k)]
    except (TypeError, ValueError) as error:
        raise UserError(f"pass_at_k: k: expected whole numbers, found {k!r}") from error


def _to_array(values: Any, description: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError as error:
        raise UserError(
            f"{description}: expected an array, with rows of one length: {error}"
        ) from error


def _to_booleans(values: ArrayLike, description: str) -> NDArray[np.bool_]:
    array = _to_array(values, description)
    if array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
        raise UserError(f"{description}: expected True and False, or 1 and 0")
    return array.astype(bool)


def _decompose_run(run: Run) -> DecompositionResult:
    """Decompose every condition of a run over all seeds, as in the report."""
    require_recorded_recipe(run.path, run.directory.recipe, run.directory.manifest())
    require_sealed(run.directory)
    manifest = run.directory.manifest() | {"recipe": run.directory.recipe.model_dump(mode="json")}
    inputs = read_inputs(run.path, manifest)
    states = inputs.audit.states
    return DecompositionResult(
        {
            name: by_state(
                states, np.array([arm.deployed.passed for arm in inputs.find_arms(name)])
            )
            for name in inputs.conditions
        }
    )


#: Characters of a line of a table as text.
_WIDTH = 100


class _Displayed(ABC):
    """A result that ``print`` shows as text and a notebook as Markdown."""

    __slots__ = ()

    @abstractmethod
    def _build_sections(self) -> Sequence[Section]:
        """Build the sections to show."""

    def __repr__(self) -> str:
        text = io.StringIO()
        print_sections(
            self._build_sections(),
            Console(file=text, width=_WIDTH, highlight=False, color_system=None),
        )
        return text.getvalue().strip("\n")

    def _repr_markdown_(self) -> str:
        return "\n\n".join(
            markdown.render_markdown("", "", self._build_sections()).split("\n\n")[1:]
        )


@dataclass(frozen=True, slots=True, repr=False)
class ComparisonResult(_Displayed):
    """Sample logs before and after, compared document by document."""

    comparison: Comparison

    @property
    def models(self) -> Mapping[str, Paired]:
        """Results over all documents, by model; empty where the tasks' metrics have no mean."""
        return self.comparison.findings.models

    @property
    def groups(self) -> Mapping[str, Mapping[str, Paired]]:
        """Results by group, then by model; empty without ``by`` or several tasks."""
        return self.comparison.findings.groups

    @property
    def aggregates(self) -> Mapping[str, Mapping[str, Paired]]:
        """Results by lm_eval's group of tasks, then by model; empty without such groups."""
        return self.comparison.findings.aggregates

    @property
    def by_state(self) -> Mapping[str, ByState]:
        """Differences by the source's state, by model; empty without source samples."""
        return self.comparison.findings.by_state

    def write(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the files of ``gapft compare --out``.

        Args:
            folder: the folder; it is created.
            overwrite: replace the files of an earlier comparison.

        Raises:
            UserError: the folder already contains a comparison.
        """
        document.write_comparison(self.comparison, Path(folder), overwrite=overwrite)

    def _build_sections(self) -> Sequence[Section]:
        return document.build_sections(self.comparison)


@dataclass(frozen=True, slots=True, repr=False)
class PassAtK(_Displayed):
    """The unbiased Pass@k of several samples per problem (Chen et al. 2021, Equation 1).

    Attributes:
        problems: the number of problems.
        samples: n, the samples of each problem.
        by_k: the exact mean over problems, for every requested k from 1 to n.
    """

    problems: int
    samples: int
    by_k: Mapping[int, Fraction]

    def __getitem__(self, k: int) -> float:
        """Return the mean Pass@k.

        Raises:
            KeyError: this k was not computed.
        """
        return float(self.by_k[k])

    def _build_sections(self) -> Sequence[Section]:
        note = (
            f"{format_count(self.problems)} problems, {format_count(self.samples)} samples of each."
        )
        return [Section("", [Frame(PASS_AT_K, [*self.by_k.items()]).table(note)])]


@dataclass(frozen=True, slots=True, repr=False)
class DecompositionResult(_Displayed):
    """The parts of each model's Pass@1 change by the source's state (Equation 9).

    Attributes:
        models: counts by the model's name. Counts of several seeds are added, so rates and terms
            are means over seeds. Rates, terms and Pass@1 are exact fractions.
    """

    models: Mapping[str, Decomposition]

    def __getitem__(self, name: str) -> Decomposition:
        """Return the counts of one model."""
        return self.models[name]

    def _build_sections(self) -> Sequence[Section]:
        sizes = {
            (decomposition.n_g, decomposition.n_s, decomposition.n_u)
            for decomposition in self.models.values()
        }
        few = sorted({state for size in sizes for state in find_unstable_states(*size)})
        note = f"Unstable rates, based on few problems: {', '.join(few)}." if few else ""
        return [Section("", [Frame(DECOMPOSED, [*self.models.items()]).table(note)])]


_CHANCE = "chance that one of k samples passes"
PASS_AT_K: tuple[Column[tuple[int, Fraction]], ...] = (
    Column("", _CHANCE, lambda row: row[0], "k"),
    Column("", _CHANCE, lambda row: row[1], "Pass@k", percent),
)
_MINUS = "the model's Pass@1 minus the source's"
DECOMPOSED: tuple[Column[tuple[str, Decomposition]], ...] = (
    Column("", "", lambda row: row[0], "model"),
    Column("", "", lambda row: row[1].pass_at_1, "Pass@1", percent),
    Column("", _MINUS, lambda row: row[1].terms.total, "change (points)", points),
    Column("", "", lambda row: row[1].terms.s, "p_S κ_S", points),
    Column("", "", lambda row: row[1].terms.u, "p_U κ_U", points),
    Column("", "", lambda row: row[1].terms.g, "−p_G ρ_G", points),
    Column("", "", lambda row: row[1].kappa_s, "κ_S", percent),
    Column("", "", lambda row: row[1].kappa_u, "κ_U", percent),
    Column("", "", lambda row: row[1].rho_g, "ρ_G", percent),
)
