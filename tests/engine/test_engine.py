"""The engine with small steps: what is made, planned and checked."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.identities import content_hash
from gapft_harness.engine.checker import Checker
from gapft_harness.engine.outputs import NotKnownYet, Output, Unknown, hash_content, hash_table
from gapft_harness.engine.planner import Planner
from gapft_harness.engine.run import RECORDS, Record, Run
from gapft_harness.engine.runner import Runner
from gapft_harness.engine.step import Part, Step
from gapft_harness.engine.store import MADE_FROM, Store, remove_path
from tests.engine import step_functions as functions
from tests.kit.recording_run import InProcessExecutor
from tests.kit.records import change_records, read_records
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

    def make_runner(self, name: str = "run", lines: list[str] | None = None) -> Runner:
        report = (lines if lines is not None else []).append
        return Runner(self.run(name), self.store, InProcessExecutor(), report_line=report)

    def step(self, name: str, function: Callable[..., Any], **parts: Any) -> Step:
        operational = {"calls": str(self.calls_file), **parts.pop("operational", {})}
        return Step(name, function, operational=operational, **parts)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def make_pipeline(place: Place, make: Any, word: str = "b", separator: str = " ") -> Any:
    """Make two texts, a joined one from both, and a folder from that."""
    texts = make(
        [
            place.step(f"texts/{t}.txt", functions.write_text, settings={"text": t}, cheap=True)
            for t in ("a", word)
        ]
    )
    joined = make(
        [
            place.step(
                "joined.txt",
                functions.join_texts,
                settings={"separator": separator},
                inputs={"texts": [*texts.values()]},
                cheap=True,
            )
        ]
    )
    folders = make(
        [place.step("folder", functions.write_folder, inputs={"text": joined["joined.txt"]})]
    )
    return {**texts, **joined, **folders}


EVERYTHING = {"write_text": 2, "join_texts": 1, "write_folder": 1}


def read_tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_outputs_are_made_once(place: Place) -> None:
    outputs = make_pipeline(place, place.make_runner())
    assert place.take_calls() == EVERYTHING
    assert (outputs["folder"].path / "inner/copy.txt").read_text() == "a b"
    assert outputs["texts/a.txt"].facts == {"length": 1}
    before = read_tree(place.folder)
    make_pipeline(place, place.make_runner())
    make_pipeline(place, place.make_runner("other"))
    assert place.take_calls() == {}
    assert {name: read_tree(place.folder)[name] for name in before} == before
    assert read_tree(place.folder / "other") == read_tree(place.folder / "run")


def test_output_is_found_again_if_its_key_has_tuples(place: Place) -> None:
    step = place.step("a.txt", functions.write_text, settings={"text": ("b", "c")})
    place.make_runner()([step])
    assert place.run().find(step) is not None


def test_only_what_depends_on_a_change_is_made(place: Place) -> None:
    make_pipeline(place, place.make_runner())
    place.take_calls()
    lines: list[str] = []
    make_pipeline(place, place.make_runner(lines=lines), separator="-")
    assert place.take_calls() == {"join_texts": 1, "write_folder": 1}
    assert lines == [
        'joined.txt: making 1 file again: separator " " → -',
        "folder: making 1 file again: text changed",
    ]
    make_pipeline(place, place.make_runner())
    assert place.take_calls() == {}, "the store has the earlier outputs"
    assert place.run().path("joined.txt").read_text() == "a b"


def test_keys_follow_from_contents(place: Place) -> None:
    """A step whose input is made by another way to the same content is not made again."""
    make_pipeline(place, place.make_runner())
    place.take_calls()
    same = place.step(
        "folder", functions.write_folder, inputs={"text": Output(_write(place, "a b"))}
    )
    place.make_runner()([same])
    assert place.take_calls() == {}
    other = replace(same, inputs={"text": Output(_write(place, "a c"))})
    assert other.key != same.key


def _write(place: Place, text: str) -> Path:
    path = place.folder / f"given-{text.replace(' ', '')}.txt"
    path.write_text(text)
    return path


def test_key_has_what_decides_the_output_and_nothing_else(place: Place) -> None:
    step = place.step("a", functions.write_text, settings={"text": "a"})
    free = [
        replace(step, name="b"),
        replace(step, operational={"calls": "elsewhere"}),
        replace(step, cheap=True),
        replace(step, together="x"),
        replace(step, verb="write"),
        replace(step, own_process=True),
    ]
    assert {other.key for other in free} == {step.key}
    bound = [
        replace(step, settings={"text": "b"}),
        replace(step, version=2),
        replace(step, code={"plugin": "1"}),
        replace(step, machine={"libraries": {"torch": "2.6"}}),
        replace(step, function=functions.write_nothing),
    ]
    assert len({step.key, *(other.key for other in bound)}) == 6


def test_equal_steps_share_an_output(place: Place) -> None:
    steps = [place.step(name, functions.write_text, settings={"text": "x"}) for name in "ab"]
    place.make_runner()(steps)
    assert place.take_calls() == {"write_text": 1}
    assert [place.run().path(name).read_text() for name in "ab"] == ["x", "x"]


def test_one_name_has_one_key(place: Place) -> None:
    steps = [place.step("a", functions.write_text, settings={"text": text}) for text in "xy"]
    runner = place.make_runner()
    runner(steps[:1])
    runner(steps[:1])
    with pytest.raises(UserError, match="a: requested twice"):
        runner(steps[1:])


def test_other_machine_keeps_a_run_and_changes_a_new_one(place: Place) -> None:
    step = place.step("a", functions.write_text, settings={"text": "x"}, machine={"torch": "2.6"})
    place.make_runner()([step])
    newer = replace(step, machine={"torch": "2.7"})
    place.take_calls()
    place.make_runner()([newer])
    assert place.take_calls() == {}
    place.make_runner("other")([newer])
    assert place.take_calls() == {"write_text": 1}


def test_output_that_is_not_kept_stays_in_its_run(place: Place) -> None:
    """Such as a table with a verdict that was a timeout."""
    steps = [place.step(name, functions.keep_here) for name in ("a.txt", "b.txt")]
    place.make_runner()(steps)
    place.make_runner()(steps)
    assert place.take_calls() == {"keep_here": 1}
    assert [place.run().path(step.name).read_text() for step in steps] == ["late", "late"]
    place.make_runner("other")(steps[:1])
    assert place.take_calls() == {"keep_here": 1}
    assert not [*place.store.root.rglob(MADE_FROM)]


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


def test_without_links_outputs_are_copies(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store may be on another file system."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(18, os.strerror(18))

    monkeypatch.setattr(os, "link", refuse)
    make_pipeline(place, place.make_runner())
    assert place.run().path("folder") == place.folder / "run/folder"
    assert (place.folder / "run/folder/inner/copy.txt").read_text() == "a b"


def test_killed_change_can_be_taken_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill after the new output is in the run and before its record is written."""
    make_pipeline(place, place.make_runner())
    write = Run._write

    def die(run: Run, facts: dict[str, Any], records: Mapping[str, Record]) -> None:
        if (run.folder / "joined.txt").read_text() == "a-b":
            raise KeyboardInterrupt
        write(run, facts, records)

    monkeypatch.setattr(Run, "_write", die)
    with pytest.raises(KeyboardInterrupt):
        make_pipeline(place, place.make_runner(), separator="-")
    monkeypatch.undo()
    make_pipeline(place, place.make_runner())
    assert place.run().path("joined.txt").read_text() == "a b"


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
    assert place.run().path("a.txt").read_text() == "late"


