"""The older controls with a shared core: the selectors core_depth and core_gold (Appendix B)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from pydantic import Field

from gapft_harness import api
from gapft_harness.api import layout, percent, points, points_interval, wording
from gapft_harness.experiments.controls.control import (
    PARTS,
    ControlStep,
    build_contrast_rows,
    build_contrast_table,
    compute_seed_differences,
    find_steps_by_parameter,
    find_steps_with_gapft,
)
from gapft_harness.experiments.controls.search import (
    SearchDepth,
    add_kept_slots,
    compare_training_sets,
    describe_kept_slots,
    find_kept_slots,
)
from gapft_harness.experiments.controls.tested import ContrastTest, PermutationSettings, TestedPart


class SharedCoreSettings(PermutationSettings):
    """The settings ``experiments.shared_core``."""

    token_tolerance: float = Field(
        0.01,
        ge=0,
        lt=1,
        description="largest difference in processed tokens between two depths of a seed, as a "
        "share of those of the deepest one",
    )


class SharedCore(SearchDepth):
    """Compares depths and gold labels, added to a core of all solved problems (Appendix B)."""

    name = "shared_core"
    section = SharedCoreSettings
    requirement = (
        "two conditions or more of the selectors core_depth and core_gold, such as core_0: "
        "{selector: core_depth, params: {k: 0}, n: verified} and core_8: {selector: core_depth, "
        "params: {k: 8}, n: verified}"
    )
    title = "Controls with a shared core"
    axis = "samples that search may use, in addition to the core"

    def part(self) -> SharedCorePart:
        """Return the part of the report."""
        return SharedCorePart(self)

    def find_steps(self, conditions: Mapping[str, api.Condition]) -> Sequence[ControlStep]:
        """Return the depths by ascending k, then the selections by gold labels."""
        gold_names = [
            name for name, condition in conditions.items() if condition.selector == "core_gold"
        ]
        labels = ["Gold labels"] if len(gold_names) == 1 else gold_names
        return [
            *find_steps_by_parameter(conditions, "core_depth", "k", lambda k: f"K = {k}"),
            *(ControlStep(label, name) for label, name in zip(labels, gold_names, strict=True)),
        ]

    def settings(self, recipe: api.Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``SearchDepth.settings``; gold labels need the depth whose targets they use.

        Raises:
            UserError: there are gold labels, but no depth with all K samples.
        """
        settings, k = super().settings(recipe, options), recipe.search.k
        depths, gold = _split_steps(self.find_steps(recipe.conditions))
        if settings is not None and gold and (not depths or depths[-1].value != k):
            raise api.UserError(
                f"recipe {recipe.name}: key 'experiments.{self.name}': condition "
                f"{gold[0].condition!r} needs the targets of a search with all {k} samples; add "
                f"core_{k}: {{selector: core_depth, params: {{k: {k}}}, n: verified}}"
            )
        return settings

    def find_mismatches(self, run: api.RunDirectory, arms: Sequence[api.Arm]) -> Iterator[str]:
        """Report properties that the training sets of a seed must share but do not."""
        depths, gold = _split_steps(self.find_steps(run.recipe.conditions))
        tolerance = self.settings(run.recipe).token_tolerance
        states = api.read_states(run.path / layout.states_path("pool"))
        core = {evidence.problem_id for evidence in states if evidence.state == "G"}
        for seed in sorted({arm.seed for arm in arms}):
            examples_by_arm = {
                arm: api.read_examples(run.path / layout.selection_path(arm))
                for step in (*depths, *gold)
                if (arm := api.Arm(step.condition, seed)) in arms
            }
            for arm, examples in examples_by_arm.items():
                if missing := len(core - {e.problem_id for e in examples}):
                    yield f"arm {arm.name}: {missing} of {len(core)} solved problems are missing"
            tokens = {
                arm: api.budget(evidence, run.recipe.resolve_training(arm.condition)).tokens
                for arm, evidence in examples_by_arm.items()
            }
            deepest_arm = api.Arm(depths[-1].condition, seed) if depths else None
            for step in depths[:-1]:
                arm = api.Arm(step.condition, seed)
                if deepest_arm in tokens and arm in tokens:
                    yield from _check_tokens(arm, deepest_arm, tokens, tolerance)
            for step in gold:
                arm = api.Arm(step.condition, seed)
                if deepest_arm in tokens and arm in tokens:
                    yield from compare_training_sets(run, deepest_arm, arm)

    def warnings(self, view: api.View) -> Iterator[str]:
        """Report how many slots gold labels keep from the deepest search."""
        depths, gold = _split_steps(self.find_steps(view.recipe.conditions))
        for arm in view.arms():
            if depths and arm.condition in [step.condition for step in gold]:
                yield from find_kept_slots(view.run, api.Arm(depths[-1].condition, arm.seed), arm)


