"""tables/*.csv: the data behind the report, unrounded, one file for each kind of row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from gapft_harness.core.errors import PluginError
from gapft_harness.report.findings.cases import find_changes
from gapft_harness.report.findings.computation import Findings
from gapft_harness.report.frame import Frame, Rows
from gapft_harness.report.reading.columns import format_gold
from gapft_harness.report.reading.inputs import STATUSES, ReportInputs
from gapft_harness.report.sections import budgets, comparison, replicates, search
from gapft_harness.report.sections.provenance import flatten

TableBuilder = Callable[[ReportInputs, Findings], Rows]


def build_tables(inputs: ReportInputs, findings: Findings) -> Iterator[tuple[str, Rows]]:
    """Yield (file name, rows) for every table of a run.

    Raises:
        PluginError: two tables have the same name.
    """
    names = set(_CELL_TABLES | _RUN_TABLES)
    for name, table in (_CELL_TABLES | _RUN_TABLES).items():
        yield name, table(inputs, findings)
    if findings.replicates:
        names.add("replicates.csv")
        yield "replicates.csv", replicates.frame_seeds(findings).csv()
    for part_findings in findings.parts:
        for name, rows in part_findings.part.tables(inputs, findings, part_findings.findings):
            if name in names:
                raise PluginError(f"two tables of the report are named {name!r}: rename one")
            names.add(name)
            yield name, rows


def build_cell_tables(
    cells: Sequence[tuple[str, ReportInputs, Findings]],
) -> Iterator[tuple[str, Rows]]:
    """Yield the tables of several runs, joined, with a column ``cell`` for the run's cell."""
    for name, table in _CELL_TABLES.items():
        yield name, _join_tables(table, cells)


def _join_tables(table: TableBuilder, cells: Iterable[tuple[str, ReportInputs, Findings]]) -> Rows:
    """Join the rows of one table for several cells; the first column has the cell's name."""
    for number, (name, inputs, findings) in enumerate(cells):
        header, *rows = table(inputs, findings)
        if not number:
            yield "cell", *header
        yield from ((name, *row) for row in rows)


def _build_conditions(inputs: ReportInputs, findings: Findings) -> Rows:
    rows = comparison.list_models(findings, inputs.k)[1:]
    return Frame([*comparison.ACCURACY, *comparison.RATES], rows).csv()


def _build_seeds(inputs: ReportInputs, findings: Findings) -> Rows:
    columns = [*budgets.ARM, *budgets.COUNTS, *budgets.BUDGET]
    return Frame(columns, budgets.list_arms(findings)).csv()


def _build_contrasts(inputs: ReportInputs, findings: Findings) -> Rows:
    return Frame(
        comparison.CONTRASTS, [(findings, contrast) for contrast in findings.contrasts]
    ).csv()


def _build_curve(inputs: ReportInputs, findings: Findings) -> Rows:
    yield "k", "pass_at_k", "maj_at_k"
    for k, rate in findings.source.curve.items():
        votes = findings.source.majority if k == inputs.k else None
        yield k, float(rate), "" if votes is None else votes


def _build_states(inputs: ReportInputs, findings: Findings) -> Rows:
    return Frame(search.STATES, search.list_splits(findings)).csv()


def _build_training(inputs: ReportInputs, findings: Findings) -> Rows:
    """Yield the trainer's facts on every arm, one fact in a row: trainers report different facts.

    Includes only the report's arms: a run may have trained conditions that its recipe no longer
    has. Measured times are only in the manifest, so that two runs give the same tables.
    """
    yield "arm", "fact", "value"
    for trained in inputs.arms:
        name = trained.arm.name
        for key, value in flatten(inputs.training.get(name, {})):
            if "second" not in key:
                yield name, key, value


def _build_problems(inputs: ReportInputs, findings: Findings) -> Rows:
    audit, deployed = inputs.audit, inputs.audit.deployed
    yield "problem_id", "state", "passing_samples", "source_verdict", "gold", "prompt"
    for position, problem_id in enumerate(audit.ids):
        yield (
            problem_id,
            audit.states[position],
            int(audit.verdicts.passing[position]),
            STATUSES[int(deployed.statuses[position])],
            format_gold(audit.golds[position]),
            audit.prompts[position],
        )


def _build_items(inputs: ReportInputs, findings: Findings) -> Rows:
    """Yield gained and lost problems of every arm, with the complete text before and after."""
    yield (
        "condition", "seed", "problem_id", "state", "change", "verdict_before",
        "verdict_after", "before", "after",
    )  # fmt: skip
    audit = inputs.audit
    for changed in find_changes(inputs):
        arm, position = changed.trained.arm, changed.position
        before, after = audit.deployed, changed.trained.deployed
        yield (
            arm.condition,
            arm.seed,
            audit.ids[position],
            audit.states[position],
            changed.change,
            STATUSES[int(before.statuses[position])],
            STATUSES[int(after.statuses[position])],
            before.texts[position],
            after.texts[position],
        )


#: The tables of one run that are also joined over the cells of a study.
_CELL_TABLES: dict[str, TableBuilder] = {
    "conditions.csv": _build_conditions,
    "seeds.csv": _build_seeds,
    "contrasts.csv": _build_contrasts,
    "source_pass_at_k.csv": _build_curve,
    "states.csv": _build_states,
}
_RUN_TABLES: dict[str, TableBuilder] = {
    "training.csv": _build_training,
    "problems.csv": _build_problems,
    "items.csv": _build_items,
}
