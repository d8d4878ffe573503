"""The kinds of ``gapft export --to``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.exporting.adapters import write_adapters
from gapft_harness.exporting.dataset import write_dataset
from gapft_harness.exporting.formats import FORMATS, write_training_sets
from gapft_harness.exporting.merged import write_merged_model
from gapft_harness.exporting.preference_pairs import write_preference_pairs
from gapft_harness.exporting.problem_choice import ProblemChoice, SolveRateBand
from gapft_harness.exporting.prompt_sets import PROMPT_FORMATS, write_prompt_set
from gapft_harness.exporting.tables import compute_report, require_new, write_tables
from gapft_harness.report.document import build_sections
from gapft_harness.report.rendering.blocks import Section
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recipe_changes import require_recorded_recipe


@dataclass(frozen=True, slots=True)
class ExportChoice:
    """The choices of an export.

    Attributes:
        out: the folder to write; it must be empty or missing.
        conditions: only these conditions; empty: all.
        seeds: only these seeds; empty: all.
        states: only problems in these states; empty: all.
        plugin_files: files given by ``--plugin``.
        solve_rates: only problems whose solve rate is in this band; None: all.
        arm: the arm to merge; empty: none.
    """

    out: Path
    conditions: Sequence[str] = ()
    seeds: Sequence[int] = ()
    states: Sequence[str] = ()
    plugin_files: Sequence[str] = ()
    solve_rates: SolveRateBand | None = None
    arm: str = ""

    @property
    def problems(self) -> ProblemChoice:
        """The problems of the pool to export."""
        return ProblemChoice(self.states, self.solve_rates)


#: Options that only some kinds accept, by their fields in ``ExportChoice``.
_OPTIONS = {
    "conditions": "--condition",
    "seeds": "--seed",
    "states": "--states",
    "solve_rates": "--solve-rate",
    "arm": "--arm",
}
_ARM_OPTIONS = ("conditions", "seeds")
_SET_OPTIONS = (*_ARM_OPTIONS, "solve_rates")
_PROBLEM_OPTIONS = ("states", "solve_rates")


@dataclass(frozen=True, slots=True)
class ExportKind:
    """One kind of export.

    Attributes:
        write: writes the export, and returns the paths of the files.
        options: the keys of ``_OPTIONS`` that it accepts.
    """

    write: Callable[[RunDirectory, ExportChoice], list[Path]]
    options: Sequence[str] = ()


def export(run: RunDirectory, to: str, choice: ExportChoice) -> list[Path]:
    """Export sealed data of a run.

    Args:
        run: the run.
        to: a key of ``KINDS``.
        choice: the choices.

    Returns:
        The paths of the files.

    Raises:
        UserError: the kind is unknown, the folder is not empty, an option does not apply to the
            kind, a file is missing or was changed after it was sealed, or the recipe differs from
            the manifest's.
    """
    kind = _check_choice(to, choice)
    require_recorded_recipe(run.path, run.recipe, run.manifest())
    return kind.write(run, choice)


def export_study(
    sections: Callable[[], Sequence[Section]], to: str, choice: ExportChoice
) -> list[Path]:
    """Export the tables of a study's report.

    Args:
        sections: computes the report's sections.
        to: ``tables``; other kinds need a run.
        choice: the choices.

    Returns:
        The paths of the files.

    Raises:
        UserError: as in ``export``, or the kind needs a run.
    """
    _check_choice(to, choice)
    if to != "tables":
        raise UserError(
            f"--to {to}: needs a run, but this is a study; give a cell's run, or use --to tables"
        )
    return write_tables(sections(), choice.out)


def _check_choice(to: str, choice: ExportChoice) -> ExportKind:
    if to not in KINDS:
        raise UserError(f"--to {to}: {did_you_mean(to, KINDS)}")
    kind = KINDS[to]
    for name, option in _OPTIONS.items():
        if getattr(choice, name) and name not in kind.options:
            kinds = ", ".join(
                other for other, other_kind in KINDS.items() if name in other_kind.options
            )
            raise UserError(f"--to {to}: remove {option}; it applies only to {kinds}")
    require_new(choice.out)
    return kind


def _export_training_sets(to: str, run: RunDirectory, choice: ExportChoice) -> list[Path]:
    return write_training_sets(
        run, to, choice.out, choice.conditions, choice.seeds, choice.solve_rates
    )


def _export_prompt_set(to: str, run: RunDirectory, choice: ExportChoice) -> list[Path]:
    return write_prompt_set(run, to, choice.out, choice.problems)


def _export_pairs(run: RunDirectory, choice: ExportChoice) -> list[Path]:
    return write_preference_pairs(run, choice.out, choice.problems)


def _export_tables(run: RunDirectory, choice: ExportChoice) -> list[Path]:
    return write_tables(build_sections(*compute_report(run, choice.plugin_files)), choice.out)


def _export_adapters(run: RunDirectory, choice: ExportChoice) -> list[Path]:
    return write_adapters(run, choice.out, choice.conditions, choice.seeds, choice.plugin_files)


def _export_merged(run: RunDirectory, choice: ExportChoice) -> list[Path]:
    return write_merged_model(run, choice.out, choice.arm)


def _export_dataset(run: RunDirectory, choice: ExportChoice) -> list[Path]:
    return write_dataset(run, choice.out)


#: Kinds by their value of ``--to``.
KINDS = {
    **{to: ExportKind(partial(_export_training_sets, to), _SET_OPTIONS) for to in FORMATS},
    **{to: ExportKind(partial(_export_prompt_set, to), _PROBLEM_OPTIONS) for to in PROMPT_FORMATS},
    "trl-dpo": ExportKind(_export_pairs, _PROBLEM_OPTIONS),
    "tables": ExportKind(_export_tables),
    "adapters": ExportKind(_export_adapters, _ARM_OPTIONS),
    "dataset": ExportKind(_export_dataset),
    "merged": ExportKind(_export_merged, ("arm",)),
}