def _check_tokens(
    arm: api.Arm, deepest_arm: api.Arm, tokens: Mapping[api.Arm, int], tolerance: float
) -> Iterator[str]:
    share = abs(tokens[arm] - tokens[deepest_arm]) / tokens[deepest_arm]
    if share > tolerance:
        yield (
            f"arms {arm.name} and {deepest_arm.name} process {tokens[arm]} and "
            f"{tokens[deepest_arm]} tokens; the difference is {share:.2%} of the latter, but "
            f"token_tolerance is {tolerance:.2%}: the solved problems are too few, or differ in "
            "length from the failures. Search a larger pool, or raise "
            "experiments.shared_core.token_tolerance"
        )


def _split_steps(steps: Sequence[ControlStep]) -> tuple[list[ControlStep], list[ControlStep]]:
    """Split steps into depths, ascending, and selections by gold labels."""
    return [s for s in steps if s.value is not None], [s for s in steps if s.value is None]


@dataclass(frozen=True, slots=True)
class SharedCoreFindings:
    """The compared conditions, with the core and without it.

    Attributes:
        steps: the conditions with the core; see ``SharedCore.find_steps``.
        steps_without_core: GapFT and gold-label selection without the core, with the same n;
            None: the run does not have both.
        tests: tests of every later step against the first, and of gold labels against the
            search whose targets they use, with and without the core.
    """

    steps: tuple[ControlStep, ...]
    steps_without_core: tuple[ControlStep, ControlStep] | None
    tests: tuple[ContrastTest, ...] = ()


class SharedCorePart(TestedPart):
    """The part of the report (the paper's table "Evidence Controls with a Shared Core")."""

    def read(self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[api.Arm]) -> Any:
        """Read the steps, and GapFT and gold labels without the core."""
        steps = super().read(run_path, manifest, arms)
        if steps is None:
            return None
        deepest, *others = steps[::-1]
        if deepest.value is None and (search := _find_deepest(others[::-1])) is not None:
            conditions = api.conditions_of(manifest["recipe"])
            steps = (*steps[:-1], add_kept_slots(run_path, conditions, search, deepest))
        arm_conditions = {arm.condition for arm in arms}
        conditions = {
            n: condition
            for n, condition in api.conditions_of(manifest["recipe"]).items()
            if n in arm_conditions
        }
        match find_steps_with_gapft(conditions, "gold_labels"):
            case [gapft, gold, *_] if conditions[gapft.condition].n == conditions[gold.condition].n:
                return SharedCoreFindings(steps, (gapft, gold))
        return SharedCoreFindings(steps, None)

    def compute(self, inputs: api.ReportInputs, read: Any) -> SharedCoreFindings:
        """Compute the tests of the steps."""
        first, *later = read.steps
        pairs = [(step, first) for step in later]
        gold, deepest = read.steps[-1], _find_deepest(read.steps)
        if gold.value is None and deepest not in (None, first):
            pairs.append((gold, deepest))
        if read.steps_without_core:
            pairs.append((read.steps_without_core[1], read.steps_without_core[0]))
        part_findings: SharedCoreFindings = replace(read, tests=self.test_pairs(inputs, pairs))
        return part_findings

    def sections(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, part_findings: Any
    ) -> Iterator[api.Section]:
        """Return the section: the table with the source, budgets, and gold labels."""
        for section in super().sections(inputs, findings, part_findings):
            blocks = [
                *section.blocks[:-1],
                build_contrast_table(findings, part_findings.steps, with_source=True),
            ]
            blocks.append(
                _build_budget_table(findings, part_findings.steps, findings.pool_states["G"])
            )
            if pairs := _pair_gold_labels(part_findings):
                blocks.append(_build_gold_table(findings, pairs))
            yield replace(section, blocks=blocks)

    def choose_compared_steps(self, part_findings: SharedCoreFindings) -> Sequence[ControlStep]:
        """Return the depths if there are several, else all steps."""
        depths, _ = _split_steps(part_findings.steps)
        return depths if len(depths) > 1 else part_findings.steps

    def write_remark(self, findings: api.ReportFindings, part_findings: SharedCoreFindings) -> str:
        """Describe gold labels against the search whose targets they use, and the core."""
        text = ""
        *_, last_step = part_findings.steps
        deepest = _find_deepest(part_findings.steps)
        if (
            last_step.value is None
            and deepest is not None
            and deepest is not part_findings.steps[0]
        ):
            contrast = findings.find_contrast(last_step.condition, deepest.condition)
            text = (
                f" {last_step.label} minus {deepest.label} is {points(contrast.delta)} points "
                f"{points_interval(contrast.estimate)}."
            )
        return (
            f"{text} Every condition contains each of the pool's solved problems once: the core."
            f"{describe_kept_slots(part_findings.steps)}"
            f"{super().write_remark(findings, part_findings)}"
        )

    def results(self, part_findings: SharedCoreFindings) -> dict[str, Any]:
        """Return the steps, and the conditions that are compared without the core."""
        return {
            **super().results(part_findings),
            "without": [step.condition for step in part_findings.steps_without_core or ()],
        }

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, part_findings: Any
    ) -> Iterator[tuple[str, api.Rows]]:
        """Return CSV tables of the steps, and of gold labels minus GapFT."""
        yield from super().tables(inputs, findings, part_findings)
        if pairs := _pair_gold_labels(part_findings):
            yield f"{self.name}_gold.csv", _build_gold_rows(findings, pairs)


