"""Training budgets: the training set of every arm, and which budgets match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from gapft_harness.analysis.decomposition import Decomposition
from gapft_harness.report.findings.computation import ConditionFindings, Findings, SeedFindings
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.reading.inputs import STATUSES, ReportInputs
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Block, Text
from gapft_harness.report.rendering.wording import condition_name, format_count, percent


def build_blocks(inputs: ReportInputs, findings: Findings) -> list[Block]:
    """Build a note for each comparison group, and a table with a row for each arm."""
    note = "Computed before training and enforced: matched arms have exactly the same n, N and J."
    groups, budget = findings.groups, inputs.recipe.get("budget", {})
    position_tolerance = budget.get("position_tolerance")
    limit = (
        "are reported, not enforced"
        if position_tolerance is None
        else f"differ by at most {percent(position_tolerance)} within a seed"
    )
    for group in groups:
        low, high, spread = measure_token_spread(group)
        subject = (
            "Their"
            if len(groups) == 1
            else f"{format_group(group)}: matched with each other; their"
        )
        note += (
            f" {subject} tokens L {limit}: {format_count(low)} to {format_count(high)}, a "
            f"difference of {percent(spread)}."
        )
    tolerance = budget.get("token_tolerance")
    if tolerance is not None:
        note += f" Their supervised tokens differ by at most {percent(tolerance)} within a seed."
    note += _describe_repeated_problems(findings) + _describe_shared_training(findings)
    note += _describe_unverified(findings)
    frame = Frame([*ARM, *BUDGET], list_arms(findings))
    return [
        Text(note),
        frame.table(summary="Every condition and seed"),
    ]


@dataclass(frozen=True, slots=True)
class TrainedSeed:
    """A condition trained with one seed."""

    condition: ConditionFindings
    seed: int
    model: SeedFindings

    @property
    def parts(self) -> Decomposition:
        """Its changes, by state."""
        return self.model.decomposition


def list_arms(findings: Findings) -> list[TrainedSeed]:
    """List every condition with every seed."""
    return [
        TrainedSeed(condition, seed, model)
        for condition in findings.conditions.values()
        for seed, model in condition.seeds.items()
    ]


_MODEL = "the model"
_COUNT = "the number of such problems, and the size of the state"
_EXPOSURES = "exposures, processed tokens, optimizer steps (Equation 7)"
_EXAMPLES = "examples in the training set, and distinct problems"

ARM: tuple[Column[TrainedSeed], ...] = (
    Column("condition", "", lambda arm: arm.condition.name),
    Column("", _MODEL, lambda arm: arm.condition.label, "condition"),
    Column("seed", _MODEL, lambda arm: arm.seed, "seed"),
)


def _format_part(count: int, problems: int) -> str:
    return f"{format_count(count)} of {format_count(problems)}"


COUNTS: tuple[Column[TrainedSeed], ...] = (
    Column("pass_at_1", "", lambda arm: arm.parts.pass_at_1),
    Column("correct", "", lambda arm: arm.parts.correct),
    Column("n", "", lambda arm: arm.parts.n),
    Column("S_corrected", "", lambda arm: arm.parts.corrected_s),
    Column("n_S", "", lambda arm: arm.parts.n_s),
    Column("U_corrected", "", lambda arm: arm.parts.corrected_u),
    Column("n_U", "", lambda arm: arm.parts.n_u),
    Column("G_regressed", "", lambda arm: arm.parts.regressed_g),
    Column("n_G", "", lambda arm: arm.parts.n_g),
    Column(
        "",
        _COUNT,
        lambda arm: _format_part(arm.parts.corrected_s, arm.parts.n_s),
        "S corrected",
    ),
    Column(
        "",
        _COUNT,
        lambda arm: _format_part(arm.parts.corrected_u, arm.parts.n_u),
        "U corrected",
    ),
    Column(
        "",
        _COUNT,
        lambda arm: _format_part(arm.parts.regressed_g, arm.parts.n_g),
        "G regressed",
    ),
    Column(
        "", "decodes of the audit that pass", lambda arm: arm.parts.correct, "correct", format_count
    ),
    Column(
        "verdicts",
        "",
        lambda arm: {status: arm.model.verdicts[status] for status in STATUSES},
        names=STATUSES,
    ),
)
BUDGET: tuple[Column[TrainedSeed], ...] = (
    Column("slots", _EXAMPLES, lambda arm: arm.model.budget.n, "slots n", format_count),
    Column(
        "problems", _EXAMPLES, lambda arm: arm.model.problems, "distinct problems", format_count
    ),
    Column("repetitions", "", lambda arm: arm.model.budget.repetitions),
    Column(
        "exposures", _EXPOSURES, lambda arm: arm.model.budget.exposures, "exposures N", format_count
    ),
    Column("tokens", _EXPOSURES, lambda arm: arm.model.budget.tokens, "tokens L", format_count),
    Column(
        "supervised_tokens",
        "tokens of responses; these have a loss (Equation 2)",
        lambda arm: arm.model.budget.supervised_tokens,
        "supervised",
        format_count,
    ),
    Column("steps", _EXPOSURES, lambda arm: arm.model.budget.steps, "steps J", format_count),
)


def measure_token_spread(group: Sequence[ConditionFindings]) -> tuple[int, int, Fraction]:
    """Return the fewest and the most processed tokens L, and their relative difference."""
    counts = [seed.budget.tokens for condition in group for seed in condition.seeds.values()]
    low, high = min(counts), max(counts)
    return low, high, Fraction(high - low, max(low, 1))


def _describe_repeated_problems(findings: Findings) -> str:
    """Describe the conditions that have fewer distinct problems than slots."""
    names = [
        condition_name(name)
        for name, condition in findings.conditions.items()
        if any(
            seed_findings.problems < seed_findings.budget.n
            for seed_findings in condition.seeds.values()
        )
    ]
    if not names:
        return ""
    verb = "fill" if len(names) > 1 else "fills"
    return (
        f" {wording.capitalize_first(wording.listed(names))} {verb} several of the n slots with "
        "the same problem."
    )


def _describe_unverified(findings: Findings) -> str:
    """Describe the conditions that train on responses that did not pass, with counts by seed."""
    descriptions = []
    for name, condition in findings.conditions.items():
        counts = {seed: model.unverified for seed, model in condition.seeds.items()}
        if any(counts.values()):
            slots = format_count(next(iter(condition.seeds.values())).budget.n)
            failed = wording.listed([format_count(count) for count in counts.values()])
            seeds = wording.listed([str(seed) for seed in counts])
            descriptions.append(
                f"{condition_name(name)} in {failed} of {slots} slots (seed {seeds})"
            )
    if not descriptions:
        return ""
    return f" Conditions that train on responses that did not pass: {'; '.join(descriptions)}."


def _describe_shared_training(findings: Findings) -> str:
    """Describe the arms that share an adapter, because their training sets are equal."""
    pairs: dict[tuple[str, str], list[str]] = {}
    for name, condition in findings.conditions.items():
        for seed, seed_findings in condition.seeds.items():
            if seed_findings.trained_as:
                other = seed_findings.trained_as.removesuffix(f"-seed{seed}")
                pairs.setdefault((name, other), []).append(str(seed))
    if not pairs:
        return ""
    descriptions = [
        f"{condition_name(name)} and {condition_name(other)} under seed"
        f"{'s' if len(seeds) > 1 else ''} {wording.listed(seeds)}"
        for (name, other), seeds in pairs.items()
    ]
    return (
        " Identical training sets were trained only once, so these conditions have the same "
        f"results: {'; '.join(descriptions)}."
    )


def format_group(group: Sequence[ConditionFindings]) -> str:
    """Format the conditions of a comparison group for people."""
    return wording.listed([condition.label for condition in group])
