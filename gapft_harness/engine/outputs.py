"""Outputs of steps, and the hash of what their readers see."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import sha256
from gapft_harness.core.identities import content_hash

if TYPE_CHECKING:
    import pyarrow as pa

#: A JSON value.
Json = Any

#: Stands for a part of a key that is not known on this machine; ``Checker`` takes the recorded one.
NOT_HERE: Json = {"not on this machine": True}

#: What a step reports about its output: JSON values by name.
Facts = Mapping[str, Json]

#: A fact of an output that holds in its own run only: the store does not keep such an output.
OWN_RUN_ONLY = "own_run_only"


@dataclass(frozen=True)
class Output:
    """A file or folder that a step made, or that a step reads.

    Attributes:
        path: its place.
        facts: what its step reported.
        seen: the hash of what its readers see, if that is less than its content; else empty.
    """

    path: Path
    facts: Facts = field(default_factory=dict)
    seen: str = ""

    @cached_property
    def content(self) -> str:
        """The hash that the keys of steps contain which read it."""
        return self.seen or hash_content(self.path)


class NotKnownYet(UserError):
    """Something depends on an output that does not exist yet."""


@dataclass(frozen=True)
class Unknown:
    """An output that does not exist yet; reading it ends a plan.

    Attributes:
        reason: why, in words.
    """

    reason: str

    @property
    def path(self) -> Path:
        """Raise ``NotKnownYet``."""
        raise NotKnownYet(self.reason)

    @property
    def facts(self) -> Facts:
        """Raise ``NotKnownYet``."""
        raise NotKnownYet(self.reason)

    @property
    def content(self) -> str:
        """Raise ``NotKnownYet``."""
        raise NotKnownYet(self.reason)


def hash_content(path: Path) -> str:
    """Hash what a reader of a file or folder sees.

    Of a Parquet table these are its columns: their order, types and values. How its rows are
    grouped and encoded does not count, nor does its metadata.
    """
    if path.suffix == ".parquet":
        return hash_table(path)
    return sha256(path)


def hash_table(path: Path) -> str:
    """Hash the columns of a Parquet table; only one batch of its rows is in memory."""
    import pyarrow.parquet as pq

    digests: dict[str, Any] = {}
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches():
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                for part, values in _list_buffers(column):
                    digests.setdefault(f"{name} {part}", hashlib.sha256()).update(values)
        schema = [[field.name, str(field.type)] for field in file.schema_arrow]
    hashes = {part: digest.hexdigest() for part, digest in digests.items()}
    return content_hash([schema, hashes])


def _list_buffers(values: pa.Array, part: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield the nulls, lengths and values of an array, each with the name of its part.

    The parts of two batches, one after another, are those of both together.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    yield f"{part}null", pc.cast(values.is_null(), pa.uint8()).to_numpy().tobytes()
    if pa.types.is_list(values.type):
        lengths = pc.fill_null(pc.list_value_length(values), 0)
        yield f"{part}length", lengths.to_numpy().tobytes()
        yield from _list_buffers(values.flatten(), f"{part}item.")
    elif pa.types.is_struct(values.type):
        for field, inner in zip(values.type, values.flatten(), strict=True):
            yield from _list_buffers(inner, f"{part}{field.name}.")
    elif pa.types.is_string(values.type):
        texts = pc.fill_null(values, "")
        yield f"{part}length", pc.binary_length(texts).to_numpy().tobytes()
        yield f"{part}text", "".join(texts.to_pylist()).encode()
    else:
        number = pc.cast(values, pa.uint8()) if pa.types.is_boolean(values.type) else values
        yield f"{part}value", pc.fill_null(number, 0).to_numpy().tobytes()
