"""Noticing samples that are not independent."""

from __future__ import annotations

from collections.abc import Sequence


class AlikeWatch:
    """Watches for K samples that are no independent samples.

    Engines that share one random stream deal the same response to two sample numbers on every
    problem; engines that ignore ``do_sample`` deal one response K times. Short answers are often
    alike by right, so only agreement on *every* problem counts, over at least 20 problems, and a
    pair of sample numbers is suspicious only while other pairs do differ.
    """

    _LEAST = 20

    def __init__(self) -> None:
        self.problems = 0
        self._agreeing: dict[tuple[int, int], int] = {}
        self._k = 0

    def see(self, samples: Sequence[str]) -> None:
        """Takes in one problem's samples, in order of their numbers."""
        if len(samples) < 2:
            return
        self.problems += 1
        self._k = len(samples)
        for i, one in enumerate(samples):
            for j in range(i + 1, len(samples)):
                agrees = one == samples[j]
                self._agreeing[i, j] = self._agreeing.get((i, j), 0) + agrees

    def warning(self) -> str:
        """A sentence for people, empty if nothing is suspicious."""
        if self.problems < self._LEAST:
            return ""
        always = [pair for pair, count in self._agreeing.items() if count == self.problems]
        if not always:
            return ""
        if len(always) == len(self._agreeing):
            return (
                f"all {self._k} samples are the same on every one of {self.problems} problems: "
                "the backend may be ignoring the sampling settings or fixing one seed"
            )
        pairs = ", ".join(f"{i} and {j}" for i, j in always[:3])
        return (
            f"samples {pairs} are the same on every one of {self.problems} problems while others "
            "differ: the engine may be dealing one random stream twice"
        )