def _find_deepest(steps: Sequence[ControlStep]) -> ControlStep | None:
    return next((step for step in reversed(steps) if step.value is not None), None)


def _pair_gold_labels(
    part_findings: SharedCoreFindings,
) -> list[tuple[str, ControlStep, ControlStep]]:
    """Pair GapFT and gold labels without and with the core; empty unless the run has all four."""
    gold, search = part_findings.steps[-1], _find_deepest(part_findings.steps)
    if not part_findings.steps_without_core or gold.value is not None or search is None:
        return []
    return [
        ("without the core", *part_findings.steps_without_core),
        ("with the core", search, gold),
    ]


def _list_budget(findings: api.ReportFindings, step: ControlStep, key: str) -> list[int]:
    """List a number of a condition's budget, for each seed."""
    return [
        getattr(seed_findings.budget, key)
        for seed_findings in findings.conditions[step.condition].seeds.values()
    ]


def _build_budget_table(
    findings: api.ReportFindings, steps: Sequence[ControlStep], core: int
) -> api.Table:
    """Build the table of tokens of each condition, compared with the deepest search (Table 5)."""
    target = _find_deepest(steps) or steps[0]
    target_tokens = _list_budget(findings, target, "tokens")
    rows = []
    for step in steps:
        tokens = _list_budget(findings, step, "tokens")
        difference = max(
            (Fraction(a - b, b) for a, b in zip(tokens, target_tokens, strict=True)), key=abs
        )
        rows.append(StepBudget(findings, step, core, None if step is target else difference))
    note = (
        f"Beyond the core of {wording.format_count(core)}: examples of recovered failures (S), "
        "missed failures (U) and repeated solved problems (G); if seeds differ, smallest to "
        f"largest. Off: difference in processed tokens L from {target.label}, for the seed with "
        "the largest difference. Repeats are chosen so that all depths process equally many "
        "tokens; gold labels have the supervised tokens of the deepest one, but different prompts."
    )
    return api.Frame(BUDGETS, rows).table(note)


@dataclass(frozen=True, slots=True)
class StepBudget:
    """A row of the budget table.

    Attributes:
        findings: the findings of the report.
        step: the condition.
        core: the number of problems in the core.
        token_difference: its tokens over those of the deepest search, minus 1; None: it is
            the deepest.
    """

    findings: api.ReportFindings
    step: ControlStep
    core: int
    token_difference: Fraction | None

    @property
    def examples_beyond_core(self) -> str:
        """Its examples beyond the core, by state."""
        counts = {
            state: [
                slot_counts[state] - self.core * (state == "G")
                for slot_counts in self.step.slots.values()
            ]
            for state in "SUG"
        }
        return ", ".join(
            f"{wording.format_range(n)} {state}" for state, n in counts.items() if any(n)
        )


