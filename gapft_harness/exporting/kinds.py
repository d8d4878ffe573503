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
from gapft_harness.exporting.prompt_sets import PROMPT_FORMATS, write_prompt_set
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
        states: only problems in these; none: all.
        plugin_files: files given by ``--plugin``.
    """

    out: Path
    conditions: Sequence[str] = ()
    seeds: Sequence[int] = ()
    states: Sequence[str] = ()
    plugin_files: Sequence[str] = ()


#: The options that not every kind takes, by what they are in ``Asked``.
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
        write: writes it, and gives the files.
        takes: of ``_OPTIONS``, those that it takes.
    """

    write: Callable[[RunDirectory, Asked], list[Path]]
    takes: Sequence[str] = ()


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
    for name, option in _OPTIONS.items():
        if getattr(asked, name) and name not in kind.takes:
            takers = ", ".join(other for other, one in KINDS.items() if name in one.takes)
            raise UserError(f"--to {to}: takes no {option}, which is for {takers}; leave it out")
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


#: By the name that ``--to`` takes.
KINDS = {
    **{to: ExportKind(partial(_training_sets, to), _ARMS) for to in FORMATS},
    **{to: ExportKind(partial(_prompt_set, to), ["states"]) for to in PROMPT_FORMATS},
    "tables": ExportKind(_tables),
    "adapters": ExportKind(_adapters, _ARMS),
    "dataset": ExportKind(_dataset),
}
