"""The matched-diversity control: selections with the same strata and tokens (MATH, Table 3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gapft_harness import api
from gapft_harness.api import layout
from gapft_harness.core.records import SOURCE
from gapft_harness.experiments.controls.control import Control, list_selected
from gapft_harness.run_directory.tables import read_problems

_NOTE = (
    "Problems: distinct problems; exposures: of each. New: problems that GapFT's set does not "
    "have, for the seed with most of them. Strata: the largest difference of a stratum from its "
    "share in GapFT's set, in problems, over all seeds. Minus: the difference in Pass@1 from the "
    "source and from other conditions, in percentage points, with its 95% interval."
)
_TOKENS_NOTE = (
    "The largest difference between two sets of the same seed, as a share of the larger one, and "
    "the largest that the recipe allows."
)

#: The selectors whose conditions are compared with GapFT.
_MATCHED_SELECTORS = ("matched_strata", "repeated")
#: The most problems by which a stratum may differ (Table 6).
_MAX_PROBLEMS_APART = 1


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
    n_others: int

    @property
    def differences(self) -> dict[str, float]:
        """By stratum, its difference from the share in GapFT's set, in problems."""
        own = self.own.total()
        gapft = self.gapft.total()
        return {
            stratum: abs(self.own[stratum] - self.gapft[stratum] * own / gapft)
            for stratum in sorted(self.own | self.gapft)
        }

    def faults(self, who: str) -> Iterator[str]:
        """Describe strata that differ by more than one problem.

        Args:
            who: the name of the arm.
        """
        for stratum, difference in self.differences.items():
            if difference > _MAX_PROBLEMS_APART:
                yield (
                    f"{who}: {self.own[stratum]} of {self.own.total()} problems are in stratum "
                    f"{stratum}, for GapFT {self.gapft[stratum]} of {self.gapft.total()}; expected "
                    "the same share, to one problem"
                )


@dataclass(frozen=True, slots=True)
class Matching:
    """The compared conditions and their training sets.

    Attributes:
        names: GapFT first, then the others in the recipe's order.
        uniform: the condition that draws uniformly from both states; None: there is none.
        strata: by arm, except GapFT's, the problems of its training set.
    """

    names: Sequence[str]
    uniform: str | None
    strata: Mapping[api.Arm, Strata]


def read_strata(
    run: api.RunDirectory, names: Sequence[str], arms: Sequence[api.Arm]
) -> dict[api.Arm, Strata]:
    """Read the strata of the training sets of compared arms, without GapFT's.

    Args:
        run: the run.
        names: the compared conditions, GapFT first.
        arms: arms of the run; an arm without a GapFT arm of the same seed is left out.
    """
    fields = run.recipe.conditions[names[1]].params.get("by", [])
    labels = {
        problem.id: ", ".join(str(problem.document.get(field)) for field in fields) or "all"
        for problem, _ in read_problems(run.path / layout.problems_path("pool"))
    }

    def read_problem_ids(arm: api.Arm) -> set[str]:
        return {e.problem_id for e in api.read_examples(run.path / layout.selection_path(arm))}

    def count_strata(own: set[str], gapft: set[str]) -> Strata:
        counts = [Counter(labels[id] for id in ids) for ids in (own, gapft)]
        return Strata(counts[0], counts[1], len(own - gapft))

    seeds = {arm.seed for arm in arms if arm.condition == names[0]}
    gapft = {seed: read_problem_ids(api.Arm(names[0], seed)) for seed in seeds}
    return {
        arm: count_strata(read_problem_ids(arm), gapft[arm.seed])
        for arm in arms
        if arm.condition in names[1:] and arm.seed in gapft
    }


