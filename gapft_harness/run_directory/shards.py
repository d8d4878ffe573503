"""Shards: a split's chunks dealt out, to be searched apart.

Problems are cut into chunks first, and whole chunks are dealt to shards one after another, so that
the number of shards changes no response. Each shard is a part of its own,
``SPLIT/shards/I-of-N/``; ``stages/search/merging.py`` makes the split of them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Problem
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Shard:
    """One of the parts that a split is divided into.

    Attributes:
        number: which part, from 1.
        of: how many parts there are.
    """

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Reads ``I/N``.

        Raises:
            UserError: it has no such form, or I is none of 1 to N.
        """
        found = re.fullmatch(r"(\d+)/(\d+)", text)
        if found is None:
            raise UserError(f"shard {text!r}: expected I/N, e.g. 1/8")
        shard = cls(int(found[1]), int(found[2]))
        if not 1 <= shard.number <= shard.of:
            raise UserError(
                f"shard {text}: the number is out of range; expected 1/{shard.of} to "
                f"{shard.of}/{shard.of}"
                if shard.of
                else f"shard {text}: there must be at least 1 shard"
            )
        return shard

    @classmethod
    def all(cls, count: int) -> list[Shard]:
        """Every shard of a division into ``count``."""
        return [cls(number, count) for number in range(1, count + 1)]

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def chunks_of(problems: Sequence[Problem], chunk: int) -> list[list[Problem]]:
    """Cut problems into chunks: longest prompt first, so that batches hold prompts of like length.

    Whole chunks, dealt out in any way, are cut into the same chunks again.
    """
    ordered = sorted(problems, key=lambda problem: (-len(problem.prompt), problem.id))
    return [ordered[start : start + chunk] for start in range(0, len(ordered), chunk)]


def part_of(split: str, shard: Shard | None) -> str:
    """Where a search writes in the run directory: a split, or one of its shards."""
    return layout.shard(split, shard.number, shard.of) if shard else split


def take_part(
    problems: Sequence[Problem], shard: Shard | None, chunk: int, recipe: dict[str, Any]
) -> tuple[list[Problem], dict[str, Any]]:
    """A shard's problems of a split, and what merging will need to know of the division.

    Args:
        shard: None takes them all, and has nothing to say.
        chunk: problems of a chunk.

    Returns:
        The shard's problems, perhaps none; facts for the part's metadata: ``shard`` with its
        ``number``, ``of``, ``split_problems`` (how many the whole split has) and ``split_ids``
        (a hash of their ids), and ``recipe``.
    """
    if shard is None:
        return list(problems), {}
    facts = {
        "number": shard.number,
        "of": shard.of,
        "split_problems": len(problems),
        "split_ids": ids_hash(sorted(problem.id for problem in problems)),
    }
    dealt = chunks_of(problems, chunk)[shard.number - 1 :: shard.of]
    return list(chain.from_iterable(dealt)), {"shard": facts, "recipe": recipe}


def ids_hash(ids: Iterable[str]) -> str:
    """A hash of problem ids in their order, in hexadecimal."""
    digest = hashlib.sha256()
    for encoded in map(str.encode, ids):
        digest.update(f"{len(encoded)}:".encode() + encoded)
    return digest.hexdigest()


def begun_parts(run_path: Path, split: str) -> list[Shard]:
    """The shards of a split of which anything is there, finished or not, in order."""
    found = []
    for folder in (run_path / layout.shards(split)).glob("*-of-*"):
        place = layout.read(layout.problems(folder.relative_to(run_path).as_posix()))
        if place is None or place.shard is None or not folder.is_dir():
            continue
        if any(file.stat().st_size for file in folder.iterdir()):
            found.append(Shard(*place.shard))
    return sorted(found, key=lambda shard: (shard.of, shard.number))


def of_merged_shard(relative: str, manifest: Manifest) -> bool:
    """Whether a sealed file is a shard's of a split that is merged: nothing reads it any more."""
    place = layout.read(relative)
    if place is None or place.shard is None:
        return False
    return place.split in manifest.get("shards", {})


def plan_search(run_path: Path, split: str, one: Shard | None, count: int) -> list[Shard | None]:
    """Which parts a search command has to see to.

    A split stays with the division it was begun in, whose parts have folders of their own.

    Args:
        one: the shard that was asked for by ``--shard``; None searches the whole split.
        count: shards that the whole split is searched in, the recipe's ``executor.shards``.

    Returns:
        Shards, or a single None: the split undivided, or as it is once it is whole.

    Raises:
        UserError: the split was begun in another division.
    """
    folder, divided = run_path / split, run_path / layout.shards(split)
    whole = (run_path / layout.responses(split)).exists()
    begun = begun_parts(run_path, split)
    if one is None and whole:
        return [None]
    if one is not None and whole and one not in begun:
        raise UserError(f"{folder}: is searched already; shard {one} would add nothing")
    wanted = one.of if one else count
    if wanted > 1 or one:
        require_unbegun(run_path, split)
    if others := [shard for shard in begun if shard.of != wanted or (wanted == 1 and not one)]:
        missing = [s for s in Shard.all(others[0].of) if s not in begun]
        raise UserError(
            f"{folder}: was begun in {others[0].of} shards ({len(missing)} not begun), and a split "
            f"stays in its division; go on with --only search --shard and --only merge, or with "
            f"executor.shards={others[0].of}, or remove {divided} to begin anew"
        )
    if one:
        return [one]
    return list(Shard.all(count)) if count > 1 else [None]


def require_unbegun(run_path: Path, split: str) -> None:
    """Stops a search in shards where an undivided one has begun.

    Raises:
        UserError: there is its journal.
    """
    journal = run_path / layout.journal(layout.responses(split))
    if journal.exists() and journal.stat().st_size:
        raise UserError(
            f"{journal}: this {split} was begun undivided, and a split stays in its division; "
            "go on without shards (executor.shards=1), or remove the file to begin anew"
        )
