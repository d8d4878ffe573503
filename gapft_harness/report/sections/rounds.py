"""Rounds: the change since the source of the first round, by its states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from gapft_harness.analysis.decomposition import Terms
from gapft_harness.analysis.rounds import Decodes, decompose_chain, decompose_step
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.reading.rounds import Rounds
from gapft_harness.report.rendering.blocks import Block, Text
from gapft_harness.report.rendering.wording import condition_name, format_count, percent, points
from gapft_harness.report.sections.comparison import split_by_state

TITLE = "Rounds"

_points = partial(points, digits=2)


@dataclass(frozen=True, slots=True)
class RoundStep:
    """One step from a model to the next, or the sum of all steps.

    Attributes:
        round: the round's number; None for a sum.
        label: the step, for readers.
        pass_at_1: A of the model after the step.
        terms: the change by the states of the first source.
        condition: the condition of this run's last step and of a sum; else empty.
    """

    round: int | None
    label: str
    pass_at_1: Fraction
    terms: Terms
    condition: str = ""


def list_steps(rounds: Rounds, conditions: Sequence[str]) -> list[RoundStep]:
    """List the steps of the earlier rounds, then for each condition its step and the sum.

    Args:
        rounds: the rounds.
        conditions: this run's conditions; the figures of one are means over its seeds.
    """
    chain = [decodes for entry in rounds.earlier for decodes in (entry.source, entry.trained)]
    chain.append(rounds.source)
    steps = []
    for number, (model, terms) in enumerate(
        zip(chain[1:], decompose_chain(rounds.states, chain), strict=True)
    ):
        place, is_again = divmod(number, 2)
        label = "decoded again" if is_again else rounds.earlier[place].facts["arm"]
        steps.append(RoundStep(place + 1 + is_again, label, model.pass_at_1, terms))
    last_round = len(rounds.earlier) + 1
    for name in conditions:
        models = [decodes for arm, decodes in rounds.arms.items() if arm.condition == name]
        model = Decodes.pool(models)
        own = decompose_step(rounds.states, rounds.source, model)
        total = decompose_step(rounds.states, chain[0], model)
        title = condition_name(name)
        steps += [
            RoundStep(last_round, title, model.pass_at_1, own, name),
            RoundStep(None, f"sum, {title}", model.pass_at_1, total, name),
        ]
    return steps


_STEP = (
    "the arm that the next round started from, this run's conditions (mean over seeds), and sums "
    "of all steps; `decoded again`: the same model as source of the next round"
)
_TERM = "the change of Pass@1 in points by the state under the source of the first round"


def _build_term_column(state: str) -> Column[RoundStep]:
    return Column("", _TERM, lambda row: split_by_state(row.terms)[state], state, _points)


ROUNDS: tuple[Column[RoundStep], ...] = (
    Column("", _STEP, lambda row: row.label, "step"),
    Column("", "", lambda row: row.round, "round"),
    Column("", "", lambda row: row.pass_at_1, "Pass@1", percent),
    Column("", _TERM, lambda row: row.terms.total, "change", _points),
    *map(_build_term_column, ("S", "U", "G")),
)


def build_blocks(rounds: Rounds, inputs: ReportInputs) -> list[Block]:
    """Build the section: a sentence, and the steps folded."""
    counts = {state: int((rounds.states == state).sum()) for state in ("G", "S", "U")}
    first, last = rounds.earlier[0].facts, rounds.earlier[-1].facts
    states = ", ".join(f"{state} {format_count(count)}" for state, count in counts.items())
    text = (
        f"Round {len(rounds.earlier) + 1}: the source is {last['arm']} of the run "
        f"{last['recipe']}, merged into its base. The source of round 1 (run {first['recipe']}) "
        f"solved {percent(rounds.earlier[0].source.pass_at_1)} of the audit ({states}). The steps "
        "below use these states and add up exactly to the change since then."
    )
    note = (
        "In points. Decoded again: this model as the source of the next round; a difference comes "
        "from numerics or settings of decoding, not from training. G may also gain."
    )
    frame = Frame(ROUNDS, list_steps(rounds, inputs.conditions))
    return [Text(text), frame.table(note, summary="The change of every round, by state")]


def build_content(rounds: Rounds, conditions: Sequence[str]) -> dict[str, Any]:
    """Build the entry of results.json; it contains no path."""
    steps = list_steps(rounds, conditions)
    earlier: list[dict[str, Any]] = []
    for number, entry in enumerate(rounds.earlier):
        trained, again = steps[2 * number : 2 * number + 2]
        facts = entry.facts
        earlier.append(
            {
                "round": trained.round,
                "recipe": facts["recipe"],
                "arm": facts["arm"],
                "base_sha256": facts["base_sha256"],
                "adapter_sha256": facts["adapter_sha256"],
                **_build_step(trained),
                "decoded_again": _build_step(again),
            }
        )
    own_steps = steps[2 * len(rounds.earlier) :]
    return {
        "states": {state: int((rounds.states == state).sum()) for state in ("G", "S", "U")},
        "pass_at_1": float(rounds.earlier[0].source.pass_at_1),
        "earlier": earlier,
        "conditions": {
            step.condition: {**_build_step(step), "sum": _build_step(total)}
            for step, total in zip(own_steps[::2], own_steps[1::2], strict=True)
        },
    }


def _build_step(step: RoundStep) -> dict[str, Any]:
    terms = {state: float(term) for state, term in split_by_state(step.terms).items()}
    return {"pass_at_1": float(step.pass_at_1), "change": float(step.terms.total), "terms": terms}
