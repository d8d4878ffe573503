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
_MATCHED_SELECTORS = ("matched_strata", "repeated")
#: The most problems by which a stratum may differ (Table 6).
_MAX_PROBLEMS_APART = 1


@dataclass(frozen=True, slots=True)
class ComparedConditions:
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
    def stratum_fields(self) -> Sequence[str]:
        """The fields that define the strata; all conditions have the same."""
        return next(iter(self.by.values()))


def find_compared(conditions: Mapping[str, api.Condition]) -> ComparedConditions | None:
    """Find the conditions to compare; None without GapFT or a condition matched to it.

    Raises:
        UserError: a parameter that defines the matching is invalid; the message names its key.
    """
    gapft = [name for name, condition in conditions.items() if condition.selector == "gapft"]
    others_by_name = {
        name: condition
        for name, condition in conditions.items()
        if condition.selector in _MATCHED_SELECTORS
    }
    matched_names = [
        name for name, condition in others_by_name.items() if condition.selector == "matched_strata"
    ]
    if not gapft or not matched_names:
        return None
    uniform_names = [name for name in matched_names if _is_uniform(name, others_by_name[name])]
    by = {name: _read_fields(name, condition) for name, condition in others_by_name.items()}
    return ComparedConditions((gapft[0], *others_by_name), next(iter(uniform_names), None), by)


def _read_fields(name: str, condition: api.Condition) -> tuple[str, ...]:
    by = condition.params.get("by", ())
    if not isinstance(by, list | tuple) or not all(isinstance(field, str) for field in by):
        raise api.UserError(
            f"key 'conditions.{name}.params.by': {by!r}: expected a list of fields of a record, "
            "such as [subject, level]"
        )
    return tuple(by)


