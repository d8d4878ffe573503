"""What ``gapft export --to`` takes, and the folder that it writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.exporting.adapters import write_adapters
from gapft_harness.exporting.dataset import write_dataset
from gapft_harness.exporting.formats import FORMATS, write_training_sets
from gapft_harness.exporting.inspect_logs import write_inspect_logs
from gapft_harness.exporting.tables import reported, require_new, write_tables
from gapft_harness.report.document import build
from gapft_harness.report.rendering.blocks import Section
from gapft_harness.run_directory.binding import require_recorded
from gapft_harness.run_directory.directory import RunDirectory


@dataclass(frozen=True, slots=True)
class Asked:
    """What is exported, and where to.

    Attributes:
        out: a folder; it must be empty or not there.
        conditions: only these; none: all.
        seeds: likewise.
        plugin_files: files given by ``--plugin``.
    """

    out: Path
    conditions: Sequence[str] = ()
    seeds: Sequence[int] = ()
    plugin_files: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ExportKind:
    """One kind of export.

    Attributes:
        write: writes it, and gives the files.
        of_arms: whether ``--condition`` and ``--seed`` choose among what it writes.
    """

    write: Callable[[RunDirectory, Asked], list[Path]]
    of_arms: bool


def export(run: RunDirectory, to: str, asked: Asked) -> list[Path]:
    """Writes what is sealed in a run in a form that others read.

    Args:
        run: the run.
        to: of ``KINDS``.
        asked: what, and where to.

    Returns:
        The files.

    Raises:
        UserError: an unknown kind, a folder that holds something, arms where there are none to
            choose, something is not there yet or was changed after it was sealed, or the recipe
            is not the manifest's.
    """
    kind = _checked(to, asked)
    require_recorded(run.path, run.recipe, run.manifest())
    return kind.write(run, asked)


def export_study(sections: Callable[[], Sequence[Section]], to: str, asked: Asked) -> list[Path]:
    """Writes the tables of a study's report.

    Args:
        sections: computes the report's sections.
        to: ``tables``.
        asked: where to.

    Returns:
        The files.

    Raises:
        UserError: as ``export``; or another kind, which is of a run.
    """
    _checked(to, asked)
    if to != "tables":
        raise UserError(f"--to {to}: is of a run; give a cell's run, or of a study --to tables")
    return write_tables(sections(), asked.out)


def _checked(to: str, asked: Asked) -> ExportKind:
    if to not in KINDS:
        raise UserError(f"--to {to}: {did_you_mean(to, KINDS)}")
    kind = KINDS[to]
    if not kind.of_arms and (asked.conditions or asked.seeds):
        raise UserError(f"--to {to}: is of the whole run; leave out --condition and --seed")
    require_new(asked.out)
    return kind


def _training_sets(to: str, run: RunDirectory, asked: Asked) -> list[Path]:
    return write_training_sets(run, to, asked.out, asked.conditions, asked.seeds)


def _tables(run: RunDirectory, asked: Asked) -> list[Path]:
    return write_tables(build(*reported(run, asked.plugin_files)), asked.out)


def _adapters(run: RunDirectory, asked: Asked) -> list[Path]:
    return write_adapters(run, asked.out, asked.conditions, asked.seeds, asked.plugin_files)


def _inspect(run: RunDirectory, asked: Asked) -> list[Path]:
    return write_inspect_logs(run, asked.out, asked.conditions, asked.seeds)


def _dataset(run: RunDirectory, asked: Asked) -> list[Path]:
    return write_dataset(run, asked.out)


#: By the name that ``--to`` takes.
KINDS = {
    **{to: ExportKind(partial(_training_sets, to), True) for to in FORMATS},
    "tables": ExportKind(_tables, False),
    "adapters": ExportKind(_adapters, True),
    "inspect": ExportKind(_inspect, True),
    "dataset": ExportKind(_dataset, False),
}
