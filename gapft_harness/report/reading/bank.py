"""A bank: many arms with their training sets and what they decided on the audit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.records import Arm, Evidence, Example, Response
from gapft_harness.hooks.protocols import AttributionItem
from gapft_harness.report.reading.audits import read_decisions
from gapft_harness.report.reading.columns import PASS
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.evidence import read_evidence
from gapft_harness.run_directory.tables import read_examples, read_prompts


@dataclass(frozen=True, slots=True)
class Bank:
    """Arms with known training sets, and every decision of theirs.

    Attributes:
        arms: A, as they were asked for.
        examples: E, distinct ones of all training sets, by problem id and number of the response.
        problems: P, of the audit, by id.
        slots: by arm, the places among ``examples`` of its training set, in its order.
        passed: shape (A, P).
        source: shape (P,), whether the source's greedy decode passes.
    """

    arms: tuple[Arm, ...]
    examples: tuple[AttributionItem, ...]
    problems: tuple[AttributionItem, ...]
    slots: tuple[tuple[int, ...], ...]
    passed: NDArray[np.bool_]
    source: NDArray[np.bool_]

    @property
    def included(self) -> NDArray[np.int64]:
        """Shape (A, E), how often an arm's training set holds an example."""
        return np.array([np.bincount(of, minlength=len(self.examples)) for of in self.slots])

    @property
    def shares(self) -> NDArray[np.float64]:
        """Shape (A,), the share of an arm's slots that are recovered failures."""
        recovered = np.array([example.state == "S" for example in self.examples])
        return np.array([recovered[[*of]].mean() for of in self.slots])


def bank_files(arms: Iterable[Arm]) -> list[str]:
    """What is read of a run for a bank, besides what every report reads."""
    return [table(arm) for arm in arms for table in (layout.selection, layout.decisions)]


def read_bank(run_path: Path, arms: Sequence[Arm]) -> Bank:
    """Reads sealed tables, whose hashes the caller has checked.

    Raises:
        GapftError: decisions are of other problems than the audit's.
    """
    pool, prompts = _split(run_path, "pool")
    audit, asked = _split(run_path, "audit")
    sets = [read_examples(run_path / layout.selection(arm)) for arm in arms]
    distinct = sorted({example for of in sets for example in of}, key=_order)
    place = {example: number for number, example in enumerate(distinct)}
    ids = [*audit]
    codes = [read_decisions(run_path / layout.decisions(arm), ids) for arm in arms]
    return Bank(
        tuple(arms),
        tuple(_example(of, pool, prompts[of.problem_id]) for of in distinct),
        tuple(_item(of, asked[name], of.response) for name, of in audit.items()),
        tuple(tuple(place[example] for example in of) for of in sets),
        np.array(codes).reshape(len(sets), len(ids)) == PASS,
        np.array([of.state == "G" for of in audit.values()]),
    )


def _order(example: Example) -> tuple[str, str, int, tuple[int, ...]]:
    return example.problem_id, example.origin, example.response_index, example.response_ids


def _split(run_path: Path, split: str) -> tuple[dict[str, Evidence], dict[str, str]]:
    evidence = {of.problem_id: of for of in read_evidence(run_path, split)}
    return evidence, dict(read_prompts(run_path / layout.problems(split)))


def _example(example: Example, pool: Mapping[str, Evidence], prompt: str) -> AttributionItem:
    """An example with its response's text, where that is a verified response of the search."""
    lender, number = pool[example.origin], example.response_index
    kept = lender.response if lender.response and lender.response.index == number else None
    text = kept or next((of for of in lender.verified if of.index == number), None)
    return replace(
        _item(pool[example.problem_id], prompt, text),
        prompt_ids=example.prompt_ids,
        response_ids=example.response_ids,
    )


def _item(evidence: Evidence, prompt: str, response: Response | None) -> AttributionItem:
    return AttributionItem(
        evidence.problem_id,
        evidence.state,
        evidence.passing_samples / evidence.samples if evidence.samples else None,
        prompt,
        response.text if response else "",
        evidence.prompt_ids,
        response.token_ids if response else (),
    )
