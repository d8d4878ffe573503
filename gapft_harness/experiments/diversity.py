"""The matched-diversity control: selections with the same strata and tokens (MATH, Table 3)."""

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


#: The selectors whose conditions are compared with GapFT.
_OTHERS = ("matched_strata", "repeated")
#: The most problems by which a stratum may differ (Table 6).
_TOLERANCE = 1


@dataclass(frozen=True, slots=True)
class Compared:
    """Conditions that are compared.

    Attributes:
        names: GapFT first, then the others in the recipe's order.
        uniform: the condition that draws uniformly from both states; None: there is none.
        by: for each condition except GapFT, the fields of a record that define its strata.
    """

    names: Sequence[str]
    uniform: str | None
    by: Mapping[str, Sequence[str]]

    @property
    def fields(self) -> Sequence[str]:
        """The fields that define the strata; all conditions have the same."""
        return next(iter(self.by.values()))


def compared(conditions: Mapping[str, api.Condition]) -> Compared | None:
    """Find the conditions to compare; None without GapFT or a condition matched to it.

    Raises:
        UserError: a parameter that defines the matching is invalid; the message names its key.
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
            f"key 'conditions.{name}.params.by': {by!r}: expected a list of fields of a record, "
            "such as [subject, level]"
        )
    return tuple(by)


def _draws_uniformly(name: str, condition: api.Condition) -> bool:
    said = condition.params
    states = said.get("states", "GS")
    if not isinstance(states, str):
        raise api.UserError(
            f"key 'conditions.{name}.params.states': {states!r}: expected 'G', 'S' or 'GS'"
        )
    return {*states} == {*"GS"} and said.get("responses", "kept") == "kept"


@dataclass(frozen=True, slots=True)
class Strata:
    """The distinct problems of a training set by stratum, and those of GapFT with the same seed.

    Attributes:
        own: the number of its problems in each stratum.
        gapft: the number of GapFT's problems in each stratum.
        n_others: how many of its problems GapFT does not have.
    """

    own: Counter[str]
    gapft: Counter[str]
    others: int = 0

    @property
    def problems(self) -> int:
        """The number of its distinct problems."""
        return self.own.total()

    def apart(self, stratum: str) -> float:
        """Return by how many problems a stratum differs from its share in GapFT's set."""
        return abs(self.own[stratum] - self.gapft[stratum] * self.problems / self.gapft.total())

    @property
    def most_apart(self) -> float:
        """The largest such difference of any stratum, in problems."""
        return max(self.apart(stratum) for stratum in self.own | self.gapft)

    def faults(self, who: str) -> Iterator[str]:
        """Describe strata that differ by more than one problem.

        Args:
            who: the name of the arm.
        """
        for stratum in sorted(self.own | self.gapft):
            if self.apart(stratum) > _TOLERANCE:
                yield (
                    f"{who}: {self.own[stratum]} of {self.problems} problems are in stratum "
                    f"{stratum}, for GapFT {self.gapft[stratum]} of {self.gapft.total()}; expected "
                    "the same share, to one problem"
                )


@dataclass(frozen=True, slots=True)
class Matching:
    """The compared conditions, and how well they match.

    Attributes:
        compared: the compared conditions.
        strata: by arm, except GapFT's, the problems of its training set by stratum.
        token_difference: the largest difference between supervised tokens of two sets with the same
            seed, as a share of the larger.
        tolerance: the largest such share that the recipe allows.
    """

    of: Compared
    strata: Mapping[api.Arm, Strata]
    tokens_apart: float = 0.0
    tolerance: float = 0.0

    def most_apart(self, condition: str) -> float:
        """Return the largest difference of a stratum from GapFT's, in problems, over seeds."""
        return max((strata.most_apart for strata in self._sets(condition)), default=0.0)

    def others(self, condition: str) -> int:
        """Return the largest number of problems that GapFT does not have, over seeds."""
        return max((strata.others for strata in self._sets(condition)), default=0)

    def _sets(self, condition: str) -> list[Strata]:
        return [strata for arm, strata in self.strata.items() if arm.condition == condition]


