"""Build the report's sections in order, as blocks that the modules of ``rendering`` write."""

from __future__ import annotations

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.core.records import SOURCE
from gapft_harness.report.figures.contrasts import select_principal
from gapft_harness.report.findings import cases
from gapft_harness.report.findings.computation import (
    NOTHING_TO_TRAIN_ON,
    ConditionFindings,
    Contrast,
    Findings,
    is_budget_matched,
)
from gapft_harness.report.frame import Frame
from gapft_harness.report.part import Opening
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import (
    Block,
    Cases,
    Figure,
    Section,
    Stat,
    Stats,
    Text,
)
from gapft_harness.report.rendering.wording import (
    capitalize_first,
    condition_name,
    format_count,
    listed,
    percent,
)
from gapft_harness.report.sections import (
    budgets,
    comparison,
    other_rule,
    paper,
    provenance,
    replicates,
    search,
)
from gapft_harness.report.sections import episodes as episodes_section
from gapft_harness.report.sections import failures as failures_section


def build_sections(inputs: ReportInputs, findings: Findings) -> list[Section]:
    """Build all sections except those of plugins."""
    trained = bool(findings.conditions)
    remarks = [Text(str(note), "note") for note in inputs.recipe.get("notes", ())]
    if inputs.deployment:
        remarks.insert(0, Text(wording.describe_deployment(inputs.deployment), "note"))
    if findings.source.n < STABLE_ITEMS:
        warning = f"Every rate of the audit is based on {findings.source.n} problems, fewer than"
        remarks.insert(0, Text(f"{warning} {STABLE_ITEMS}: they are unstable.", "warning"))
    late_changes = [_describe_late_changes(inputs)] if inputs.late_changes else []
    sections = [Section("", [*late_changes, *_build_opening(findings, inputs.k), *remarks])]
    if inputs.failures:
        sections.append(
            Section(
                "Why so little passes",
                failures_section.build_blocks(inputs.failures, inputs.deployment),
            )
        )
    if trained:
        sections += [
            Section("Conditions", _build_conditions(inputs, findings)),
            Section("Contrasts", _build_contrasts(inputs, findings)),
            *(
                [Section("Retraining noise", replicates.build_blocks(findings))]
                if findings.replicates
                else []
            ),
            Section("Where the change comes from", _build_decomposition(inputs, findings)),
        ]
    sections += [
        Section("What search reaches", search.build_reached(inputs, findings)),
        Section("Evidence states", search.build_states(inputs, findings)),
    ]
    if trained:
        sections += [
            Section("Training budgets", budgets.build_blocks(inputs, findings)),
            Section("Problems gained and lost", _build_cases(inputs, findings)),
        ]
    if paper_figures := paper.collect_figures(inputs, findings):
        place = 1 + bool(inputs.failures) + trained
        sections.insert(place, Section(paper.TITLE, paper.build_blocks(paper_figures)))
    if (rule := inputs.other_rule) is not None:
        sections.append(Section(other_rule.TITLE, other_rule.build_blocks(inputs, findings, rule)))
    if inputs.episodes is not None:
        sections.append(Section("Episodes", episodes_section.build_blocks(inputs.episodes)))
    for entry in findings.parts:
        titles = [section.title for section in sections]
        part_sections = [*entry.part.sections(inputs, findings, entry.findings)]
        place = titles.index(entry.part.after) + 1 if entry.part.after in titles else len(sections)
        sections[place:place] = part_sections
    return [*sections, *provenance.build_sections(inputs, findings)]


#: Changes that the top of the report lists; the others are only counted.
_CHANGES_SHOWN = 3


def _describe_late_changes(inputs: ReportInputs) -> Text:
    """Return the warning about settings that were changed after results existed."""
    first_changes = "; ".join(inputs.late_changes[:_CHANGES_SHOWN])
    left_out = len(inputs.late_changes) - _CHANGES_SHOWN
    rest = f"; and {left_out} more" if left_out > 0 else ""
    return Text(f"Chosen after results: {first_changes}{rest}.", "warning", see=provenance.DATA)