def _is_uniform(name: str, condition: api.Condition) -> bool:
    params = condition.params
    states = params.get("states", "GS")
    if not isinstance(states, str):
        raise api.UserError(
            f"key 'conditions.{name}.params.states': {states!r}: expected 'G', 'S' or 'GS'"
        )
    return {*states} == {*"GS"} and params.get("responses", "kept") == "kept"


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
    n_others: int = 0

    @property
    def n_problems(self) -> int:
        """The number of its distinct problems."""
        return self.own.total()

    def measure_difference(self, stratum: str) -> float:
        """Return by how many problems a stratum differs from its share in GapFT's set."""
        return abs(self.own[stratum] - self.gapft[stratum] * self.n_problems / self.gapft.total())

    @property
    def largest_difference(self) -> float:
        """The largest such difference of any stratum, in problems."""
        return max(self.measure_difference(stratum) for stratum in self.own | self.gapft)

    def faults(self, who: str) -> Iterator[str]:
        """Describe strata that differ by more than one problem.

        Args:
            who: the name of the arm.
        """
        for stratum in sorted(self.own | self.gapft):
            if self.measure_difference(stratum) > _MAX_PROBLEMS_APART:
                yield (
                    f"{who}: {self.own[stratum]} of {self.n_problems} problems are in stratum "
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
        position_difference: the same difference between processed tokens.
        position_tolerance: the largest such share that the recipe allows; None: any.
    """

    compared: ComparedConditions
    strata: Mapping[api.Arm, Strata]
    token_difference: float = 0.0
    tolerance: float = 0.0
    position_difference: float = 0.0
    position_tolerance: float | None = None

    def find_largest_difference(self, condition: str) -> float:
        """Return the largest difference of a stratum from GapFT's, in problems, over seeds."""
        return max(
            (strata.largest_difference for strata in self._list_strata(condition)), default=0.0
        )

    def count_others(self, condition: str) -> int:
        """Return the largest number of problems that GapFT does not have, over seeds."""
        return max((strata.n_others for strata in self._list_strata(condition)), default=0)

    def _list_strata(self, condition: str) -> list[Strata]:
        return [strata for arm, strata in self.strata.items() if arm.condition == condition]


def read_matching(
    run_path: Path, compared: ComparedConditions, arms: Sequence[api.Arm]
) -> dict[api.Arm, Strata]:
    """Read the strata of the training sets of compared arms, without GapFT's.

    Args:
        run_path: the run directory.
        compared: the compared conditions.
        arms: arms of the run; an arm without a GapFT arm of the same seed is left out.
    """
    labels = {
        problem.id: ", ".join(str(problem.document.get(field)) for field in compared.stratum_fields)
        or "all"
        for problem, _ in api.read_problems(run_path / layout.problems_path("pool"))
    }

    def read_problem_ids(arm: api.Arm) -> set[str]:
        return {e.problem_id for e in api.read_examples(run_path / layout.selection_path(arm))}

    def count_strata(own: set[str], gapft: set[str]) -> Strata:
        counts = [Counter(labels[name] for name in names) for names in (own, gapft)]
        return Strata(counts[0], counts[1], len(own - gapft))

    seeds = {arm.seed for arm in arms if arm.condition == compared.names[0]}
    gapft = {seed: read_problem_ids(api.Arm(compared.names[0], seed)) for seed in seeds}
    return {
        arm: count_strata(read_problem_ids(arm), gapft[arm.seed])
        for arm in arms
        if arm.condition in compared.names[1:] and arm.seed in gapft
    }


class MatchedDiversity(api.Experiment):
    """Compares selections that match GapFT's in strata and tokens (Tables 3 and 6).

    All conditions have the same n. Their strata have as many problems as GapFT's, to one problem,
    and their supervised and processed tokens are equal within a tolerance. The selectors decide
    which conditions are compared: ``gapft``, to which the others are matched, ``matched_strata``
    and ``repeated``.
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
        settings = super().settings(recipe, options)
        if settings is None:
            return None
        where = f"recipe {recipe.name}: key 'experiments.{self.name}':"
        try:
            comparison = find_compared(recipe.conditions)
        except api.UserError as error:
            raise api.UserError(f"recipe {recipe.name}: {error}") from error
        if comparison is None:
            raise api.UserError(
                f"{where} needs a condition of the selector gapft and one or more of "
                "matched_strata, such as gapft: {} and solved: {selector: matched_strata, params: "
                f"{{states: G, by: [subject, level]}}}}; found: {', '.join(recipe.conditions)}"
            )
        for quantity, values in (
            ("n", {name: recipe.find_slots(name) for name in comparison.names}),
            ("fields in by", {name: list(by) for name, by in comparison.by.items()}),
        ):
            if len({*map(str, values.values())}) > 1:
                value_texts = ", ".join(f"{name} {value}" for name, value in values.items())
                raise api.UserError(
                    f"{where} expected the same {quantity} in all compared conditions, found "
                    f"{value_texts}"
                )
        if recipe.budget.token_tolerance is None:
            raise api.UserError(
                f"{where} needs budget.token_tolerance, the largest difference in supervised "
                "tokens between conditions; the paper uses 0.02"
            )
        api.require_same_settings(recipe, self.name, comparison.names)
        return settings

    def conditions(self, recipe: api.Recipe) -> Sequence[str]:
        """Return the compared conditions, GapFT first."""
        return self._find_compared(recipe).names

    def faults(self, view: api.View) -> Iterator[str]:
        """Report training sets whose strata differ from GapFT's by more than one problem."""
        if view.arms():
            matching = read_matching(view.run.path, self._find_compared(view.recipe), view.arms())
            for arm, strata in matching.items():
                yield from strata.faults(arm.name)

    @staticmethod
    def _find_compared(recipe: api.Recipe) -> ComparedConditions:
        comparison = find_compared(recipe.conditions)
        assert comparison is not None, "a recipe whose settings were checked"
        return comparison


class DiversityPart(api.Part):
    """The part of the report: Table 3, on the run's audit."""

    name = "matched_diversity"
    after = "Contrasts"

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[api.Arm]
    ) -> Matching | None:
        """Read the compared conditions and their strata."""
        comparison = find_compared(api.conditions_of(manifest["recipe"]))
        return (
            Matching(comparison, read_matching(run_path, comparison, arms))
            if comparison and arms
            else None
        )

    def compute(self, inputs: api.ReportInputs, read: Matching) -> Matching:
        """Add the differences in tokens; other figures are part of every report."""

        def find_largest_share(field: str) -> float:
            shares = []
            for seed in inputs.seeds:
                tokens: list[int] = [
                    getattr(trained.budget, field)
                    for trained in inputs.arms
                    if trained.arm.seed == seed and trained.arm.condition in read.compared.names
                ]
                shares.append((max(tokens) - min(tokens)) / max(tokens))
            return max(shares)

        budget = inputs.recipe["budget"]
        return replace(
            read,
            token_difference=find_largest_share("supervised_tokens"),
            tolerance=budget["token_tolerance"],
            position_difference=find_largest_share("tokens"),
            position_tolerance=budget["position_tolerance"],
        )

    def sections(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, part_findings: Matching
    ) -> Iterator[api.Section]:
        """Return the section: result, figure, outcomes, and matching."""
        gain_texts = "; ".join(
            f"{condition_name(name)} {points(findings.find_contrast(name, api.SOURCE).delta)} "
            "points"
            for name in part_findings.compared.names
        )
        figure = api.Figure(
            self.name,
            f"Pass@1 minus the source's: {gain_texts}.",
            "Pass@1 minus the source's, with 95% intervals. Filled: the interval excludes zero.",
        )
        tables = [
            _build_outcome_table(findings, part_findings),
            _build_matching_table(findings, part_findings),
        ]
        yield api.Section(
            "Matched diversity",
            [api.Text(_describe_result(findings, part_findings)), figure, *tables],
        )

    def figures(self, findings: api.ReportFindings, part_findings: Matching) -> api.Figures:
        """Return the figure of gains over the source."""
        yield self.name, lambda findings: _draw_gains(findings, part_findings.compared)

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, part_findings: Matching
    ) -> Iterator[tuple[str, api.Rows]]:
        """Return the CSV table, one row for each condition."""
        columns = [*CONDITION, *SIZE, *MATCHED, *PASS_AT_1, *STATES]
        for other in (api.SOURCE, *_list_references(part_findings.compared)):
            columns += build_difference_columns(other)
        yield f"{self.name}.csv", api.Frame(columns, _list_rows(findings, part_findings)).csv()

    def results(self, part_findings: Matching) -> dict[str, Any]:
        """Return the matching; the outcomes are under ``conditions`` and ``contrasts``."""
        return {
            "strata": list(part_findings.compared.stratum_fields),
            "conditions": {
                name: part_findings.find_largest_difference(name)
                for name in part_findings.compared.names
            },
            "problems_not_gapfts": {
                name: part_findings.count_others(name) for name in part_findings.compared.names
            },
            "supervised_tokens_apart": part_findings.token_difference,
            "token_tolerance": part_findings.tolerance,
            "processed_tokens_apart": part_findings.position_difference,
            "position_tolerance": part_findings.position_tolerance,
        }


