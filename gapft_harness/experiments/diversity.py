"""The matched-diversity control: selections of the same strata and tokens (MATH, Table 3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness import api
from gapft_harness.analysis.decomposition import STABLE_ITEMS, Decomposition
from gapft_harness.api import (
    condition_name,
    layout,
    listed,
    palette,
    percent,
    points,
    points_interval,
    style,
    wording,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn


#: The selectors whose conditions are compared, but for GapFT itself.
_OTHERS = ("matched_strata", "repeated")
#: By how many problems a stratum may differ (Table 6).
_TOLERANCE = 1


@dataclass(frozen=True, slots=True)
class Compared:
    """Conditions that are compared.

    Attributes:
        names: GapFT first, then in the recipe's order.
        uniform: the one that draws from both states, if there is one.
        by: of each but GapFT the fields that make a stratum.
    """

    names: Sequence[str]
    uniform: str | None
    by: Mapping[str, Sequence[str]]

    @property
    def fields(self) -> Sequence[str]:
        """The fields that make a stratum of all of them."""
        return next(iter(self.by.values()))


def compared(conditions: Mapping[str, api.Condition]) -> Compared | None:
    """The conditions that are compared; None without GapFT or any that is matched to it.

    Raises:
        UserError: a parameter that says what is matched cannot say it; the message names its key.
    """
    gapft = [name for name, of in conditions.items() if of.selector == "gapft"]
    others = {name: of for name, of in conditions.items() if of.selector in _OTHERS}
    matched = [name for name, of in others.items() if of.selector == "matched_strata"]
    if not gapft or not matched:
        return None
    both = [name for name in matched if _draws_uniformly(name, others[name])]
    by = {name: _fields(name, of) for name, of in others.items()}
    return Compared((gapft[0], *others), next(iter(both), None), by)


def _fields(name: str, condition: api.Condition) -> tuple[str, ...]:
    by = condition.params.get("by", ())
    if not isinstance(by, list | tuple) or not all(isinstance(field, str) for field in by):
        raise api.UserError(
            f"key 'conditions.{name}.params.by': is {by!r}, expected a list of a record's fields, "
            "such as [subject, level]"
        )
    return tuple(by)


def _draws_uniformly(name: str, condition: api.Condition) -> bool:
    said = condition.params
    states = said.get("states", "GS")
    if not isinstance(states, str):
        raise api.UserError(
            f"key 'conditions.{name}.params.states': is {states!r}, expected 'G', 'S' or 'GS'"
        )
    return {*states} == {*"GS"} and said.get("responses", "kept") == "kept"


@dataclass(frozen=True, slots=True)
class Strata:
    """A training set's distinct problems by stratum, beside GapFT's of the same seed.

    Attributes:
        own: problems of each stratum.
        gapft: GapFT's.
        others: its problems that are not among GapFT's.
    """

    own: Counter[str]
    gapft: Counter[str]
    others: int = 0

    @property
    def problems(self) -> int:
        """Its distinct problems."""
        return self.own.total()

    def apart(self, stratum: str) -> float:
        """By how many problems a stratum differs from its share of GapFT's."""
        return abs(self.own[stratum] - self.gapft[stratum] * self.problems / self.gapft.total())

    @property
    def most_apart(self) -> float:
        """The same in the stratum in which it is most."""
        return max(self.apart(stratum) for stratum in self.own | self.gapft)

    def faults(self, who: str) -> Iterator[str]:
        """Sentences on strata that differ by more than they may."""
        for stratum in sorted(self.own | self.gapft):
            if self.apart(stratum) > _TOLERANCE:
                yield (
                    f"the {self.problems} problems of {who} have {self.own[stratum]} of the "
                    f"stratum {stratum}, and GapFT's {self.gapft.total()} have "
                    f"{self.gapft[stratum]}; expected as large a share, to one problem"
                )