class MatchedDiversity(Control):
    """Compares selections that match GapFT's in strata and tokens (Tables 3 and 6).

    All conditions have the same n. Their strata have as many problems as GapFT's, to one problem,
    and their supervised and processed tokens are equal within a tolerance. The selectors decide
    which conditions are compared: ``gapft``, to which the others are matched, ``matched_strata``
    and ``repeated``.
    """

    name = "matched_diversity"
    title = "Matched diversity"
    requirement = (
        "a condition of the selector gapft and one or more of matched_strata, such as gapft: {} "
        "and solved: {selector: matched_strata, params: {states: G, by: [subject, level]}}"
    )

    def find_conditions(self, conditions: Mapping[str, api.Condition]) -> Sequence[str]:
        """Return GapFT, then the others; none without GapFT or a condition matched to it.

        Parameters with wrong types are reported by the selectors.
        """
        gapft = list_selected(conditions, "gapft")[:1]
        if not gapft or not list_selected(conditions, "matched_strata"):
            return ()
        return [*gapft, *list_selected(conditions, *_MATCHED_SELECTORS)]

    def check(self, recipe: api.Recipe, settings: Any) -> None:
        """Require, beyond ``Control.check``, equal fields of strata and a tolerance of tokens."""
        super().check(recipe, settings)
        others = self.conditions(recipe)[1:]
        fields = {name: recipe.conditions[name].params.get("by", []) for name in others}
        self.require_same(recipe, fields, "fields in by")
        if recipe.budget.token_tolerance is None:
            raise self.recipe_error(
                recipe,
                "needs budget.token_tolerance, the largest difference in supervised tokens between "
                "conditions; the paper uses 0.02",
            )

    def faults(self, view: api.View) -> Iterator[str]:
        """Report training sets whose strata differ from GapFT's by more than one problem."""
        if view.arms():
            strata = read_strata(view.run, self.conditions(view.recipe), view.arms())
            for arm, own_strata in strata.items():
                yield from own_strata.faults(arm.name)

    def read(self, run: api.RunDirectory, arms: Sequence[api.Arm]) -> Matching | None:
        """Read the compared conditions and their strata."""
        if not arms:
            return None
        conditions = run.recipe.conditions
        names = self.find_conditions(conditions)
        uniform = (name for name in names if _is_uniform(conditions[name]))
        return Matching(names, next(uniform, None), read_strata(run, names, arms))

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, read: Matching
    ) -> Iterator[api.Table]:
        """Return the conditions, and the differences in tokens."""
        references = [SOURCE, read.names[0], *filter(None, [read.uniform])]
        columns = [
            api.Column("condition", "condition"),
            api.Column("problems", "problems", "count"),
            api.Column("exposures_each", "exposures", "count"),
            api.Column("problems_not_gapfts", "new", "count"),
            api.Column("strata_most_apart", "strata"),
            api.Column("L_supervised_least"),
            api.Column("L_supervised_most"),
            api.Column("pass_at_1", "Pass@1", "share"),
            *(api.Column(f"minus_{other}", f"minus {other}", "points") for other in references),
        ]
        rows = [_describe_condition(name, findings, read, references) for name in read.names]
        yield api.Table(self.name, columns, rows, _NOTE)
        columns = [
            api.Column("tokens", "tokens"),
            api.Column("difference", "difference", "share"),
            api.Column("tolerance", "allowed", "share"),
        ]
        budget = inputs.recipe["budget"]
        rows = [
            {
                "tokens": name,
                "difference": _find_largest_share(findings, read.names, field),
                "tolerance": budget[tolerance],
            }
            for name, field, tolerance in (
                ("supervised", "supervised_tokens", "token_tolerance"),
                ("processed", "tokens", "position_tolerance"),
            )
        ]
        yield api.Table(f"{self.name}_tokens", columns, rows, _TOKENS_NOTE)


def _is_uniform(condition: api.Condition) -> bool:
    params = condition.params
    states = {*str(params.get("states", "GS"))}
    is_drawn = condition.selector == "matched_strata" and states == {*"GS"}
    return is_drawn and params.get("responses", "kept") == "kept"


def _describe_condition(
    name: str, findings: api.ReportFindings, matching: Matching, references: Sequence[str]
) -> api.Row:
    """Build the row of a condition: its training sets, its Pass@1 minus that of the references."""
    condition = findings.conditions[name]
    first = next(iter(condition.seeds.values())).trained
    tokens = [budget.supervised_tokens for budget in condition.budgets]
    strata = [strata for arm, strata in matching.strata.items() if arm.condition == name]
    differences = [max(entry.differences.values()) for entry in strata]
    return {
        "condition": name,
        "problems": first.problems,
        "exposures_each": first.budget.exposures // first.problems,
        "problems_not_gapfts": max((entry.n_others for entry in strata), default=0),
        "strata_most_apart": max(differences, default=0.0),
        "L_supervised_least": min(tokens),
        "L_supervised_most": max(tokens),
        "pass_at_1": condition.mean.pass_at_1,
        **{
            f"minus_{other}": findings.find_contrast(name, other).estimate
            for other in references
            if other != name
        },
    }


def _find_largest_share(findings: api.ReportFindings, names: Sequence[str], field: str) -> float:
    """Find the largest difference in tokens between two sets of a seed, as a share of the larger.

    Args:
        findings: the findings of the report.
        names: the compared conditions.
        field: the field of a budget.
    """
    by_seed: dict[int, list[int]] = {}
    for name in names:
        for seed, seed_findings in findings.conditions[name].seeds.items():
            by_seed.setdefault(seed, []).append(getattr(seed_findings.trained.budget, field))
    return max((max(tokens) - min(tokens)) / max(tokens) for tokens in by_seed.values())
