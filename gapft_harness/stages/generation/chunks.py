"""Chunks of problems, and the places of each phase's files in the store."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gapft_harness.core.identities import content_hash
from gapft_harness.core.records import Decoding, Problem
from gapft_harness.store.store import Group


@dataclass(frozen=True, slots=True)
class Phase:
    """Responses that every problem of a chunk gets and that are stored together.

    Attributes:
        name: the suffix of the names of their files.
        decoding: the decoding of samples; ``GREEDY`` is decoded greedily with the same limits.
        indices: ``GREEDY``, sample numbers, or both.
        unsolved: whether problems solved by an earlier phase are left out.
    """

    name: str
    decoding: Decoding
    indices: tuple[int, ...]
    unsolved: bool = False


@dataclass(frozen=True)
class Chunk:
    """Some problems with the places of their responses or verdicts in the store.

    Attributes:
        members: the problems.
        places: the group and file name of each phase, in the order of generation.
    """

    members: Sequence[Problem]
    places: Mapping[Phase, tuple[Group, str]]

    @property
    def key(self) -> str:
        """The prefix of the names of its response files, if they do not depend on a verifier."""
        return content_hash([[p.id, p.prompt, [*p.turns]] for p in self.members])

    @classmethod
    def of(
        cls, members: Sequence[Problem], groups: Mapping[Phase, Group], episodes: bool = False
    ) -> Chunk:
        """Build a chunk; its files are named after the problems and their prompts.

        Args:
            members: the problems.
            groups: the group of each phase's responses.
            episodes: whether generation depends on a verifier.
        """
        asked = content_hash([[p.id, p.prompt, [*p.turns]] for p in members])
        judged = content_hash([asked, [p.gold for p in members]])  # a verifier also reads golds
        places = {}
        for phase, group in groups.items():
            key = judged if episodes or phase.unsolved else asked
            places[phase] = (group, f"{key}.{phase.name}.jsonl")
        return cls(members, places)

    def path(self, phase: Phase) -> Path:
        """Return the path of a phase's file."""
        group, name = self.places[phase]
        return group.folder / name

    def missing(self) -> list[Phase]:
        """List the phases that are not stored yet."""
        return [phase for phase in self.places if not self.path(phase).exists()]

    @contextlib.contextmanager
    def claim(self, *, wait: bool) -> Iterator[bool]:
        """Hold the claim to make its files; see ``StoreGroup.claim_file``."""
        group, name = next(iter(self.places.values()))
        with group.claim(name, wait=wait) as held:
            yield held


#: A chunk, and its phases that were missing when it was checked.
Work = tuple[Chunk, list[Phase]]


def claimed(work: Sequence[Work]) -> Generator[Work]:
    """Yield each chunk while its claim is held.

    Chunks that another command works on are postponed, and awaited at the end. Close the iterator
    (``contextlib.closing``), so that an error does not leave a claim held.
    """
    for wait in (False, True):
        postponed = []
        for chunk, lacking in work:
            with chunk.claim(wait=wait) as held:
                if held:
                    yield chunk, lacking
                else:
                    postponed.append((chunk, lacking))
        work = postponed


def list_groups(chunks: Iterable[Chunk]) -> list[Group]:
    """List the groups of chunks, each once."""
    groups = {group.name: group for chunk in chunks for group, _ in chunk.places.values()}
    return list(groups.values())


def require_unedited(groups: Iterable[Group]) -> None:
    """Check the records of stored groups before they are used.

    Raises:
        UserError: a group's ``made_from.json`` was edited.
    """
    for group in groups:
        if group.exists():
            group.facts()
