"""Stable problem ids: of the data itself, never a row number.

An id is the benchmark's own id (where it has one), a short hash of the problem's content and,
for problems of equal content in one split, an occurrence number: ``218-3fa9c2d19b07``,
``218-3fa9c2d19b07#2``. LogiQA 2.0 shows why each part is needed: its own ids repeat, and so do
whole problems.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from gapft_harness.core.errors import GapftError

#: Hexadecimal digits of the content hash in an id: 48 bits, so that even among 100,000 problems
#: two different ones share a hash with probability below 1 in 50,000.
HASH_DIGITS = 12

# An own id always has the hash after it, so none can end like this.
_REPEAT = re.compile(rf"[0-9a-f]{{{HASH_DIGITS}}}#[0-9]+\Z")
_DIGEST = re.compile(rf"(?:\A|-)([0-9a-f]{{{HASH_DIGITS}}})(?:#[0-9]+)?\Z")


def content_hash(content: Any) -> str:
    """Return the SHA-256 of a JSON value in hex; the order of an object's keys does not matter.

    Args:
        content: any JSON value.
    """
    return hashlib.sha256(canonical(content).encode()).hexdigest()


def canonical(content: Any) -> str:
    """One spelling for each JSON value: sorted keys, no spaces, no escapes."""
    return json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def searched(config: Mapping[str, Any]) -> dict[str, Any]:
    """A task's configuration without what neither pool nor audit is read from.

    That is a validation split beside a test split, and its data files, but where lm-eval takes
    few-shot examples from it, as it does where there is no training split and nothing else is
    named. Scaling may calibrate on it later, on finished runs; what it reads is recorded then, as
    that split's content.

    Args:
        config: as lm-eval resolved it, JSON values.
    """
    split = config.get("validation_split")
    examples = (config.get("fewshot_config") or {}).get("split")
    others = (config.get("training_split"), config.get("test_split"), examples)
    if split is None or others[1] is None or split in (*others, config.get("fewshot_split")):
        return dict(config)
    if config.get("num_fewshot") and not (others[0] or examples or config.get("fewshot_split")):
        return dict(config)
    found = {key: value for key, value in config.items() if key != "validation_split"}
    arguments = found.get("dataset_kwargs") or {}
    if isinstance(files := arguments.get("data_files"), dict):
        left = {name: file for name, file in files.items() if name != split}
        found["dataset_kwargs"] = {**arguments, "data_files": left}
    return found


def problem_ids(
    documents: Sequence[Mapping[str, Any]],
    own_ids: Sequence[str] | None = None,
    content: Sequence[str] = (),
) -> list[str]:
    """The ids of a split's problems, in the order given.

    Args:
        documents: the split's records, JSON values only.
        own_ids: the benchmark's ids; they may repeat.
        content: names of the fields that make two records the same problem; empty means all.

    Returns:
        Unique ids. They depend on the set of records alone: in another order each record gets
        the same id, and only records equal in every field may exchange theirs. ``is_repeat``
        tells the problems whose content an earlier-numbered one has too.

    Raises:
        GapftError: two different problems share a hash (about never).
    """
    names = [""] * len(documents) if own_ids is None else list(own_ids)
    by_content: defaultdict[str, list[int]] = defaultdict(list)
    for row, document in enumerate(documents):
        fields = {name: document[name] for name in content} if content else dict(document)
        by_content[content_hash(fields)].append(row)
    ids = [""] * len(documents)
    for digest, rows in by_content.items():
        # Numbered by the records themselves, so that the file's order has no say.
        rows.sort(key=lambda row: (names[row], canonical(dict(documents[row]))))
        for occurrence, row in enumerate(rows, start=1):
            stem = "-".join(part for part in (names[row], digest[:HASH_DIGITS]) if part)
            ids[row] = stem if occurrence == 1 else f"{stem}#{occurrence}"
    if len(set(ids)) < len(ids):
        repeated = next(name for name in ids if ids.count(name) > 1)
        raise GapftError(f"two different problems have the id {repeated}: their hashes collide")
    return ids


def is_repeat(problem_id: str) -> bool:
    """Whether an id of ``problem_ids`` carries an occurrence number (``#2``, ``#3``, ...).

    The number follows the content hash. A ``#`` in the benchmark's own id does not count.
    """
    return _REPEAT.search(problem_id) is not None


def content_digest(problem_id: str) -> str | None:
    """The hash of a problem's content that stands in its id; None in an id of another form."""
    found = _DIGEST.search(problem_id)
    return found[1] if found else None
