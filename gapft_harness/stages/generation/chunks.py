"""Chunks of problems, and the places of each phase's files in the store."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gapft_harness.core.identities import content_hash
from gapft_harness.core.records import Decoding, Problem
from gapft_harness.store.store import StoreGroup


@dataclass(frozen=True, slots=True)
class DecodePhase:
    """Responses that every problem of a chunk gets and that are stored together.

    Attributes:
        name: the suffix of the names of their files.
        decoding: the decoding of samples or of a repeat (``Decoding.for_index``).
        indices: ``GREEDY``, a repeat's index, sample numbers, or ``GREEDY`` and sample numbers.
    """

    name: str
    decoding: Decoding
    indices: tuple[int, ...]


@dataclass(frozen=True)
class Chunk:
    """Some problems with the places of their responses or verdicts in the store.

    Attributes:
        members: the problems.
        places: the group and file name of each phase, in the order of generation.
    """

    members: Sequence[Problem]
    places: Mapping[DecodePhase, tuple[StoreGroup, str]]

    @property
    def key(self) -> str:
        """The prefix of the names of its response files, if they do not depend on a verifier."""
        return content_hash([[p.id, p.prompt, [*p.turns]] for p in self.members])

    @classmethod
    def place_files(
        cls,
        members: Sequence[Problem],
        groups: Mapping[DecodePhase, StoreGroup],
        episodes: bool = False,
    ) -> Chunk:
        """Build a chunk; its files are named after the problems and their prompts.

        Args:
            members: the problems.
            groups: the group of each phase's responses.
            episodes: whether generation depends on a verifier.
        """
        prompts_hash = content_hash([[p.id, p.prompt, [*p.turns]] for p in members])
        golds_hash = content_hash(
            [prompts_hash, [p.gold for p in members]]
        )  # a verifier also reads golds
        key = golds_hash if episodes else prompts_hash
        return cls(
            members,
            {phase: (group, f"{key}.{phase.name}.jsonl") for phase, group in groups.items()},
        )

    def find_path(self, phase: DecodePhase) -> Path:
        """Return the path of a phase's file."""
        group, name = self.places[phase]
        return group.folder / name

    def list_missing(self) -> list[DecodePhase]:
        """List the phases that are not stored yet."""
        return [phase for phase in self.places if not self.find_path(phase).exists()]

    @contextlib.contextmanager
    def claim_files(self, *, wait: bool) -> Iterator[bool]:
        """Hold the claim to make its files; see ``StoreGroup.claim_file``."""
        group, name = next(iter(self.places.values()))
        with group.claim_file(name, wait=wait) as is_held:
            yield is_held


#: A chunk, and its phases that were missing when it was checked.
Work = tuple[Chunk, list[DecodePhase]]


def iterate_claimed(work: Sequence[Work]) -> Generator[Work]:
    """Yield each chunk while its claim is held.

    Chunks that another command works on are postponed, and awaited at the end. Close the iterator
    (``contextlib.closing``), so that an error does not leave a claim held.
    """
    for wait in (False, True):
        postponed = []
        for chunk, missing_phases in work:
            with chunk.claim_files(wait=wait) as is_held:
                if is_held:
                    yield chunk, missing_phases
                else:
                    postponed.append((chunk, missing_phases))
        work = postponed


def list_groups(chunks: Iterable[Chunk]) -> list[StoreGroup]:
    """List the groups of chunks, each once."""
    groups = {group.name: group for chunk in chunks for group, _ in chunk.places.values()}
    return list(groups.values())


def require_unedited_groups(groups: Iterable[StoreGroup]) -> None:
    """Check the records of stored groups before they are used.

    Raises:
        UserError: a group's ``made_from.json`` was edited.
    """
    for group in groups:
        if group.exists():
            group.read_facts()
