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
from gapft_harness.exporting.prompt_sets import PROMPT_FORMATS, write_prompt_set
from gapft_harness.exporting.tables import reported, require_new, write_tables
from gapft_harness.report.document import build
from gapft_harness.report.rendering.blocks import Section
from gapft_harness.run_directory.binding import require_recorded
from gapft_harness.run_directory.directory import RunDirectory


@dataclass(frozen=True, slots=True)
class Asked:
    """The choices of an export.

    Attributes:
        out: the folder to write; it must be empty or missing.
        conditions: only these conditions; empty: all.
        seeds: only these seeds; empty: all.
        states: only problems in these states; empty: all.
        plugin_files: files given by ``--plugin``.
    """

    out: Path
    conditions: Sequence[str] = ()
    seeds: Sequence[int] = ()
    states: Sequence[str] = ()
    plugin_files: Sequence[str] = ()


#: Options that only some kinds accept, by their fields in ``ExportChoice``.
_OPTIONS = {
    "conditions": "--condition",
    "seeds": "--seed",
    "states": "--states",
}
_ARMS = ("conditions", "seeds")


@dataclass(frozen=True, slots=True)
class ExportKind:
    """One kind of export.

    Attributes:
        write: writes the export, and returns the paths of the files.
        options: the keys of ``_OPTIONS`` that it accepts.
    """

    write: Callable[[RunDirectory, Asked], list[Path]]
    takes: Sequence[str] = ()


def export(run: RunDirectory, to: str, asked: Asked) -> list[Path]:
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
    kind = _checked(to, asked)
    require_recorded(run.path, run.recipe, run.manifest())
    return kind.write(run, asked)


def export_study(sections: Callable[[], Sequence[Section]], to: str, asked: Asked) -> list[Path]:
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
    _checked(to, asked)
    if to != "tables":
        raise UserError(
            f"--to {to}: needs a run, but this is a study; give a cell's run, or use --to tables"
        )
    return write_tables(sections(), asked.out)


def _checked(to: str, asked: Asked) -> ExportKind:
    if to not in KINDS:
        raise UserError(f"--to {to}: {did_you_mean(to, KINDS)}")
    kind = KINDS[to]
    for name, option in _OPTIONS.items():
        if getattr(asked, name) and name not in kind.takes:
            takers = ", ".join(other for other, one in KINDS.items() if name in one.takes)
            raise UserError(f"--to {to}: remove {option}; it applies only to {takers}")
    require_new(asked.out)
    return kind


def _training_sets(to: str, run: RunDirectory, asked: Asked) -> list[Path]:
    return write_training_sets(run, to, asked.out, asked.conditions, asked.seeds)


def _prompt_set(to: str, run: RunDirectory, asked: Asked) -> list[Path]:
    return write_prompt_set(run, to, asked.out, asked.states)


def _tables(run: RunDirectory, asked: Asked) -> list[Path]:
    return write_tables(build(*reported(run, asked.plugin_files)), asked.out)


def _adapters(run: RunDirectory, asked: Asked) -> list[Path]:
    return write_adapters(run, asked.out, asked.conditions, asked.seeds, asked.plugin_files)


def _dataset(run: RunDirectory, asked: Asked) -> list[Path]:
    return write_dataset(run, asked.out)


#: Kinds by their value of ``--to``.
KINDS = {
    **{to: ExportKind(partial(_training_sets, to), _ARMS) for to in FORMATS},
    **{to: ExportKind(partial(_prompt_set, to), ["states"]) for to in PROMPT_FORMATS},
    "tables": ExportKind(_tables),
    "adapters": ExportKind(_adapters, _ARMS),
    "dataset": ExportKind(_dataset),
}
