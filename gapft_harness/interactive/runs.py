"""Open a run and read its sealed tables as pyarrow tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory, splits_of, stated
from gapft_harness.run_directory.layout import Place

if TYPE_CHECKING:
    import pyarrow as pa

#: The stage that writes each kind of table.
_WRITTEN_BY = {
    "problems": "search",
    "responses": "search",
    "states": "states",
    "selections": "select",
    "decisions": "audit",
}


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """A run directory, opened for reading; each sealed file is checked against its hash.

    Every table is a ``pyarrow.Table``; ``.to_pandas()`` converts it to a DataFrame. The first
    columns identify the file of a row: ``split``, or ``condition`` and ``training_seed``. The other
    columns are those of the files (``gapft_harness/run_directory/tables.py``). ``open_run`` creates
    a ``Run``.
    """

    directory: RunDirectory

    def __repr__(self) -> str:
        kinds = [of.kind for of in self._places().values()]
        told = ", ".join(f"{kinds.count(kind)} of {kind}" for kind in _WRITTEN_BY if kind in kinds)
        return f"Run({str(self.path)!r}: sealed tables: {told or 'none yet'})"

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
        """The source model's responses with their verdicts; index -1 is the greedy decode."""
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
        """Greedy decodes with verdicts of the trained models that are audited so far.

        ``audit`` is the name of a further audit, empty for the run's own audit. ``of`` names other
        settings of a decode, such as ``scale-0.75``. In the rows that the report compares, both are
        empty.
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
                not run, or a file was changed after it was sealed.
        """
        import pyarrow as pa

        if kind not in _WRITTEN_BY:
            raise UserError(f"unknown table {kind!r}; {did_you_mean(kind, _WRITTEN_BY)}")
        found = {path: of for path, of in self._places().items() if of.kind == kind}
        if split is not None:
            found = self._of_split(found, kind, split)
        if not found:
            stage = _WRITTEN_BY[kind]
            of = "" if split is None else f" of {split}"
            raise UserError(
                f"{self.path}: has no {kind}{of} yet; run the stage that writes them: "
                f"gapft run {self.path} --only {stage}"
            )
        return pa.concat_tables(
            [self._table(path, of, columns) for path, of in found.items()],
            promote_options="default",
        )

    def _of_split(self, places: dict[str, Place], kind: str, split: str) -> dict[str, Place]:
        if kind in ("selections", "decisions"):
            raise UserError(
                f"split={split!r}: {kind} are tables of arms, not of splits; filter by condition"
            )
        searched = splits_of(self.directory.recipe)
        if split not in searched:
            raise UserError(
                f"{self.path}: unknown split {split!r}; {did_you_mean(split, searched)}"
            )
        return {path: of for path, of in places.items() if of.split == split}

    def _places(self) -> dict[str, Place]:
        """List the sealed tables by path, without states from a part of the samples."""
        places = {path: layout.read(path) for path in sorted(self.directory.manifest()["files"])}
        return {
            path: of
            for path, of in places.items()
            if of and of.kind in _WRITTEN_BY and of.window is None
        }

    def _table(self, path: str, place: Place, columns: Sequence[str] | None) -> pa.Table:
        import pyarrow as pa
        import pyarrow.parquet as pq

        file = self.directory.sealed(path)
        known = pq.read_schema(file).names
        for name in columns or ():
            if name not in known:
                raise UserError(f"{file}: unknown column {name!r}; {did_you_mean(name, known)}")
        table = pq.read_table(file, columns=None if columns is None else list(columns))
        said: dict[str, Any] = {"split": place.split}
        if place.arm is not None:
            said = {"condition": place.arm.condition, "training_seed": place.arm.seed}
            if place.kind == "decisions":
                said |= {"audit": place.arm.variant, "of": place.of}
        for position, (name, value) in enumerate(said.items()):
            column = pa.repeat(pa.scalar(value), len(table))
            table = table.add_column(position, name, column)
        return table.replace_schema_metadata(None)


def open_run(place: str | Path) -> Run:
    """Open a run directory for reading; an unfinished run has only its sealed tables.

    Args:
        place: the run directory.

    Raises:
        UserError: the folder is not a run directory.
    """
    return Run(RunDirectory.open(place))


def read_stated(run: Run, split: str) -> pa.Table:
    """Read the states of one split.

    Raises:
        UserError: the split is unknown, only decoded greedily, or not searched yet.
    """
    splits = stated(run.directory.recipe)
    if split not in splits:
        raise UserError(
            f"{run.path}: {split!r} is not a split with states; {did_you_mean(split, splits)}"
        )
    return run.read("states", split=split)
