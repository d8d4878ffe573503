"""Open a run and read its tables as pyarrow tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory, list_splits
from gapft_harness.run_directory.layout import RunFile
from gapft_harness.run_directory.recorded import read_searches

if TYPE_CHECKING:
    import pyarrow as pa

#: The stage that writes each kind of table.
_STAGES = {
    "problems": "search",
    "responses": "search",
    "states": "states",
    "selections": "select",
    "decisions": "audit",
}


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """A run directory, opened for reading; each file is checked against its hash.

    Every table is a ``pyarrow.Table``; ``.to_pandas()`` converts it to a DataFrame. The first
    columns identify the file of a row: ``split``, or ``condition`` and ``training_seed``. The other
    columns are those of the files (``gapft_harness/run_directory/tables.py``). ``open_run`` creates
    a ``Run``.
    """

    directory: RunDirectory

    def __repr__(self) -> str:
        kinds = [place.kind for place in self._list_tables().values()]
        counts = ", ".join(f"{kinds.count(kind)} of {kind}" for kind in _STAGES if kind in kinds)
        return f"Run({str(self.path)!r}: finished tables: {counts or 'none yet'})"

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.directory.path

    @property
    def problems(self) -> pa.Table:
        """The problems of all splits: prompt, and gold and document as JSON text."""
        return self.read("problems")

    @property
    def responses(self) -> pa.Table:
        """The source model's responses with their verdicts; index -1 is the deployment decode."""
        return self.read("responses")

    @property
    def states(self) -> pa.Table:
        """The state of every problem (G, S or U), with the counts behind it."""
        return self.read("states")

    @property
    def selections(self) -> pa.Table:
        """The training sets of all arms in their order, as token ids."""
        return self.read("selections")

    @property
    def decisions(self) -> pa.Table:
        """Decodes with verdicts: those of the audited models, and those of experiments.

        ``of`` names other settings of a decode, such as ``scale-0.75``. In the rows that the report
        compares, it is empty; these are deployment decodes of trained models.
        """
        return self.read("decisions")

    def read(
        self, kind: str, columns: Sequence[str] | None = None, split: str | None = None
    ) -> pa.Table:
        """Read one kind of table, joined over all splits or arms.

        Args:
            kind: ``problems``, ``responses``, ``states``, ``selections`` or ``decisions``.
            columns: columns of the files; None: all. Token ids need most of the memory.
            split: read only this split; allowed for problems, responses and states.

        Returns:
            The rows, in the order of the files.

        Raises:
            UserError: the kind, column or split is unknown, the stage that writes the table has
                not run, or a file was changed after it was made.
        """
        import pyarrow as pa

        if kind not in _STAGES:
            raise UserError(f"unknown table {kind!r}; {did_you_mean(kind, _STAGES)}")
        splits = list_splits(self.directory.recipe)
        if split is not None and kind in ("selections", "decisions"):
            raise UserError(
                f"split={split!r}: {kind} are tables of arms, not of splits; filter by condition"
            )
        if split is not None and split not in splits:
            raise UserError(f"{self.path}: unknown split {split!r}; {did_you_mean(split, splits)}")
        tables = [
            self._read_table(path, place, columns)
            for path, place in self._list_tables().items()
            if place.kind == kind and split in (None, place.split)
        ]
        if not tables:
            of_split = "" if split is None else f" of {split}"
            raise UserError(
                f"{self.path}: has no {kind}{of_split} yet; run the stage that writes them: "
                f"gapft run {self.path} --only {_STAGES[kind]}"
            )
        return pa.concat_tables(tables, promote_options="default")

    def _list_tables(self) -> dict[str, RunFile]:
        """List the recorded tables by path, without states from a part of the samples."""
        names = [*self.directory.read_records()]
        for split in read_searches(self.directory):
            names += [layout.problems_path(split), layout.responses_path(split)]
        places = {path: layout.parse_path(path) for path in sorted(names)}
        return {
            path: place
            for path, place in places.items()
            if place and place.kind in _STAGES and place.window is None
        }

    def _read_table(self, path: str, place: RunFile, columns: Sequence[str] | None) -> pa.Table:
        import pyarrow as pa
        import pyarrow.parquet as pq

        file = self.directory.file(path)
        column_names = pq.read_schema(file).names
        for name in columns or ():
            if name not in column_names:
                raise UserError(
                    f"{file}: unknown column {name!r}; {did_you_mean(name, column_names)}"
                )
        table = pq.read_table(file, columns=None if columns is None else list(columns))
        added_columns: dict[str, Any] = {"split": place.split}
        if place.arm is not None:
            added_columns = {"condition": place.arm.condition, "training_seed": place.arm.seed}
            if place.kind == "decisions":
                added_columns["of"] = place.experiment
        for position, (name, value) in enumerate(added_columns.items()):
            column = pa.repeat(pa.scalar(value), len(table))
            table = table.add_column(position, name, column)
        return table.replace_schema_metadata(None)


def open_run(place: str | Path) -> Run:
    """Open a run directory for reading; an unfinished run has only its finished tables.

    Args:
        place: the run directory.

    Raises:
        UserError: the folder is not a run directory.
    """
    return Run(RunDirectory.open(place))
