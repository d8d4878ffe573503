"""Files of responses in the store, one for each chunk of problems and each block of decodes.

A file's first line contains the problems and offsets of the other lines, the run that they were
generated for, and the hash of the file. Each other line contains the responses to one problem from
one call of the sampler (in an episode, from one attempt); or verdicts: those that decided whether a
problem got more samples, or those of the judge step, which has its own files (``verdicts.py``).
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import GapftError
from gapft_harness.core.records import GREEDY, Attempt, Response, Verdict
from gapft_harness.hooks.protocols import Generated, Request
from gapft_harness.run_directory.tables import sealed_status
from gapft_harness.store.store import damaged

#: One line of a file.
Record = Mapping[str, Any]

#: New verdicts by problem id and decode index.
Judgements = Mapping[str, Mapping[int, Verdict]]

#: The statuses of a response without a verdict, because of a timeout or an error.
_WITHOUT_VERDICT = ("timeout", "error")

#: The encoder of lines.
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

#: The place named in errors on a line whose file is unknown.
_STORE = Path("store")


@dataclass(frozen=True, slots=True)
class Entry:
    """All responses to one problem, with their stored verdicts.

    Attributes:
        problem_id: the problem's id.
        prompt_ids: the token ids of its own prompt.
        responses: the responses, ordered by index.
        verdicts: the valid verdicts by index.
        answers: the answers that were read with them by index; none without a verdict.
        differing: the facts that differed when the greedy response was executed repeatedly; None
            if it was not.
    """

    problem_id: str
    prompt_ids: tuple[int, ...]
    responses: tuple[Response, ...]
    verdicts: Mapping[int, Verdict] = field(default_factory=dict)
    answers: Mapping[int, str | None] = field(default_factory=dict)
    differing: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """The first line of a file.

    Attributes:
        run: the run directory that it was generated for.
        responses: the number of its responses, each attempt counted.
        sha256: the hash of the file.
        places: each line's problem and its offset after the first line, in bytes.
    """

    run: str
    responses: int
    sha256: str
    places: tuple[tuple[str, int], ...]


class Responses(ABC):
    """Responses by problem, from files or from memory."""

    @abstractmethod
    def records(self, problem_ids: Sequence[str], most: int | None = None) -> list[list[Record]]:
        """Return the lines of each problem, in the order in which they were added.

        Args:
            problem_ids: the problems; all their lines are in memory at once.
            most: maximum number of lines of each problem; None for all.
        """

    def read(self, problem_ids: Sequence[str]) -> Iterator[Entry]:
        """Yield the responses to each problem, joined from all lines and ordered by index.

        The attempts of an episode are joined: its response is the last one and contains the others.
        """
        yield from map(_entry, problem_ids, self.records(problem_ids))

    def prompt_ids(self, problem_ids: Sequence[str]) -> Iterator[tuple[int, ...]]:
        """Yield the token ids of each problem's own prompt."""
        for [first] in self.records(problem_ids, most=1):
            yield tuple(first["prompt_ids"])


class Draft(Responses):
    """Responses in memory, to a chunk that is being generated."""

    def __init__(self) -> None:
        self._records: dict[str, list[Record]] = {}

    def add(self, records: Iterable[Record]) -> None:
        """Add lines."""
        for record in records:
            self._records.setdefault(record["problem_id"], []).append(record)

    def records(self, problem_ids: Sequence[str], most: int | None = None) -> list[list[Record]]:
        """See ``Responses.records``."""
        return [self._records.get(problem_id, [])[:most] for problem_id in problem_ids]