@dataclass(frozen=True, slots=True)
class Matching:
    """What is compared, and how it is matched.

    Attributes:
        strata: of every training set but GapFT's, its problems by stratum.
        tokens_apart: by how much the supervised tokens of one seed's sets differ at most, as a
            share of the larger.
        tolerance: by how much the recipe lets them.
    """

    of: Compared
    strata: Mapping[api.Arm, Strata]
    tokens_apart: float = 0.0
    tolerance: float = 0.0

    def most_apart(self, condition: str) -> float:
        """By how many problems a stratum differs from its share of GapFT's at most, any seed."""
        return max((strata.most_apart for strata in self._sets(condition)), default=0.0)

    def others(self, condition: str) -> int:
        """How many of its problems are not among GapFT's at most, any seed."""
        return max((strata.others for strata in self._sets(condition)), default=0)

    def _sets(self, condition: str) -> list[Strata]:
        return [strata for arm, strata in self.strata.items() if arm.condition == condition]


def read_matching(run_path: Path, of: Compared, arms: Sequence[api.Arm]) -> dict[api.Arm, Strata]:
    """The strata of the training sets of some arms that are compared, GapFT's left out."""
    labels = {
        problem.id: ", ".join(str(problem.document.get(field)) for field in of.fields) or "all"
        for problem, _ in api.read_problems(run_path / layout.problems("pool"))
    }

    def problems(arm: api.Arm) -> set[str]:
        return {e.problem_id for e in api.read_examples(run_path / layout.selection(arm))}

    def strata(own: set[str], gapft: set[str]) -> Strata:
        counts = [Counter(labels[name] for name in names) for names in (own, gapft)]
        return Strata(counts[0], counts[1], len(own - gapft))

    seeds = {arm.seed for arm in arms if arm.condition == of.names[0]}
    gapft = {seed: problems(api.Arm(of.names[0], seed)) for seed in seeds}
    return {
        arm: strata(problems(arm), gapft[arm.seed])
        for arm in arms
        if arm.condition in of.names[1:] and arm.seed in gapft
    }


