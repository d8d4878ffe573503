"""A split's tables joined into what selectors choose from."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from gapft_harness.core.records import Evidence
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.tables.problems import read_problems
from gapft_harness.run_directory.tables.responses import read_judged
from gapft_harness.run_directory.tables.states import read_states
from gapft_harness.run_directory.tables.verified import VerifiedResponses


def read_evidence(
    run_path: Path,
    split: str,
    context: Literal["conversation", "problem"] = "conversation",
    max_gen_toks: int | None = None,
    window: tuple[int, int] | None = None,
) -> list[Evidence]:
    """Joins a split's problems, responses and states into evidence, ordered by problem id.

    Args:
        run_path: the run directory.
        split: the split.
        context: what the final attempt of an episode follows: the conversation that it answered,
            or the problem's prompt alone.
        max_gen_toks: the length limit that the split was generated under; see ``Evidence.ended``.
        window: the first sample's number and how many samples the evidence is of; None: all.
    """
    evidence = []
    prompts: dict[str, tuple[int, ...]] = {}
    verified = VerifiedResponses(
        run_path / layout.responses(split),
        prompts,
        conversation=context == "conversation",
        window=window,
    )
    rows = zip(
        read_problems(run_path / layout.problems(split)),
        read_judged(run_path / layout.responses(split)),
        read_states(run_path / layout.states(split, window)),
        strict=True,
    )
    for (problem, prompt_ids), (_, judged), state in rows:
        prompts[problem.id] = prompt_ids
        kept = [j.response for j in judged if j.response.index == state.kept_index]
        if context == "conversation" and kept and kept[0].context_ids:
            prompt_ids = kept[0].context_ids
        evidence.append(
            Evidence(
                problem.id,
                state.state,
                kept[0] if kept else None,
                prompt_ids,
                state.passing_samples,
                state.first_success,
                problem.document,
                problem.gold,
                state.samples,
                max_gen_toks,
                verified,
                verified.greedy,
            )
        )
    return evidence
