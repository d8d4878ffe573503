"""The engine with small steps: what no command shows, such as a kill between two writes.

What is made, planned and checked are laws: ``test_changed_recipes``, ``test_resume`` and
``test_tampering`` in ``tests/laws``.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.engine.checker import Checker
from gapft_harness.engine.inventory import list_stored
from gapft_harness.engine.outputs import Output, hash_content, hash_table
from gapft_harness.engine.run import RECORDS, Run
from gapft_harness.engine.runner import Runner
from gapft_harness.engine.step import Step
from gapft_harness.engine.store import MADE_FROM, Store, remove_path
from tests.engine import step_functions as functions
from tests.kit.recording_run import InProcessExecutor
from tests.kit.tampering import change_json, flip_bit


@dataclass
class Place:
    """A folder with runs and their store."""

    folder: Path

    @property
    def calls_file(self) -> Path:
        return self.folder / "calls"

    def take_calls(self) -> dict[str, int]:
        """Count the calls of steps' functions since the last time."""
        lines = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        self.calls_file.unlink(missing_ok=True)
        return dict(Counter(lines))

    def run(self, name: str = "run") -> Run:
        return Run(self.folder / name)

    @property
    def store(self) -> Store:
        return Store(self.folder / ".store")

    def make_runner(self, name: str = "run") -> Runner:
        return Runner(
            self.run(name), self.store, InProcessExecutor(), report_line=lambda line: None
        )

    def step(self, name: str, function: Callable[..., Any], **parts: Any) -> Step:
        return Step(name, function, operational={"calls": str(self.calls_file)}, **parts)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def make_pipeline(place: Place, make: Any, separator: str = " ") -> None:
    """Make two texts, and a joined one from both."""
    texts = make(
        [place.step(f"{t}.txt", functions.write_text, settings={"text": t}) for t in ("a", "b")]
    )
    parts = {"settings": {"separator": separator}, "inputs": {"texts": [*texts.values()]}}
    make([place.step("joined.txt", functions.join_texts, **parts)])


def test_one_name_has_one_key(place: Place) -> None:
    steps = [place.step("a", functions.write_text, settings={"text": text}) for text in "xy"]
    runner = place.make_runner()
    runner(steps[:1])
    runner(steps[:1])
    with pytest.raises(UserError, match="a: requested twice"):
        runner(steps[1:])


def test_output_that_is_not_kept_stays_in_its_run(place: Place) -> None:
    """Such as a table with a verdict that was a timeout."""
    steps = [place.step(name, functions.keep_here) for name in ("a.txt", "b.txt")]
    place.make_runner()(steps)
    place.make_runner()(steps)
    assert place.take_calls() == {"keep_here": 1}
    assert [place.run().file(step.name).read_text() for step in steps] == ["late", "late"]
    place.make_runner("other")(steps[:1])
    assert place.take_calls() == {"keep_here": 1}
    assert not [*place.store.root.rglob(MADE_FROM)]


def test_finished_outputs_of_an_interrupted_run_are_its_own(place: Place) -> None:
    """They are in the store before the run records them."""
    make_pipeline(place, place.make_runner())
    (place.folder / "run" / RECORDS).unlink()
    works = list_stored(place.store, [place.folder / "run"])
    assert [work.users for work in works] == [("run",)] * 3


def test_outputs_are_read_only_links(place: Place) -> None:
    make_pipeline(place, place.make_runner())
    stored = place.store.find_place(place.run().read_records()["joined.txt"].place)
    assert stored is not None
    file = place.folder / "run/joined.txt"
    assert file.samefile(stored.path)
    assert file.stat().st_mode & 0o777 == 0o444
    make_pipeline(place, place.make_runner(), separator="-")
    assert stored.path.read_text() == "a b", "replaced, not written to"
    assert file.read_text() == "a-b"


