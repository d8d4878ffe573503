"""An opened run: its sealed tables as pyarrow tables."""

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

#: Kinds of tables, by the stage that writes them.
_WRITTEN_BY = {
    "problems": "search",
    "responses": "search",
    "states": "states",
    "selections": "select",
    "decisions": "audit",
}


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """A run directory, read only: what is sealed in it, each file checked against its hash.

    Every table is a ``pyarrow.Table``; ``.to_pandas()`` makes a DataFrame of it. The columns are
    those of the files (``gapft_harness/run_directory/tables.py``), after those that say which file
    a row is of: ``split``, or ``condition`` and ``training_seed``. Make one with ``open_run``.
    """

    directory: RunDirectory

    def __repr__(self) -> str:
        kinds = [of.kind for of in self._places().values()]
        told = ", ".join(f"{kinds.count(kind)} of {kind}" for kind in _WRITTEN_BY if kind in kinds)
        return f"Run({str(self.path)!r}: sealed tables: {told or 'none yet'})"

    @property
    def path(self) -> Path:
        """The folder."""
        return self.directory.path

    @property
    def problems(self) -> pa.Table:
        """Every split's problems: prompt, and gold and document as JSON text."""
        return self.read("problems")

    @property
    def responses(self) -> pa.Table:
        """The source model's responses with their verdicts; index -1 is the greedy decode."""
        return self.read("responses")

    @property
    def states(self) -> pa.Table:
        """G, S or U of every problem, and what that rests on."""
        return self.read("states")

    @property
    def selections(self) -> pa.Table:
        """Every arm's training set in its order, as token ids."""
        return self.read("selections")

    @property
    def decisions(self) -> pa.Table:
        """Every trained model's greedy decodes with their verdicts, of the arms audited so far.

        ``audit`` is the name of a further audit, empty for the run's own; ``of`` says what was
        decoded otherwise, such as ``scale-0.75``; filter on both being empty for what the report
        compares.
        """
        return self.read("decisions")

    def read(
        self, kind: str, columns: Sequence[str] | None = None, split: str | None = None
    ) -> pa.Table:
        """One kind of table, of all splits or arms one after another.

        Args:
            kind: ``problems``, ``responses``, ``states``, ``selections`` or ``decisions``.
            columns: of the files, all if not given; token ids are most of what a table takes.
            split: only this split's; of problems, responses and states alone.

        Returns:
            The rows, in the files' order.

        Raises:
            UserError: there is no such kind, column or split, the stage that writes the table has
                not run, or a file was changed since it was sealed.
        """
        import pyarrow as pa

        if kind not in _WRITTEN_BY:
            raise UserError(f"no table {kind!r}; {did_you_mean(kind, _WRITTEN_BY)}")
        found = {path: of for path, of in self._places().items() if of.kind == kind}
        if split is not None:
            found = self._of_split(found, kind, split)
        if not found:
            stage = _WRITTEN_BY[kind]
            of = "" if split is None else f" of {split}"
            raise UserError(
                f"{self.path}: holds no {kind}{of} yet; the stage {stage!r} writes them: "
                f"gapft run {self.path} --only {stage} makes them"
            )
        return pa.concat_tables(
            [self._table(path, of, columns) for path, of in found.items()],
            promote_options="default",
        )

    def _of_split(self, places: dict[str, Place], kind: str, split: str) -> dict[str, Place]:
        if kind in ("selections", "decisions"):
            raise UserError(f"split={split!r}: {kind} are tables of arms; filter on condition")
        searched = splits_of(self.directory.recipe)
        if split not in searched:
            raise UserError(f"{self.path}: no split {split!r}; {did_you_mean(split, searched)}")
        return {path: of for path, of in places.items() if of.split == split}

    def _places(self) -> dict[str, Place]:
        """The sealed tables by path: splits, and states that rest on all samples."""
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
                raise UserError(f"{file}: no column {name!r}; {did_you_mean(name, known)}")
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
    """Opens a run directory to read it; a run that is still under way shows what is sealed.

    Args:
        place: its folder.

    Raises:
        UserError: there is no run.
    """
    return Run(RunDirectory.open(place))


def read_stated(run: Run, split: str) -> pa.Table:
    """The states of one split.

    Raises:
        UserError: the split has none: it is unknown, decoded greedily alone, or not searched yet.
    """
    splits = stated(run.directory.recipe)
    if split not in splits:
        raise UserError(
            f"{run.path}: no split {split!r} with states; {did_you_mean(split, splits)}"
        )
    return run.read("states", split=split)