def read_matching(run_path: Path, of: Compared, arms: Sequence[api.Arm]) -> dict[api.Arm, Strata]:
    """Read the strata of the training sets of compared arms, without GapFT's.

    Args:
        run_path: the run directory.
        compared: the compared conditions.
        arms: arms of the run; an arm without a GapFT arm of the same seed is left out.
    """
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
    """Compares selections that match GapFT's in strata and supervised tokens (Tables 3 and 6).

    All conditions have the same n. Their strata have as many problems as GapFT's, to one problem,
    and their supervised tokens are equal within a tolerance. The selectors decide which conditions
    are compared: ``gapft``, to which the others are matched, ``matched_strata`` and ``repeated``.
    """

    name = "matched_diversity"

    def part(self) -> DiversityPart:
        """Return the part of the report."""
        return DiversityPart()

    def settings(self, recipe: api.Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``Experiment.settings``.

        Raises:
            UserError: the recipe has too few such conditions, they differ in n or in the fields of
                strata, a parameter is invalid, or ``budget.token_tolerance`` is not set.
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
                    f"{where} expected the same {what} in all compared conditions, found {said}"
                )
        if recipe.budget.token_tolerance is None:
            raise api.UserError(
                f"{where} needs budget.token_tolerance, the largest difference in supervised "
                "tokens between conditions; the paper uses 0.02"
            )
        api.require_same_settings(recipe, self.name, of.names)
        return found

    def conditions(self, recipe: api.Recipe) -> Sequence[str]:
        """Return the compared conditions, GapFT first."""
        return self._of(recipe).names

    def faults(self, view: api.View) -> Iterator[str]:
        """Report training sets whose strata differ from GapFT's by more than one problem."""
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
    """The part of the report: Table 3, on the run's audit."""

    name = "matched_diversity"
    after = "Contrasts"

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[api.Arm]
    ) -> Matching | None:
        """Read the compared conditions and their strata."""
        of = compared(api.conditions_of(manifest["recipe"]))
        return Matching(of, read_matching(run_path, of, arms)) if of and arms else None

    def compute(self, inputs: api.ReportInputs, read: Matching) -> Matching:
        """Add the difference in supervised tokens; other figures are part of every report."""
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
        """Return the section: result, figure, outcomes, and matching."""
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
        """Return the figure of gains over the source."""
        yield self.name, lambda findings: _gains(findings, found.of)

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: Matching
    ) -> Iterator[tuple[str, api.Rows]]:
        """Return the CSV table, one row for each condition."""
        columns = [*CONDITION, *SIZE, *MATCHED, *PASS_AT_1, *STATES]
        for other in (api.SOURCE, *_references(found.of)):
            columns += minus(other)
        yield f"{self.name}.csv", api.Frame(columns, _lines(findings, found)).csv()

    def results(self, found: Matching) -> dict[str, Any]:
        """Return the matching; the outcomes are under ``conditions`` and ``contrasts``."""
        return {
            "strata": list(found.of.fields),
            "conditions": {name: found.most_apart(name) for name in found.of.names},
            "problems_not_gapfts": {name: found.others(name) for name in found.of.names},
            "supervised_tokens_apart": found.tokens_apart,
            "token_tolerance": found.tolerance,
        }


def _references(of: Compared) -> list[str]:
    """List the references besides the source: GapFT, and the uniform condition if any."""
    return [of.names[0], *([of.uniform] if of.uniform else [])]


def _size(findings: api.ReportFindings, name: str) -> tuple[int, int]:
    """Count the distinct problems of a training set, and the exposures of each."""
    first = next(iter(findings.conditions[name].seeds.values()))
    return first.problems, first.budget.exposures // first.problems


def _gains(findings: api.ReportFindings, of: Compared) -> Drawn:
    """Draw the gain of every condition over the source with its interval."""
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
        f"problem per stratum; the largest difference of a stratum is {most:g}."
        if of.fields
        else "The problems are not matched in strata."
    )
    return (
        f"At N = {wording.whole(budget.exposures)} exposures in J = "
        f"{wording.whole(budget.steps)} steps, Pass@1 of {condition_name(name)} differs by "
        f"{listed(said)}. {strata} With one seed, supervised tokens differ by up to "
        f"{percent(found.tokens_apart, 2)} of the larger number; the recipe allows "
        f"{percent(found.tolerance, 2)}."
    )


@dataclass(frozen=True, slots=True)
class MatchedCondition:
    """A row of the tables: a compared condition.

    Attributes:
        findings: the findings of the report.
        matching: the compared conditions and their strata.
        name: the condition.
    """

    findings: api.ReportFindings
    matching: Matching
    name: str

    @property
    def mean(self) -> Decomposition:
        """The decomposition of its change, mean over seeds."""
        return self.findings.conditions[self.name].mean

    @property
    def leads(self) -> bool:
        """Whether the others are matched to it."""
        return self.name == self.matching.of.names[0]

    @property
    def apart(self) -> float | None:
        """The largest difference of a stratum, in problems; None without strata."""
        return self.matching.most_apart(self.name) if self.matching.of.fields else None

    @property
    def tokens(self) -> list[int]:
        """The number of supervised tokens of each seed."""
        return [of.supervised_tokens for of in self.findings.conditions[self.name].budgets]


def _lines(findings: api.ReportFindings, matching: Matching) -> list[MatchedCondition]:
    return [MatchedCondition(findings, matching, name) for name in matching.of.names]


def _size_said(row: MatchedCondition) -> str:
    problems, each = _size(row.findings, row.name)
    return f"{wording.whole(problems)} × {each}"


_MATCHED = (
    "problems and exposures of each; problems that GapFT does not have; the largest difference "
    "of a stratum in problems; supervised tokens"
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
    """Build columns of the difference from another condition or the source.

    The cells of the other condition itself are empty or "ref.".
    """

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
        "Problems: distinct problems × exposures of each. Δ: Pass@1 minus the source's in "
        "percentage points, with its 95% interval. κ_S, κ_U: share of the audit's recovered and "
        "missed failures that are corrected; ρ_G: share of the solved problems that are lost. The "
        f"audit has {counts['G']} problems in G, {counts['S']} in S and {counts['U']} in U."
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
        f"New: problems that {lead} does not have, for the seed with most of them. Strata: the "
        f"largest difference of a stratum from its share in {lead}'s set, in problems, over all "
        "seeds. Tokens: supervised tokens of all exposures, smallest to largest over seeds."
    )
    return api.Frame([*columns, *MATCHED], _lines(findings, matching)).table(note)


@api.hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Register the experiment."""
    register("matched_diversity", MatchedDiversity)