def damage(path: Path) -> None:
    path.chmod(0o644)
    flip_bit(path)


def test_edited_output_is_named_before_it_is_used(place: Place) -> None:
    make_pipeline(place, place.make_runner())
    copy = Path(shutil.copytree(place.folder / "run", place.folder / "copy"))
    damage(copy / "joined.txt")
    with pytest.raises(UserError, match=r"copy/joined\.txt: was changed"):
        make_pipeline(place, place.make_runner("copy"))
    (copy / "joined.txt").unlink()
    make_pipeline(place, place.make_runner("copy"))
    assert read_tree(copy) == read_tree(place.folder / "run")


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


def test_leftovers_of_a_killed_process_are_removed(place: Place) -> None:
    step = place.step("folder", functions.write_folder, inputs={"text": Output(_write(place, "a"))})
    for left in (
        place.store.root / f"write_folder/.{step.key}.partial/output/half",
        place.folder / "run/.folder.new.partial/half",
        place.folder / "run/.folder.old.partial/half",
    ):
        left.parent.mkdir(parents=True)
        left.write_text("half")
    place.make_runner()([step])
    assert [*place.folder.rglob("*.partial")] == []


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


def test_read_only_store_is_one_error(place: Place) -> None:
    (place.folder / ".store").write_text("a file, since root may write everywhere")
    with pytest.raises(UserError, match="cannot be written"):
        make_pipeline(place, place.make_runner())


