"""Require that a model and a verifier's rules are those of a run's search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapft_harness.core.errors import UserError


def require_same_source(
    recorded_source: Mapping[str, Any],
    source: Mapping[str, Any],
    name: str,
    other_names: str = "the search",
) -> None:
    """Require that a model is the one of an earlier search.

    Models are compared by the hashes of their weights, or by name if one has no hash (servers,
    plugins). The start tokens of their prompts are compared too.

    Args:
        recorded_source: the sampler's description of the model of the search.
        source: the sampler's description of the model of a split or arm.
        name: the name of that split or arm.
        other_names: what was searched, for the message.

    Raises:
        UserError: the models differ; the message has both hashes or names.
    """
    hashes = "weights_sha256"
    keys = ["model", "pretrained"]
    if recorded_source.get(hashes) and source.get(hashes):
        keys = [hashes]
    elif source.get("adapter"):  # a server gives each adapter a different model name
        keys = ["pretrained"]
    for key in (*keys, "start_ids"):
        recorded_value, value = recorded_source.get(key), source.get(key)
        is_comparable = (
            "start_ids" in recorded_source
            if key == "start_ids"
            else None not in (recorded_value, value)
        )
        if is_comparable and recorded_value != value:
            raise UserError(
                f"{name}: searched with a different model than {other_names}: {key} is {value}, "
                f"expected {recorded_value}. All splits need one model: restore it, remove the "
                f"folder {name}/ of the run directory if it contains responses, and run the same "
                "command again; or start a new run directory"
            )


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
