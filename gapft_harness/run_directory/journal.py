"""The journal of responses: append-only JSON lines, committed chunk by chunk.

A chunk is the unit of resumption: its lines count only once its commit line stands behind them.
After a kill, what follows the last commit line (the chunk in flight, or a torn line) is cut off.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.files import unwritable
from gapft_harness.core.records import Attempt, Response, Verdict
from gapft_harness.hooks.protocols import Generated, Generation, Request
from gapft_harness.run_directory.tables import sealed_status

#: What a line holds of a generation, in this order, after the response's index and seed.
_GENERATED = tuple(of.name for of in fields(Generation) if of.name != "stop_string")


@dataclass(frozen=True, slots=True)
class Entry:
    """All responses to one problem, and by index those verdicts that were journalled."""

    problem_id: str
    prompt_ids: tuple[int, ...]
    responses: tuple[Response, ...]
    verdicts: Mapping[int, Verdict] = field(default_factory=dict)


class Journal:
    """One split's (or one arm's) responses while they are generated.

    The whole journal is never held in memory: an index maps each problem to the offsets of its
    lines, and ``read`` seeks.
    """

    def __init__(self, path: Path) -> None:
        """Opens a journal, cutting off what no commit line stands behind.

        Raises:
            UserError: a line before the last commit is damaged or missing; the message names the
                line.
        """
        self.path = path
        self.committed: dict[str, int] = {}
        """Committed chunks, and how many problems each asked."""
        self._offsets: dict[str, list[int]] = {}
        if path.exists():
            self._recover()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered: what a full disk refused must not be written again when it is closed.
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise unwritable(path, error) from error

    def append(
        self,
        chunk: str,
        requests: Sequence[Request],
        generated: Sequence[Generated],
        judged: Mapping[str, Mapping[int, Verdict]] | None = None,
    ) -> None:
        """Writes one chunk and its commit line, and flushes them to the disk.

        A chunk may be empty: that is how a round that nobody needed is committed.

        Args:
            judged: verdicts on earlier responses, by problem id and index, that say who was asked.

        Raises:
            GapftError: the disk refused it, or the sampler gave too few responses. The journal is
                as it was.
        """
        start = self._file.seek(0, os.SEEK_END)
        lines: list[bytes] = []
        for request, answer in zip(requests, generated, strict=True):
            if len(answer.generations) != len(request.indices):
                raise GapftError(
                    f"the sampler gave {len(answer.generations)} responses to problem "
                    f"{request.problem_id}, expected {len(request.indices)}"
                )
            record: dict[str, Any] = {
                "problem_id": request.problem_id,
                "prompt_ids": answer.prompt_ids,
                "responses": [
                    [index, seed, *(getattr(generation, name) for name in _GENERATED)]
                    for index, seed, generation in zip(
                        request.indices, request.seeds, answer.generations, strict=True
                    )
                ],
            }
            if request.attempts:
                record["attempt"] = len(request.attempts) + 1
                record["feedback"] = request.attempts[-1].feedback
            lines.append(_dump(record))
        for problem_id, verdicts in (judged or {}).items():
            shown = [[index, v.status, v.reason] for index, v in verdicts.items()]
            lines.append(_dump({"problem_id": problem_id, "judged": shown}))
        offsets = list(accumulate((len(line) for line in lines), initial=start))
        commit = {"chunk": chunk, "problems": len(requests)}
        lines.append(_dump(commit | ({"judged": len(judged)} if judged else {})))
        try:
            self._write(b"".join(lines))
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(start)
            raise unwritable(self.path, error) from error
        self.committed[chunk] = len(requests)
        written = [*(request.problem_id for request in requests), *(judged or {})]
        for problem_id, offset in zip(written, offsets, strict=False):
            self._offsets.setdefault(problem_id, []).append(offset)

    def read(self, problem_ids: Sequence[str]) -> Iterator[Entry]:
        """Yields one entry a problem, its responses merged over chunks and ordered by index.

        The attempts of an episode are joined: its response is the last, the others stand in it.
        """
        with self.path.open("rb") as file:
            for problem_id in problem_ids:
                records = []
                for offset in self._offsets.get(problem_id, ()):
                    file.seek(offset)
                    records.append(json.loads(file.readline()))
                yield _entry(problem_id, records, self.path)

    def prompt_ids(self, problem_ids: Sequence[str]) -> Iterator[tuple[int, ...]]:
        """Yields the ids each problem's own prompt had, from the first line that it has alone."""
        with self.path.open("rb") as file:
            for problem_id in problem_ids:
                file.seek(self._offsets[problem_id][0])
                yield tuple(json.loads(file.readline())["prompt_ids"])

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _write(self, content: bytes) -> None:
        """Writes all of it and flushes it to the disk."""
        view = memoryview(content)
        while view:
            view = view[self._file.write(view) :]
        os.fsync(self._file.fileno())

    def _recover(self) -> None:
        """Reads the index, and cuts the file after its last commit line."""
        committed_end = position = 0
        pending: list[tuple[str, int]] = []
        with self.path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                record = _parse(line)
                if record is None:
                    if any(_parse(rest) is not None for rest in file):
                        raise UserError(
                            f"{self.path}, line {number}: is damaged (not JSON), and whole lines "
                            "follow it; restore the file, or delete it to generate again"
                        )
                    break
                if "chunk" in record:
                    wanted = record["problems"] + record.get("judged", 0)
                    if wanted != len(pending):
                        raise UserError(
                            f"{self.path}, line {number}: commits {wanted} lines, but "
                            f"{len(pending)} stand before it; restore the file, or delete it to "
                            "generate again"
                        )
                    self.committed[record["chunk"]] = record["problems"]
                    for problem_id, offset in pending:
                        self._offsets.setdefault(problem_id, []).append(offset)
                    pending = []
                    committed_end = position + len(line)
                else:
                    pending.append((record["problem_id"], position))
                position += len(line)
        if committed_end < self.path.stat().st_size:
            os.truncate(self.path, committed_end)


def _dump(record: dict[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _parse(line: bytes) -> dict[str, Any] | None:
    """The record of a whole line, None for a torn or damaged one."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _entry(problem_id: str, records: Sequence[dict[str, Any]], path: Path) -> Entry:
    """Joins a problem's lines, whatever their order."""
    prompt_ids: tuple[int, ...] = ()
    found: dict[int, Response] = {}
    verdicts: dict[int, Verdict] = {}
    for record in sorted(records, key=lambda record: record.get("attempt", 1)):
        if "judged" in record:
            verdicts |= {
                index: Verdict(sealed_status(status, path, f", problem {problem_id}"), reason)
                for index, status, reason in record["judged"]
            }
            continue
        ids = tuple(record["prompt_ids"])
        first = "attempt" not in record
        if first:
            prompt_ids = ids
        for index, seed, *generated in record["responses"]:
            told = dict(zip(_GENERATED, generated, strict=True))
            told["token_ids"] = tuple(told["token_ids"])
            earlier: tuple[Attempt, ...] = ()
            if not first:
                last = found[index]
                attempt = Attempt(last.text, last.token_ids, last.finish_reason, record["feedback"])
                earlier = (*last.attempts, attempt)
            found[index] = Response(
                problem_id,
                index,
                seed=seed,
                attempts=earlier,
                context_ids=() if first else ids,
                **told,
            )
    return Entry(problem_id, prompt_ids, tuple(found[index] for index in sorted(found)), verdicts)