# Plans


def test_plan_names_what_is_new_and_why(place: Place) -> None:
    planner = Planner(place.run(), place.store)
    outputs = make_pipeline(place, planner)
    assert [*planner.new] == ["texts/a.txt", "texts/b.txt", "joined.txt", "folder"]
    with pytest.raises(NotKnownYet, match=r"texts/a\.txt is not made yet"):
        _ = outputs["texts/a.txt"].path
    assert place.take_calls() == {}
    assert read_tree(place.folder) == {}

    make_pipeline(place, place.make_runner())
    planner = Planner(place.run(), place.store)
    make_pipeline(place, planner, separator="-")
    assert planner.in_run == ["texts/a.txt", "texts/b.txt"]
    assert planner.new == {
        "joined.txt": 'separator " " → -',
        "folder": "joined.txt is not made yet",
    }
    planner = Planner(place.run("other"), place.store)
    make_pipeline(place, planner)
    assert (len(planner.stored), planner.new) == (4, {})


# Checks


@pytest.fixture
def finished(place: Place) -> Place:
    make_pipeline(place, place.make_runner())
    table = place.step("table.parquet", functions.write_table, settings={"rows": 3}, cheap=True)
    place.make_runner()([table])
    shutil.rmtree(place.store.root)
    return place


def check(place: Place, name: str = "run", **settings: Any) -> Checker:
    checker = Checker(place.run(name))
    make_pipeline(place, checker, **settings)
    checker([place.step("table.parquet", functions.write_table, settings={"rows": 3}, cheap=True)])
    checker.check_others()
    return checker


def test_copied_run_agrees_without_its_store(finished: Place) -> None:
    shutil.copytree(finished.folder / "run", finished.folder / "moved/run")
    checker = check(finished, "moved/run")
    assert (checker.differences, checker.missing) == ([], [])
    assert len(checker.checked) == 5
    assert checker.made_again == ["texts/a.txt", "texts/b.txt", "joined.txt", "table.parquet"]


def test_other_settings_are_a_difference(finished: Place) -> None:
    differences = check(finished, separator="-").differences
    assert any("run.json, joined.txt: settings.separator is" in line for line in differences)


def test_missing_output_is_not_a_difference(place: Place) -> None:
    checker = Checker(place.run())
    outputs = make_pipeline(place, checker)
    assert checker.differences == []
    assert checker.missing == ["texts/a.txt", "texts/b.txt", "joined.txt", "folder"]
    assert all(isinstance(output, Unknown) for output in outputs.values())


