"""Of a run: what was judged again, as blocks and as figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from gapft_harness.core.records import GREEDY, SOURCE, Arm, State
from gapft_harness.rejudge.document import FILES, flip_sections, rule
from gapft_harness.rejudge.flips import Flip
from gapft_harness.rejudge.run.conclusions import Conclusion, Range
from gapft_harness.rejudge.run.judged import RunJudged
from gapft_harness.rejudge.run.sets import ArmSets
from gapft_harness.rejudge.run.tables import Tally
from gapft_harness.report.figures.contrasts import named
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Block, Bullets, Section, Table, Text
from gapft_harness.report.rendering.document import Document
from gapft_harness.report.rendering.wording import condition_name, percent, points, whole
from gapft_harness.report.results import on_audit
from gapft_harness.report.sections import comparison

_STATES: tuple[State, ...] = ("G", "S", "U")


def document(of: RunJudged) -> Document:
    """All but the flips, which are written as they come."""
    return Document(
        title="Judged again",
        sections=sections(of),
        names=FILES[:3],
        results=results(of),
        tables={FILES[3]: Frame(TALLIES, [*of.tallies.items()]).csv()},
    )


def sections(of: RunJudged) -> list[Section]:
    """The whole of it."""
    responses = sum(tally.responses for tally in of.tallies.values())
    lead = (
        f"{whole(responses)} responses of {of.path}, judged again by {of.choice.now}, against the "
        f"run's own {of.was}{_taken(of)}: {whole(of.flips.right)} wrong ones are right now, "
        f"{whole(of.flips.wrong)} right ones are wrong now"
    )
    warning = of.reasons.warning(hint="")
    found = [
        Section(
            "",
            [
                Text(f"{lead}.", "lead"),
                *([Text(f"{of.choice.now}: {warning}", "warning")] if warning else []),
                *([Text(said) for said in _told(of)]),
                *([Bullets(of.left)] if of.left else []),
            ],
        )
    ]
    if of.conclusions:
        found.append(Section("What becomes of each conclusion", list(_conclusions(of))))
    found += [
        Section("Pass@1 under both rules", [_pass_at_1(of)]),
        Section("Evidence states under both rules", list(_states(of))),
        Section("Training sets under both rules", list(_sets(of))),
    ]
    if of.conclusions:
        parts = comparison.decomposition(of.findings[1])
        found.append(Section("Where the change comes from, under the new rule", [parts]))
    return [*found, Section("Verdicts", [_tallies(of)]), *flip_sections(of.flips, _place)]


def _taken(of: RunJudged) -> str:
    """Where the earlier verdicts are not those of the run's own rule."""
    if not of.taken:
        return ""
    return (
        f" (for the source's responses on {' and '.join(of.taken)}: the imported files' verdicts)"
    )


def _told(of: RunJudged) -> Iterator[str]:
    """What comes of it, in sentences."""
    if not of.flips.right + of.flips.wrong:
        yield "Both rules judge every response alike: nothing of the run changes."
        return
    if of.conclusions:
        changed = [one for one in of.conclusions if one.verdict not in ("holds", "stays open")]
        count = f"{whole(len(changed))} of {whole(len(of.conclusions))} contrasts"
        yield (
            f"For the adapters as they were trained, {count} of the report say something else: "
            "they lie on the other side of zero, or their interval excludes it no more, or now."
            if changed
            else "For the adapters as they were trained, every contrast of the report stays on its "
            "side of zero, or unresolved; their sizes may differ."
        )
    if of.sets.arms:
        others = sum(one.differs for one in of.sets.arms.values())
        yield (
            f"{whole(others)} of {whole(len(of.sets.arms))} arms would have been trained on other "
            "sets; what those would decide is not known without training."
            if others
            else "Every arm would have been trained on the set that it was trained on."
        )


def _conclusions(of: RunJudged) -> Iterator[Block]:
    rows = [(of.findings[0], one) for one in of.conclusions]
    note = (
        "Differences of Pass@1 in percentage points, with 95% intervals: under the run's rule, and "
        "under the new one. Both are of the adapters as they were trained, and exact. Resolved: "
        "the interval excludes zero."
    )
    if not all(of.findings[0].fair(one.was) for one in of.conclusions):
        note += " * Not budget-matched."
    yield Frame(CONCLUSIONS, rows).table(note, words=2)
    yield Text("How far they can be trusted without training again:")
    note = (
        "In percentage points, the least and the most. Any rule between: under all rules that "
        "judge as both do wherever these agree. Trained again: if each arm were trained on the set "
        "that the new rule gives it. Where an adapter of that set is there, its Pass@1 is known; "
        "else it may be anything from 0 to 100%."
    )
    if any(one.retrained and one.retrained[0] != one.retrained[1] for one in of.conclusions):
        note += (
            " So adapters of the new sets keep the sign of “is” as long as training again moves "
            "the difference by less than its size there; one point is "
            f"{of.findings[1].source.n / 100:g} decisions of every seed."
        )
    yield Frame(RANGES, rows).table(note)


