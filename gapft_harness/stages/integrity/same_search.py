"""Require that a verifier's rules are those of a run's search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapft_harness.core.errors import UserError


def require_same_rules(
    judges: Mapping[str, Mapping[str, Any]], name: str, judge_facts: Mapping[str, Any]
) -> None:
    """Require that new responses will be judged by the rules of the responses judged earlier.

    This applies to verifiers whose verdicts are not recomputed (``rejudge=False``): ``gapft
    verify`` could not detect a difference.

    Args:
        judges: the verifier's description for each judged table of the run.
        name: the split or arm to judge.
        judge_facts: the verifier's description, with its ``rules``.

    Raises:
        UserError: an earlier table was judged by different rules.
    """
    for other, recorded_judge in judges.items():
        if other != name and recorded_judge.get("rules") != judge_facts.get("rules"):
            raise UserError(
                f"{name}: would be judged by different rules than {other}: "
                f"{judge_facts.get('rules')}, expected "
                f"{recorded_judge.get('rules') or 'none recorded'}. Rates are comparable only "
                "under the same rules for the whole run: continue with the version of "
                "gapft-harness that started it, or start a new run directory"
            )
