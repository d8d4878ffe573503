"""Tables of a study on what was spent, and what that is worth."""

from __future__ import annotations

from gapft_harness.analysis.pass_at_k import reported_k
from gapft_harness.core.records import SOURCE
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Block, Figure, Table, Text
from gapft_harness.report.rendering.wording import condition_name, percent, points, whole
from gapft_harness.report.sections import budgets
from gapft_harness.study.findings import StudyFindings, shares


def amortization(of: StudyFindings) -> list[Block]:
    """The source's Pass@k, and how many of its samples one decode of each model is worth."""
    samples = of.cells[0].inputs.k  # the protocol is one
    shown = reported_k(samples)[-2:]
    rows = [
        [
            cell.name,
            percent(cell.found.source.pass_at_1, 2),
            *(percent(cell.found.source.curve[k], 2) for k in shown),
            *(wording.k_eq(cell.found.conditions[n].k_eq, samples) for n in of.study.conditions),
        ]
        for cell in of.cells
    ]
    note = (
        f"Pass@k of the source, estimated without bias from {samples} samples a problem: an oracle "
        "reference that takes search and a verifier at inference. By condition, K_eq: the largest "
        "K whose source Pass@K does not exceed the condition's Pass@1; <1: the condition is below "
        f"one sample of the source; ≥{samples}: no more samples were drawn."
    )
    names = [condition_name(name) for name in of.study.conditions]
    names[0] = f"K_eq: {names[0]}"
    return [
        Figure(
            "curves",
            "; ".join(
                f"{row[0]}: greedy {row[1]}, Pass@{samples} {row[1 + len(shown)]}" for row in rows
            ),
            "The source's accuracy when a verifier picks among k samples. Lines: one greedy decode "
            "of each model; the marker stands at its K_eq.",
        ),
        Table(["cell", "greedy", *(f"Pass@{k}" for k in shown), *names], rows, note=note),
    ]


def shared(of: StudyFindings) -> list[Block]:
    """How much of a larger budget's gain the first condition has, with how much of its problems."""
    lead = condition_name(of.study.lead)
    rows = []
    for cell in of.cells:
        for share in shares(cell, of.study.lead):
            full = cell.found.contrast(share.full, SOURCE).delta
            rows.append(
                [
                    cell.name,
                    condition_name(share.full),
                    percent(share.problems),
                    points(cell.found.contrast(of.study.lead, SOURCE).delta, 2),
                    points(full, 2),
                    percent(share.gain),
                ]
            )
    if not rows:
        return [Text("No condition of this study has a larger budget of its own.")]
    columns = [
        "cell", "reference", "share of its problems", f"gain of {lead}", "its gain", "share of it"
    ]  # fmt: skip
    note = (
        f"Distinct problems that {lead} is trained on, and its gain over the source in percentage "
        "points, beside those of a reference with a larger budget. Where the reference gains "
        "little, the share says little; a dash: it gains nothing."
    )
    return [Table(columns, rows, words=2, note=note)]


def spent(of: StudyFindings) -> list[Block]:
    """n, N, L and J of every cell, a row for each budget."""
    rows = []
    for cell in of.cells:
        conditions = cell.found.conditions
        groups = cell.found.groups + [[c] for c in conditions.values() if not c.matched]
        for group in groups:
            budget = next(iter(group[0].seeds.values())).budget
            low, high, spread = budgets.tokens(group)
            own = [of_lead for of_lead in group if of_lead.name == of.study.lead]
            processed = [seed.budget.tokens for each in own for seed in each.seeds.values()]
            rows.append(
                [
                    cell.name,
                    budgets.group_name(group),
                    *(whole(value) for value in (budget.n, budget.exposures)),
                    whole(round(sum(processed) / len(processed))) if own else "–",
                    *(whole(value) for value in (low, high)),
                    percent(spread),
                    whole(budget.steps),
                ]
            )
    lead = f"L of {condition_name(of.study.lead)}"
    columns = ["cell", "conditions", "n", "N", lead, "L, fewest", "L, most", "spread of L", "J"]
    note = (
        "n example slots, N exposures, L processed tokens over conditions and seeds, J optimizer "
        "steps; the first L is of the study's first condition, mean over seeds, as in the paper. "
        "Within a row n, N and J are the same; tokens are reported, not enforced."
    )
    return [Table(columns, rows, words=2, note=note)]
