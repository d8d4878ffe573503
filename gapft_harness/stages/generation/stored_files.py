"""Files of responses in the store, one for each chunk of problems and each block of decodes.

A file's first line contains the problems and offsets of the other lines, the run that they were
generated for, and the hash of the file. Each other line contains the responses to one problem from
one call of the sampler (in an episode, from one attempt), with the verdicts that the sampler has;
or verdicts of the judge step, which has its own files (``verdicts.py``).
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
from gapft_harness.run_directory.manifest import IMPORTED_PREFIX
from gapft_harness.run_directory.tables import parse_status
from gapft_harness.store.store import damaged_file_error

#: One line of a file.
Record = Mapping[str, Any]

#: The statuses of a response without a verdict, because of a timeout or an error.
_WITHOUT_VERDICT = ("timeout", "error")

#: The encoder of lines.
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

#: The place named in errors on a line whose file is unknown.
_STORE = Path("store")


@dataclass(frozen=True, slots=True)
class ProblemResponses:
    """All responses to one problem, with their stored verdicts.

    Attributes:
        problem_id: the problem's id.
        prompt_ids: the token ids of its own prompt.
        responses: the responses, ordered by index.
        verdicts: the valid verdicts by index.
        answers: the answers that were read with them by index; none without a verdict.
        differing: the facts that differed when a deployment response was executed repeatedly; None
            if none was.
    """

    problem_id: str
    prompt_ids: tuple[int, ...]
    responses: tuple[Response, ...]
    verdicts: Mapping[int, Verdict] = field(default_factory=dict)
    answers: Mapping[int, str | None] = field(default_factory=dict)
    differing: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class FileHead:
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
    def read_records(
        self, problem_ids: Sequence[str], most: int | None = None
    ) -> list[list[Record]]:
        """Return the lines of each problem, in the order in which they were added.

        Args:
            problem_ids: the problems; all their lines are in memory at once.
            most: maximum number of lines of each problem; None for all.
        """

    def read(self, problem_ids: Sequence[str]) -> Iterator[ProblemResponses]:
        """Yield the responses to each problem, joined from all lines and ordered by index.

        The attempts of an episode are joined: its response is the last one and contains the others.
        """
        yield from map(_join_records, problem_ids, self.read_records(problem_ids))

    def iterate_prompt_ids(self, problem_ids: Sequence[str]) -> Iterator[tuple[int, ...]]:
        """Yield the token ids of each problem's own prompt."""
        for [first] in self.read_records(problem_ids, most=1):
            yield tuple(first["prompt_ids"])


class DraftResponses(Responses):
    """Responses in memory, to a chunk that is being generated."""

    def __init__(self) -> None:
        self._records: dict[str, list[Record]] = {}

    def add(self, records: Iterable[Record]) -> None:
        """Add lines."""
        for record in records:
            self._records.setdefault(record["problem_id"], []).append(record)

    def read_records(
        self, problem_ids: Sequence[str], most: int | None = None
    ) -> list[list[Record]]:
        """See ``Responses.records``."""
        return [self._records.get(problem_id, [])[:most] for problem_id in problem_ids]


class StoredResponses(Responses):
    """Responses in files; only an index of their lines is in memory."""

    def __init__(self) -> None:
        self._places: dict[str, list[tuple[Path, int]]] = {}
        self._other_run_files: set[Path] = set()

    def add(self, path: Path) -> FileHead:
        """Add a file after checking its hash.

        Raises:
            UserError: the file was changed.
        """
        head, start = _check_file(path)
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
            self._other_run_files.add(path)

    def read_records(
        self, problem_ids: Sequence[str], most: int | None = None
    ) -> list[list[Record]]:
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
                    is_other = path in self._other_run_files
                    lines[path, offset] = _keep_final(record) if is_other else record
        return [[lines[place] for place in of_problem] for of_problem in places]


def read_part(path: Path) -> list[Record]:
    """Read all lines of a file after checking its hash.

    Raises:
        UserError: the file was changed.
    """
    _check_file(path)
    with path.open("rb") as file:
        file.readline()
        return [json.loads(line) for line in file]


def read_head(path: Path) -> FileHead:
    """Read a file's first line; the rest is not checked.

    Raises:
        UserError: the line is damaged.
    """
    try:
        with path.open("rb") as file:
            return _parse_head(json.loads(file.readline()))
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise damaged_file_error(path, str(error)) from error


