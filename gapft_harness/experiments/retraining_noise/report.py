"""What retraining noise adds to the report: what it reads, its findings, and where they stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.paired import changes, mean_share
from gapft_harness.core.records import Arm
from gapft_harness.core.weights import weights_hash
from gapft_harness.experiments.retraining_noise import section
from gapft_harness.experiments.retraining_noise.findings import NoiseFindings, Replicate, Spread
from gapft_harness.experiments.retraining_noise.job import replicate_file
from gapft_harness.experiments.retraining_noise.settings import NoiseSettings, replicates_of
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.part import Part, Rows
from gapft_harness.report.reading.columns import PASS, codes, columns
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering.blocks import Section
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import require


@dataclass(frozen=True, slots=True)
class Pair:
    """An arm and its replicate on the audit.

    Attributes:
        arm: the replicate.
        ids: shape (P,), the audit's problems.
        first: shape (P,), V of the arm's greedy decode.
        second: shape (P,), the same of the replicate's.
        worded: responses that are worded otherwise.
        same: whether both adapters have the same weights, to the byte.
    """

    arm: Arm
    ids: NDArray[np.str_]
    first: NDArray[np.bool_]
    second: NDArray[np.bool_]
    worded: int
    same: bool


class NoisePart(Part):
    """Retraining noise: a section and a table."""

    name = "retraining_noise"
    after = "Contrasts"

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[Arm]
    ) -> tuple[Pair, ...] | None:
        """The decisions and weights of every replicate of the report's arms, with its arm's."""
        said = manifest["recipe"]["experiments"].get(self.name, {})
        settings = NoiseSettings.model_validate(said)
        wanted = [again for arm in arms for again in replicates_of(arm, settings)]
        return tuple(_pair(run_path, arm) for arm in wanted) or None

    def in_order(self, read: tuple[Pair, ...], seeds: Sequence[int]) -> tuple[Pair, ...]:
        """By condition and source of noise as they are asked for, then by ascending seed."""
        order = {pair.arm.condition: number for number, pair in reversed([*enumerate(read)])}
        sources = {pair.arm.variant: number for number, pair in reversed([*enumerate(read)])}
        pairs = []
        for pair in read:
            rows = np.argsort(pair.ids)
            pairs.append(
                replace(pair, ids=pair.ids[rows], first=pair.first[rows], second=pair.second[rows])
            )
        return tuple(
            sorted(
                pairs,
                key=lambda of: (order[of.arm.condition], sources[of.arm.variant], of.arm.seed),
            )
        )

    def compute(self, inputs: ReportInputs, read: tuple[Pair, ...]) -> NoiseFindings:
        """What changed, and beside it how far the training seeds are apart."""
        replicates = tuple(
            Replicate(pair.arm, changes(pair.first, pair.second), pair.worded, pair.same)
            for pair in read
        )
        spreads = {}
        for name in dict.fromkeys(of.arm.condition for of in replicates):
            passed = np.array([arm.passed for arm in inputs.of(name)])
            rates = [Fraction(int(of.sum()), of.size) for of in passed]
            spreads[name] = Spread(len(rates), mean_share(passed), min(rates), max(rates))
        return NoiseFindings(replicates, spreads)

    def sections(
        self, inputs: ReportInputs, findings: Findings, found: NoiseFindings
    ) -> Iterator[Section]:
        """Retraining noise."""
        yield Section("Retraining noise", section.blocks(findings, found))

    def tables(
        self, inputs: ReportInputs, findings: Findings, found: NoiseFindings
    ) -> Iterator[tuple[str, Rows]]:
        """Every replicate, unrounded."""
        yield "retraining_noise.csv", section.rows(found)

    def results(self, found: NoiseFindings) -> dict[str, Any]:
        """For results.json."""
        return section.content(found)


def _pair(run_path: Path, arm: Arm) -> Pair:
    files = (layout.decisions(arm.original), replicate_file(arm))
    first, second = (columns(run_path / file, ("problem_id", "status", "text")) for file in files)
    require(
        first["problem_id"] == second["problem_id"],
        f"{files[1]}: answers other problems than {files[0]}",
    )
    weights = {weights_hash(run_path / layout.adapter(of)) for of in (arm.original, arm)}
    return Pair(
        arm,
        np.array(first["problem_id"], dtype=np.str_),
        codes(first["status"]) == PASS,
        codes(second["status"]) == PASS,
        sum(a != b for a, b in zip(first["text"], second["text"], strict=True)),
        len(weights) == 1,
    )