class MatchedDiversity(api.Experiment):
    """Selections that are matched to GapFT's in strata and supervised tokens (Tables 3 and 6).

    Conditions of one n: problems of GapFT's strata, to one, and tokens to a tolerance. Which are
    compared follows from their selectors: ``gapft``, which the others are matched to,
    ``matched_strata`` and ``repeated``.
    """

    name = "matched_diversity"

    def part(self) -> DiversityPart:
        """Its section, figure and table."""
        return DiversityPart()

    def settings(self, recipe: api.Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``Experiment.settings``.

        Raises:
            UserError: the recipe has too few of its conditions, they are not of one n or of the
                same strata, one has a parameter that cannot be, or nothing says by how much
                supervised tokens may differ.
        """
        found = super().settings(recipe, options)
        if found is None:
            return None
        where = f"recipe {recipe.name}: key 'experiments.{self.name}':"
        try:
            of = compared(recipe.conditions)
        except api.UserError as error:
            raise api.UserError(f"recipe {recipe.name}: {error}") from error
        if of is None:
            raise api.UserError(
                f"{where} needs a condition of the selector gapft and one or more of "
                "matched_strata, such as gapft: {} and solved: {selector: matched_strata, params: "
                f"{{states: G, by: [subject, level]}}}}; found: {', '.join(recipe.conditions)}"
            )
        for what, each in (
            ("n", {name: recipe.slots(name) for name in of.names}),
            ("fields in by", {name: list(by) for name, by in of.by.items()}),
        ):
            if len({*map(str, each.values())}) > 1:
                said = ", ".join(f"{name} {value}" for name, value in each.items())
                raise api.UserError(
                    f"{where} compares conditions of the same {what}, and theirs differ ({said})"
                )
        if recipe.budget.token_tolerance is None:
            raise api.UserError(
                f"{where} compares conditions of nearly as many supervised tokens, and "
                "budget.token_tolerance is not set; set it, to 0.02 as the paper does"
            )
        api.require_same_settings(recipe, self.name, of.names)
        return found

    def conditions(self, recipe: api.Recipe) -> Sequence[str]:
        """Those that are compared, GapFT first."""
        return self._of(recipe).names

    def faults(self, view: api.View) -> Iterator[str]:
        """Training sets of other strata than GapFT's, by more than one problem."""
        if view.arms():
            yield from api.find_own_settings(view, self.name, self.conditions(view.recipe))
            matching = read_matching(view.run.path, self._of(view.recipe), view.arms())
            for arm, strata in matching.items():
                yield from strata.faults(arm.name)

    @staticmethod
    def _of(recipe: api.Recipe) -> Compared:
        found = compared(recipe.conditions)
        assert found is not None, "a recipe whose settings were checked"
        return found


class DiversityPart(api.Part):
    """Table 3 on the run's own audit."""

    name = "matched_diversity"
    after = "Contrasts"

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[api.Arm]
    ) -> Matching | None:
        """What is compared, with its strata."""
        of = compared(api.conditions_of(manifest["recipe"]))
        return Matching(of, read_matching(run_path, of, arms)) if of and arms else None

    def compute(self, inputs: api.ReportInputs, read: Matching) -> Matching:
        """With how far tokens are apart: all else is among the figures of every report."""
        shares = []
        for seed in inputs.seeds:
            tokens = [
                trained.budget.supervised_tokens
                for trained in inputs.arms
                if trained.arm.seed == seed and trained.arm.condition in read.of.names
            ]
            shares.append((max(tokens) - min(tokens)) / max(tokens))
        tolerance = inputs.recipe["budget"]["token_tolerance"]
        return replace(read, tokens_apart=max(shares), tolerance=tolerance)

    def sections(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: Matching
    ) -> Iterator[api.Section]:
        """The result, the figure, the paper's table, and what is matched."""
        gained = "; ".join(
            f"{condition_name(name)} {points(findings.contrast(name, api.SOURCE).delta)} points"
            for name in found.of.names
        )
        figure = api.Figure(
            self.name,
            f"Pass@1 minus the source's: {gained}.",
            "Pass@1 minus the source's, with 95% intervals. Filled: the interval excludes zero.",
        )
        tables = [_outcomes(findings, found), _matching(findings, found)]
        yield api.Section(
            "Matched diversity", [api.Text(_result(findings, found)), figure, *tables]
        )

    def figures(self, findings: api.ReportFindings, found: Matching) -> api.Figures:
        """The gains, with the rates on each state."""
        yield self.name, lambda findings: _gains(findings, found.of)

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: Matching
    ) -> Iterator[tuple[str, api.Rows]]:
        """A row for each condition."""
        columns = [*CONDITION, *SIZE, *MATCHED, *PASS_AT_1, *STATES]
        for other in (api.SOURCE, *_references(found.of)):
            columns += minus(other)
        yield f"{self.name}.csv", api.Frame(columns, _lines(findings, found)).csv()

    def results(self, found: Matching) -> dict[str, Any]:
        """What is matched; the figures stand under ``conditions`` and ``contrasts``."""
        return {
            "strata": list(found.of.fields),
            "conditions": {name: found.most_apart(name) for name in found.of.names},
            "problems_not_gapfts": {name: found.others(name) for name in found.of.names},
            "supervised_tokens_apart": found.tokens_apart,
            "token_tolerance": found.tolerance,
        }


def _references(of: Compared) -> list[str]:
    """What conditions are held against besides the source: GapFT, and uniform if there is one."""
    return [of.names[0], *([of.uniform] if of.uniform else [])]


def _size(findings: api.ReportFindings, name: str) -> tuple[int, int]:
    """The distinct problems of a training set, and how often each is seen."""
    first = next(iter(findings.conditions[name].seeds.values()))
    return first.problems, first.budget.exposures // first.problems


