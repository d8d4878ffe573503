"""``compare``, ``pass_at_k`` and ``decompose``, on opened runs, logs and plain arrays."""

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

from gapft_harness.analysis.decomposition import Decomposition, pool, unstable_states
from gapft_harness.analysis.decomposition import decompose as counts_of
from gapft_harness.analysis.pass_at_k import mean_pass_at_k
from gapft_harness.compare import document
from gapft_harness.compare.choice import SHOWN, CompareChoice
from gapft_harness.compare.comparison import Comparison
from gapft_harness.compare.comparison import compare as compare_logs
from gapft_harness.compare.findings import ByState, Paired
from gapft_harness.core.errors import UserError
from gapft_harness.interactive.runs import Run, read_stated
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.reading.inputs import read_inputs
from gapft_harness.report.rendering import markdown
from gapft_harness.report.rendering.blocks import Section
from gapft_harness.report.rendering.terminal import show
from gapft_harness.report.rendering.wording import percent, points, whole
from gapft_harness.run_directory.binding import require_recorded
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
) -> Compared:
    """Compares sample logs of lm_eval document by document, as ``gapft compare`` does.

    Args:
        before: the log of the model before: a file, folder or glob.
        after: those of one or more models after, by name or not.
        metric: its name; None: of each task the first that BEFORE's log names.
        filter: of lm_eval; None: of each task the first in BEFORE's log.
        tasks: only these.
        on: fields of the document to join by; none: the whole document.
        cluster: documents that share this field are not independent.
        by: also compare for each value of this field.
        common: leave out documents that not all logs hold and score, an error otherwise.
        seeds: all AFTERs are training seeds of one model.
        source_samples: logs of several samples of the model before, for G, S and U.
        higher_is_better: of the metric, where lm_eval's results are not beside the logs.
        latest: of several logs of one task in a folder, the newest.
        show: of a model's gained documents, and of its lost ones, how many are shown.

    Raises:
        UserError: what was named is not there, is damaged, or cannot be compared.
    """
    if isinstance(after, Mapping):
        named = [f"{name}={place}" for name, place in after.items()]
    else:
        named = _places(after)
    if not named:
        raise UserError("compare: no log after; give a folder, a list, or a mapping of names")
    choice = CompareChoice(
        *(metric, filter, tasks, on, cluster, by, common, seeds, _places(source_samples)),
        higher_is_better=higher_is_better,
        latest=latest,
        shown=show,
    )
    return Compared(compare_logs(str(before), named, choice))


def pass_at_k(
    of: Run | ArrayLike,
    k: SupportsIndex | Sequence[SupportsIndex] | None = None,
    *,
    split: str = "audit",
) -> PassAtK:
    """The unbiased Pass@k of every k up to the number of samples.

    Args:
        of: a run whose states are there, or an array of shape (P, n): which samples passed.
        k: only these; None: 1 to n.
        split: which of the run's.

    Raises:
        UserError: the stage states has not run, the search stopped early, an array of another
            shape or of other values than 0 and 1, or k is no whole number within 1..n.
    """
    passing, samples = _counts(of, split) if isinstance(of, Run) else _of_array(of)
    wanted = range(1, samples + 1) if k is None else _whole(k)
    try:
        by_k = {one: mean_pass_at_k(passing, samples, one) for one in wanted}
    except ValueError as error:
        raise UserError(f"pass_at_k: {error}") from error
    return PassAtK(len(passing), samples, by_k)


@overload
def decompose(of: Run) -> Decomposed: ...


@overload
def decompose(of: ArrayLike, passed: ArrayLike | Mapping[str, ArrayLike]) -> Decomposed: ...


def decompose(of: Any, passed: Any = None) -> Decomposed:
    """Where a Pass@1 change comes from: corrected S, corrected U and regressed G (Equation 9).

    Args:
        of: a run whose audit is done, or an array of shape (P,): ``G``, ``S`` or ``U``.
        passed: with an array, which problems the trained model solved: shape (P,), or (seeds, P);
            several models by name. A run has its own decisions.

    Returns:
        Counts of every condition over all seeds; of arrays by name, ``after`` if none was given.

    Raises:
        UserError: the run's audit is not done, or arrays do not fit.
    """
    if isinstance(of, Run):
        if passed is not None:
            raise UserError("decompose: a run has its own decisions; give passed with states alone")
        return _of_run(of)
    if passed is None:
        raise UserError("decompose: give passed, shape (P,), beside states; or a run alone")
    models = passed if isinstance(passed, Mapping) else {"after": passed}
    if not models:
        raise UserError("decompose: passed names no model; expected NAME: array for one or more")
    states = _array(of, "decompose: states")
    return Decomposed({name: _pooled(states, one, name) for name, one in models.items()})


def _places(places: Place | Sequence[Place]) -> list[str]:
    return [str(one) for one in ([places] if isinstance(places, str | Path) else places)]


def _counts(run: Run, split: str) -> tuple[NDArray[np.int64], int]:
    table = read_stated(run, split)
    k = run.directory.recipe.search.k
    if {*table["samples"].to_pylist()} != {k}:
        raise UserError(
            f"{run.path}: the search of {split} stopped early, before {k} samples of every "
            "problem; the unbiased Pass@k needs all of them (search.stop: never)"
        )
    return table["passing_samples"].to_numpy().astype(np.int64), k


def _of_array(of: ArrayLike) -> tuple[NDArray[np.int64], int]:
    passed = _binary(of, "pass_at_k")
    if passed.ndim != 2 or not passed.size:
        raise UserError(
            f"pass_at_k: expected a run, or an array of shape (problems, samples), found shape "
            f"{passed.shape}"
        )
    return passed.sum(axis=1), passed.shape[1]


