"""Damage a run's files, and forge them: change a file and record its new hash.

``tamper`` lists every damage to every recorded file and fact of a run, from the files themselves.
The other functions make single changes.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gapft_harness.core.identities import content_hash
from tests.kit.records import (
    RECORDS,
    change_output_facts,
    change_records,
    change_run,
    find_output,
    read_records,
    read_run,
    record_again,
)

Rows = list[dict[str, Any]]
#: The keys and positions that lead to a value of a JSON document.
Keys = tuple[str | int, ...]


# Single changes


def forge_record_key(run: Path, name: str, keys: Keys, value: object) -> None:
    """Change a value that an output was made from, and record the key that follows."""

    def forge(records: dict[str, Any]) -> None:
        record = records[name]
        _change_value(record["made_from"], keys, value)
        function = str(record["made_from"]["function"]).rpartition(":")[2]
        record["place"] = f"{function}/{content_hash(record['made_from'])}"

    change_records(run, forge)


def change_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def change_facts(run: Path, arm: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Change an arm's training facts in ``training.json`` and in its record."""
    name = f"adapters/{arm}"
    change_json(run / name / "training.json", change)
    change_records(run, lambda records: change(records[name]["facts"]))
    record_again(run, name)


def read_rows(path: Path) -> Rows:
    return list(pq.read_table(path).to_pylist())


def write_rows(path: Path, rows: Rows) -> None:
    """Write rows under the table's schema."""
    pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(path)), path)


def change_rows(run: Path, relative: str, change: Callable[[Rows], object]) -> None:
    rows = read_rows(run / relative)
    change(rows)
    write_rows(run / relative, rows)
    record_again(run, relative)


# The table of all damages


@dataclass(frozen=True)
class Damage:
    """A change of a run that verification must find.

    Attributes:
        kind: what is done to the file or to a part of it.
        entries: the names under which the run records the changed files; none if records
            contradict each other, so that any of them may be named.
        part: the file, and its column or fact, without names of arms, hashes and positions: the
            same for all damages that are alike.
        apply: makes the change in a run directory.
    """

    kind: str
    entries: tuple[str, ...]
    part: str
    apply: Callable[[Path], object]


def tamper(run: Path) -> Iterator[Damage]:
    """Yield every damage to every recorded file of a run and to every fact that it records.

    Files are listed from the run directory; columns, rows and facts are read from the files. Of
    damages that are alike only the first is made: the same column of two arms, two elements of a
    list.
    """
    seen: set[tuple[str, str]] = set()
    for damage in _list_damages(run):
        if (damage.kind, damage.part) not in seen:
            seen.add((damage.kind, damage.part))
            yield damage


def _list_damages(run: Path) -> Iterator[Damage]:
    records, files = read_records(run), _list_recorded_files(run)
    names = [Path(name).stem for name in records if name.startswith("budgets/")]
    arms = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))

    def describe(file: str, keys: Iterable[object] = ()) -> str:
        """Name a part of a file without the names of arms, hashes, positions and scales."""
        path = [file, *(key if isinstance(key, str) else "N" for key in keys)]
        text = re.sub(r"[0-9a-f]{64}", "HASH", " ".join(path))
        text = re.sub(arms, "ARM", text) if arms else text
        return re.sub(r"\b(calibration|scale)-[\d.]*\d", r"\1-N", text)

    def find_entry(file: str) -> str:
        """Return the name of the output that a file is, or is a part of."""
        names = (*records, "report")
        return next((n for n in names if file == n or file.startswith(f"{n}/")), file)

    for file in files:
        for kind, change in FILE_DAMAGES.items():
            if file == RECORDS and kind == "bit flipped":
                continue  # it may be in a time; all facts are changed below
            yield Damage(kind, (find_entry(file),), describe(file), partial(_at, file, change))
    for first, second in _list_pairs(files):
        if (run / first).read_bytes() == (run / second).read_bytes():
            continue
        entries = (find_entry(first), find_entry(second))
        part = f"{describe(first)}, {describe(second)}"
        swap = partial(_swap_files, first=first, second=second)
        yield Damage("swapped, recorded", entries, part, partial(_record_after, entries, swap))
    yield from _list_record_damages(run, describe)
    for file in (file for file in files if file != RECORDS):
        entry = find_entry(file)
        for kind, keys, change in _list_forgeries(run / file):
            forge = partial(_record_after, (entry,), partial(_at, file, change))
            yield Damage(kind, (entry,), describe(file, keys), forge)
        for kind, keys, forge in _list_consistent_forgeries(run, file):
            yield Damage(kind, (entry,), describe(file, keys), forge)
    for entry in records:
        more = re.sub(arms, "more-seed13", entry) if arms else entry
        if more != entry:
            copy = partial(_copy_entry, entry=entry, target=more)
            yield Damage("copied", (more,), describe(entry), copy)


