"""Responses in files, independent of the format: choices, rows and verdicts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import sha256
from gapft_harness.core.records import Verdict
from gapft_harness.core.text import describe_read_error
from gapft_harness.run_directory.manifest import IMPORTED_PREFIX

#: The key of a row's problem: ``id``, ``prompt`` or ``doc``, and the id, prompt or document.
Key = tuple[str, Any]


@dataclass(frozen=True, slots=True)
class ImportChoice:
    """The options of ``gapft import``.

    Attributes:
        files: files of responses; with ``greedy``, only of samples.
        greedy: a file of greedy responses; None: they are in ``files``.
        judge: have the task's verifier judge; else the files' verdicts are used.
        metric: the field or metric with the verdict; None: the format's default.
        filter: lm-eval's filter whose rows are used; None: the first row's.
        on: pairs (field of a row, field of the task's document) by which documents are joined.
        ignore_unknown: leave out responses whose problem is not in the split.
    """

    files: Sequence[str]
    greedy: str | None = None
    judge: bool = False
    metric: str | None = None
    filter: str | None = None
    on: Sequence[Sequence[str]] = ()
    ignore_unknown: bool = False

    def to_arguments(self) -> dict[str, Any]:
        """Return the options as arguments of a job: JSON values."""
        arguments: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return arguments

    @property
    def paths(self) -> list[str]:
        """All files, the greedy file first."""
        return [*([self.greedy] if self.greedy else []), *self.files]

    def compute_hashes(self) -> dict[str, str]:
        """Compute each file's hash, in order.

        Raises:
            UserError: a file is missing, or cannot be read more than once.
        """
        for name in self.paths:
            path = Path(name)
            if path.is_dir():
                raise UserError(f"{path}: is a folder; expected files of responses")
            if path.exists() and not path.is_file():
                raise UserError(
                    f"{path}: is not a regular file (a pipe?), but an import reads its files more "
                    "than once; write the content to a file first"
                )
        hashes: dict[str, str] = {}
        try:
            for name in self.paths:
                hashes[name] = sha256(Path(name))
        except OSError as error:
            raise UserError(describe_read_error(Path(name), error)) from error
        return hashes


@dataclass(frozen=True, slots=True)
class ImportedResponse:
    """One response of a file.

    Attributes:
        line: its line in the file, from 1.
        place: file and line, for messages.
        key: identifies its problem.
        index: ``GREEDY``, or a sample's number; in a format without numbers, the number within the
            file.
        text: the response.
        verdict: the file's verdict; None where it has none, or the verifier judges.
        verdict_source: the source of the verdict in the file.
        finish_reason: ``stop``, ``length``, ``unknown`` or ``context``.
        rule: values by kind that must be equal in all rows; else the same text could pass and fail.
    """

    line: int
    place: str
    key: Key
    index: int
    text: str
    verdict: Verdict | None
    verdict_source: str
    finish_reason: str = "unknown"
    rule: Mapping[str, str] = field(default_factory=dict)


def create_verdict(passed: bool) -> Verdict:
    """Create a verdict that is marked as imported."""
    return Verdict("pass" if passed else "fail", IMPORTED_PREFIX)
