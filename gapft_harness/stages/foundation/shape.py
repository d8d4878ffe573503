"""The shape of the manifest's section ``rests_on``: a damaged one is told by its key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, StringConstraints, ValidationError

from gapft_harness.core.errors import UserError
from gapft_harness.run_directory.facts import Manifest

_Part = Annotated[str, StringConstraints(pattern=r". .")]


class _Split(BaseModel):
    problems: int
    sha256: str


class _Model(BaseModel):
    files: dict[str, str]
    weights: dict[str, tuple[int, int]]


class _Audit(BaseModel):
    task: dict[str, Any]
    code: dict[str, str]


class _RestsOn(BaseModel):
    task: dict[str, Any]
    code: dict[str, str]
    data: dict[str, _Split]
    plugins: dict[_Part, str]
    files: dict[str, tuple[int, int, str]]
    include_paths: list[str]
    data_dir: str | None
    model: _Model | None
    audits: dict[str, _Audit] = {}


class _Sections(BaseModel):
    source: dict[str, Any]
    rests_on: _RestsOn


def require_shape(manifest: Manifest, where: Path) -> None:
    """Holds a manifest's section to its shape.

    Raises:
        UserError: it has another; the message names the key.
    """
    try:
        _Sections.model_validate(manifest)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise UserError(
            f"{where / 'manifest.json'}: key {key!r}: {first['msg'][0].lower()}{first['msg'][1:]}; "
            f"found {first['input']!r:.60}; restore manifest.json, or start a new run directory"
        ) from error
