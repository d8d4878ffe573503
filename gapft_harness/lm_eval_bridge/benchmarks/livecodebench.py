"""LiveCodeBench: the audit has the later contests, the pool the earlier ones.

The rule is frozen: a problem belongs to the audit if its contest took place on or after
``AUDIT_FROM``, else to the pool. A pool problem whose text is also in the audit is dropped from the
pool. Problems in the benchmark's ERRATA are dropped from both. The paper does not say which
problems it used; this is our own choice.

The files have about 4.5 GB, nearly all of it hidden tests. They are read line by line, and only the
records of the requested split are kept, with packed hidden tests.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from types import MappingProxyType

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.core.json_values import parse_object
from gapft_harness.lm_eval_bridge.benchmarks.splits import (
    DATA_DIR,
    Source,
    Splits,
    fetch_hub_file,
)
from gapft_harness.lm_eval_bridge.task_file.documents import (
    Document,
    Documents,
    check_fields,
    stream_documents,
)
from gapft_harness.verification.packed_tests import decode_tests

# LiveCodeBench problems that cannot be judged by comparing outputs, from its own ERRATA.
#
# Source: ERRATA.md of github.com/LiveCodeBench/LiveCodeBench as of commit
# ``b0fc86b1e20daa66d255574bc2bece8ff19de90d`` (2025-07-08). It names AtCoder problems by id and
# LeetCode problems by the slug of their title.


#: Flag -> names. ``several_answers``: several outputs are right, but the tests accept one.
#: ``interactive``: needs an interactive judge. ``bad_tests``: a test is wrong or violates the
#: problem's constraints.
ERRATA: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "several_answers": (
            "abc311_c",
            "abc326_d",
            "abc327_b",
            "abc333_e",
            "abc343_a",
            "abc343_e",
            "abc362_c",
            "arc185_c",
            "find-the-peaks",
            "find-words-containing-character",
            "generate-binary-strings-without-adjacent-zeros",
        ),
        "interactive": ("abc337_e", "abc355_e"),
        "bad_tests": (
            "abc350_c",
            "apply-operations-to-make-string-empty",
            "arc189_a",
            "most-frequent-ids",
        ),
    }
)

_FLAG_BY_NAME = {name: flag for flag, names in ERRATA.items() for name in names}

SOURCE = Source(
    benchmark="LiveCodeBench",
    folder="livecodebench",
    origin="the hub's dataset livecodebench/code_generation_lite",
    variable="GAPFT_REVISION_LIVECODEBENCH",
)

#: The files on the hub; each release adds one.
FILES = ("test.jsonl", *(f"test{number}.jsonl" for number in range(2, 7)))

#: First day of the audit. Qwen2.5-Coder, the later of the paper's two code models, was first
#: released in September 2024.
AUDIT_FROM = "2024-10-01"

_ID_FIELDS = ("question_title", "question_content", "platform", "question_id", "contest_id")
_OTHER_FIELDS = ("contest_date", "starter_code", "difficulty", "metadata")
_KEPT_FIELDS = (*_ID_FIELDS, *_OTHER_FIELDS[:3])


def load(
    revision: str,
    audit_from: str | date = AUDIT_FROM,
    exclude: Sequence[str] = tuple(ERRATA),
    exclude_ids: Sequence[str] = (),
) -> Splits:
    """Load the splits ``pool`` and ``audit``.

    Args:
        revision: commit of the hub's dataset, used if ``GAPFT_DATA_DIR`` has no folder
            ``livecodebench``.
        audit_from: the audit's first contest day; earlier contests belong to the pool.
        exclude: flags of the ERRATA whose problems are dropped; ``[]`` keeps all.
        exclude_ids: question_ids of further problems to drop.

    Returns:
        Splits of records with the benchmark's question_title, question_content, platform,
        question_id, contest_id, contest_date, starter_code and difficulty; ``kind`` (stdin or
        function) and ``function``; ``tests`` (the public tests) and ``public`` (their number);
        ``hidden`` (the packed hidden tests); ``erratum`` (the problem's flag or None).

    Raises:
        UserError: an invalid day, or an unknown flag.
    """
    first_day = _parse_day(audit_from, "audit_from")
    reasons = {str(question_id): "exclude_ids" for question_id in exclude_ids}
    for flag in [exclude] if isinstance(exclude, str) else exclude:
        if flag not in ERRATA:
            raise UserError(f"exclude: unknown flag {flag!r}; {did_you_mean(str(flag), ERRATA)}")
        reasons[flag] = f"ERRATA: {flag}"
    read = partial(_read_split, revision=revision, first_day=first_day, reasons=reasons)
    return Splits({name: partial(read, name) for name in ("pool", "audit")})


def _read_split(
    name: str, *, revision: str, first_day: date, reasons: Mapping[str, str]
) -> Documents:
    """Read one split in one pass over all files.

    Args:
        name: ``pool`` or ``audit``.
        revision: commit of the hub's dataset.
        first_day: the audit's first contest day.
        reasons: for each flag or question_id whose problems are dropped, the reason in words.
    """
    records: list[Document] = []
    places: list[str] = []
    audit_texts: set[bytes] = set()
    excluded: Counter[str] = Counter()
    # Divide by the day of the contest
    for record, place in _stream_records(revision):
        day = _parse_day(record["contest_date"], f"{place}: contest_date")
        split = "audit" if day >= first_day else "pool"
        if split == "audit":
            audit_texts.add(_hash_text(record))
        if split != name:
            continue
        flag = find_flag(record["question_id"], record["question_title"])
        if reason := reasons.get(flag or "") or reasons.get(record["question_id"]):
            excluded[reason] += 1
            continue
        records.append({**_build_problem(record, place), "erratum": flag})
        places.append(place)
    documents = Documents(records, places)
    # Name what is dropped
    sentences = [
        f"{SOURCE.benchmark} {name}: {count} problems dropped ({reason})"
        for reason, count in sorted(excluded.items())
    ]
    if name == "pool":
        rest = documents.where(lambda record: _hash_text(record) not in audit_texts)
        if duplicates := len(documents) - len(rest):
            sentences.append(
                f"{SOURCE.benchmark} pool: {duplicates} problems dropped (also in audit)"
            )
        documents = rest
    if not len(documents):
        raise UserError(
            f"{SOURCE.benchmark}: the {name} is empty: audit_from is {first_day}, and the "
            "files have no contest on that side of the day; change audit_from or add files"
        )
    return documents.with_notes(sentences)


def _stream_records(revision: str) -> Iterator[tuple[Document, str]]:
    for path in _find_files(revision):
        for record, place in stream_documents(path):
            texts = (*_ID_FIELDS, *_OTHER_FIELDS, "public_test_cases", "private_test_cases")
            check_fields(Documents([record], [place]), dict.fromkeys(texts, str))
            yield record, place


def _build_problem(record: Document, place: str) -> Document:
    """Build the task's record; the verifier checks its tests.

    Raises:
        UserError: the tests have no or several kinds, or a field is malformed.
    """
    where = f"{place}, problem {record['question_id']}"
    packed = record["private_test_cases"]
    public = decode_tests(record["public_test_cases"], f"{where}, public_test_cases")
    tests = public or decode_tests(packed, f"{where}, private_test_cases")
    kinds = {test.testtype for test in tests}
    if len(kinds) != 1:
        raise UserError(f"{where}: found tests of {len(kinds)} kinds; expected one kind")
    is_functional = kinds == {"functional"}
    metadata = parse_object(record["metadata"], f"{where}: metadata") if is_functional else {}
    return {
        **{name: record[name] for name in _KEPT_FIELDS},
        "kind": "function" if is_functional else "stdin",
        "function": metadata.get("func_name"),
        "tests": [{"input": test.input, "output": test.output} for test in public],
        "public": len(public),
        "hidden": packed,
    }


def _hash_text(record: Document) -> bytes:
    """Hash the texts that identify a problem."""
    parts = (record["question_content"].strip(), record["starter_code"].strip())
    return hashlib.sha256("\0".join(parts).encode()).digest()


def _parse_day(value: str | date, key: str) -> date:
    try:
        return date.fromisoformat(str(value)[:10])
    except ValueError as error:
        raise UserError(f"{key}: found {value!r:.40}, expected a day such as 2024-10-01") from error


def _find_files(pinned: str) -> list[Path]:
    folder = SOURCE.find_folder()
    if folder is None:
        dataset = "livecodebench/code_generation_lite"
        return [
            SOURCE.download(name, pinned, partial(fetch_hub_file, dataset, name)) for name in FILES
        ]
    paths = sorted(folder.glob("*.jsonl"))
    if not paths:
        raise UserError(
            f"{SOURCE.benchmark}: {folder}: no .jsonl file found; put the benchmark's files "
            f"({', '.join(FILES)}) into it, or remove the folder from {DATA_DIR} to download them "
            f"from {SOURCE.origin}"
        )
    return paths


def find_flag(question_id: str, title: str) -> str | None:
    """Find a problem's flag by its id or the slug of its title; None if it is not in ERRATA."""
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    return _FLAG_BY_NAME.get(question_id) or _FLAG_BY_NAME.get(slug)
