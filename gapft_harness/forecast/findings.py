"""Everything a forecast says, computed once and typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gapft_harness.analysis.flat_groups import FlatGroups, flat_groups
from gapft_harness.analysis.forecast.extrapolation import Fit, fit, histogram
from gapft_harness.analysis.forecast.mixtures import OneComponent, one_component
from gapft_harness.analysis.forecast.power import detectable
from gapft_harness.core.errors import UserError
from gapft_harness.core.streams import derive
from gapft_harness.forecast.costs import Costs, costs
from gapft_harness.forecast.reading import Searched, SearchedRun

#: Decisions that differed between two trainings with one seed and the same data, LogiQA 2.0
#: (the paper, appendix "Implementation Details", Reproducibility).
DISCORDANCE = 331 / 1367
#: Share of recovered audit failures that training corrects: the paper's range over its three
#: models (Section 5, "between two fifths and two thirds").
CORRECTED = (2 / 5, 2 / 3)


@dataclass(frozen=True, slots=True)
class ForecastChoice:
    """What the user of ``gapft gap RUN`` chose.

    Attributes:
        depths: the numbers of samples that are forecast, beyond K.
        seeds: training seeds; None: the recipe's.
        items: audit items; None: the run's.
        discordance: share of decisions in which two trained models differ.
        shared: share of these differences' variance that comes back under every seed.
    """

    depths: Sequence[int] = (64,)
    seeds: int | None = None
    items: int | None = None
    discordance: float = DISCORDANCE
    shared: float = 0.0


@dataclass(frozen=True, slots=True)
class Guess:
    """A forecast value with its 80% interval; a share or a count."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Fitted on the first samples alone: how many further problems the others solve.

    Attributes:
        fitted: how many samples were fitted on.
        unsolved: problems that none of these solved.
        forecast: how many of them the held-back samples solve.
        found: how many they did solve.
    """

    fitted: int
    unsolved: int
    forecast: Guess
    found: int

    @property
    def inside(self) -> bool:
        """Whether the interval holds what was found."""
        return self.forecast.low <= self.found <= self.forecast.high


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fit to some problems' counts.

    Attributes:
        fits: the p value of its posterior predictive check.
        one: the one-component fit and its test.
        held: the check against held-back samples; None for fewer than 4 samples.
    """

    problems: int
    fit: Fit
    fits: float
    one: OneComponent
    held: HeldBack | None


@dataclass(frozen=True, slots=True)
class SplitFindings:
    """A split's search and what more of it would find.

    Attributes:
        pass_at_1: of the greedy decode.
        recovered: problems in S.
        missed: problems in U.
        first: shares of S whose first passing sample is one of the first k, for k = 1 to K.
        curve: unbiased Pass@k for k = 1 to K; None where samples were left out.
        all: the fit to all problems; None where samples were left out, or none or all passed.
        failures: the fit to the problems that the greedy decode fails, likewise.
        pass_at_k: Pass@k forecast, by k.
        recoverable: |S| forecast, by K.
        flat: groups of all K samples by state, and which are flat; None where samples were left
            out.
    """

    problems: int
    pass_at_1: float
    recovered: int
    missed: int
    first: tuple[float, ...]
    curve: tuple[float, ...] | None
    all: Fitted | None
    failures: Fitted | None
    pass_at_k: Mapping[int, Guess]
    recoverable: Mapping[int, Guess]
    flat: tuple[FlatGroups, ...] | None

    @property
    def solved(self) -> int:
        """Problems in G."""
        return self.problems - self.recovered - self.missed

    @property
    def p_s(self) -> float:
        """p_S, the share of recovered failures."""
        return self.recovered / self.problems


@dataclass(frozen=True, slots=True)
class Forecast:
    """All of it.

    Attributes:
        depths: the numbers of samples beyond K that are forecast, ascending.
        drawn: those asked for that are within K, and so are measured.
        splits: ``pool`` and ``audit``, or the one that was searched.
        seeds: training seeds.
        items: audit items.
        detectable: by number of seeds the smallest effect found with power 80%; None: none is.
        costs: what was spent, and what the next steps take.
        told: warnings of splits that were imported.
    """

    k: int
    depths: tuple[int, ...]
    drawn: tuple[int, ...]
    splits: Mapping[str, SplitFindings]
    seeds: int
    items: int
    discordance: float
    shared: float
    detectable: Mapping[int, float | None]
    costs: Costs
    told: tuple[str, ...] = ()

    @property
    def judged(self) -> SplitFindings:
        """The split that the verdict is about: the audit, else the pool."""
        return self.splits.get("audit") or self.splits["pool"]


