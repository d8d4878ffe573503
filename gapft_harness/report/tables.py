"""tables/*.csv: the data behind the report, unrounded, one file for each kind of row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from gapft_harness.core.errors import PluginError
from gapft_harness.report.findings.cases import changes
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.frame import Frame, Rows
from gapft_harness.report.reading.columns import plain_gold
from gapft_harness.report.reading.inputs import STATUSES, ReportInputs
from gapft_harness.report.sections import budgets, comparison, replicates, search
from gapft_harness.report.sections.provenance import flat

TableOf = Callable[[ReportInputs, Findings], Rows]


def all_tables(inputs: ReportInputs, findings: Findings) -> Iterator[tuple[str, Rows]]:
    """Yield (file name, rows) for every table of a run.

    Raises:
        PluginError: two tables have the same name.
    """
    audits = [(each.name, each.inputs, findings.further[each.name]) for each in inputs.further]
    names = set(_OF_CELLS | _OF_RUN)
    for name, table in (_OF_CELLS | _OF_RUN).items():
        yield name, table(inputs, findings)
    for name, table in (_OF_CELLS | _OF_RUN).items():
        if audits and name not in _NO_AUDITS:
            names.add(f"audits_{name}")
            yield f"audits_{name}", _joined("audit", table, audits)
    if findings.replicates:
        names.add("replicates.csv")
        yield "replicates.csv", replicates.frame_seeds(findings).csv()
    for of in findings.parts:
        for name, rows in of.part.tables(inputs, findings, of.found):
            if name in names:
                raise PluginError(f"two tables of the report are named {name!r}: rename one")
            names.add(name)
            yield name, rows


def tables_of_cells(
    cells: Sequence[tuple[str, ReportInputs, Findings]],
) -> Iterator[tuple[str, Rows]]:
    """Yield the tables of several runs, joined, with a column ``cell`` for the run's cell."""
    for name, table in _OF_CELLS.items():
        yield name, _joined("cell", table, cells)


def _joined(
    column: str, table: TableOf, audits: Iterable[tuple[str, ReportInputs, Findings]]
) -> Rows:
    """Join the rows of one table for several audits or cells; the first column has the name."""
    for place, (name, inputs, findings) in enumerate(audits):
        head, *rows = table(inputs, findings)
        if not place:
            yield column, *head
        yield from ((name, *row) for row in rows)


def _conditions(inputs: ReportInputs, findings: Findings) -> Rows:
    rows = comparison.models(findings, inputs.k)[1:]
    return Frame([*comparison.ACCURACY, *comparison.RATES], rows).csv()


def _seeds(inputs: ReportInputs, findings: Findings) -> Rows:
    columns = [*budgets.ARM, *budgets.COUNTS, *budgets.BUDGET]
    return Frame(columns, budgets.arms(findings)).csv()


def _contrasts(inputs: ReportInputs, findings: Findings) -> Rows:
    return Frame(comparison.CONTRASTS, [(findings, of) for of in findings.contrasts]).csv()


def _curve(inputs: ReportInputs, findings: Findings) -> Rows:
    yield "k", "pass_at_k"
    for k, rate in findings.source.curve.items():
        yield k, float(rate)


def _states(inputs: ReportInputs, findings: Findings) -> Rows:
    return Frame(search.STATES, search.splits(findings)).csv()


def _training(inputs: ReportInputs, findings: Findings) -> Rows:
    """Yield the trainer's facts on every arm, one fact in a row: trainers report different facts.

    Includes only the report's arms: a run may have trained conditions that its recipe no longer
    has. Measured times are only in the manifest, so that two runs give the same tables.
    """
    yield "arm", "fact", "value"
    for trained in inputs.arms:
        name = trained.arm.name
        for key, value in flat(inputs.training.get(name, {})):
            if "second" not in key:
                yield name, key, value


def _problems(inputs: ReportInputs, findings: Findings) -> Rows:
    yield "problem_id", "state", "passing_samples", "source_verdict", "gold", "prompt"
    audit = inputs.audit
    for position, problem_id in enumerate(audit.ids):
        yield (
            problem_id,
            audit.states[position],
            int(audit.verdicts.passing[position]),
            STATUSES[int(audit.greedy[position])],
            plain_gold(audit.golds[position]),
            audit.prompts[position],
        )


def _items(inputs: ReportInputs, findings: Findings) -> Rows:
    """Yield gained and lost problems of every arm, with the complete text before and after."""
    yield (
        "condition", "seed", "problem_id", "state", "change", "verdict_before", "verdict_after",
        "before", "after",
    )  # fmt: skip
    audit = inputs.audit
    for found in changes(inputs):
        arm, position = found.trained.arm, found.position
        yield (
            arm.condition,
            arm.seed,
            audit.ids[position],
            audit.states[position],
            found.change,
            STATUSES[int(audit.greedy[position])],
            STATUSES[int(found.trained.statuses[position])],
            audit.greedy_texts[position],
            found.trained.texts[position],
        )


#: The tables of one run that are also joined over the cells of a study.
_OF_CELLS: dict[str, TableOf] = {
    "conditions.csv": _conditions,
    "seeds.csv": _seeds,
    "contrasts.csv": _contrasts,
    "source_pass_at_k.csv": _curve,
    "states.csv": _states,
}
_OF_RUN: dict[str, TableOf] = {
    "training.csv": _training,
    "problems.csv": _problems,
    "items.csv": _items,
}
#: Tables that do not depend on an audit. The others are repeated for further audits, as
#: ``audits_NAME``.
_NO_AUDITS = ("states.csv", "training.csv")
