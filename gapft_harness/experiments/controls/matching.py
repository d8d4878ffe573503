"""What GapFT and gold-label selection must have in common (Section 5, "Control design")."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gapft_harness.core.records import Example
from gapft_harness.recipe.sections import Training
from gapft_harness.training.plan import budget


def unmatched(
    gapft: Sequence[Example],
    gold: Sequence[Example],
    golds: Mapping[str, Any],
    training: Training,
) -> Iterator[str]:
    """Yields what two training sets differ in that they must have in common.

    Args:
        gapft: GapFT's.
        gold: that of gold-label selection.
        golds: gold answers by problem id.
        training: the recipe's section.

    Yields:
        Ends of sentences, such as ``differ in ...``.
    """
    targets = [Counter((e.response_ids, e.ended) for e in examples) for examples in (gapft, gold)]
    if targets[0] != targets[1]:
        more = sum((targets[1] - targets[0]).values())
        yield f"differ in {more} of {len(gold)} target strings"
    classes = [Counter(_class(golds[e.problem_id]) for e in es) for es in (gapft, gold)]
    for answer in sorted({*classes[0], *classes[1]}):
        if classes[0][answer] != classes[1][answer]:
            yield (
                f"have {classes[0][answer]} and {classes[1][answer]} problems of the gold answer "
                f"{answer}"
            )
            break
    one, other = (budget(examples, training) for examples in (gapft, gold))
    for key in ("supervised_tokens", "exposures", "steps"):
        a, b = getattr(one, key), getattr(other, key)
        if a != b:
            yield f"differ in {key}: {a} and {b}"
    given = {e.problem_id: e for e in gapft}
    for e in gold:
        lender = given.get(e.origin)
        if e.state == "G" and e.origin == e.problem_id:
            continue  # replay that both share
        if lender is None or (lender.response_ids, lender.response_index) != (
            e.response_ids, e.response_index,
        ):  # fmt: skip
            yield (
                f"have a target that is not GapFT's: of problem {e.problem_id}, origin {e.origin}"
            )
            break


def _class(gold: Any) -> str:
    """The gold answer without the options that a problem has beside it."""
    answer = gold.get("answer", gold) if isinstance(gold, Mapping) else gold
    return answer if isinstance(answer, str) else json.dumps(answer, sort_keys=True)