def forecast(run: SearchedRun, choice: ForecastChoice) -> Forecast:
    """Computes everything; the same run and choice give the same figures.

    Raises:
        UserError: no audit is searched, and the choice does not say how many items it has.
    """
    items = choice.items or _audit_items(run)
    depths = tuple(sorted({k for k in choice.depths if k > run.k}))
    splits: dict[str, SplitFindings] = {}
    for split in ("audit", "pool"):  # the audit first: a pool that stopped early leans on it
        if split in run.splits:
            borrowed = splits["audit"].failures if "audit" in splits else None
            splits[split] = _split(run.splits[split], split, depths, borrowed)
    splits = {split: splits[split] for split in run.splits}
    seeds = choice.seeds or len(run.recipe["seeds"])
    return Forecast(
        k=run.k,
        depths=depths,
        drawn=tuple(sorted(set(choice.depths) - set(depths))),
        splits=splits,
        seeds=seeds,
        items=items,
        discordance=choice.discordance,
        shared=choice.shared,
        detectable={
            n: detectable(
                seeds=n, items=items, discordance=choice.discordance, shared=choice.shared
            )
            for n in sorted({1, 3, 5, 10, seeds})
        },
        costs=costs(run, depths, seeds, items),
        told=run.told,
    )


def _audit_items(run: SearchedRun) -> int:
    audit = run.splits.get("audit")
    if audit is None:
        raise UserError(
            "--items: no audit is searched in this run, and on its items rests which effects can "
            "be detected; give how many it will have: --items M"
        )
    return len(audit.greedy)


def _split(
    of: Searched, name: str, depths: Sequence[int], borrowed: Fitted | None
) -> SplitFindings:
    k, recovered = of.k, of.states == "S"
    when = of.passed[recovered].argmax(axis=1)
    fits = of.complete
    whole = _fit(of.passed, f"{name}/all") if fits else None
    failed = _fit(of.passed[~of.greedy], f"{name}/failures") if fits else borrowed
    missed = int((of.states == "U").sum())
    curve = tuple(float(of.pass_at(n)) for n in range(1, k + 1))
    further = {} if failed is None else {n: _newly(failed.fit, n - k, missed) for n in depths}
    return SplitFindings(
        problems=len(of.greedy),
        pass_at_1=float(of.greedy.mean()),
        recovered=int(recovered.sum()),
        missed=missed,
        first=tuple(float((when < n).mean()) for n in range(1, k + 1)) if len(when) else (),
        curve=curve if fits else None,
        all=whole,
        failures=failed,
        pass_at_k={} if whole is None else {n: _guess(whole.fit.pass_at_k(n)) for n in depths},
        recoverable={
            n: Guess(*(float(recovered.sum()) + x for x in (of_n.value, of_n.low, of_n.high)))
            for n, of_n in further.items()
        },
        flat=flat_groups(
            (state, k, passed)
            for state, passed in zip(of.states.tolist(), of.passing.tolist(), strict=True)
        )
        if fits
        else None,
    )


def _fit(passed: np.ndarray, name: str) -> Fitted | None:
    """The fit to problems' samples (P, K); None where none or all of them passed."""
    if not passed.any() or passed.all():
        return None
    k = passed.shape[1]
    counts = histogram(passed.sum(axis=1), k)
    found = fit(counts, derive("forecast", name))
    return Fitted(
        problems=len(passed),
        fit=found,
        fits=float(found.fits()[0]),
        one=one_component(counts[0]),
        held=_held(passed, name) if k >= 4 else None,
    )


def _held(passed: np.ndarray, name: str) -> HeldBack | None:
    k = passed.shape[1]
    first, rest = passed[:, : k // 2], passed[:, k // 2 :]
    if not first.any():
        return None
    counts = histogram(first.sum(axis=1), k // 2)
    unsolved = ~first.any(axis=1)
    of = fit(counts, derive("forecast", name, "held back"))
    found = int(rest[unsolved].any(axis=1).sum())
    return HeldBack(k // 2, int(unsolved.sum()), _newly(of, k - k // 2, int(unsolved.sum())), found)


def _newly(of: Fit, extra: int, unsolved: int) -> Guess:
    return _guess(of.newly_solved(extra, np.array([unsolved])))


def _guess(of: object) -> Guess:
    return Guess(float(of.value[0]), float(of.low[0]), float(of.high[0]))  # type: ignore[attr-defined]