def _build_budget_column(key: str, title: str, meaning: str = "") -> api.Column[StepBudget]:
    return api.Column(
        "",
        meaning,
        lambda row: _list_budget(row.findings, row.step, key),
        title,
        wording.format_range,
    )


_TOKENS_MEANING = "tokens, and their difference from the deepest search"
BUDGETS: tuple[api.Column[StepBudget], ...] = (
    api.Column("", "", lambda row: row.step.label, ""),
    api.Column(
        "",
        "examples in this state, or beyond the shared core",
        lambda row: row.examples_beyond_core,
        "beyond the core",
    ),
    _build_budget_column("n", "n"),
    _build_budget_column("exposures", "N"),
    _build_budget_column("steps", "J"),
    _build_budget_column("tokens", "processed L", _TOKENS_MEANING),
    api.Column(
        "",
        _TOKENS_MEANING,
        lambda row: row.token_difference,
        "off",
        lambda off: f"{points(off, 2)}%",
        missing="target",
    ),
    _build_budget_column("supervised_tokens", "supervised", _TOKENS_MEANING),
)


def _build_gold_table(
    findings: api.ReportFindings, pairs: Sequence[tuple[str, ControlStep, ControlStep]]
) -> api.Table:
    """Build the table of gold labels minus GapFT, without and with the core (ReClor)."""
    rows = [GoldRow(findings, *pair) for pair in pairs]
    note = (
        "Gold labels minus GapFT, each pair at its own n and J; G, S and U are the parts of the "
        "difference on these states of the audit. The core also adds updates, so this does not "
        "separate the effect of the core from theirs."
    )
    return api.Frame(GOLD, rows).table(note)


@dataclass(frozen=True, slots=True)
class GoldRow:
    """A row of the table: gold labels and GapFT.

    Attributes:
        findings: the findings of the report.
        label: whether the pair has the core.
        search: GapFT, or the deepest search with the core.
        gold: the selection by gold labels.
    """

    findings: api.ReportFindings
    label: str
    search: ControlStep
    gold: ControlStep

    @property
    def contrast(self) -> api.Contrast:
        """The contrast of gold labels minus GapFT."""
        return self.findings.find_contrast(self.gold.condition, self.search.condition)

    def pass_at_1(self, step: ControlStep) -> Fraction:
        """Return Pass@1 of one of the two."""
        return self.findings.conditions[step.condition].mean.pass_at_1


_PASS_MEANING = "Pass@1 of GapFT and of gold labels"
GOLD: tuple[api.Column[GoldRow], ...] = (
    api.Column("", "", lambda row: row.label, ""),
    api.Column(
        "", "", lambda row: _list_budget(row.findings, row.search, "n"), "n", wording.format_range
    ),
    api.Column(
        "",
        "",
        lambda row: _list_budget(row.findings, row.search, "steps"),
        "J",
        wording.format_range,
    ),
    api.Column("", _PASS_MEANING, lambda row: row.pass_at_1(row.search), "GapFT", percent),
    api.Column("", _PASS_MEANING, lambda row: row.pass_at_1(row.gold), "gold", percent),
    api.Column("", "", lambda row: row.contrast.delta, "difference", points),
    *(column.map_rows(lambda row: row.contrast) for column in PARTS),
)


def _build_gold_rows(
    findings: api.ReportFindings, pairs: Sequence[tuple[str, ControlStep, ControlStep]]
) -> api.Rows:
    yield (
        "group", "search", "gold", "seed", "n", "steps", "delta", "ci95_low", "ci95_high", "S",
        "U", "G",
    )  # fmt: skip
    for label, search, gold in pairs:
        contrast = findings.find_contrast(gold.condition, search.condition)
        name = label.split()[0], search.condition, gold.condition
        sizes = zip(*(_list_budget(findings, search, key) for key in ("n", "steps")), strict=True)
        sizes_by_seed = dict(zip(compute_seed_differences(findings, contrast), sizes, strict=True))
        yield from build_contrast_rows(findings, contrast, name, sizes_by_seed)
