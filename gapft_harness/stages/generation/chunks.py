"""Chunks of problems, and where the store has what was made of each, phase by phase."""

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
    """Responses that every problem of a chunk gets, and that are stored together.

    Attributes:
        name: ends the names of their files.
        decoding: of the samples; ``GREEDY`` is decoded greedily beside them.
        indices: ``GREEDY``, sample numbers, or both.
        unsolved: leaves out the problems that an earlier phase's response solved.
    """

    name: str
    decoding: Decoding
    indices: tuple[int, ...]
    unsolved: bool = False


@dataclass(frozen=True)
class Chunk:
    """Some problems, and where each phase's responses to them, or their verdicts, are stored.

    Attributes:
        members: the problems.
        places: by phase, in the order in which they are generated, its group and its file's name.
    """

    members: Sequence[Problem]
    places: Mapping[Phase, tuple[Group, str]]

    @property
    def key(self) -> str:
        """What the names of its files of responses begin with, where no verifier has a say."""
        return content_hash([[p.id, p.prompt, [*p.turns]] for p in self.members])

    @classmethod
    def of(
        cls, members: Sequence[Problem], groups: Mapping[Phase, Group], episodes: bool = False
    ) -> Chunk:
        """Name the files after the problems and their prompts.

        Args:
            members: the problems.
            groups: by phase, where responses are stored.
            episodes: whether a verifier has a say in what is generated.
        """
        asked = content_hash([[p.id, p.prompt, [*p.turns]] for p in members])
        judged = content_hash([asked, [p.gold for p in members]])  # golds have a say, too
        places = {}
        for phase, group in groups.items():
            key = judged if episodes or phase.unsolved else asked
            places[phase] = (group, f"{key}.{phase.name}.jsonl")
        return cls(members, places)

    def path(self, phase: Phase) -> Path:
        """The file of a phase."""
        group, name = self.places[phase]
        return group.folder / name

    def missing(self) -> list[Phase]:
        """The phases that are not stored yet."""
        return [phase for phase in self.places if not self.path(phase).exists()]

    @contextlib.contextmanager
    def claim(self, *, wait: bool) -> Iterator[bool]:
        """Hold the right to make its files; see ``Group.claim``."""
        group, name = next(iter(self.places.values()))
        with group.claim(name, wait=wait) as held:
            yield held


#: A chunk, and the phases of it that were missing when it was looked at.
Work = tuple[Chunk, list[Phase]]


def claimed(work: Sequence[Work]) -> Generator[Work]:
    """Yield each chunk while its claim is held.

    Chunks that another command works on are passed over, and waited for at the end. Close the
    iterator (``contextlib.closing``), so that an error does not leave a claim held.
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
    """List the groups that chunks are stored in, each once."""
    groups = {group.name: group for chunk in chunks for group, _ in chunk.places.values()}
    return list(groups.values())


def require_unedited(groups: Iterable[Group]) -> None:
    """Check what stored groups record of themselves before they are used.

    Raises:
        UserError: a group's ``made_from.json`` was edited.
    """
    for group in groups:
        if group.exists():
            group.facts()
