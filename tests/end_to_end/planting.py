"""Plant responses at known rates, so that every rate of a report can be checked.

A hash of a problem's id determines its outcomes; the expected counts come from these outcomes
alone, by code that is independent of the harness.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gapft_harness.core.records import Problem

K = 8
SEEDS = (13, 21)
CONDITIONS = ("gapft", "uniform", "replay", "all_verified")

#: condition -> planted (kappa_S, kappa_U, rho_G)
RATES = {
    "gapft": (0.60, 0.25, 0.10),
    "uniform": (0.40, 0.15, 0.08),
    "replay": (0.20, 0.05, 0.05),
    "all_verified": (0.65, 0.30, 0.06),
}
P_GREEDY, P_SAMPLE = 0.45, 0.12


def draw_share(*parts: object) -> float:
    """Return a number in [0, 1) that depends only on the parts."""
    text = "|".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") / 2**64


@dataclass(frozen=True)
class Planted:
    """The planted outcomes of one problem: greedy, K samples, and each arm's decision.

    ``texts`` are the samples as written; right ones differ in length.
    """

    greedy: bool
    samples: tuple[bool, ...]
    arms: dict[tuple[str, int], bool]
    texts: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        if self.greedy:
            return "G"
        return "S" if any(self.samples) else "U"

    def kept(self, rule: str) -> int:
        """Return the sample that a response rule keeps; the tests' tokens are bytes."""
        passing = [i for i, passed in enumerate(self.samples) if passed]
        lengths = {i: len(self.texts[i].encode()) for i in passing}
        return passing[0] if rule == "first" else sorted(passing, key=lambda i: (lengths[i], i))[0]


def plant(problem_id: str) -> Planted:
    """Return the outcomes of one problem."""
    greedy = draw_share("greedy", problem_id) < P_GREEDY
    samples = tuple(draw_share("sample", i, problem_id) < P_SAMPLE for i in range(K))
    state = "G" if greedy else "S" if any(samples) else "U"
    arms = {}
    for condition, (kappa_s, kappa_u, rho_g) in RATES.items():
        solves = {"G": 1 - rho_g, "S": kappa_s, "U": kappa_u}[state]
        for seed in SEEDS:
            arms[condition, seed] = draw_share(condition, seed, problem_id) < solves
    return Planted(greedy, samples, arms)


def write_responses(
    path: Path,
    pool: Sequence[Problem],
    audit: Sequence[Problem],
    right: Callable[[Problem], Sequence[str]],
    wrong: Callable[[Problem], str],
) -> dict[str, Planted]:
    """Write the recorded responses of a whole run; return the planted outcomes.

    Args:
        path: the file of responses to write.
        pool: the pool's problems.
        audit: the audit's problems.
        right: correct answers of different lengths; a hash chooses among them.
        wrong: a wrong answer.
    """
    planted = {}
    with path.open("w") as file:
        for problem in [*pool, *audit]:
            ways, outcome = right(problem), plant(problem.id)
            texts = tuple(
                ways[int(len(ways) * draw_share("way", index, problem.id))]
                if passed
                else wrong(problem)
                for index, passed in enumerate(outcome.samples)
            )
            outcome = planted[problem.id] = replace(outcome, texts=texts)
            greedy = ways[0] if outcome.greedy else wrong(problem)
            for index, text in [("greedy", greedy), *enumerate(texts)]:
                record = {"id": problem.id, "text": text, "index": index, "finish_reason": "stop"}
                file.write(json.dumps(record) + "\n")
        for problem in audit:
            for (condition, seed), passed in planted[problem.id].arms.items():
                text = right(problem)[0] if passed else wrong(problem)
                record = {"id": problem.id, "text": text, "index": "greedy"}
                file.write(json.dumps({**record, "condition": condition, "seed": seed}) + "\n")
    return planted