def _list_record_damages(run: Path, describe: Callable[..., str]) -> Iterator[Damage]:
    """Yield the changes of the facts of a run, and of what it records of its outputs.

    Of the values below one part of a key, such as a setting, only the first is changed.
    """
    content, records = read_run(run), read_records(run)
    for section in filter(content.get, content):  # an empty one has no effect
        remove = partial(change_run, change=partial(_remove_section, section=section))
        yield Damage("section removed", (), f"{RECORDS} {section}", remove)
    for name in records:
        forget = partial(change_records, change=partial(_remove_section, section=name))
        yield Damage("not recorded", (name,), describe(RECORDS, [name]), forget)
    for keys, value in list_values(content):
        change = partial(_change_value, keys=keys, value=alter(value))
        own_keys = keys[1:5] if keys[0] == "outputs" else keys
        part = describe(RECORDS, own_keys)
        yield Damage("fact", (RECORDS,), part, partial(change_run, change=change))
        if keys[0] == "outputs" and keys[2] == "made_from" and keys[3] != "function":
            name, inner = str(keys[1]), keys[3:]
            forge = partial(forge_record_key, name=name, keys=inner, value=alter(value))
            yield Damage("key", (name,), part, forge)


def _list_recorded_files(run: Path) -> list[str]:
    """List the files of a run, without its lock; of the report only its numbers."""
    paths = [path.relative_to(run) for path in run.rglob("*") if path.is_file()]
    numbers = Path("report/results.json")
    return sorted(
        path.as_posix()
        for path in paths
        if path == numbers or path.parts[0] not in ("run.lock", "report")
    )