def _gains(findings: api.ReportFindings, of: Compared) -> Drawn:
    """Every condition's gain over the source with its interval."""
    figure, axes = style.panel(0.3 * len(of.names) + 0.9)
    axes.axvline(0, color=palette.MUTED, linewidth=0.9)
    for y, name in enumerate(of.names):
        contrast = findings.contrast(name, api.SOURCE)
        style.interval_row(axes, y, contrast.delta, contrast.interval)
        style.beside(axes, y, points(contrast.delta))
    style.name_rows(axes, [condition_name(name) for name in of.names])
    axes.set_xlabel("points of Pass@1, 95% interval")
    axes.set_title("Pass@1 minus that of the source", x=0)
    return figure


def _result(findings: api.ReportFindings, found: Matching) -> str:
    of, name = found.of, found.of.names[0]
    budget = next(iter(findings.conditions[name].seeds.values())).budget
    against = [api.SOURCE, *([of.uniform] if of.uniform else [])]
    said = [
        f"{points(contrast.delta)} points {points_interval(contrast.interval)} "
        f"from {'the ' if other == api.SOURCE else ''}{condition_name(other)}"
        for other in against
        for contrast in [findings.contrast(name, other)]
    ]
    most = max(found.most_apart(name) for name in of.names)
    strata = (
        f"The problems of all conditions are matched by {listed([*of.fields])}, to one "
        f"problem a stratum; the most that one differs by is {most:g}."
        if of.fields
        else "The problems are not matched in strata."
    )
    return (
        f"At N = {wording.whole(budget.exposures)} exposures in J = "
        f"{wording.whole(budget.steps)} steps, Pass@1 of {condition_name(name)} differs by "
        f"{listed(said)}. {strata} Supervised tokens differ under one seed by up to "
        f"{percent(found.tokens_apart, 2)} of the larger, and the recipe allows "
        f"{percent(found.tolerance, 2)}."
    )


@dataclass(frozen=True, slots=True)
class MatchedCondition:
    """A condition that is compared."""

    findings: api.ReportFindings
    matching: Matching
    name: str

    @property
    def mean(self) -> Decomposition:
        """What it changed, over seeds."""
        return self.findings.conditions[self.name].mean

    @property
    def leads(self) -> bool:
        """Whether it is the one that the others are matched to."""
        return self.name == self.matching.of.names[0]

    @property
    def apart(self) -> float | None:
        """By how many problems a stratum differs most; None without strata."""
        return self.matching.most_apart(self.name) if self.matching.of.fields else None

    @property
    def tokens(self) -> list[int]:
        """Supervised ones, by seed."""
        return [of.supervised_tokens for of in self.findings.conditions[self.name].budgets]


def _lines(findings: api.ReportFindings, matching: Matching) -> list[MatchedCondition]:
    return [MatchedCondition(findings, matching, name) for name in matching.of.names]


def _size_said(row: MatchedCondition) -> str:
    problems, each = _size(row.findings, row.name)
    return f"{wording.whole(problems)} × {each}"


_MATCHED = (
    "problems and how often each is seen, those GapFT lacks, by how many the worst stratum "
    "differs, supervised tokens"
)
CONDITION: tuple[api.Column[MatchedCondition], ...] = (
    api.Column("condition", "", lambda row: row.name, "condition", condition_name),
)
SIZE: tuple[api.Column[MatchedCondition], ...] = (
    api.Column("", _MATCHED, _size_said, "problems"),
    api.Column(
        "size", "", lambda row: _size(row.findings, row.name), names=("problems", "exposures_each")
    ),
)
MATCHED: tuple[api.Column[MatchedCondition], ...] = (
    api.Column("problems_not_gapfts", "", lambda row: row.matching.others(row.name)),
    api.Column(
        "",
        _MATCHED,
        lambda row: "ref." if row.leads else wording.whole(row.matching.others(row.name)),
        "new",
    ),
    api.Column("strata_most_apart", "", lambda row: row.apart),
    api.Column(
        "",
        _MATCHED,
        lambda row: "ref." if row.leads else "–" if row.apart is None else f"{row.apart:g}",
        "strata",
    ),
    api.Column(
        "L_supervised",
        _MATCHED,
        lambda row: (min(row.tokens), max(row.tokens)),
        "tokens",
        wording.span,
        names=("L_supervised_least", "L_supervised_most"),
    ),
)
PASS_AT_1: tuple[api.Column[MatchedCondition], ...] = (
    api.Column("pass_at_1", "", lambda row: row.mean.pass_at_1, "Pass@1", percent),
)


