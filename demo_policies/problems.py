"""What the two demos share: how their problems are divided, written to files and taught.

    python -m demo_policies.problems --out tasks

writes ``pool.jsonl`` and ``audit.jsonl`` into ``demo`` and ``demo_code``.

A demo's whole problem space is divided by a hash of a problem's content, the first words of the
question left out. So the content of a problem of the pool or the audit never occurs in
pre-training, with any first words, for every seed and every number of problems.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any, Final, Literal, TypeVar

T = TypeVar("T")
Split = Literal["pretrain", "tuning", "pool", "audit"]
#: A problem as in a task's JSON file.
Record = dict[str, Any]
#: A prompt with the response to learn.
Example = tuple[str, str]

#: The splits of the last three tenths of a problem space; "pretrain" has the others. The policies'
#: settings were chosen on "tuning"; nothing was chosen on "pool" or "audit".
LAST_TENTHS: Final[dict[int, Split]] = {7: "tuning", 8: "pool", 9: "audit"}


@dataclass(frozen=True)
class Problem:
    """A problem, whatever the first words of its question.

    Attributes:
        content: what is asked.
        record: builds the record with a question that begins with some words.
    """

    content: str
    record: Callable[[str], Record]


@dataclass(frozen=True)
class Phase:
    """A phase of training.

    Attributes:
        stream: the name of its random stream.
        teach: yields the examples made of one problem.
        steps: optimizer steps.
        peak: the highest learning rate.
        warmup: steps of linear rise to it; a cosine to 0 follows.
    """

    stream: str
    teach: Callable[[Record, Random], Iterable[Example]]
    steps: int
    peak: float
    warmup: int


@dataclass(frozen=True)
class Demo:
    """A demo: how its problems are drawn, its files, and what its policy is taught.

    Attributes:
        stream: what the names of its problems' random streams begin with.
        words: the first words of questions; the policy's habit depends on them.
        draw: draws a problem; None: it is of another split than this one, or unusable.
        files: the number of problems of a split's file, and their seed.
        policy: the folder of the shipped policy.
        phases: the skill phase and the habit phase of its training.
    """

    stream: str
    words: tuple[str, ...]
    draw: Callable[[Split, Random], Problem | None]
    files: dict[Split, tuple[int, int]]
    policy: Path
    phases: tuple[Phase, Phase]

    def draw_problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """Draw problems of one split without end; repeats are possible."""
        rng = Random(f"{self.stream}{split}:{seed}")
        while True:
            problem = self.draw(split, rng)
            if problem is not None:
                yield problem

    def build_records(self, problems: Iterable[Problem]) -> Iterator[Record]:
        """Build the records of problems; the first words take turns."""
        for word, problem in zip(cycle(self.words), problems, strict=False):
            yield problem.record(word)

    def generate(self, split: Split, count: int, seed: int) -> list[Record]:
        """Generate distinct problems of one split; more of the same seed begin with the same."""
        distinct: dict[str, Problem] = {}
        for problem in self.draw_problems(split, seed):
            distinct.setdefault(problem.content, problem)
            if len(distinct) == count:
                break
        return list(self.build_records(distinct.values()))

    def yield_examples(self, phase: Phase, seed: int) -> Iterator[Example]:
        """Yield the examples of a phase without end."""
        rng = Random(f"{phase.stream}:{seed}")
        # Seeds differ, or both phases would begin with the same problems.
        first_seed = seed + 1_000_000 * self.phases.index(phase)
        for record in self.build_records(self.draw_problems("pretrain", first_seed)):
            yield from phase.teach(record, rng)


def compute_digest(content: str) -> str:
    """Compute the SHA-256 of a problem's content in hex."""
    return hashlib.sha256(content.encode()).hexdigest()


def find_split(content: str) -> Split:
    """Find the split of a problem's content."""
    percent = int(compute_digest(content)[:16], 16) % 100
    return LAST_TENTHS.get(percent // 10, "pretrain")


def choose(options: Sequence[T], rng: Random) -> T:
    """Draw one of some options.

    Python guarantees equal sequences in all versions only for ``Random.random``, and the shipped
    files must have the same bytes in all versions.
    """
    return options[int(rng.random() * len(options))]


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the tasks' files (see the module docstring)."""
    from demo_policies import arithmetic, programs

    parser = argparse.ArgumentParser(prog="python -m demo_policies.problems")
    parser.add_argument("--out", type=Path, default=Path("tasks"), help="default: %(default)s")
    out = parser.parse_args(arguments).out
    for task, demo in {"demo": arithmetic.DEMO, "demo_code": programs.DEMO}.items():
        (out / task).mkdir(parents=True, exist_ok=True)
        for split, (count, seed) in demo.files.items():
            lines = (json.dumps(record) + "\n" for record in demo.generate(split, count, seed))
            (out / task / f"{split}.jsonl").write_bytes("".join(lines).encode())


if __name__ == "__main__":
    main()