class StoredResponses(Responses):
    """Responses in files; only an index of their lines is in memory."""

    def __init__(self) -> None:
        self._places: dict[str, list[tuple[Path, int]]] = {}
        self._of_others: set[Path] = set()

    def add(self, path: Path) -> Head:
        """Add a file after checking its hash.

        Raises:
            UserError: the file was changed.
        """
        head, start = _checked(path)
        for problem_id, offset in head.places:
            self._places.setdefault(problem_id, []).append((path, start + offset))
        return head

    def add_verdicts(self, path: Path, run: str) -> None:
        """Add a file of the judge step.

        If a response got a timeout or an error, a later try may give a verdict: such a status
        counts only in the run that it was judged for.

        Args:
            path: the file.
            run: the run directory that reads it.

        Raises:
            UserError: the file was changed.
        """
        if self.add(path).run != run:
            self._of_others.add(path)

    def records(self, problem_ids: Sequence[str], most: int | None = None) -> list[list[Record]]:
        """See ``Responses.read_records``; each file is opened once and read forwards."""
        places = [self._places.get(problem_id, [])[:most] for problem_id in problem_ids]
        lines: dict[tuple[Path, int], Record] = {}
        by_file: dict[Path, list[int]] = {}
        for path, offset in chain.from_iterable(places):
            by_file.setdefault(path, []).append(offset)
        for path, offsets in by_file.items():
            with path.open("rb") as file:
                for offset in sorted(offsets):
                    file.seek(offset)
                    record = json.loads(file.readline().decode())
                    is_other = path in self._of_others
                    lines[path, offset] = _keep_final(record) if is_other else record
        return [[lines[place] for place in of_problem] for of_problem in places]


def read_part(path: Path) -> list[Record]:
    """Read all lines of a file after checking its hash.

    Raises:
        UserError: the file was changed.
    """
    _checked(path)
    with path.open("rb") as file:
        file.readline()
        return [json.loads(line) for line in file]


def read_head(path: Path) -> Head:
    """Read a file's first line; the rest is not checked.

    Raises:
        UserError: the line is damaged.
    """
    try:
        with path.open("rb") as file:
            return _head(json.loads(file.readline()))
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise damaged(path, str(error)) from error


def part_of(records: Sequence[Record], run: str = "", path: Path | None = None) -> bytes:
    """Build the content of a file with these lines.

    Args:
        records: the lines.
        run: the run directory that they were generated for.
        path: its path in the store. Step, key and name are recorded, so that a copy in another
            file's place is detected. None for any path.
    """
    lines = [_dump(record) for record in records]
    offsets = accumulate((len(line) for line in lines), initial=0)
    head: dict[str, Any] = {
        "run": run,
        "place": _place(path) if path else "",
        "responses": sum(len(record.get("responses", ())) for record in records),
        "verdicts": sum(len(record.get("judged", ())) for record in records),
        "problems": [
            [record["problem_id"], at] for record, at in zip(records, offsets, strict=False)
        ],
    }
    body = b"".join(lines)
    return _dump({**head, "sha256": hashlib.sha256(_dump(head) + body).hexdigest()}) + body


def generated_records(
    requests: Sequence[Request], generated: Sequence[Generated]
) -> list[dict[str, Any]]:
    """Build the lines of a sampler's answers.

    Raises:
        GapftError: the number of responses is wrong.
    """
    records = []
    for request, answer in zip(requests, generated, strict=True):
        if len(answer.generations) != len(request.indices):
            raise GapftError(
                f"the sampler returned {len(answer.generations)} responses to problem "
                f"{request.problem_id}, expected {len(request.indices)}"
            )
        record: dict[str, Any] = {
            "problem_id": request.problem_id,
            "prompt_ids": answer.prompt_ids,
            "responses": [
                [index, seed, g.text, g.token_ids, g.finish_reason, g.tokens_from]
                for index, seed, g in zip(
                    request.indices, request.seeds, answer.generations, strict=True
                )
            ],
        }
        if request.attempts:
            record["attempt"] = len(request.attempts) + 1
            record["feedback"] = request.attempts[-1].feedback
        records.append(record)
    return records


def judged_records(judged: Judgements) -> list[dict[str, Any]]:
    """Build the lines of verdicts."""
    return [
        {"problem_id": problem_id, "judged": [[i, v.status, v.reason] for i, v in of.items()]}
        for problem_id, of in judged.items()
    ]