def _range(of: Range) -> str:
    return f"{points(of[0])} to {points(of[1])}" if of[0] != of[1] else points(of[0])


def _retrained(one: Conclusion) -> str:
    return "–" if one.retrained is None else _range(one.retrained)


NamedConclusion = tuple[Findings, Conclusion]
_CONTRAST = "of a run: whether it still holds"
_DELTA = "its difference under both rules"
_AGAIN = "[least and most](comparing.md#of-a-run)"
CONTRAST: Column[NamedConclusion] = Column(
    "", _CONTRAST, lambda row: named(row[0], row[1].was), "contrast"
)


def _verdict(row: NamedConclusion) -> str:
    return row[1].verdict + ", other sign" * row[1].turned


def _both_ends(row: NamedConclusion) -> list[float] | None:
    between = row[1].retrained
    return None if between is None else [float(end) for end in between]


CONCLUSIONS: tuple[Column[NamedConclusion], ...] = (
    Column("a", "", lambda row: row[1].was.a),
    Column("b", "", lambda row: row[1].was.b),
    CONTRAST,
    Column("", _CONTRAST, _verdict, "conclusion"),
    Column("was", _DELTA, lambda row: row[1].was.delta, "was", points),
    Column("", _DELTA, lambda row: row[1].was.interval, "95% interval", wording.points_interval),
    Column("is", _DELTA, lambda row: row[1].now.delta, "is", points),
    Column("", _DELTA, lambda row: row[1].now.interval, "95% interval", wording.points_interval),
    Column("verdict", "", lambda row: row[1].verdict),
    Column("other_sign", "", lambda row: row[1].turned),
    Column("agreeing", "", lambda row: row[1].agreeing),
    Column("retrained", "", _both_ends),
)
RANGES: tuple[Column[NamedConclusion], ...] = (
    CONTRAST,
    Column("", _DELTA, lambda row: row[1].now.delta, "is", points),
    Column("", _AGAIN, lambda row: _range(row[1].agreeing), "any rule between"),
    Column("", _AGAIN, lambda row: _retrained(row[1]), "trained again"),
)


@dataclass(frozen=True, slots=True)
class Rates:
    """A model's Pass@1 under both rules, or the source's Pass@K."""

    name: str
    was: Fraction
    now: Fraction
    intervals: tuple[str, str] = ("", "")


def _pass_at_1(of: RunJudged) -> Table:
    before, after = of.findings
    k = of.inputs[0].k
    rows = [
        Rates("source, greedy", before.source.pass_at_1, after.source.pass_at_1),
        Rates(f"source, Pass@{k}", before.source.curve[k], after.source.curve[k]),
    ]
    for name, was in before.conditions.items():
        now = after.conditions[name]
        low, high = map(wording.percent_interval, (was.interval, now.interval))
        rates = was.mean.pass_at_1, now.mean.pass_at_1
        rows.append(Rates(condition_name(name), *rates, (low, high)))
    note = (
        "Of the audit. A condition's is that of its adapters as they were trained, mean over "
        "seeds, with its 95% interval."
    )
    return Frame(PASS_AT_1, rows).table(note)


_PASS = "Pass@1 under both rules"
PASS_AT_1: tuple[Column[Rates], ...] = (
    Column("", _PASS, lambda row: row.name, "model"),
    Column("", _PASS, lambda row: row.was, "was", percent),
    Column("", _PASS, lambda row: row.intervals[0], "95% interval"),
    Column("", _PASS, lambda row: row.now, "is", percent),
    Column("", _PASS, lambda row: row.intervals[1], "95% interval"),
    Column("", _PASS, lambda row: row.now - row.was, "difference", points),
)


def _crossed(of: RunJudged) -> dict[str, dict[State, dict[State, int]]]:
    """By split, the problems of each state under the run's rule by that under the new one."""
    return {
        split: {was: {now: found.get((was, now), 0) for now in _STATES} for was in _STATES}
        for split, found in of.states.items()
    }


def _states(of: RunJudged) -> Iterator[Block]:
    rows = [
        (f"{split}, was {was}", moved)
        for split, crossed in _crossed(of).items()
        for was, moved in crossed.items()
    ]
    note = (
        "Problems. G: the source's greedy decode is right; S: a sample alone is; U: none is. A row "
        "has the problems of one state under the run's rule, by their states under the new one."
    )
    yield Frame(STATES, rows).table(note)
    if of.stopped:
        yield Text(
            f"{whole(of.stopped)} problems of the pool count as U although search stopped before "
            f"its {of.inputs[0].k} samples, at a success that is none under the new rule: further "
            "samples might have recovered them. The sets below are chosen without these, and "
            "nothing is said of training again.",
            "warning",
        )