def _pooled(states: NDArray[np.str_], passed: ArrayLike, name: str) -> Decomposition:
    found = _binary(passed, f"decompose: {name}")
    if found.ndim == 2 and not len(found):
        raise UserError(f"decompose: {name}: expected one seed or more, found shape {found.shape}")
    try:
        return pool([counts_of(states, seed) for seed in np.atleast_2d(found)])
    except ValueError as error:
        raise UserError(f"decompose: {name}: {error}") from error


def _whole(k: Any) -> list[int]:
    try:
        return [operator.index(one) for one in ([k] if np.ndim(k) == 0 else k)]
    except (TypeError, ValueError) as error:
        raise UserError(f"pass_at_k: k: expected whole numbers, found {k!r}") from error


def _array(values: Any, what: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError as error:
        raise UserError(f"{what}: expected an array, with rows of one length: {error}") from error


def _binary(values: ArrayLike, what: str) -> NDArray[np.bool_]:
    found = _array(values, what)
    if found.dtype.kind not in "biuf" or not np.isin(found, (0, 1)).all():
        raise UserError(f"{what}: expected True and False, or 1 and 0")
    return found.astype(bool)


def _of_run(run: Run) -> Decomposed:
    """Every condition under every seed, as the report has them."""
    require_recorded(run.path, run.directory.recipe, run.directory.manifest())
    require_sealed(run.directory)
    manifest = run.directory.manifest() | {"recipe": run.directory.recipe.model_dump(mode="json")}
    inputs = read_inputs(run.path, manifest)
    states = inputs.audit.states
    return Decomposed(
        {
            name: pool([counts_of(states, arm.passed) for arm in inputs.of(name)])
            for name in inputs.conditions
        }
    )


#: Characters of a line of a table as text.
_WIDTH = 100


class _Shown(ABC):
    """Shown as text by ``print``, and as Markdown in a notebook."""

    __slots__ = ()

    @abstractmethod
    def _sections(self) -> Sequence[Section]:
        """What is shown."""

    def __repr__(self) -> str:
        text = io.StringIO()
        show(self._sections(), Console(file=text, width=_WIDTH, highlight=False, color_system=None))
        return text.getvalue().strip("\n")

    def _repr_markdown_(self) -> str:
        return "\n\n".join(markdown.render("", "", self._sections()).split("\n\n")[1:])


@dataclass(frozen=True, slots=True, repr=False)
class Compared(_Shown):
    """Sample logs before and after, compared document by document."""

    comparison: Comparison

    @property
    def models(self) -> Mapping[str, Paired]:
        """Over all documents, by the model's name; empty where tasks' metrics have no mean."""
        return self.comparison.found.models

    @property
    def groups(self) -> Mapping[str, Mapping[str, Paired]]:
        """By group, then by the model's name; empty without ``by`` or several tasks."""
        return self.comparison.found.groups

    @property
    def aggregates(self) -> Mapping[str, Mapping[str, Paired]]:
        """By lm_eval's group of tasks, then by the model's name; empty without such groups."""
        return self.comparison.found.aggregates

    @property
    def by_state(self) -> Mapping[str, ByState]:
        """By the model's name, where the difference comes from; empty without source samples."""
        return self.comparison.found.by_state

    def write(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Writes what ``gapft compare --out`` writes.

        Args:
            folder: where; it is made.
            overwrite: replace what an earlier comparison wrote there.

        Raises:
            UserError: the folder holds a comparison already.
        """
        document.write(self.comparison, Path(folder), overwrite=overwrite)

    def _sections(self) -> Sequence[Section]:
        return document.sections(self.comparison)


@dataclass(frozen=True, slots=True, repr=False)
class PassAtK(_Shown):
    """The unbiased Pass@k of several samples a problem (Chen et al. 2021, Equation 1).

    Attributes:
        samples: n, of each.
        by_k: the mean over problems, exact, for every k from 1 to n that was asked for.
    """

    problems: int
    samples: int
    by_k: Mapping[int, Fraction]

    def __getitem__(self, k: int) -> float:
        """The mean Pass@k.

        Raises:
            KeyError: this k was not computed.
        """
        return float(self.by_k[k])

    def _sections(self) -> Sequence[Section]:
        note = f"{whole(self.problems)} problems, {whole(self.samples)} samples of each."
        return [Section("", [Frame(PASS_AT_K, [*self.by_k.items()]).table(note)])]


@dataclass(frozen=True, slots=True, repr=False)
class Decomposed(_Shown):
    """Where each model's Pass@1 change comes from (Equation 9).

    Attributes:
        models: counts by the model's name; over several seeds they are added up, so that rates
            and terms are means over seeds. Rates, terms and Pass@1 are exact fractions.
    """

    models: Mapping[str, Decomposition]

    def __getitem__(self, name: str) -> Decomposition:
        """The counts of one model."""
        return self.models[name]

    def _sections(self) -> Sequence[Section]:
        sizes = {(of.n_g, of.n_s, of.n_u) for of in self.models.values()}
        few = sorted({state for size in sizes for state in unstable_states(*size)})
        note = f"Unstable rates, over few problems: {', '.join(few)}." if few else ""
        return [Section("", [Frame(DECOMPOSED, [*self.models.items()]).table(note)])]


_CHANCE = "chance that one of k samples passes"
PASS_AT_K: tuple[Column[tuple[int, Fraction]], ...] = (
    Column("", _CHANCE, lambda row: row[0], "k"),
    Column("", _CHANCE, lambda row: row[1], "Pass@k", percent),
)
_MINUS = "minus the source's"
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
