"""Stable problem ids: derived from the data, never from a row number.

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

# The benchmark's own id is always followed by the hash, so it cannot match at the end.
_REPEAT = re.compile(rf"[0-9a-f]{{{HASH_DIGITS}}}#[0-9]+\Z")
_DIGEST = re.compile(rf"(?:\A|-)([0-9a-f]{{{HASH_DIGITS}}})(?:#[0-9]+)?\Z")


def content_hash(content: Any) -> str:
    """Compute the SHA-256 of a JSON value in hex; the order of an object's keys does not matter.

    Args:
        content: any JSON value.
    """
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def canonical_json(content: Any) -> str:
    """Serialize a JSON value in canonical form: sorted keys, no spaces, no escapes."""
    return json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def assign_problem_ids(
    documents: Sequence[Mapping[str, Any]],
    own_ids: Sequence[str] | None = None,
    content: Sequence[str] = (),
) -> list[str]:
    """Assign an id to each problem of a split, in the order given.

    Args:
        documents: the split's records, JSON values only.
        own_ids: the benchmark's ids; they may repeat.
        content: names of the fields that identify a problem: records with equal values there are
            the same problem. Empty means all fields.

    Returns:
        Unique ids. They do not depend on the order of the records: in a different order each record
        gets the same id, and only records equal in every field may swap theirs. ``is_repeat``
        detects problems whose content occurs earlier in the numbering.

    Raises:
        GapftError: two different problems have the same hash (extremely unlikely).
    """
    names = [""] * len(documents) if own_ids is None else list(own_ids)
    by_content: defaultdict[str, list[int]] = defaultdict(list)
    for row, document in enumerate(documents):
        fields = {name: document[name] for name in content} if content else dict(document)
        by_content[content_hash(fields)].append(row)
    ids = [""] * len(documents)
    for digest, rows in by_content.items():
        # Sorted by content, so that the numbers do not depend on the file's order.
        rows.sort(key=lambda row: (names[row], canonical_json(dict(documents[row]))))
        for occurrence, row in enumerate(rows, start=1):
            stem = "-".join(part for part in (names[row], digest[:HASH_DIGITS]) if part)
            ids[row] = stem if occurrence == 1 else f"{stem}#{occurrence}"
    if len(set(ids)) < len(ids):
        repeated = next(name for name in ids if ids.count(name) > 1)
        raise GapftError(f"two different problems have the id {repeated}: their hashes collide")
    return ids


def is_repeat(problem_id: str) -> bool:
    """Check whether a problem id ends in an occurrence number (``#2``, ``#3``, ...).

    The number follows the content hash. A ``#`` in the benchmark's own id does not count.
    """
    return _REPEAT.search(problem_id) is not None


def extract_content_hash(problem_id: str) -> str | None:
    """Extract the content hash from a problem id; None for an id of a different form."""
    match = _DIGEST.search(problem_id)
    return match[1] if match else None
