"""The files of parts: lines with a problem's responses, or with verdicts on them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import accumulate
from pathlib import Path
from typing import Any

from gapft_harness.core.records import Response, Verdict
from gapft_harness.engine.outputs import Output
from gapft_harness.hooks.judge import VerdictAndAnswer
from gapft_harness.run_directory.tables import IMPORTED_PREFIX, parse_response, parse_status

#: A problem's responses or verdicts, as JSON values.
Line = Mapping[str, Any]

#: The fields of a response in a line, in order.
_FIELDS = tuple(field.name for field in fields(Response) if field.name != "problem_id")

#: The encoder of lines; attempts become objects.
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=asdict)


@dataclass(frozen=True, slots=True)
class ProblemResponses:
    """All responses to one problem, with their verdicts.

    Attributes:
        problem_id: the problem's id.
        prompt_ids: the token ids of its own prompt.
        responses: the responses, ordered by index.
        reported: the verdicts that the sampler returned, by index.
        judged: the verdicts of the judge step with the answers that were read, by index.
        differing: the facts that differed when a deployment response was executed repeatedly; None
            if none was.
    """

    problem_id: str
    prompt_ids: tuple[int, ...]
    responses: tuple[Response, ...]
    reported: Mapping[int, Verdict] = field(default_factory=dict)
    judged: Mapping[int, VerdictAndAnswer] = field(default_factory=dict)
    differing: tuple[str, ...] | None = None


class Responses:
    """Responses and verdicts by problem; of parts only an index of their lines is in memory."""

    def __init__(self) -> None:
        self._places: dict[str, list[tuple[Path, int]]] = {}
        self._lines: dict[str, list[Line]] = {}

    def add(self, part: Output) -> None:
        """Add the lines of a part, those of responses first."""
        for problem_id, offset in part.facts["lines"]:
            self._places.setdefault(problem_id, []).append((part.path, offset))

    def add_lines(self, lines: Iterable[Line]) -> None:
        """Add lines that no part has."""
        for line in lines:
            self._lines.setdefault(line["problem_id"], []).append(line)

    def read(self, problem_ids: Sequence[str]) -> Iterator[ProblemResponses]:
        """Yield the responses to each problem, joined from all lines and ordered by index."""
        yield from map(_join_lines, problem_ids, self._read_lines(problem_ids))

    def iterate_prompt_ids(self, problem_ids: Sequence[str]) -> Iterator[tuple[int, ...]]:
        """Yield the token ids of each problem's own prompt."""
        for first, *_ in self._read_lines(problem_ids, most=1):
            yield tuple(first["prompt_ids"])

    def _read_lines(self, problem_ids: Sequence[str], most: int | None = None) -> list[list[Line]]:
        """Read the lines of each problem; each file is opened once and read forwards."""
        places = [self._places.get(problem_id, [])[:most] for problem_id in problem_ids]
        offsets_by_path: dict[Path, list[int]] = {}
        for path, offset in (place for of_problem in places for place in of_problem):
            offsets_by_path.setdefault(path, []).append(offset)
        lines: dict[tuple[Path, int], Line] = {}
        for path, offsets in offsets_by_path.items():
            with path.open("rb") as file:
                for offset in sorted(offsets):
                    file.seek(offset)
                    lines[path, offset] = json.loads(file.readline())
        return [
            [*(lines[place] for place in of_problem), *self._lines.get(problem_id, [])]
            for problem_id, of_problem in zip(problem_ids, places, strict=True)
        ]


def write_lines(path: Path, lines: Iterable[Line]) -> list[tuple[str, int]]:
    """Write the file of a part; return each line's problem and offset in bytes."""
    encoded = [(line["problem_id"], _JSON.encode(line).encode() + b"\n") for line in lines]
    path.write_bytes(b"".join(content for _, content in encoded))
    offsets = accumulate((len(content) for _, content in encoded), initial=0)
    return [(problem_id, at) for (problem_id, _), at in zip(encoded, offsets, strict=False)]


def build_response_line(
    problem_id: str,
    prompt_ids: Sequence[int],
    responses: Iterable[Response],
    passed: Mapping[int, bool],
) -> Line:
    """Build the line of a problem's responses.

    Args:
        problem_id: the problem's id.
        prompt_ids: the token ids of its own prompt.
        responses: the responses.
        passed: the verdicts that the sampler returned, by index.
    """
    rows = [[getattr(response, name) for name in _FIELDS] for response in responses]
    line: dict[str, Any] = {"problem_id": problem_id, "prompt_ids": prompt_ids, "responses": rows}
    return {**line, "passed": [*passed.items()]} if passed else line


def build_verdict_line(
    problem_id: str,
    judged: Mapping[int, VerdictAndAnswer],
    differing: Sequence[str] | None = None,
) -> Line:
    """Build the line of a problem's verdicts with their answers.

    Args:
        problem_id: the problem's id.
        judged: the verdicts and answers by index.
        differing: see ``ProblemResponses``.
    """
    rows = [
        [index, verdict.status, verdict.reason, answer]
        for index, (verdict, answer) in judged.items()
    ]
    line: dict[str, Any] = {"problem_id": problem_id, "judged": rows}
    return line if differing is None else {**line, "differing": differing}


def _join_lines(problem_id: str, lines: Sequence[Line]) -> ProblemResponses:
    """Join a problem's lines, in any order."""
    prompt_ids: tuple[int, ...] = ()
    responses: dict[int, Response] = {}
    reported: dict[int, Verdict] = {}
    judged: dict[int, VerdictAndAnswer] = {}
    differing: tuple[str, ...] | None = None
    for line in lines:
        if "responses" in line:
            prompt_ids = tuple(line["prompt_ids"])
            for values in line["responses"]:
                row = dict(zip(_FIELDS, values, strict=True))
                responses[row["index"]] = parse_response({**row, "problem_id": problem_id})
            for index, passed in line.get("passed", ()):
                reported[index] = Verdict("pass" if passed else "fail", IMPORTED_PREFIX)
        for index, status, reason, answer in line.get("judged", ()):
            valid_status = parse_status(status, Path("store"), f", problem {problem_id}")
            judged[index] = (Verdict(valid_status, reason), answer)
        if "differing" in line:
            differing = tuple(line["differing"])
    ordered = tuple(responses[index] for index in sorted(responses))
    return ProblemResponses(problem_id, prompt_ids, ordered, reported, judged, differing)