def _build_conditions(inputs: ReportInputs, findings: Findings) -> list[Block]:
    names = {entry: f"{entry}.pass_at_1" for entry in findings.conditions}
    printed = paper.list_printed(inputs, {SOURCE: "audit.greedy", **names})
    seeds = f"{listed([str(seed) for seed in inputs.seeds])}, in this order"
    if len(inputs.seeds) > comparison.SEEDS_SHOWN:
        seeds = f"the range over {len(inputs.seeds)} seeds"
    definition = (
        "share of the deployment decodes of the audit that pass"
        if inputs.deployment
        else "share of audit problems whose one greedy decode passes"
    )
    note = (
        f"Pass@1: {definition}, mean over seeds. Each seed: {seeds}. K_eq: the largest number of "
        "source samples, with a verifier to choose among them, that one decode of this condition "
        "matches. Budget: n example slots, N exposures, L processed tokens (mean over seeds), J "
        "optimizer steps."
    )
    if not all(condition.matched for condition in findings.conditions.values()):
        note += " * A reference with its own budget; not budget-matched."
    online = [
        condition_name(entry.arm.condition)
        for entry in inputs.arms
        if "groups" in inputs.training.get(entry.arm.name, {})
    ]
    if online:
        note += (
            f" {capitalize_first(listed([*dict.fromkeys(online)]))}: trained online. Here n, N and "
            "L describe the set that determines J; it is not used as a training set."
        )
    if len(findings.groups) > 1:
        note += (
            " Budgets match within each of these groups: "
            f"{'; '.join(map(budgets.format_group, findings.groups))}."
        )
    columns = [*comparison.ACCURACY, *comparison.BUDGETS]
    if printed:
        place = [column.title for column in columns].index("Pass@1") + 1
        columns[place:place] = comparison.PRINTED
    return [Frame(columns, comparison.list_models(findings, inputs.k, printed)).table(note)]


def _build_contrasts(inputs: ReportInputs, findings: Findings) -> list[Block]:
    tables = comparison.build_contrast_tables(inputs, findings)
    remark = findings.describe_marks(select_principal(findings))
    return [
        Figure(
            "contrasts",
            "Intervals of Pass@1 differences: "
            + "; ".join(f"{row[0]} {row[1]} {row[2]}" for row in tables[0].rows),
            "Differences of Pass@1 with 95% intervals. Filled marker: the interval excludes zero."
            + remark,
        ),
        *tables,
        Text(_describe_seed_limit(len(inputs.seeds)), "note"),
    ]


def _describe_seed_limit(seeds: int) -> str:
    if seeds == 1:
        return (
            "Only one training seed was run: the intervals cover the variation over audit "
            "problems, but not over training seeds."
        )
    return (
        f"{seeds} training seeds are few: resampling them underestimates how much a new seed would "
        "differ, so the true uncertainty is larger than these intervals show."
    )


def _build_decomposition(inputs: ReportInputs, findings: Findings) -> list[Block]:
    lead = condition_name(findings.lead)
    mean = findings.conditions[findings.lead].mean
    text = (
        f"After {lead}: {percent(mean.rho_g)} of the solved problems are lost, "
        f"{percent(mean.kappa_s)} of the recovered failures and {percent(mean.kappa_u)} of the "
        "missed failures are corrected."
    )
    return [
        Figure(
            "flows",
            text,
            f"Outcomes by source state, mean over seeds. Top: as shares of the audit, after "
            f"{lead}. Bottom: as rates within each state, for every condition.",
        ),
        comparison.build_decomposition_table(findings),
        Frame([*budgets.ARM, *budgets.COUNTS], budgets.list_arms(findings)).table(
            "The counts behind all figures above.", summary="Counts for every seed"
        ),
    ]


def _build_cases(inputs: ReportInputs, findings: Findings) -> list[Block]:
    """Build several cases of each kind for the lead, and one, folded, for other conditions."""
    attempts = inputs.task["episode"]["attempts"]
    final = f" Only the last of up to {attempts} attempts is shown." if attempts > 1 else ""
    mark = " Words that only one of the two responses contains are marked."
    blocks: list[Block] = [Text(cases.RULE + final + mark, "note")]
    lead = findings.lead
    distinct = findings.distinct
    for condition in [lead, *(name for name in distinct if name != lead)]:
        name, limit = condition_name(condition), cases.count_cases(condition, lead)
        cases_by_change = {
            change: [
                cases.build_case(inputs, chosen_cases, distinct)
                for chosen_cases in cases.choose_cases(inputs, condition, change, limit)
            ]
            for change in cases.CHANGES
        }
        if condition != lead:
            changes = [
                f"a problem {change}"
                for change, chosen_cases in cases_by_change.items()
                if chosen_cases
            ]
            summary = f"{name}: {listed(changes or ['no problem changed'])}"
            all_cases = [*cases_by_change["gained"], *cases_by_change["lost"]]
            blocks.append(Cases(all_cases, summary) if all_cases else Text(f"{summary}."))
            continue
        for change, chosen_cases in cases_by_change.items():
            if chosen_cases:
                outcome_before = "wrong" if change == "gained" else "right"
                blocks += [
                    Text(f"{change.capitalize()} by {name}: {outcome_before} before."),
                    Cases(chosen_cases),
                ]
            else:
                blocks.append(Text(f"{name} {change} no problem."))
    return blocks


