"""What a search that stopped early cost, and what can still be estimated from its pool."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering.blocks import Block, Table, Text
from gapft_harness.report.rendering.wording import percent, whole


def stopped(inputs: ReportInputs) -> bool:
    """Whether the pool's search stopped early."""
    return bool(inputs.recipe["search"].get("stop", "never") != "never")


def pool_drawn(inputs: ReportInputs) -> dict[str, Any]:
    """For results.json: samples and tokens drawn on the pool, and K times its problems."""
    drawn = inputs.drawn.get("pool", {})
    return {**drawn, "full_search": inputs.k * sum(inputs.pool_states.values())}


def blocks(inputs: ReportInputs) -> list[Block]:
    """A table of what was drawn, and a paragraph of what it is good for; none without a stop."""
    if not stopped(inputs):
        return []
    rows = []
    problems: Mapping[str, int] = {
        "pool": sum(inputs.pool_states.values()),
        "audit": len(inputs.audit.ids),
    }
    for split, count in problems.items():
        drawn, full = inputs.drawn[split], inputs.k * count
        rows.append(
            [
                split,
                whole(drawn["samples"]),
                whole(full),
                percent(Fraction(drawn["samples"], full)),
                # a backend without a tokenizer gives no ids to count
                whole(drawn["tokens"]) if drawn["tokens"] else "–",
                f"{drawn['tokens'] / count:.1f}" if drawn["tokens"] else "–",
            ]
        )
    return [
        Table(
            ["split", "samples drawn", "K × problems", "share", "tokens drawn", "tokens a problem"],
            rows,
            note="The pool's search stopped early (search.stop: first_pass): a problem drew no "
            "further sample once its greedy decode or a sample had passed. Tokens are those of "
            "samples; greedy decodes come on top.",
        ),
        Text(
            f"What the pool can still tell: which problems are in G, S and U with up to "
            f"{inputs.k} samples, and with any fewer, since every recovered problem's first "
            "success is known. What it cannot: how often a problem is solved (samples after the "
            "first success were not drawn, and solved problems drew none), so neither unbiased "
            "Pass@k nor a selector that counts passing samples can rest on it. Of the audit all "
            f"{inputs.k} samples of every problem were drawn: its Pass@k and K_eq are estimated "
            "as ever.",
            "note",
        ),
    ]
