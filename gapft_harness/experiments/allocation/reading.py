"""What two compared conditions trained on, and how each now decides it. Reading only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.records import Arm
from gapft_harness.experiments.allocation.halves import exposed_file, find_halves
from gapft_harness.report.reading.columns import PASS, codes, columns
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import require
from gapft_harness.run_directory.tables import read_examples


@dataclass(frozen=True, slots=True)
class ExposedSeed:
    """The problems of halves A and B under one seed; every array has shape (P,).

    Attributes:
        ids: distinct.
        halves: ``A`` (shared) or ``B`` (new).
        diffuse: status codes of the greedy decode by the model that saw A and B once.
        concentrated: the same of the model that saw A twice.
        replay: slots of solved problems, the same examples in both training sets.
    """

    seed: int
    ids: NDArray[np.str_]
    halves: NDArray[np.str_]
    diffuse: NDArray[np.uint8]
    concentrated: NDArray[np.uint8]
    replay: int

    @property
    def diffuse_passed(self) -> NDArray[np.bool_]:
        """V of the diffuse model."""
        passed: NDArray[np.bool_] = self.diffuse == PASS
        return passed

    @property
    def concentrated_passed(self) -> NDArray[np.bool_]:
        """V of the concentrated model."""
        passed: NDArray[np.bool_] = self.concentrated == PASS
        return passed

    def in_order(self) -> ExposedSeed:
        """The same with problems by id."""
        order = np.argsort(self.ids)
        return replace(
            self,
            ids=self.ids[order],
            halves=self.halves[order],
            diffuse=self.diffuse[order],
            concentrated=self.concentrated[order],
        )


@dataclass(frozen=True, slots=True)
class Exposures:
    """An allocation comparison: two conditions and, by seed, what they trained on."""

    diffuse: str
    concentrated: str
    seeds: tuple[ExposedSeed, ...]

    def in_order(self) -> Exposures:
        """The same with seeds ascending and problems by id."""
        seeds = sorted(self.seeds, key=lambda of: of.seed)
        return replace(self, seeds=tuple(of.in_order() for of in seeds))


def read_exposures(
    run_path: Path, allocation: Mapping[str, Any], seeds: Sequence[int]
) -> Exposures:
    """Reads the sealed selections and the decisions on them.

    Args:
        run_path: the run directory.
        allocation: the recipe's key of that name.
        seeds: training seeds.

    Raises:
        UserError: the selections are no such comparison.
        GapftError: the decisions are on other problems.
    """
    names = allocation["diffuse"], allocation["concentrated"]
    return Exposures(*names, tuple(_read_seed(run_path, *names, seed) for seed in seeds))


def _read_seed(run_path: Path, diffuse: str, concentrated: str, seed: int) -> ExposedSeed:
    once, twice = Arm(diffuse, seed), Arm(concentrated, seed)
    found = find_halves(
        once,
        read_examples(run_path / layout.selection(once)),
        twice,
        read_examples(run_path / layout.selection(twice)),
    )
    decisions = []
    for arm in (once, twice):
        path = run_path / exposed_file(arm)
        content = columns(path, ("problem_id", "status"))
        require(
            content["problem_id"] == list(found.problems),
            f"{path}: holds other problems than the two arms' selections",
        )
        decisions.append(codes(content["status"]))
    in_a = set(found.a)
    return ExposedSeed(
        seed=seed,
        ids=np.array(found.problems, dtype=np.str_),
        halves=np.array(["A" if i in in_a else "B" for i in found.problems], dtype=np.str_),
        diffuse=decisions[0],
        concentrated=decisions[1],
        replay=found.replay,
    )
