"""The problems of gapft_rg_mixture that the first study did not use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gapft_harness.core.identities import assign_problem_ids
from gapft_harness.core.streams import derive_key

#: At least the first study's ``data.pool_limit`` (700) and ``data.audit_limit`` (800).
USED = 800


def leave_out_first_study(split: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out the problems that limits take first, of either split."""
    documents = list(split)
    generators = [document["generator"] for document in documents]
    ids = assign_problem_ids(documents, generators, ["question"])
    order = sorted(zip(ids, documents, strict=True), key=lambda pair: derive_key("limit", pair[0]))
    return [document for _, document in order[USED:]]