def build_file(records: Sequence[Record], run: str = "", path: Path | None = None) -> bytes:
    """Build the content of a file with these lines.

    Args:
        records: the lines.
        run: the run directory that they were generated for.
        path: its path in the store. Step, key and name are recorded, so that a copy in another
            file's place is detected. None for any path.
    """
    lines = [_encode_record(record) for record in records]
    offsets = accumulate((len(line) for line in lines), initial=0)
    head: dict[str, Any] = {
        "run": run,
        "place": _format_place(path) if path else "",
        "responses": sum(len(record.get("responses", ())) for record in records),
        "verdicts": sum(len(record.get("judged", ())) for record in records),
        "problems": [
            [record["problem_id"], at] for record, at in zip(records, offsets, strict=False)
        ],
    }
    body = b"".join(lines)
    return (
        _encode_record({**head, "sha256": hashlib.sha256(_encode_record(head) + body).hexdigest()})
        + body
    )


def build_response_records(
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
                + ([g.reasoning] if g.reasoning or g.passed is not None else [])
                + ([g.passed] if g.passed is not None else [])
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


def build_log_verdict(passed: bool) -> Verdict:
    """Build the verdict that a log has on its response."""
    return Verdict("pass" if passed else "fail", IMPORTED_PREFIX)


def build_verdict_record(
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


def select_responses(records: Iterable[Record], indices: Collection[int]) -> list[Record]:
    """Select the responses of some decodes from lines; lines without any are left out."""
    selected: list[Record] = []
    for record in records:
        responses = [response for response in record["responses"] if response[0] in indices]
        if responses:
            selected.append({**record, "responses": responses})
    return selected


def _check_file(path: Path) -> tuple[FileHead, int]:
    """Check a file's hash; return its first line and the bytes that the line takes."""
    try:
        with path.open("rb") as file:
            first_line = file.readline()
            head = json.loads(first_line)
            expected = head.pop("sha256")
            digest = hashlib.sha256(_encode_record(head))
            while block := file.read(1 << 20):
                digest.update(block)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged_file_error(path, str(error)) from error
    if digest.hexdigest() != expected:
        raise damaged_file_error(path, "its hash is different")
    if head["place"] not in ("", _format_place(path)):
        raise damaged_file_error(path, f"copied from {head['place']}")
    return _parse_head({**head, "sha256": expected}), len(first_line)


def _format_place(path: Path) -> str:
    """Return a file's step, key and name."""
    return "/".join(path.parts[-3:])


def _parse_head(content: Mapping[str, Any]) -> FileHead:
    places = tuple((str(problem_id), int(at)) for problem_id, at in content["problems"])
    return FileHead(str(content["run"]), int(content["responses"]), str(content["sha256"]), places)


def _encode_record(record: Mapping[str, Any]) -> bytes:
    return _JSON.encode(record).encode() + b"\n"


def _join_records(problem_id: str, records: Sequence[Record]) -> ProblemResponses:
    """Join a problem's lines, in any order."""
    prompt_ids: tuple[int, ...] = ()
    responses: dict[int, Response] = {}
    verdicts: dict[int, Verdict] = {}
    answers: dict[int, str | None] = {}
    differing: tuple[str, ...] | None = None
    place = f", problem {problem_id}"
    for record in sorted(records, key=lambda record: record.get("attempt", 1)):
        if "judged" in record:
            for index, status, reason, *answer in record["judged"]:
                valid_status = parse_status(status, _STORE, place)
                verdicts[index] = Verdict(valid_status, reason)
                if answer:
                    answers[index] = answer[0]
            if "differing" in record:
                differing = tuple(dict.fromkeys([*(differing or ()), *record["differing"]]))
            continue
        ids = tuple(record["prompt_ids"])
        is_first_attempt = "attempt" not in record
        if is_first_attempt:
            prompt_ids = ids
        for index, seed, text, token_ids, finish_reason, tokens_from, *rest in record["responses"]:
            reasoning, passed = rest[:1], rest[1:]
            if passed:
                verdicts.setdefault(index, build_log_verdict(passed[0]))
            earlier: tuple[Attempt, ...] = ()
            if not is_first_attempt:
                last = responses[index]
                attempt = Attempt(
                    last.text,
                    last.token_ids,
                    last.finish_reason,
                    record["feedback"],
                    last.reasoning,
                )
                earlier = (*last.attempts, attempt)
            responses[index] = Response(
                problem_id,
                index,
                text,
                tuple(token_ids),
                finish_reason,
                seed,
                tokens_from,
                earlier,
                () if is_first_attempt else ids,
                *reasoning,
            )
    return ProblemResponses(
        problem_id,
        prompt_ids,
        tuple(responses[index] for index in sorted(responses)),
        verdicts,
        answers,
        differing,
    )


def _keep_final(record: Record) -> Record:
    """Remove verdicts that were a timeout or an error from a line."""
    rows = [row for row in record["judged"] if row[1] not in _WITHOUT_VERDICT]
    filtered = {**record, "judged": rows}
    if not any(row[0] == GREEDY for row in rows):
        filtered.pop("differing", None)
    return filtered
