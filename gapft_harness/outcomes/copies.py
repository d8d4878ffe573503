"""Detect samples that are copies of one another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import combinations


class CopyDetector:
    """Detects K samples that are not independent.

    Engines that share one random stream return the same response for two sample numbers on every
    problem; engines that ignore ``do_sample`` return one response K times. Short answers are often
    equal by chance, so only agreement on *every* problem counts, over at least 20 problems that
    have both samples.
    """

    _MIN_PROBLEMS = 20

    def __init__(self) -> None:
        self._drawn: Counter[int] = Counter()
        self._agreeing: Counter[tuple[int, int]] = Counter()

    def add(self, samples: Sequence[Hashable]) -> None:
        """Add one problem's samples, or hashes of them, in the order of their numbers."""
        self._drawn[len(samples)] += 1
        if len(set(samples)) == len(samples):
            return
        for i, j in combinations(range(len(samples)), 2):
            if samples[i] == samples[j]:
                self._agreeing[i, j] += 1

    def format_warning(self) -> str:
        """Return a sentence for the user; empty if nothing is suspicious."""
        problem_counts, copied_pairs = self._find_pairs()
        if not copied_pairs:
            return ""
        problems = problem_counts[copied_pairs[0]]
        if len(copied_pairs) == len(problem_counts):
            return (
                f"all {max(j for _, j in problem_counts) + 1} samples are the same on every one of "
                f"{problems} problems: the backend may be ignoring the sampling settings or fixing "
                "one seed"
            )
        pairs = ", ".join(f"{i} and {j}" for i, j in copied_pairs[:3])
        return (
            f"samples {pairs} are the same on every one of {problems} problems while others "
            "differ: the engine may be using one random stream twice"
        )

    @property
    def copies(self) -> list[int]:
        """Numbers of samples that equal an earlier one on every problem."""
        return sorted({later for _, later in self._find_pairs()[1]})

    def _find_pairs(self) -> tuple[dict[tuple[int, int], int], list[tuple[int, int]]]:
        """Count the problems of each pair of sample numbers, and find pairs that always agree."""
        problem_counts = {
            (i, j): problems
            for i, j in combinations(range(max(self._drawn, default=0)), 2)
            if (problems := sum(n for k, n in self._drawn.items() if k > j)) >= self._MIN_PROBLEMS
        }
        return problem_counts, [
            pair for pair, problems in problem_counts.items() if self._agreeing[pair] == problems
        ]