#: Conditions with which the opening compares the lead, one sentence for each.
_RIVALS_SHOWN = 2


def _build_opening(findings: Findings, k: int) -> list[Block]:
    """Build the summary at the top, and the numbers behind it."""
    if not findings.conditions:
        return [Text(NOTHING_TO_TRAIN_ON, "lead"), Text(_describe_source(findings, k))]
    lead = findings.conditions[findings.lead]
    others = [c for c in findings.distinct.values() if c.name != lead.name]
    rivals = [
        other
        for other in others
        if is_budget_matched(other, lead) and not findings.is_replicate(other.name, lead.name)
    ]
    sentences = [_compare_with_source(findings, lead)]
    shown_rivals = rivals[:_RIVALS_SHOWN] if len(rivals) > _RIVALS_SHOWN + 1 else rivals
    sentences += [
        _compare_with_rival(findings.find_contrast(lead.name, rival.name)) for rival in shown_rivals
    ]
    if left_out := len(rivals) - len(shown_rivals):
        sentences.append(f"The other {left_out} conditions with this budget are compared below.")
    sentences += [replicates.describe_changes(findings, entry) for entry in findings.replicates]
    sentences.append(_describe_k_eq(lead, k))
    openings = [
        opening
        for entry in findings.parts
        if (opening := entry.part.opening(findings, entry.findings))
    ]
    for opening in openings:
        sentences.insert(0 if opening.is_first else len(sentences), opening.sentence)
    sentences.append("Brackets are 95% intervals.")
    return [
        Text(" ".join(sentences), "lead"),
        Stats(_build_stats(findings, lead, rivals, openings, k)),
    ]


def _compare_with_source(findings: Findings, lead: ConditionFindings) -> str:
    gain = findings.find_contrast(lead.name, SOURCE)
    seeds = len(lead.seeds)
    name = condition_name(lead.name)
    subject = name if lead.name == "gapft" else f"The condition {name}"
    return (
        f"{subject} answers {percent(lead.mean.pass_at_1)} of "
        f"{format_count(findings.source.n)} audit problems correctly in one "
        f"{wording.name_decode(findings.source.deployment)}"
        f"{f' (mean of {seeds} seeds)' if seeds > 1 else ''}; the source model answers "
        f"{percent(findings.source.pass_at_1)}: {wording.points(gain.delta)} points "
        f"{wording.points_interval(gain.estimate)}."
    )


def _compare_with_rival(contrast: Contrast) -> str:
    return (
        f"Against {condition_name(contrast.b)} at the same training budget: "
        f"{wording.points(contrast.delta)} points {wording.points_interval(contrast.estimate)}; "
        f"{wording.describe_resolution(contrast.estimate)}."
    )


def _describe_k_eq(lead: ConditionFindings, k: int) -> str:
    if lead.k_eq == 0:
        return "One decode of it is worth less than one sample of the source."
    at_least = "at least " if lead.k_eq == k else ""
    samples = "sample" if lead.k_eq == 1 else "samples"
    return (
        f"One decode of it is worth {at_least}{lead.k_eq} {samples} of the source with a verifier "
        "to choose among them."
    )


def _build_stats(
    findings: Findings,
    lead: ConditionFindings,
    rivals: list[ConditionFindings],
    openings: list[Opening],
    k: int,
) -> list[Stat]:
    label = "Pass@1" if findings.source.deployment else "Pass@1, greedy"
    stats = [
        Stat("source", percent(findings.source.pass_at_1), label),
        Stat(
            condition_name(lead.name),
            percent(lead.mean.pass_at_1),
            f"Pass@1 {wording.percent_interval(lead.estimate)}",
        ),
    ]
    if rivals:
        contrast = findings.find_contrast(lead.name, rivals[0].name)
        stats.append(
            Stat(
                f"against {condition_name(rivals[0].name)}",
                wording.points(contrast.delta),
                f"points {wording.points_interval(contrast.estimate)}",
            )
        )
    worth = Stat("worth in samples", wording.format_k_eq(lead.k_eq, k), f"K_eq, of {k} drawn")
    return [
        *stats,
        next((opening.stat for opening in openings if opening.is_first and opening.stat), worth),
    ]


def _describe_source(findings: Findings, k: int) -> str:
    source = findings.source
    return (
        f"The source model answers {percent(source.pass_at_1)} of "
        f"{format_count(source.n)} audit problems correctly in one "
        f"{wording.name_decode(source.deployment)}; with a verifier to choose among {k} samples, "
        f"{percent(source.curve[k])}. Selection, training and the audit of trained models were "
        "skipped. A larger search.k, a higher temperature or an "
        "easier pool may reveal failures that can be recovered."
    )