def _rate(
    key: str, title: str, state: str, value: Callable[[MatchedCondition], Fraction | None]
) -> api.Column[MatchedCondition]:
    return api.Column(
        key, "", value, title, percent, lambda row: state in row.findings.source.unstable
    )


STATES: tuple[api.Column[MatchedCondition], ...] = (
    _rate("kappa_S", "κ_S", "S", lambda row: row.mean.kappa_s),
    _rate("kappa_U", "κ_U", "U", lambda row: row.mean.kappa_u),
    _rate("rho_G", "ρ_G", "G", lambda row: row.mean.rho_g),
)


def minus(other: str) -> tuple[api.Column[MatchedCondition], ...]:
    """The difference from another condition, or from the source; none from itself."""

    def contrast(row: MatchedCondition) -> api.Contrast | None:
        return None if other == row.name else row.findings.contrast(row.name, other)

    def all_three(of: api.Contrast) -> tuple[Fraction | float, ...]:
        return of.delta, of.interval.low, of.interval.high

    names = [f"{end}_minus_{other}" for end in ("delta", "ci95_low", "ci95_high")]
    title, meaning = f"Δ {condition_name(other)}", "Pass@1 minus the source's, or this condition's"
    columns: tuple[api.Column[api.Contrast], ...] = (
        api.Column(f"minus_{other}", "", all_three, names=names),
        api.Column("", meaning, lambda of: of.delta, title, points, missing="ref."),
        api.Column("", "", lambda of: of.interval, "95% interval", points_interval, missing=""),
    )
    return tuple(column.of(contrast) for column in columns)


DIFFERENCES = (*minus(api.SOURCE), *minus("CONDITION"))


def _outcomes(findings: api.ReportFindings, matching: Matching) -> api.Table:
    counts = findings.source.states
    note = (
        "Problems × exposures of each. Δ: Pass@1 minus the source's in percentage points, with its "
        "95% interval. κ_S, κ_U: share of the audit's recovered and missed failures that are "
        f"corrected; ρ_G: share of the solved problems that are lost. The audit has {counts['G']} "
        f"problems of G, {counts['S']} of S and {counts['U']} of U."
    )
    if findings.source.unstable:
        note += f" {wording.UNSTABLE} Unstable: fewer than {STABLE_ITEMS} audit problems."
    columns = [*CONDITION, *SIZE, *PASS_AT_1, *minus(api.SOURCE), *STATES]
    return api.Frame(columns, _lines(findings, matching)).table(note)


def _matching(findings: api.ReportFindings, matching: Matching) -> api.Table:
    columns = [*CONDITION]
    for other in _references(matching.of):
        columns += minus(other)
    lead = condition_name(matching.of.names[0])
    note = (
        f"New: problems that are not among {lead}'s, under the seed that has most. Strata: by how "
        "many problems the stratum that differs most differs from its share of "
        f"{lead}'s, under any seed. Tokens: supervised ones over all exposures, from the least to "
        "the most of the seeds."
    )
    return api.Frame([*columns, *MATCHED], _lines(findings, matching)).table(note)


@api.hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Registers it."""
    register("matched_diversity", MatchedDiversity)