def test_killed_change_of_an_own_output_can_be_taken_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill while other jobs run; the store does not keep the output."""
    step = place.step("a.txt", functions.keep_here)
    place.make_runner()([step])

    def die(run: Run, outputs: Any) -> dict[str, Output]:
        if outputs:
            raise KeyboardInterrupt
        return {}

    monkeypatch.setattr(functions, "LATE", "later")
    monkeypatch.setattr(Run, "put", die)
    with pytest.raises(KeyboardInterrupt):
        place.make_runner()([replace(step, version=2)])
    monkeypatch.undo()
    place.make_runner()([step])
    assert place.run().file("a.txt").read_text() == "late"


def damage(path: Path) -> None:
    path.chmod(0o644)
    flip_bit(path)


@pytest.mark.parametrize("file", ["output.txt", MADE_FROM])
def test_edited_store_is_named_and_the_remedy_works(place: Place, file: str) -> None:
    make_pipeline(place, place.make_runner())
    place.take_calls()
    folder = place.store.root / place.run().read_records()["joined.txt"].place
    damage(folder / file)
    with pytest.raises(UserError, match=str(folder)):
        make_pipeline(place, place.make_runner("other"))
    for name, remedy in (("other", folder), ("third", folder / file)):
        remove_path(remedy)
        make_pipeline(place, place.make_runner(name))
        assert place.take_calls() == {"join_texts": 1}


def test_edited_facts_of_the_store_are_named(place: Place) -> None:
    step = place.step("a.txt", functions.write_text, settings={"text": "x"})
    place.make_runner()([step])
    path = place.store.root / step.place / MADE_FROM
    path.chmod(0o644)
    change_json(path, lambda content: content["facts"].update(length=7))
    with pytest.raises(UserError, match="the facts"):
        place.make_runner("other")([step])


def test_failed_step_leaves_nothing(place: Place) -> None:
    step = place.step("a.txt", functions.fail)
    with pytest.raises(RuntimeError, match="no luck"):
        place.make_runner()([step])
    left = [p.name for p in place.folder.rglob("*") if p.is_file() and p.suffix != ".lock"]
    assert left == ["calls"]


@pytest.mark.parametrize(
    ("function", "message"),
    [(functions.write_nothing, "wrote nothing"), (functions.return_set, "expected facts")],
)
def test_step_must_write_its_output_and_return_facts(
    place: Place, function: Callable[..., Any], message: str
) -> None:
    with pytest.raises(GapftError, match=message):
        place.make_runner()([Step("a", function)])


def test_nothing_is_made_with_code_that_the_key_lacks(place: Place) -> None:
    """A plugin may be edited before a worker process loads it."""
    step = place.step("a", functions.write_text, settings={"text": "x"}, code={"plugin": "1"})
    with pytest.raises(UserError, match="edited"):
        place.make_runner()([step])
    assert place.take_calls() == {}


def test_machines_of_one_run_must_be_equal(place: Place) -> None:
    steps = [
        place.step(name, functions.write_text, settings={"text": name}, machine={"torch": version})
        for name, version in (("a", "2.6"), ("b", "2.7"))
    ]
    place.make_runner()(steps)
    checker = Checker(place.run())
    checker(steps)
    assert checker.differences == ['run.json, the machines of a and b: torch is "2.6", and "2.7"']
    checker = Checker(place.run())
    checker([replace(steps[0], machine={"torch": "3.0"})])
    assert (checker.differences, checker.remarks) == (
        [],
        ['the machine: torch is "2.6", here it is "3.0"'],
    )


# Contents of tables

_TEXTS = st.none() | st.sampled_from(["", "a", "ab", "é"])
_IDS = st.lists(st.integers(0, 3), max_size=3)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "number": st.none() | st.integers(-5, 5),
            "text": _TEXTS,
            "flag": st.none() | st.booleans(),
            "ids": st.none() | _IDS,
            "parts": st.lists(st.fixed_dictionaries({"a": _TEXTS, "b": _IDS}), max_size=2),
        }
    ),
    max_size=5,
)
SCHEMA = pa.schema(
    {
        "number": pa.int64(),
        "text": pa.string(),
        "flag": pa.bool_(),
        "ids": pa.list_(pa.int32()),
        "parts": pa.list_(pa.struct({"a": pa.string(), "b": pa.list_(pa.int32())})),
    }
)


def _row(**values: Any) -> dict[str, Any]:
    return {"number": None, "text": None, "flag": None, "ids": None, "parts": [], **values}


@example([_row(ids=[])], [_row()])
@example([_row(text="")], [_row()])
@example([_row(number=0)], [_row()])
@example([_row(ids=[1]), _row(ids=[2, 3])], [_row(ids=[1, 2]), _row(ids=[3])])
@example([_row(text="a"), _row(text="bc")], [_row(text="ab"), _row(text="c")])
@given(ROWS, ROWS)
def test_tables_have_equal_hashes_if_their_rows_are_equal(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], others: list[Any]
) -> None:
    folder = tmp_path_factory.mktemp("tables")
    first, second = (pa.Table.from_pylist(r, schema=SCHEMA) for r in (rows, others))
    pq.write_table(first, folder / "a.parquet")
    metadata = first.replace_schema_metadata({"x": "y"})
    pq.write_table(metadata, folder / "b.parquet", row_group_size=2, compression="none")
    pq.write_table(second, folder / "c.parquet")
    hashes = [hash_table(folder / f"{name}.parquet") for name in "abc"]
    assert hashes[0] == hashes[1]
    assert (hashes[0] == hashes[2]) == (first.to_pylist() == second.to_pylist())


def test_type_and_order_of_columns_count(tmp_path: Path) -> None:
    tables = [
        pa.table({"a": pa.array([1], pa.int64()), "b": ["x"]}),
        pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]}),
        pa.table({"b": ["x"], "a": pa.array([1], pa.int64())}),
    ]
    for number, table in enumerate(tables):
        pq.write_table(table, tmp_path / f"{number}.parquet")
    assert len({hash_content(tmp_path / f"{number}.parquet") for number in range(3)}) == 3


def test_what_others_make_comes_last(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with contextlib.ExitStack() as other:
        other.enter_context(store.claim("made/first"))
        turns = store.claim_each(["made/first", "made/second"], str)
        with contextlib.closing(turns):
            assert next(turns) == "made/second"
            other.close()
            assert next(turns) == "made/first"