def verdict_record(
    problem_id: str,
    judged: Iterable[tuple[int, Verdict, str | None]],
    differing: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Build the line of a problem's verdicts with their answers.

    Args:
        problem_id: the problem's id.
        judged: index, verdict and answer of each response.
        differing: see ``ProblemResponses``.
    """
    rows = [[index, verdict.status, verdict.reason, answer] for index, verdict, answer in judged]
    record: dict[str, Any] = {"problem_id": problem_id, "judged": rows}
    return record if differing is None else {**record, "differing": list(differing)}


def only(records: Iterable[Record], indices: Collection[int]) -> list[Record]:
    """Select the responses of some decodes from lines; lines without any are left out."""
    found: list[Record] = []
    for record in records:
        kept = [response for response in record["responses"] if response[0] in indices]
        if kept:
            found.append({**record, "responses": kept})
    return found


def _checked(path: Path) -> tuple[Head, int]:
    """Check a file's hash; return its first line and the bytes that the line takes."""
    try:
        with path.open("rb") as file:
            first = file.readline()
            said = json.loads(first)
            expected = said.pop("sha256")
            found = hashlib.sha256(_dump(said))
            while block := file.read(1 << 20):
                found.update(block)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(path, str(error)) from error
    if found.hexdigest() != expected:
        raise damaged(path, "its hash is different")
    if said["place"] not in ("", _place(path)):
        raise damaged(path, f"copied from {said['place']}")
    return _head({**said, "sha256": expected}), len(first)


def _place(path: Path) -> str:
    """Return a file's step, key and name."""
    return "/".join(path.parts[-3:])


def _head(said: Mapping[str, Any]) -> Head:
    places = tuple((str(problem_id), int(at)) for problem_id, at in said["problems"])
    return Head(str(said["run"]), int(said["responses"]), str(said["sha256"]), places)


def _dump(record: Mapping[str, Any]) -> bytes:
    return _JSON.encode(record).encode() + b"\n"


def _entry(problem_id: str, records: Sequence[Record]) -> Entry:
    """Join a problem's lines, in any order."""
    prompt_ids: tuple[int, ...] = ()
    found: dict[int, Response] = {}
    verdicts: dict[int, Verdict] = {}
    decided: dict[int, Verdict] = {}
    answers: dict[int, str | None] = {}
    differing: tuple[str, ...] | None = None
    where = f", problem {problem_id}"
    for record in sorted(records, key=lambda record: record.get("attempt", 1)):
        if "judged" in record:
            for index, status, reason, *answer in record["judged"]:
                known = sealed_status(status, _STORE, where)
                (verdicts if answer else decided)[index] = Verdict(known, reason)
                if answer:
                    answers[index] = answer[0]
            if "differing" in record:
                differing = tuple(record["differing"])
            continue
        ids = tuple(record["prompt_ids"])
        first = "attempt" not in record
        if first:
            prompt_ids = ids
        for index, seed, text, token_ids, finish_reason, tokens_from in record["responses"]:
            earlier: tuple[Attempt, ...] = ()
            if not first:
                last = found[index]
                attempt = Attempt(last.text, last.token_ids, last.finish_reason, record["feedback"])
                earlier = (*last.attempts, attempt)
            found[index] = Response(
                problem_id,
                index,
                text,
                tuple(token_ids),
                finish_reason,
                seed,
                tokens_from,
                earlier,
                () if first else ids,
            )
    return Entry(
        problem_id,
        prompt_ids,
        tuple(found[index] for index in sorted(found)),
        verdicts | decided,  # verdicts that decided about further samples take precedence
        answers,
        differing,
    )


def _keep_final(record: Record) -> Record:
    """Remove verdicts that were a timeout or an error from a line."""
    rows = [row for row in record["judged"] if row[1] not in _WITHOUT_VERDICT]
    kept = {**record, "judged": rows}
    if all(row[0] != GREEDY for row in rows):
        kept.pop("differing", None)
    return kept
