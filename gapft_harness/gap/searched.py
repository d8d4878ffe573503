"""Read the results of a run's search as arrays, from finalized tables only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY
from gapft_harness.report.findings.ledger import Spending, find_search_seconds
from gapft_harness.report.reading.audits import read_verdicts
from gapft_harness.report.reading.tokens import (
    GeneratedTokens,
    count_generated,
    read_prompt_tokens,
    read_response_tokens,
)
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import SPLITS, RunDirectory
from gapft_harness.run_directory.manifest import has_reused_responses
from gapft_harness.verdicts.table import Verdicts


@dataclass(frozen=True, slots=True)
class SearchedSplit(Verdicts):
    """A searched split.

    Attributes:
        tokens: generated tokens; None if the backend returns no token ids.
        example: mean tokens of a recovered problem's prompt with its shortest passing sample, as
            in a training set; None without recovered problems.
    """

    tokens: GeneratedTokens | None = None
    example: float | None = None


@dataclass(frozen=True, slots=True)
class SearchedRun:
    """A run with a finished search.

    Attributes:
        task: the task's name.
        verifier: the name of the task's verifier.
        k: number of samples of each problem.
        splits: ``pool`` and ``audit``, or the one that was searched.
        seconds: total time of the search over all commands; None if not recorded.
        trained: trained tokens and their seconds, over all arms that recorded both.
        recipe: the recipe as JSON values.
        warnings: warnings about imported splits.
    """

    task: str
    verifier: str
    k: int
    splits: Mapping[str, SearchedSplit]
    seconds: float | None
    trained: tuple[int, float] | None
    recipe: Mapping[str, Any]
    warnings: tuple[str, ...] = ()

    @property
    def generated_tokens(self) -> float | None:
        """Generated tokens of the search; None if a split has no token ids."""
        counts = [split.tokens for split in self.splits.values()]
        known_counts = [counted for counted in counts if counted is not None]
        is_complete = len(known_counts) == len(counts)
        return float(sum(counted.total for counted in known_counts)) if is_complete else None

    @property
    def rate(self) -> float | None:
        """Generated tokens per second of the search (wall time); None if not recorded."""
        total = self.generated_tokens
        return total / self.seconds if total is not None and self.seconds else None

    def estimate_training(self, tokens: float) -> Spending:
        """Estimate the cost of processing tokens in training, at the rate of the trained arms."""
        if self.trained is None:
            return Spending(tokens)
        trained_tokens, seconds = self.trained
        return Spending(tokens, tokens / trained_tokens * seconds)


def read_run(path: Path) -> SearchedRun:
    """Read the finalized search of a run directory.

    Raises:
        UserError: not a run directory, no finished search, K below 2, or a file that was changed
            after it was finalized.
    """
    run = RunDirectory.open(path)
    manifest, k = run.manifest(), run.recipe.search.k
    searched_splits = [
        split for split in SPLITS if layout.responses_path(split) in manifest["files"]
    ]
    if not searched_splits:
        raise UserError(f"{path}: no finished search; run `gapft run {path} --only search` first")
    if k < 2:
        raise UserError(
            f"{path}: found {k} sample{'' if k == 1 else 's'} of each problem (search.k), expected "
            "2 or more, better 8; search again with --set search.k=8"
        )
    stages = manifest["stages"]
    return SearchedRun(
        task=manifest["task"]["name"],
        verifier=manifest["task"]["verifier"],
        k=k,
        splits={split: _read_split(run, split, k) for split in searched_splits},
        seconds=find_search_seconds(
            {name: entry["seconds"] for name, entry in stages.items()},
            has_reused_responses(manifest),
        ),
        trained=_sum_training(manifest),
        recipe=run.recipe.model_dump(mode="json"),
        warnings=tuple(
            line
            for line in manifest["warnings"]
            if line.partition(": ")[0] in manifest.get("imported", {})
        ),
    )


def _read_split(run: RunDirectory, split: str, k: int) -> SearchedSplit:
    table = run.sealed(layout.responses_path(split))
    problems = run.sealed(layout.problems_path(split))
    verdicts = read_verdicts(table, k)
    if not len(verdicts.passing):
        raise UserError(f"{table}: no responses found")
    index, tokens = read_response_tokens(table)
    return SearchedSplit(
        *(verdicts.deployed, verdicts.passing, k, verdicts.passed),
        answers=verdicts.answers,
        tokens=count_generated(table),
        example=_mean_example_tokens(verdicts, index, tokens, read_prompt_tokens(problems)),
    )


def _mean_example_tokens(
    verdicts: Verdicts,
    index: NDArray[np.int64],
    tokens: NDArray[np.int64],
    prompts: NDArray[np.int64],
) -> float | None:
    """Compute the mean tokens of a recovered problem's prompt with its shortest passing sample."""
    problem = np.cumsum(index == GREEDY) - 1
    is_sample = index >= 0
    is_candidate = is_sample & ~verdicts.deployed[problem]
    is_candidate[is_sample] &= verdicts.passed[problem[is_sample], index[is_sample]]
    if not is_candidate.any() or not tokens.any():
        return None
    shortest = np.full(len(prompts), np.iinfo(np.int64).max)
    np.minimum.at(shortest, problem[is_candidate], tokens[is_candidate])
    chosen = np.unique(problem[is_candidate])
    return float((prompts[chosen] + shortest[chosen]).mean())


def _sum_training(manifest: Mapping[str, Any]) -> tuple[int, float] | None:
    """Sum tokens and seconds of the arms whose trainer recorded both."""
    tokens, seconds = 0, 0.0
    for facts in manifest.get("training", {}).values():
        spent = facts.get("seconds")
        if spent and "budget" in facts and "trained_as" not in facts:
            tokens, seconds = tokens + int(facts["budget"]["tokens"]), seconds + float(spent)
    return (tokens, seconds) if tokens and seconds else None