def list_forgeries(run: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield every change of a recorded fact; some also record the key that follows from it."""
    for name, record in read_records(run).items():
        for key in ("place", "digest"):
            yield f"{name} {key}", lambda n=name, k=key: _set(run, n, (k,), "0" * 64)
        for key in record["facts"]:
            yield f"{name} fact", lambda n=name, k=key: _set(run, n, ("facts", k), 99)
        for part in record["made_from"]:
            yield f"{name} {part}", lambda n=name, p=part: _set(run, n, ("made_from", p), {"x": 1})
            yield f"{name} {part}, key", lambda n=name, p=part: _forge_key(run, n, p)


def _set(run: Path, name: str, keys: tuple[str, ...], value: Any) -> None:
    def change(records: dict[str, Any]) -> None:
        inner = records[name]
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value

    change_records(run, change)


def _forge_key(run: Path, name: str, part: str) -> None:
    _set(run, name, ("made_from", part), {"x": 1})
    made_from = read_records(run)[name]["made_from"]
    function = str(made_from["function"]).rpartition(":")[2]
    _set(run, name, ("place",), f"{function}/{content_hash(made_from)}")


def test_every_forged_record_is_a_difference(finished: Place) -> None:
    run = finished.folder / "run"
    before = (run / RECORDS).read_text()
    missed = []
    for name, forge in list_forgeries(run):
        forge()
        lines = check(finished).differences
        if not any(name.partition(" ")[0] in line for line in lines):
            missed.append(name)
        (run / RECORDS).write_text(before)
    # of one machine alone nothing tells whether it was another one
    alone = [name for name in missed if not name.endswith("machine, key")]
    assert alone == []
    assert missed != [], "so the list is not stale"


def test_forged_content_with_its_hash_is_a_difference(finished: Place) -> None:
    """Of a cheap step; what else is checked is up to the pipeline."""
    for name in ("joined.txt", "table.parquet"):
        forged = Path(shutil.copytree(finished.folder / "run", finished.folder / f"forged-{name}"))
        (forged / name).unlink()
        if name == "joined.txt":
            (forged / name).write_text("a c")
        else:
            functions.write_table(forged / name, rows=4, calls=str(finished.calls_file))
        _set(forged, name, ("digest",), hash_bytes(forged / name))
        lines = check(finished, forged.name).differences
        assert any(line.startswith(f"{name}: differs") for line in lines)


def hash_bytes(path: Path) -> str:
    from gapft_harness.core.files import sha256

    return sha256(path)


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


def test_content_of_files_that_are_not_here_is_not_compared(place: Place) -> None:
    settings = {"text": "x"}
    recorded = {"model": {"files": {"w": "1"}}, "words": {"file": "2"}, "list": [{"folder": {}}]}
    here = {"model": {"name": ["m"]}, "words": "words.txt", "list": ["folder"]}
    parts = {"recorded": recorded, "here": here, "changed": {**recorded, "words": {"file": "3"}}}
    steps = {
        key: place.step("a", functions.write_text, settings=settings, code={}, machine={})
        for key in parts
    }
    steps = {key: replace(step, settings={**settings, **parts[key]}) for key, step in steps.items()}
    run = place.run()
    target = run.folder / "a"
    target.parent.mkdir()
    target.write_text("x")
    run.put({"a": (steps["recorded"], Output(target))})
    for key, expected in (("recorded", 0), ("here", 0), ("changed", 1)):
        checker = Checker(place.run())
        checker([steps[key]])
        assert len(checker.differences) == expected, key
    assert run.find(steps["recorded"]) is not None
    assert run.find(steps["here"]) is None, "another model may have this name"
    assert run.find(steps["here"], accepts_names=True) is not None


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


def test_parts_are_found_by_their_own_key(place: Place) -> None:
    store = place.store
    step = Step("texts", functions.write_text, settings={"text": "a"})
    parts = [Part(step, {"chunk": number}) for number in range(2)]
    assert {part.place.rpartition("/")[0] for part in parts} == {step.place}
    first, second = parts
    with store.claim(first.place), store.write(first.place, ".txt") as path:
        path.write_text("responses")
        store.commit(path, first.place, first.made_from, {"seconds": 2})
    output = store.find(first)
    assert output is not None
    assert (output.path.read_text(), output.facts) == ("responses", {"seconds": 2})
    assert store.find(second) is None
    assert store.find(step) is None


def test_what_others_make_comes_last(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with contextlib.ExitStack() as other:
        other.enter_context(store.claim("made/first"))
        turns = store.claim_each(["made/first", "made/second"], str)
        with contextlib.closing(turns):
            assert next(turns) == "made/second"
            other.close()
            assert next(turns) == "made/first"
