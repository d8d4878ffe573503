"""Build the report's sections in order, as blocks that the modules of ``rendering`` write."""

from __future__ import annotations

from fractions import Fraction

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.core.records import SOURCE
from gapft_harness.report.figures.contrasts import principal
from gapft_harness.report.findings import cases, ledger
from gapft_harness.report.findings.whole import (
    NOTHING_TO_TRAIN_ON,
    ConditionFindings,
    Contrast,
    Findings,
    budget_matched,
)
from gapft_harness.report.frame import Frame
from gapft_harness.report.part import Opening
from gapft_harness.report.reading.inputs import Further, ReportInputs
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import (
    Block,
    Bullets,
    Cases,
    Figure,
    Section,
    Stat,
    Stats,
    Text,
)
from gapft_harness.report.rendering.wording import (
    STATE_NAMES,
    capital,
    condition_name,
    listed,
    percent,
    whole,
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


def build(inputs: ReportInputs, findings: Findings) -> list[Section]:
    """Build all sections except those of plugins."""
    trained = bool(findings.conditions)
    remarks = [Text(str(note), "note") for note in inputs.recipe.get("notes", ())]
    if findings.source.n < STABLE_ITEMS:
        few = f"Every rate of the audit is based on {findings.source.n} problems, fewer than"
        remarks.insert(0, Text(f"{few} {STABLE_ITEMS}: they are unstable.", "warning"))
    late = [_late(inputs)] if inputs.late else []
    sections = [Section("", [*late, *_opening(findings, inputs.k), *remarks])]
    if inputs.failures:
        sections.append(Section("Why so little passes", failures_section.blocks(inputs.failures)))
    if trained:
        sections += [
            Section("Conditions", _conditions(inputs, findings)),
            Section("Contrasts", _contrasts(inputs, findings)),
            *(
                [Section("Retraining noise", replicates.blocks(findings))]
                if findings.replicates
                else []
            ),
            Section("Where the change comes from", _decomposition(inputs, findings)),
        ]
    sections += [
        Section("What search reaches", search.reached(inputs, findings)),
        Section("Evidence states", search.states(inputs, findings)),
    ]
    if trained:
        sections += [
            Section("Training budgets", budgets.blocks(inputs, findings)),
            Section("What it cost", ledger.costs(inputs, findings)),
            Section("Problems gained and lost", _cases(inputs, findings)),
        ]
    if beside := paper.figures(inputs, findings):
        place = 1 + bool(inputs.failures) + trained
        sections.insert(place, Section(paper.TITLE, paper.blocks(beside)))
    if (rule := inputs.other_rule) is not None:
        sections.append(Section(other_rule.TITLE, other_rule.blocks(inputs, findings, rule)))
    if inputs.episodes is not None:
        sections.append(Section("Episodes", episodes_section.blocks(inputs.episodes)))
    sections += [
        Section(f"Audit {of.name}", _further(inputs, of, findings.further[of.name]))
        for of in inputs.further
    ]
    for of in findings.parts:
        titles = [section.title for section in sections]
        own = [*of.part.sections(inputs, findings, of.found)]
        place = titles.index(of.part.after) + 1 if of.part.after in titles else len(sections)
        sections[place:place] = own
    return [*sections, *provenance.sections(inputs, findings)]


#: Changes that the top of the report lists; the others are only counted.
_NAMED = 3


def _late(inputs: ReportInputs) -> Text:
    """Return the warning about settings that were changed after results existed."""
    named = "; ".join(inputs.late[:_NAMED])
    more = len(inputs.late) - _NAMED
    rest = f"; and {more} more" if more > 0 else ""
    return Text(f"Chosen after results: {named}{rest}.", "warning", see=provenance.DATA)


def _conditions(inputs: ReportInputs, findings: Findings) -> list[Block]:
    names = {of: f"{of}.pass_at_1" for of in findings.conditions}
    printed = paper.column(inputs, {SOURCE: "audit.greedy", **names})
    seeds = f"{listed([str(seed) for seed in inputs.seeds])}, in this order"
    if len(inputs.seeds) > comparison.SEEDS_SHOWN:
        seeds = f"the range over {len(inputs.seeds)} seeds"
    note = (
        f"Pass@1: share of audit problems whose one greedy decode passes, mean over seeds. Each "
        f"seed: {seeds}. K_eq: the largest number of source samples, with a verifier to choose "
        "among them, that one decode of this condition matches. Budget: n example slots, N "
        "exposures, L processed tokens (mean over seeds), J optimizer steps."
    )
    if not all(condition.matched for condition in findings.conditions.values()):
        note += " * A reference with its own budget; not budget-matched."
    online = [
        condition_name(of.arm.condition)
        for of in inputs.arms
        if "groups" in inputs.training.get(of.arm.name, {})
    ]
    if online:
        note += (
            f" {capital(listed([*dict.fromkeys(online)]))}: trained online. Here n, N and L "
            "describe the set that determines J; it is not used as a training set."
        )
    if len(findings.groups) > 1:
        note += (
            " Budgets match within each of these groups: "
            f"{'; '.join(map(budgets.group_name, findings.groups))}."
        )
    columns = [*comparison.ACCURACY, *comparison.BUDGETS]
    if printed:
        place = [column.title for column in columns].index("Pass@1") + 1
        columns[place:place] = comparison.PRINTED
    return [Frame(columns, comparison.models(findings, inputs.k, printed)).table(note)]


def _contrasts(inputs: ReportInputs, findings: Findings) -> list[Block]:
    tables = comparison.contrasts(inputs, findings)
    remark = findings.remark(principal(findings))
    return [
        Figure(
            "contrasts",
            "Intervals of Pass@1 differences: "
            + "; ".join(f"{row[0]} {row[1]} {row[2]}" for row in tables[0].rows),
            "Differences of Pass@1 with 95% intervals. Filled marker: the interval excludes zero."
            + remark,
        ),
        *tables,
        Text(_seed_caution(len(inputs.seeds)), "note"),
    ]


def _seed_caution(seeds: int) -> str:
    if seeds == 1:
        return (
            "Only one training seed was run: the intervals cover the variation over audit "
            "problems, but not over training seeds."
        )
    return (
        f"{seeds} training seeds are few: resampling them underestimates how much a new seed would "
        "differ, so the true uncertainty is larger than these intervals show."
    )


def _decomposition(inputs: ReportInputs, findings: Findings) -> list[Block]:
    lead = condition_name(findings.lead)
    mean = findings.conditions[findings.lead].mean
    return [
        Figure(
            "flows",
            f"After {lead}: {percent(mean.rho_g)} of the solved problems are lost, "
            f"{percent(mean.kappa_s)} of the recovered failures and {percent(mean.kappa_u)} of the "
            "missed failures are corrected.",
            f"Outcomes by source state, mean over seeds. Top: as shares of the audit, after "
            f"{lead}. Bottom: as rates within each state, for every condition.",
        ),
        comparison.decomposition(findings),
        Frame([*budgets.ARM, *budgets.COUNTS], budgets.arms(findings)).table(
            "The counts behind all figures above.", summary="Counts for every seed"
        ),
    ]


def _cases(inputs: ReportInputs, findings: Findings) -> list[Block]:
    """Build several cases of each kind for the lead, and one, folded, for other conditions."""
    attempts = inputs.task["episode"]["attempts"]
    final = f" Only the last of up to {attempts} attempts is shown." if attempts > 1 else ""
    mark = " Words that only one of the two responses contains are marked."
    blocks: list[Block] = [Text(cases.RULE + final + mark, "note")]
    lead = findings.lead
    own = findings.distinct
    for condition in [lead, *(name for name in own if name != lead)]:
        name, most = condition_name(condition), cases.count(condition, lead)
        shown = {
            change: [
                cases.as_case(inputs, of, own)
                for of in cases.chosen(inputs, condition, change, most)
            ]
            for change in cases.CHANGES
        }
        if condition != lead:
            said = [f"a problem {change}" for change, of in shown.items() if of]
            summary = f"{name}: {listed(said or ['no problem changed'])}"
            both = [*shown["gained"], *shown["lost"]]
            blocks.append(Cases(both, summary) if both else Text(f"{summary}."))
            continue
        for change, of in shown.items():
            if of:
                before = "wrong" if change == "gained" else "right"
                blocks += [Text(f"{change.capitalize()} by {name}: {before} before."), Cases(of)]
            else:
                blocks.append(Text(f"{name} {change} no problem."))
    return blocks


def _what(inputs: ReportInputs, audit: Further) -> str:
    """Describe the problems of a further audit, and what is compared on them."""
    n, task = whole(len(audit.inputs.audit.ids)), audit.inputs.task
    if not audit.of:
        return (
            f"A further audit: {n} problems of task {task['name']}, version {task['version']}, "
            f"verified by {other_rule.named(task['verifier'], task['verifier_params'])}. The "
            "source was sampled and every adapter was decoded on them, as on the run's own audit. "
            "Figures of different audits are not compared."
        )
    whole_of = next((f.inputs for f in inputs.further if f.name == audit.of), inputs)
    which = "the audit" if audit.of == "audit" else f"the audit {audit.of}"
    return (
        f"A named subset: {n} of the {whole(len(whole_of.audit.ids))} problems of {which}. Nothing "
        "was decoded for it: the same decisions are scored on these problems only, and are never "
        "compared with decisions on other problems."
    )


def _further(inputs: ReportInputs, audit: Further, findings: Findings) -> list[Block]:
    source = findings.source
    states = [
        f"{whole(count)} {STATE_NAMES[state]} ({state}, {percent(Fraction(count, source.n))})"
        for state, count in source.states.items()
    ]
    blocks: list[Block] = [
        Text(f"{_what(inputs, audit)} Under the source model: {listed(states)}.")
    ]
    if not audit.of and (dropped := audit.inputs.task.get("dropped", ())):
        blocks.append(Bullets(list(dropped)))
    if source.n < STABLE_ITEMS:
        few = f"Its rates are based on fewer than {STABLE_ITEMS} problems: they are unstable."
        blocks.append(Text(few, "warning"))
    note = "Columns as in the table of conditions above. * Not budget-matched."
    if all(each.matched for each in findings.conditions.values()):
        note = note.partition(" *")[0]
    blocks.append(Frame(comparison.ACCURACY, comparison.models(findings, inputs.k)).table(note))
    if findings.conditions:
        blocks += [
            *comparison.contrasts(audit.inputs, findings, explained=False),
            comparison.decomposition(findings, explained=False),
        ]
    return blocks


#: Conditions with which the opening compares the lead, one sentence for each.
_SAID = 2


def _opening(findings: Findings, k: int) -> list[Block]:
    """Build the summary at the top, and the numbers behind it."""
    if not findings.conditions:
        return [Text(NOTHING_TO_TRAIN_ON, "lead"), Text(_source_alone(findings, k))]
    lead = findings.conditions[findings.lead]
    others = [c for c in findings.distinct.values() if c.name != lead.name]
    rivals = [
        other
        for other in others
        if budget_matched(other, lead) and not findings.is_replicate(other.name, lead.name)
    ]
    sentences = [_against_source(findings, lead)]
    said_first = rivals[:_SAID] if len(rivals) > _SAID + 1 else rivals
    sentences += [_against(findings.contrast(lead.name, rival.name)) for rival in said_first]
    if more := len(rivals) - len(said_first):
        sentences.append(f"The other {more} conditions with this budget are compared below.")
    sentences += [replicates.describe_changes(findings, of) for of in findings.replicates]
    sentences.append(_worth(lead, k))
    openings = [said for of in findings.parts if (said := of.part.opening(findings, of.found))]
    for said in openings:
        sentences.insert(0 if said.first else len(sentences), said.sentence)
    sentences.append("Brackets are 95% intervals.")
    return [Text(" ".join(sentences), "lead"), Stats(_stats(findings, lead, rivals, openings, k))]


def _against_source(findings: Findings, lead: ConditionFindings) -> str:
    gain = findings.contrast(lead.name, SOURCE)
    seeds = len(lead.seeds)
    name = condition_name(lead.name)
    subject = name if lead.name == "gapft" else f"The condition {name}"
    return (
        f"{subject} answers {percent(lead.mean.pass_at_1)} of "
        f"{whole(findings.source.n)} audit problems correctly in one greedy decode"
        f"{f' (mean of {seeds} seeds)' if seeds > 1 else ''}; the source model answers "
        f"{percent(findings.source.pass_at_1)}: {wording.points(gain.delta)} points "
        f"{wording.points_interval(gain.interval)}."
    )


def _against(contrast: Contrast) -> str:
    return (
        f"Against {condition_name(contrast.b)} at the same training budget: "
        f"{wording.points(contrast.delta)} points {wording.points_interval(contrast.interval)}; "
        f"{wording.resolution(contrast.interval)}."
    )


def _worth(lead: ConditionFindings, k: int) -> str:
    if lead.k_eq == 0:
        return "One decode of it is worth less than one sample of the source."
    at_least = "at least " if lead.k_eq == k else ""
    samples = "sample" if lead.k_eq == 1 else "samples"
    return (
        f"One decode of it is worth {at_least}{lead.k_eq} {samples} of the source with a verifier "
        "to choose among them."
    )


def _stats(
    findings: Findings,
    lead: ConditionFindings,
    rivals: list[ConditionFindings],
    openings: list[Opening],
    k: int,
) -> list[Stat]:
    stats = [
        Stat("source", percent(findings.source.pass_at_1), "Pass@1, greedy"),
        Stat(
            condition_name(lead.name),
            percent(lead.mean.pass_at_1),
            f"Pass@1 {wording.percent_interval(lead.interval)}",
        ),
    ]
    if rivals:
        contrast = findings.contrast(lead.name, rivals[0].name)
        stats.append(
            Stat(
                f"against {condition_name(rivals[0].name)}",
                wording.points(contrast.delta),
                f"points {wording.points_interval(contrast.interval)}",
            )
        )
    worth = Stat("worth in samples", wording.k_eq(lead.k_eq, k), f"K_eq, of {k} drawn")
    return [*stats, next((said.stat for said in openings if said.first and said.stat), worth)]


def _source_alone(findings: Findings, k: int) -> str:
    source = findings.source
    return (
        f"The source model answers {percent(source.pass_at_1)} of "
        f"{whole(source.n)} audit problems correctly in one greedy decode; with a verifier "
        f"to choose among {k} samples, {percent(source.curve[k])}. Selection, training and the "
        "audit of trained models were skipped. A larger search.k, a higher temperature or an "
        "easier pool may reveal failures that can be recovered."
    )