StateRow = tuple[str, Mapping[State, int]]
_MOVED = "problems of the row's earlier state by the new one"
STATES: tuple[Column[StateRow], ...] = (
    Column("", "", lambda row: row[0], ""),
    Column("", _MOVED, lambda row: row[1]["G"], "is G", whole),
    Column("", _MOVED, lambda row: row[1]["S"], "is S", whole),
    Column("", _MOVED, lambda row: row[1]["U"], "is U", whole),
    Column("", _MOVED, lambda row: sum(row[1].values()), "all", whole),
)


def _sets(of: RunJudged) -> Iterator[Block]:
    before, after = of.sets.n
    if of.sets.refused:
        yield Text(f"gapft run would have stopped under the new rule: {of.sets.refused}", "warning")
        return
    yield Text(
        f"The budget has n = {whole(before)} slots, and would have "
        f"{'as many' if before == after else whole(after)}."
    )
    if not after:
        yield Text("Under the new rule search recovers nothing: there is nothing to train on.")
    elif not before:
        yield Text("Under the run's own rule there was nothing to train on: no arm was trained.")
    if not of.sets.arms:
        return
    yield Frame(SETS, [*of.sets.arms.items()]).table(
        "Chosen by the run's own selectors with its seeds. Same: one problem, with the same "
        "prompt and response ids."
    )


def _arm(arm: Arm) -> str:
    return f"{condition_name(arm.condition)}, seed {arm.seed}"


_SIZE = "size of its training set under both rules"
_KEPT = "examples that stay, go and come"
SETS: tuple[Column[tuple[Arm, ArmSets]], ...] = (
    Column("", _SIZE, lambda row: _arm(row[0]), "arm"),
    Column("n", "", lambda row: (row[1].before, row[1].after)),
    Column("", _SIZE, lambda row: row[1].before, "examples", whole),
    Column("", _SIZE, lambda row: row[1].after, "would be", whole),
    Column("same", _KEPT, lambda row: row[1].same, "same", whole),
    Column("dropped", _KEPT, lambda row: row[1].dropped, "dropped", whole),
    Column("new", _KEPT, lambda row: row[1].new, "new", whole),
    Column("differs", "", lambda row: row[1].differs),
)


def _tallies(of: RunJudged) -> Table:
    arms = {one.arm.name: one.arm for one in of.inputs[0].arms}
    rows = [
        (_arm(arms[name]) if name in arms else name, tally) for name, tally in of.tallies.items()
    ]
    note = "Audit and pool: the source's greedy responses and samples. Arms: their audit decisions."
    return Frame(TALLIES, rows).table(note)


_MANY = "how many"
TALLIES: tuple[Column[tuple[str, Tally]], ...] = (
    Column("responses", _MANY, lambda row: row[0], "responses"),
    Column("all", _MANY, lambda row: row[1].responses, "all", whole),
    Column("was_right", _MANY, lambda row: row[1].was_right, "were right", whole),
    Column("is_right", _MANY, lambda row: row[1].is_right, "are right", whole),
    Column("right_now", _MANY, lambda row: row[1].right_now, "right now", whole),
    Column("wrong_now", _MANY, lambda row: row[1].wrong_now, "wrong now", whole),
)


def _place(flip: Flip) -> str:
    """Where a flip is: of the source which response, of an arm its only one."""
    sample = "" if flip.index == GREEDY else f", sample {flip.index + 1}"
    source = f"{SOURCE}, " if flip.where in ("pool", "audit") else ""
    return f" ({source}{flip.where}{sample})"


def results(of: RunJudged) -> dict[str, Any]:
    """The content of results.json (schema 1; keys in docs/comparing.md)."""
    return {
        "schema": 1,
        "run": str(of.path),
        "now": rule(of.choice.now),
        "was": {**(rule(of.was) or {}), **({"imported": dict(of.taken)} if of.taken else {})},
        "responses": sum(tally.responses for tally in of.tallies.values()),
        "verdicts": dict(sorted(of.reasons.statuses.items())),
        "right_now": of.flips.right,
        "wrong_now": of.flips.wrong,
        "tables": {name: tally.counts() for name, tally in of.tallies.items()},
        "states": _crossed(of),
        "stopped_early": of.stopped,
        "n": list(of.sets.n),
        "refused": of.sets.refused or None,
        "arms": {
            arm.name: figures
            for arm, figures in zip(
                of.sets.arms, Frame(SETS, [*of.sets.arms.items()]).entries(), strict=True
            )
        },
        "before": on_audit(of.inputs[0], of.findings[0]),
        "after": on_audit(of.inputs[1], of.findings[1]),
        "conclusions": Frame(CONCLUSIONS, [(of.findings[0], c) for c in of.conclusions]).entries(),
        "notes": list(of.left),
    }
