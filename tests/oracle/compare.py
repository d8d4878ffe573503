"""Compare two contents without tolerances: items, their columns or paths, their values."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import load_file

#: What differs in every run or with every version of the code is not compared: columns and parts of
#: paths with these names. Found by building twice, the second time in another folder, with another
#: version number and a comment in every file.
LEFT_OUT = {
    "seconds": "wall-clock times",
    "base_model": "a path",
    "logs": "paths",
    "files": "hashes of files with metadata, such as versions",
    "stored": "a key of the store",
    "made_with": "versions of libraries",
    "versions": "versions of libraries",
}
#: The most lines for one item.
MAX_LINES = 20

Values = dict[str, Any]


@dataclass
class Permitted:
    """A permitted difference; see ``permitted.yaml``."""

    items: str
    key: str
    kind: str
    to: str
    cites: str
    used: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.items} {self.key} (cites {self.cites})"

    def match(self, item: str, key: str, kind: str) -> re.Match[str] | None:
        """Match a difference of this kind; the groups are what each * of the key matched."""
        if kind != self.kind or not re.fullmatch(to_pattern(self.items), item):
            return None
        match = re.fullmatch(to_pattern(self.key), key)
        self.used |= match is not None
        return match

    def rename(self, item: str, key: str) -> str:
        """Return the new name of a key."""
        match = self.match(item, key, "renamed")
        parts = iter(match.groups()) if match else iter(())
        return re.sub(r"\*", lambda _: next(parts), self.to) if match else key


def to_pattern(glob: str) -> str:
    """Return the regular expression of a glob whose * matches anything."""
    return "(.*)".join(map(re.escape, glob.split("*")))


def read_permitted(path: Path) -> list[Permitted]:
    """Read the permitted differences; each must cite a sentence."""
    entries = []
    for entry in yaml.safe_load(path.read_text("utf-8")) or ():
        kinds = ("missing", "moved", "additional", "changed", "renamed")
        if entry["kind"] not in kinds or (entry["kind"] == "renamed") != ("to" in entry):
            raise SystemExit(f"{path}: bad entry {entry}")
        values = entry["in"], entry.get("key", ""), entry["kind"], entry.get("to", "")
        entries.append(Permitted(*values, entry["cites"]))
    return entries


def compare_contents(
    expected: Path, made: Path, group: str, permitted: list[Permitted], counts: Counter[str]
) -> Iterator[str]:
    """Yield a line for each difference of a group that is not permitted."""

    def is_permitted(item: str, key: str, kind: str) -> bool:
        matching = [entry for entry in permitted if entry.match(item, key, kind)]
        return bool(matching)

    old_items, new_items = list_items(expected / group), list_items(made / group)
    if not new_items:
        yield f"missing: {group}, which could not be made"
        return
    for name in sorted({*old_items, *new_items}):
        item = f"{group}/{name}"
        if name not in new_items or name not in old_items:
            kind = "missing" if name in old_items else "additional"
            if not is_permitted(item, "", kind):
                yield f"{kind}: {item}"
            continue
        old, new = (load_item(items[name]) for items in (old_items, new_items))
        for entry in permitted:
            renamed = {entry.rename(item, key): values for key, values in old.items()}
            if len(renamed) < len(old):
                raise SystemExit(f"{item}: two keys get the same name by {entry}")
            old = renamed
        count_values(old, counts)
        is_document = not any(isinstance(value, np.ndarray) for value in new.values())
        new_values = {write(value) for value in new.values()} if is_document else set()
        lines = [
            f"{kind}: {item}  {key}{detail}"
            for key, kind, detail in compare_items(old, new)
            if not is_permitted(item, key, kind)
            and not (
                kind == "missing"
                and is_permitted(item, key, "moved")
                and write(old[key]) in new_values
            )
        ]
        yield from lines[:MAX_LINES]
        if len(lines) > MAX_LINES:
            yield f"{item}: {len(lines) - MAX_LINES} further differences"


def count_values(item: Values, counts: Counter[str]) -> None:
    """Count an item, by kind, and its values."""
    tensors = any(isinstance(values, np.ndarray) for values in item.values())
    table = all(isinstance(values, list) for values in item.values())
    counts["adapters" if tensors else "tables" if table else "documents"] += 1
    counts["values"] += sum(
        np.size(v) if tensors else len(v) if table else 1 for v in item.values()
    )


def list_items(folder: Path) -> dict[str, Path]:
    """Map the names of items to their files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in files}


def load_item(path: Path) -> Values:
    """Load an item: keys to values, columns or tensors."""
    if path.suffix == ".safetensors":
        return dict(load_file(path))
    values: Values = json.loads(path.read_text("utf-8"))
    return {k: v for k, v in values.items() if not LEFT_OUT.keys() & {*k.split(".")}}


def compare_items(old: Values, new: Values) -> Iterator[tuple[str, str, str]]:
    """Yield key, kind and description of each difference of two items."""
    for key in {**old, **new}:
        if key not in new:
            yield key, "missing", f" (was {show(old[key])})"
        elif key not in old:
            yield key, "additional", f" ({show(new[key])})"
        elif isinstance(old[key], np.ndarray):
            if detail := describe_tensors(old[key], new[key]):
                yield key, "changed", detail
        elif write(old[key]) != write(new[key]):
            yield key, "changed", describe_change(old[key], new[key], next(iter(old.values())))


def describe_change(old: Any, new: Any, labels: Any) -> str:
    """Describe a change, with its first row in a column; the first column labels the rows."""
    if not (isinstance(old, list) and isinstance(new, list)):
        return f": {show(old)} → {show(new)}"
    if len(old) != len(new):
        return f": {len(old)} rows → {len(new)} rows"
    rows = [i for i, (a, b) in enumerate(zip(old, new, strict=True)) if write(a) != write(b)]
    first = rows[0]
    has_label = isinstance(labels, list) and len(labels) == len(old)
    label = f" ({show(labels[first], 40)})" if has_label else ""
    more = f" and {len(rows) - 1} more rows" if len(rows) > 1 else ""
    return f": row {first}{label}{more}: {show(old[first])} → {show(new[first])}"


def describe_tensors(old: Any, new: Any) -> str:
    """Describe the first difference of two tensors, bit by bit; empty if they are equal."""
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        return f": {old.dtype}{list(old.shape)} → {new.dtype}{list(new.shape)}"
    a, b = (np.frombuffer(t.tobytes(), f"V{t.itemsize}") for t in (old, new))
    differing = np.flatnonzero(a != b)
    if not differing.size:
        return ""
    i = int(differing[0])
    numbers = f"{old.flat[i]} ({a[i].tobytes().hex()}) → {new.flat[i]} ({b[i].tobytes().hex()})"
    return f": {differing.size} of {old.size} numbers differ, first number {i}: {numbers}"


def write(value: Any) -> str:
    """Write a value as canonical JSON: equal texts are equal values, also for NaN, 1 and 1.0."""
    return json.dumps(value, sort_keys=True)


def show(value: Any, width: int = 70) -> str:
    """Write a value for a message."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= width else f"{text[: width - 1]}…"