def _list_references(compared: ComparedConditions) -> list[str]:
    """List the references besides the source: GapFT, and the uniform condition if any."""
    return [compared.names[0], *([compared.uniform] if compared.uniform else [])]


def _count_exposures(findings: api.ReportFindings, name: str) -> tuple[int, int]:
    """Count the distinct problems of a training set, and the exposures of each."""
    first = next(iter(findings.conditions[name].seeds.values()))
    return first.problems, first.budget.exposures // first.problems


def _draw_gains(findings: api.ReportFindings, compared: ComparedConditions) -> Drawn:
    """Draw the gain of every condition over the source with its interval."""
    figure, axes = style.panel(0.3 * len(compared.names) + 0.9)
    axes.axvline(0, color=palette.MUTED, linewidth=0.9)
    for y, name in enumerate(compared.names):
        contrast = findings.find_contrast(name, api.SOURCE)
        style.interval_row(axes, y, contrast.estimate)
        style.beside(axes, y, points(contrast.delta))
    style.name_rows(axes, [condition_name(name) for name in compared.names])
    axes.set_xlabel("points of Pass@1, 95% interval")
    axes.set_title("Pass@1 minus that of the source", x=0)
    return figure


def _describe_result(findings: api.ReportFindings, part_findings: Matching) -> str:
    compared, name = part_findings.compared, part_findings.compared.names[0]
    budget = next(iter(findings.conditions[name].seeds.values())).budget
    references = [api.SOURCE, *([compared.uniform] if compared.uniform else [])]
    contrast_texts = [
        f"{points(contrast.delta)} points {points_interval(contrast.estimate)} "
        f"from {'the ' if other == api.SOURCE else ''}{condition_name(other)}"
        for other in references
        for contrast in [findings.find_contrast(name, other)]
    ]
    largest = max(part_findings.find_largest_difference(name) for name in compared.names)
    strata_text = (
        f"The problems of all conditions are matched by {listed([*compared.stratum_fields])}, to "
        f"one problem per stratum; the largest difference of a stratum is {largest:g}."
        if compared.stratum_fields
        else "The problems are not matched in strata."
    )
    limit = part_findings.position_tolerance
    allowed = "" if limit is None else f"; the recipe allows {percent(limit, 2)}"
    return (
        f"At N = {wording.format_count(budget.exposures)} exposures in J = "
        f"{wording.format_count(budget.steps)} steps, Pass@1 of {condition_name(name)} differs by "
        f"{listed(contrast_texts)}. {strata_text} With one seed, supervised tokens differ by up to "
        f"{percent(part_findings.token_difference, 2)} of the larger number; the recipe allows "
        f"{percent(part_findings.tolerance, 2)}. Processed tokens differ by up to "
        f"{percent(part_findings.position_difference, 2)}{allowed}."
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
    def is_reference(self) -> bool:
        """Whether the others are matched to it."""
        return self.name == self.matching.compared.names[0]

    @property
    def largest_difference(self) -> float | None:
        """The largest difference of a stratum, in problems; None without strata."""
        return (
            self.matching.find_largest_difference(self.name)
            if self.matching.compared.stratum_fields
            else None
        )

    @property
    def tokens(self) -> list[int]:
        """The number of supervised tokens of each seed."""
        return [budget.supervised_tokens for budget in self.findings.conditions[self.name].budgets]


def _list_rows(findings: api.ReportFindings, matching: Matching) -> list[MatchedCondition]:
    return [MatchedCondition(findings, matching, name) for name in matching.compared.names]


def _format_size(row: MatchedCondition) -> str:
    problems, exposures = _count_exposures(row.findings, row.name)
    return f"{wording.format_count(problems)} × {exposures}"


_MATCHED_MEANING = (
    "problems and exposures of each; problems that GapFT does not have; the largest difference "
    "of a stratum in problems; supervised tokens"
)
CONDITION: tuple[api.Column[MatchedCondition], ...] = (
    api.Column("condition", "", lambda row: row.name, "condition", condition_name),
)
SIZE: tuple[api.Column[MatchedCondition], ...] = (
    api.Column("", _MATCHED_MEANING, _format_size, "problems"),
    api.Column(
        "size",
        "",
        lambda row: _count_exposures(row.findings, row.name),
        names=("problems", "exposures_each"),
    ),
)
MATCHED: tuple[api.Column[MatchedCondition], ...] = (
    api.Column("problems_not_gapfts", "", lambda row: row.matching.count_others(row.name)),
    api.Column(
        "",
        _MATCHED_MEANING,
        lambda row: (
            "ref."
            if row.is_reference
            else wording.format_count(row.matching.count_others(row.name))
        ),
        "new",
    ),
    api.Column("strata_most_apart", "", lambda row: row.largest_difference),
    api.Column(
        "",
        _MATCHED_MEANING,
        lambda row: (
            "ref."
            if row.is_reference
            else "–"
            if row.largest_difference is None
            else f"{row.largest_difference:g}"
        ),
        "strata",
    ),
    api.Column(
        "L_supervised",
        _MATCHED_MEANING,
        lambda row: (min(row.tokens), max(row.tokens)),
        "tokens",
        wording.format_range,
        names=("L_supervised_least", "L_supervised_most"),
    ),
)
PASS_AT_1: tuple[api.Column[MatchedCondition], ...] = (
    api.Column("pass_at_1", "", lambda row: row.mean.pass_at_1, "Pass@1", percent),
)


def _build_rate_column(
    key: str, title: str, state: str, value: Callable[[MatchedCondition], Fraction | None]
) -> api.Column[MatchedCondition]:
    return api.Column(
        key, "", value, title, percent, lambda row: state in row.findings.source.unstable_states
    )


STATES: tuple[api.Column[MatchedCondition], ...] = (
    _build_rate_column("kappa_S", "κ_S", "S", lambda row: row.mean.kappa_s),
    _build_rate_column("kappa_U", "κ_U", "U", lambda row: row.mean.kappa_u),
    _build_rate_column("rho_G", "ρ_G", "G", lambda row: row.mean.rho_g),
)


def build_difference_columns(other: str) -> tuple[api.Column[MatchedCondition], ...]:
    """Build columns of the difference from another condition or the source.

    The cells of the other condition itself are empty or "ref.".
    """

    def find_contrast(row: MatchedCondition) -> api.Contrast | None:
        return None if other == row.name else row.findings.find_contrast(row.name, other)

    def list_values(difference: api.Contrast) -> tuple[Fraction | float, ...]:
        return difference.delta, difference.estimate.low, difference.estimate.high

    names = [f"{end}_minus_{other}" for end in ("delta", "ci95_low", "ci95_high")]
    title, meaning = f"Δ {condition_name(other)}", "Pass@1 minus the source's, or this condition's"
    columns: tuple[api.Column[api.Contrast], ...] = (
        api.Column(f"minus_{other}", "", list_values, names=names),
        api.Column("", meaning, lambda difference: difference.delta, title, points, missing="ref."),
        api.Column(
            "",
            "",
            lambda difference: difference.estimate,
            "95% interval",
            points_interval,
            missing="",
        ),
    )
    return tuple(column.map_rows(find_contrast) for column in columns)


DIFFERENCES = (*build_difference_columns(api.SOURCE), *build_difference_columns("CONDITION"))


def _build_outcome_table(findings: api.ReportFindings, matching: Matching) -> api.Table:
    counts = findings.source.states
    note = (
        "Problems: distinct problems × exposures of each. Δ: Pass@1 minus the source's in "
        "percentage points, with its 95% interval. κ_S, κ_U: share of the audit's recovered and "
        "missed failures that are corrected; ρ_G: share of the solved problems that are lost. The "
        f"audit has {counts['G']} problems in G, {counts['S']} in S and {counts['U']} in U."
    )
    if findings.source.unstable_states:
        note += f" {wording.UNSTABLE} Unstable: fewer than {STABLE_ITEMS} audit problems."
    columns = [*CONDITION, *SIZE, *PASS_AT_1, *build_difference_columns(api.SOURCE), *STATES]
    return api.Frame(columns, _list_rows(findings, matching)).table(note)


def _build_matching_table(findings: api.ReportFindings, matching: Matching) -> api.Table:
    columns = [*CONDITION]
    for other in _list_references(matching.compared):
        columns += build_difference_columns(other)
    lead = condition_name(matching.compared.names[0])
    note = (
        f"New: problems that {lead} does not have, for the seed with most of them. Strata: the "
        f"largest difference of a stratum from its share in {lead}'s set, in problems, over all "
        "seeds. Tokens: supervised tokens of all exposures, smallest to largest over seeds."
    )
    return api.Frame([*columns, *MATCHED], _list_rows(findings, matching)).table(note)


@api.hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Register the experiment."""
    register("matched_diversity", MatchedDiversity)
