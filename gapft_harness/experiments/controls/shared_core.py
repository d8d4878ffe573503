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
    Step,
    by_parameter,
    by_seed,
    contrast_rows,
    contrast_table,
    gapft_and,
)
from gapft_harness.experiments.controls.search import (
    SearchDepth,
    kept_notice,
    kept_remark,
    of_pair,
    with_kept,
)
from gapft_harness.experiments.controls.tested import ContrastTest, Permutations, TestedPart


class SharedCoreSettings(Permutations):
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
    needs = (
        "two conditions or more of the selectors core_depth and core_gold, such as core_0: "
        "{selector: core_depth, params: {k: 0}, n: verified} and core_8: {selector: core_depth, "
        "params: {k: 8}, n: verified}"
    )
    title = "Controls with a shared core"
    axis = "samples that search may use, in addition to the core"

    def part(self) -> SharedCorePart:
        """Return the part of the report."""
        return SharedCorePart(self)

    def compared(self, conditions: Mapping[str, api.Condition]) -> Sequence[Step]:
        """Return the depths by ascending k, then the selections by gold labels."""
        gold = [name for name, of in conditions.items() if of.selector == "core_gold"]
        labels = ["Gold labels"] if len(gold) == 1 else gold
        return [
            *by_parameter(conditions, "core_depth", "k", lambda k: f"K = {k}"),
            *(Step(label, name) for label, name in zip(labels, gold, strict=True)),
        ]

    def settings(self, recipe: api.Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``SearchDepth.settings``; gold labels need the depth whose targets they use.

        Raises:
            UserError: there are gold labels, but no depth with all K samples.
        """
        found, k = super().settings(recipe, options), recipe.search.k
        depths, gold = _kinds(self.compared(recipe.conditions))
        if found is not None and gold and (not depths or depths[-1].value != k):
            raise api.UserError(
                f"recipe {recipe.name}: key 'experiments.{self.name}': condition "
                f"{gold[0].condition!r} needs the targets of a search with all {k} samples; add "
                f"core_{k}: {{selector: core_depth, params: {{k: {k}}}, n: verified}}"
            )
        return found

    def find_mismatches(self, run: api.RunDirectory, arms: Sequence[api.Arm]) -> Iterator[str]:
        """Report properties that the training sets of a seed must share but do not."""
        depths, gold = _kinds(self.compared(run.recipe.conditions))
        tolerance = self.settings(run.recipe).token_tolerance
        states = api.read_states(run.path / layout.states("pool"))
        core = {of.problem_id for of in states if of.state == "G"}
        for seed in sorted({arm.seed for arm in arms}):
            found = {
                arm: api.read_examples(run.path / layout.selection(arm))
                for step in (*depths, *gold)
                if (arm := api.Arm(step.condition, seed)) in arms
            }
            for arm, examples in found.items():
                if missing := len(core - {e.problem_id for e in examples}):
                    yield f"arm {arm.name}: {missing} of {len(core)} solved problems are missing"
            tokens = {
                arm: api.budget(of, run.recipe.training_of(arm.condition)).tokens
                for arm, of in found.items()
            }
            most = api.Arm(depths[-1].condition, seed) if depths else None
            for step in depths[:-1]:
                arm = api.Arm(step.condition, seed)
                if most in tokens and arm in tokens:
                    yield from _too_far(arm, most, tokens, tolerance)
            for step in gold:
                arm = api.Arm(step.condition, seed)
                if most in tokens and arm in tokens:
                    yield from of_pair(run, most, arm)

    def warnings(self, view: api.View) -> Iterator[str]:
        """Report how many slots gold labels keep from the deepest search."""
        depths, gold = _kinds(self.compared(view.recipe.conditions))
        for arm in view.arms():
            if depths and arm.condition in [step.condition for step in gold]:
                yield from kept_notice(view.run, api.Arm(depths[-1].condition, arm.seed), arm)


def _too_far(
    arm: api.Arm, most: api.Arm, tokens: Mapping[api.Arm, int], tolerance: float
) -> Iterator[str]:
    share = abs(tokens[arm] - tokens[most]) / tokens[most]
    if share > tolerance:
        yield (
            f"arms {arm.name} and {most.name} process {tokens[arm]} and {tokens[most]} tokens; the "
            f"difference is {share:.2%} of the latter, but token_tolerance is {tolerance:.2%}: the "
            "solved problems are too few, or differ in length from the failures. Search a larger "
            "pool, or raise experiments.shared_core.token_tolerance"
        )


def _kinds(steps: Sequence[Step]) -> tuple[list[Step], list[Step]]:
    """Split steps into depths, ascending, and selections by gold labels."""
    return [s for s in steps if s.value is not None], [s for s in steps if s.value is None]


@dataclass(frozen=True, slots=True)
class Cores:
    """The compared conditions, with the core and without it.

    Attributes:
        steps: the conditions with the core; see ``SharedCore.find_steps``.
        steps_without_core: GapFT and gold-label selection without the core, with the same n;
            None: the run does not have both.
        tests: tests of every later step against the first, and of gold labels against the
            search whose targets they use, with and without the core.
    """

    steps: tuple[Step, ...]
    without: tuple[Step, Step] | None
    tests: tuple[ContrastTest, ...] = ()


class SharedCorePart(TestedPart):
    """The part of the report (the paper's table "Evidence Controls with a Shared Core")."""

    def read(self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[api.Arm]) -> Any:
        """Read the steps, and GapFT and gold labels without the core."""
        steps = super().read(run_path, manifest, arms)
        if steps is None:
            return None
        deepest, *others = steps[::-1]
        if deepest.value is None and (search := _deepest(others[::-1])) is not None:
            conditions = api.conditions_of(manifest["recipe"])
            steps = (*steps[:-1], with_kept(run_path, conditions, search, deepest))
        there = {arm.condition for arm in arms}
        conditions = {
            n: of for n, of in api.conditions_of(manifest["recipe"]).items() if n in there
        }
        match gapft_and(conditions, "gold_labels"):
            case [gapft, gold, *_] if conditions[gapft.condition].n == conditions[gold.condition].n:
                return Cores(steps, (gapft, gold))
        return Cores(steps, None)

    def compute(self, inputs: api.ReportInputs, read: Any) -> Cores:
        """Compute the tests of the steps."""
        first, *later = read.steps
        pairs = [(step, first) for step in later]
        gold, deepest = read.steps[-1], _deepest(read.steps)
        if gold.value is None and deepest not in (None, first):
            pairs.append((gold, deepest))
        if read.without:
            pairs.append((read.without[1], read.without[0]))
        found: Cores = replace(read, tests=self.tested(inputs, pairs))
        return found

    def sections(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: Any
    ) -> Iterator[api.Section]:
        """Return the section: the table with the source, budgets, and gold labels."""
        for section in super().sections(inputs, findings, found):
            blocks = [*section.blocks[:-1], contrast_table(findings, found.steps, source=True)]
            blocks.append(_budgets(findings, found.steps, findings.pool_states["G"]))
            if pairs := _pairs(found):
                blocks.append(_gold(findings, pairs))
            yield replace(section, blocks=blocks)

    def compared(self, found: Cores) -> Sequence[Step]:
        """Return the depths if there are several, else all steps."""
        depths, _ = _kinds(found.steps)
        return depths if len(depths) > 1 else found.steps

    def remark(self, findings: api.ReportFindings, found: Cores) -> str:
        """Describe gold labels against the search whose targets they use, and the core."""
        said = ""
        *_, last = found.steps
        deepest = _deepest(found.steps)
        if last.value is None and deepest is not None and deepest is not found.steps[0]:
            contrast = findings.contrast(last.condition, deepest.condition)
            said = (
                f" {last.label} minus {deepest.label} is {points(contrast.delta)} points "
                f"{points_interval(contrast.interval)}."
            )
        return (
            f"{said} Every condition contains each of the pool's solved problems once: the core."
            f"{kept_remark(found.steps)}{super().remark(findings, found)}"
        )

    def results(self, found: Cores) -> dict[str, Any]:
        """Return the steps, and the conditions that are compared without the core."""
        return {**super().results(found), "without": [of.condition for of in found.without or ()]}

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: Any
    ) -> Iterator[tuple[str, api.Rows]]:
        """Return CSV tables of the steps, and of gold labels minus GapFT."""
        yield from super().tables(inputs, findings, found)
        if pairs := _pairs(found):
            yield f"{self.name}_gold.csv", _gold_rows(findings, pairs)


def _deepest(steps: Sequence[Step]) -> Step | None:
    return next((step for step in reversed(steps) if step.value is not None), None)


def _pairs(found: Cores) -> list[tuple[str, Step, Step]]:
    """Pair GapFT and gold labels without and with the core; empty unless the run has all four."""
    gold, search = found.steps[-1], _deepest(found.steps)
    if not found.without or gold.value is not None or search is None:
        return []
    return [("without the core", *found.without), ("with the core", search, gold)]


def _each(findings: api.ReportFindings, step: Step, key: str) -> list[int]:
    """List a number of a condition's budget, for each seed."""
    return [getattr(of.budget, key) for of in findings.conditions[step.condition].seeds.values()]


def _budgets(findings: api.ReportFindings, steps: Sequence[Step], core: int) -> api.Table:
    """Build the table of tokens of each condition, compared with the deepest search (Table 5)."""
    target = _deepest(steps) or steps[0]
    of_target = _each(findings, target, "tokens")
    rows = []
    for step in steps:
        tokens = _each(findings, step, "tokens")
        off = max((Fraction(a - b, b) for a, b in zip(tokens, of_target, strict=True)), key=abs)
        rows.append(StepBudget(findings, step, core, None if step is target else off))
    note = (
        f"Beyond the core of {wording.whole(core)}: examples of recovered failures (S), missed "
        "failures (U) and repeated solved problems (G); if seeds differ, smallest to largest. "
        f"Off: difference in processed tokens L from {target.label}, for the seed with the largest "
        "difference. Repeats are chosen so that all depths process equally many tokens; gold "
        "labels have the supervised tokens of the deepest one, but different prompts."
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
    step: Step
    core: int
    off: Fraction | None

    @property
    def beside(self) -> str:
        """Its examples beyond the core, by state."""
        counts = {
            state: [of[state] - self.core * (state == "G") for of in self.step.slots.values()]
            for state in "SUG"
        }
        return ", ".join(f"{wording.span(n)} {state}" for state, n in counts.items() if any(n))


def _spent(key: str, title: str, meaning: str = "") -> api.Column[StepBudget]:
    return api.Column(
        "", meaning, lambda row: _each(row.findings, row.step, key), title, wording.span
    )


_L = "tokens, and their difference from the deepest search"
BUDGETS: tuple[api.Column[StepBudget], ...] = (
    api.Column("", "", lambda row: row.step.label, ""),
    api.Column(
        "",
        "examples in this state, or beyond the shared core",
        lambda row: row.beside,
        "beyond the core",
    ),
    _spent("n", "n"),
    _spent("exposures", "N"),
    _spent("steps", "J"),
    _spent("tokens", "processed L", _L),
    api.Column(
        "",
        _L,
        lambda row: row.off,
        "off",
        lambda off: f"{points(off, 2)}%",
        missing="target",
    ),
    _spent("supervised_tokens", "supervised", _L),
)


def _gold(findings: api.ReportFindings, pairs: Sequence[tuple[str, Step, Step]]) -> api.Table:
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
    search: Step
    gold: Step

    @property
    def contrast(self) -> api.Contrast:
        """The contrast of gold labels minus GapFT."""
        return self.findings.contrast(self.gold.condition, self.search.condition)

    def pass_at_1(self, step: Step) -> Fraction:
        """Return Pass@1 of one of the two."""
        return self.findings.conditions[step.condition].mean.pass_at_1


_BOTH = "Pass@1 of GapFT and of gold labels"
GOLD: tuple[api.Column[GoldRow], ...] = (
    api.Column("", "", lambda row: row.label, ""),
    api.Column("", "", lambda row: _each(row.findings, row.search, "n"), "n", wording.span),
    api.Column("", "", lambda row: _each(row.findings, row.search, "steps"), "J", wording.span),
    api.Column("", _BOTH, lambda row: row.pass_at_1(row.search), "GapFT", percent),
    api.Column("", _BOTH, lambda row: row.pass_at_1(row.gold), "gold", percent),
    api.Column("", "", lambda row: row.contrast.delta, "difference", points),
    *(column.of(lambda row: row.contrast) for column in PARTS),
)


def _gold_rows(findings: api.ReportFindings, pairs: Sequence[tuple[str, Step, Step]]) -> api.Rows:
    yield (
        "group", "search", "gold", "seed", "n", "steps", "delta", "ci95_low", "ci95_high", "S",
        "U", "G",
    )  # fmt: skip
    for label, search, gold in pairs:
        contrast = findings.contrast(gold.condition, search.condition)
        name = label.split()[0], search.condition, gold.condition
        sizes = zip(*(_each(findings, search, key) for key in ("n", "steps")), strict=True)
        own = dict(zip(by_seed(findings, contrast), sizes, strict=True))
        yield from contrast_rows(findings, contrast, name, own)
