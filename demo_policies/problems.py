r"""The demos' problems: their division into splits, and the files of the two tasks.

    python -m demo_policies.problems --out tasks

writes ``pool.jsonl`` and ``audit.jsonl`` into ``demo`` and ``demo_code``.

A demo's whole problem space is divided by a hash of a problem's content, its first word left out.
So the content of a problem of the pool or the audit never occurs in pre-training, with any word,
for every seed and every number of problems.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any, Final, Generic, Literal, TypeVar

Split = Literal["pretrain", "tuning", "pool", "audit"]

# Percent of the problem space by split, in this order. The policies' settings were chosen on
# "tuning"; nothing was chosen on "pool" or "audit".
_SHARES: Final[dict[Split, int]] = {"pretrain": 70, "tuning": 10, "pool": 10, "audit": 10}


@dataclass(frozen=True)
class DemoProblem(ABC):
    """A question of a demo; a demo's own class has more fields and the properties below.

    Attributes:
        word: the first words of the question. The policy's habit depends on them.
    """

    word: str

    @property
    @abstractmethod
    def content(self) -> str:
        """What is asked; two questions with the same content are the same problem."""

    @property
    def is_usable(self) -> bool:
        """Whether it may become a problem."""
        return True

    @property
    def digest(self) -> str:
        """SHA-256 of the content in hex."""
        return hashlib.sha256(self.content.encode()).hexdigest()

    @property
    def split(self) -> Split:
        """The split of this content, independent of the word."""
        percent = int(self.digest[:16], 16) % 100
        for split, share in _SHARES.items():
            if percent < share:
                return split
            percent -= share
        raise AssertionError("the shares of the splits do not add up to 100")

    @abstractmethod
    def record(self) -> dict[str, Any]:
        """Build the record of a task's JSON file."""


P = TypeVar("P", bound=DemoProblem)


@dataclass(frozen=True)
class Demo(Generic[P]):
    """A demo: how its problems are drawn, and its files.

    Attributes:
        prefix: what the names of its random streams begin with.
        words: the first words of questions.
        draw: draws a problem with a first word, of any split.
        pool: the number of the pool's problems, and their seed.
        audit: the same of the audit.
    """

    prefix: str
    words: tuple[str, ...]
    draw: Callable[[str, Random], P]
    pool: tuple[int, int]
    audit: tuple[int, int]

    def stream(self, split: Split, seed: int) -> Iterator[P]:
        """Yield problems of one split without end; repeats are possible, words take turns."""
        rng = Random(f"{self.prefix}{split}:{seed}")
        for word in cycle(self.words):
            problem = self.draw(word, rng)
            while problem.split != split or not problem.is_usable:
                problem = self.draw(word, rng)
            yield problem

    def generate(self, split: Split, count: int, seed: int) -> list[P]:
        """Generate distinct problems of one split; the words' counts differ by one at most.

        More problems of the same seed begin with the same ones.
        """
        problems = self.stream(split, seed)
        by_content: dict[str, P] = {}
        while len(by_content) < count:
            problem = next(problems)
            if problem.content not in by_content:
                # Reassign the word, because a skipped repeat would unbalance the turns.
                word = self.words[len(by_content) % len(self.words)]
                by_content[problem.content] = replace(problem, word=word)
        return list(by_content.values())

    def write(self, folder: Path) -> None:
        """Write ``pool.jsonl`` and ``audit.jsonl`` into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        splits: dict[Split, tuple[int, int]] = {"pool": self.pool, "audit": self.audit}
        for split, (count, seed) in splits.items():
            lines = (json.dumps(p.record()) + "\n" for p in self.generate(split, count, seed))
            (folder / f"{split}.jsonl").write_bytes("".join(lines).encode())


def below(bound: int, rng: Random) -> int:
    """Draw an integer in 0..bound-1.

    Python guarantees equal sequences in all versions only for ``Random.random``, and the shipped
    files must have the same bytes in all versions.
    """
    return int(rng.random() * bound)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the tasks' files (see the module docstring)."""
    from demo_policies import arithmetic, programs

    parser = argparse.ArgumentParser(prog="python -m demo_policies.problems")
    parser.add_argument("--out", type=Path, default=Path("tasks"), help="default: %(default)s")
    out = parser.parse_args(arguments).out
    arithmetic.DEMO.write(out / "demo")
    programs.DEMO.write(out / "demo_code")


if __name__ == "__main__":
    main()