def _list_pairs(files: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of files that could be confused: with the same name, or in the same folder."""
    last_file: dict[str, str] = {}
    for file in files:
        folder, _, name = file.rpartition("/")
        group = folder if folder in ("selections", "decisions") else name
        if group in last_file:
            yield last_file[group], file
        last_file[group] = file


def flip_bit(path: Path) -> None:
    """Flip one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


#: Changes of a file whose new hash is not recorded.
FILE_DAMAGES: Mapping[str, Callable[[Path], object]] = {
    "bit flipped": flip_bit,
    "emptied": lambda path: path.write_bytes(b""),
    "replaced": lambda path: path.write_bytes(b"[1, null]\n"),
    "deleted": lambda path: path.unlink(),
}

#: Those of them that are made again and recorded. A flipped bit of a file's format may be unused.
_RECORDED_DAMAGES = ("emptied", "replaced")

#: Changes of rows or lines.
_ROW_CHANGES: Mapping[str, Callable[[Any], Any]] = {
    "row dropped": lambda rows: rows[:-1],
    "row doubled": lambda rows: [*rows, rows[-1]],
    "rows reordered": lambda rows: rows[::-1],
}


def _list_forgeries(path: Path) -> Iterator[tuple[str, Keys, Callable[[Path], object]]]:
    """Yield the kind, the changed part and the change of each forgery of a file's content."""
    for kind in _RECORDED_DAMAGES:
        yield f"{kind}, recorded", (), FILE_DAMAGES[kind]
    if path.suffix == ".parquet":
        rows = read_rows(path)
        for kind, changed_rows in _list_row_changes(rows):
            yield kind, (), partial(write_rows, rows=changed_rows)
        for column in rows[0]:
            changed_rows = _alter_column(rows, column, pq.read_schema(path).field(column).type)
            yield "value", (column,), partial(write_rows, rows=changed_rows)
    elif path.suffix == ".json":
        for keys, value in list_values(json.loads(path.read_text())):
            change = partial(_change_value, keys=keys, value=alter(value))
            yield "fact", keys, partial(change_json, change=change)
    elif path.suffix == ".jsonl":
        lines = _read_lines(path)
        for kind, changed_lines in _list_row_changes(lines):
            yield kind, (), partial(_write_lines, lines=changed_lines)
        for keys, value in list_values(lines):
            changed_lines = json.loads(json.dumps(lines))
            _change_value(changed_lines, keys, alter(value))
            yield "value", keys, partial(_write_lines, lines=changed_lines)
    elif path.suffix == ".safetensors":
        yield "value", (), flip_bit


def _list_row_changes(rows: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    for kind, change in _ROW_CHANGES.items():
        if (changed_rows := change(rows)) != rows:
            yield kind, changed_rows


def _list_consistent_forgeries(
    run: Path, file: str
) -> Iterator[tuple[str, Keys, Callable[[Path], object]]]:
    """Yield forgeries that also change every other record of the changed fact.

    A forger of a verdict counts again; one of an adapter's facts changes them for all arms, and in
    their records too.
    """
    if file.endswith(".parquet"):
        rows = read_rows(run / file)
        if "status" in rows[0]:
            yield "verdict", (), partial(forge_verdict, table=file)
            for column in ("text", "token_ids"):
                exchange = partial(exchange_responses, table=file, column=column)
                yield "exchanged", (column,), exchange
    elif file.startswith("adapters/") and file.endswith(".json"):
        name = Path(file).name
        arms = sorted(path.name for path in (run / "adapters").iterdir())
        for keys, value in list_values(json.loads((run / file).read_text())):
            change = partial(_change_existing_value, keys=keys, value=alter(value))
            forge = partial(_change_arms, arms=arms, name=name, change=change)
            yield "fact of all arms", keys, forge


def forge_verdict(run: Path, table: str) -> None:
    """Change a verdict, and the states and counts that follow from it."""
    rows = read_rows(run / table)
    states = f"states/{table.partition('/')[0]}.parquet"
    row = rows[0]
    if (run / states).exists():
        row = _forge_state(run, states, rows)
    row["status"] = "fail" if row["status"] == "pass" else "pass"
    counts = dict(sorted(Counter(row["status"] for row in rows).items()))
    write_rows(run / table, rows)
    change_output_facts(run, find_output(run, table), verdicts=counts)
    record_again(run, table)


def _forge_state(run: Path, table: str, responses: Rows) -> dict[str, Any]:
    """Change a state as another verdict on its problem's last sample would; return the sample.

    Choose a solved problem, on which no selection depends; if there is none, a missed one.
    """
    rows = read_rows(run / table)
    row = min(rows, key=lambda row: "GUS".index(row["state"]))
    samples = [r for r in responses if r["problem_id"] == row["problem_id"] and r["index"] >= 0]
    last = samples[-1]
    passing = {r["index"] for r in samples if r["status"] == "pass"} ^ {last["index"]}
    row["passing_samples"], row["first_success"] = len(passing), min(passing, default=None)
    if row["state"] == "U":
        row["state"], row["kept_index"] = "S", last["index"]
    counter = Counter(row["state"] for row in rows)
    counts = {state: counter[state] for state in "GSU"}
    write_rows(run / table, rows)
    change_output_facts(run, table, states=counts)
    record_again(run, table)
    return last


def exchange_responses(run: Path, table: str, column: str) -> None:
    """Exchange texts or token ids of two responses that differ in both, with the same verdict."""

    def exchange(rows: Rows) -> None:
        first, second = next(
            (row, other)
            for row, other in combinations(rows, 2)
            if row["problem_id"] != other["problem_id"]
            and row["status"] == other["status"] == "fail"
            and row["text"] != other["text"]
        )
        first[column], second[column] = second[column], first[column]

    change_rows(run, table, exchange)


def _change_arms(
    run: Path, arms: Iterable[str], name: str, change: Callable[[dict[str, Any]], object]
) -> None:
    for arm in arms:
        if name == "training.json":
            change_facts(run, arm, change)
        else:
            change_json(run / f"adapters/{arm}/{name}", change)
            record_again(run, f"adapters/{arm}")


def list_values(content: Any, keys: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Yield the place and the value of every leaf of a JSON document."""
    if isinstance(content, dict | list) and content:
        items = content.items() if isinstance(content, dict) else enumerate(content)
        for key, value in items:
            yield from list_values(value, (*keys, key))
    elif keys:
        yield keys, content


def alter(value: Any) -> Any:
    """Return another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return "0" * 64 if re.fullmatch("[0-9a-f]{64}", value) else f"{value}x"
    if isinstance(value, list):
        return [*value, *(value[:1] or ["x"])]
    return {**value, "x": 1} if isinstance(value, dict) else "x"


def _alter_column(rows: Rows, column: str, column_type: pa.DataType) -> Rows:
    """Give one row the value of another row; where all rows agree, another value of the type."""
    row = next((row for row in rows if row[column]), rows[0])
    others = [other[column] for other in rows if other[column] != row[column]]
    if others:
        value = others[0]
    else:
        value = alter(row[column]) if row[column] else _build_value(column_type)
    return [{**other, column: value} if other is row else other for other in rows]


def _build_value(column_type: pa.DataType) -> Any:
    """Return a value of a column's type that is not empty."""
    if pa.types.is_list(column_type):
        return [_build_value(column_type.value_type)]
    if pa.types.is_struct(column_type):
        return {field.name: _build_value(field.type) for field in column_type}
    if pa.types.is_boolean(column_type):
        return True
    return "x" if pa.types.is_string(column_type) else 1


def _change_value(content: Any, keys: Keys, value: Any) -> None:
    for key in keys[:-1]:
        content = content[key]
    content[keys[-1]] = value


def _change_existing_value(content: Any, keys: Keys, value: Any) -> None:
    """Change a value of a document that may not have it."""
    parent = content
    for key in keys[:-1]:
        parent = parent.get(key) if isinstance(parent, dict) else parent[key]
        if parent is None:
            return
    if not isinstance(parent, dict) or keys[-1] in parent:
        parent[keys[-1]] = value


def _remove_section(content: dict[str, Any], section: str) -> None:
    del content[section]


def _read_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _write_lines(path: Path, lines: list[Any]) -> None:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def _at(file: str, change: Callable[[Path], object], run: Path) -> None:
    change(run / file)


def _swap_files(run: Path, first: str, second: str) -> None:
    content = (run / first).read_bytes()
    shutil.copyfile(run / second, run / first)
    (run / second).write_bytes(content)


def _copy_entry(run: Path, entry: str, target: str) -> None:
    if (run / entry).is_dir():
        shutil.copytree(run / entry, run / target)
    else:
        shutil.copyfile(run / entry, run / target)


def _record_after(entries: Iterable[str], change: Callable[[Path], object], run: Path) -> None:
    change(run)
    record_again(run, *entries)
