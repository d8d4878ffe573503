"""The gold-label control: source failures chosen by gold answers, reached by search or not.

Section 5 of the paper: as many failures as GapFT has, from S and U, uniformly within each class of
gold answers, each with a target string of GapFT's own for the same answer.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gapft_harness.api import Evidence, Pool, RegisterSelector, Stream, UserError, hookimpl

#: A response that is an answer and nothing else: one word, such as ``A``, ``A.`` or ``(A)``.
_ANSWER = re.compile(r"\W*(\w+)\W*")


def gold_labels(pool: Pool, n: int, rng: Stream, answer_only: bool = True) -> Sequence[Evidence]:
    """As many failures of each gold answer as GapFT has (S and U), with GapFT's target strings.

    Slot by slot the targets are those of GapFT's training set under the same seed, so target
    strings, supervised tokens, N and J are the same; only the problems before them are others. Each
    target keeps its origin: the problem whose response it is.

    Args:
        answer_only: refuses targets that say more than the answer, since they speak of the problem
            that they are of; false gives a problem any verified response to the same answer.

    Raises:
        UserError: a problem has no gold answer that can be compared, or a target is not the answer
            alone.
        PoolTooSmallError: GapFT itself has too few recovered failures.
    """
    targets = pool.draw(pool.recovered, n, Stream(rng.seed, "select/gapft"))
    if answer_only:
        for target in targets:
            _require_answer_alone(target)
    failures: dict[str, list[Evidence]] = defaultdict(list)
    for failure in (*pool.recovered, *pool.missed):
        failures[answer_of(failure)].append(failure)
    wanted: dict[str, int] = defaultdict(int)
    for target in targets:
        wanted[answer_of(target)] += 1
    drawn: dict[str, Iterator[Evidence]] = {
        answer: iter(pool.draw(failures[answer], count, rng)) for answer, count in wanted.items()
    }
    return [replace(next(drawn[answer_of(target)]), response=target.response) for target in targets]


def answer_of(evidence: Evidence) -> str:
    """The gold answer of a problem, which is its class: an option's letter, a word, a number.

    Raises:
        UserError: it is none of these.
    """
    gold = evidence.gold
    answer = gold.get("answer") if isinstance(gold, Mapping) else gold
    if isinstance(answer, bool) or not isinstance(answer, str | int) or answer == "":
        raise UserError(
            f"gold labels: the gold answer of problem {evidence.problem_id} is "
            f"{gold!r:.60}; expected a text or a number, or a mapping with one under 'answer'"
        )
    return str(answer).strip()


def _require_answer_alone(target: Evidence) -> None:
    response = target.response
    assert response is not None
    found = _ANSWER.fullmatch(response.text)
    if found is None or found[1].casefold() != answer_of(target).casefold():
        raise UserError(
            f"gold labels: the target of problem {target.problem_id} is "
            f"{response.text!r:.60}, and its gold answer {answer_of(target)!r}; expected the "
            "answer alone, such as 'A' or 'A.': what says more speaks of its own problem, and "
            "cannot be given to another. Use a verifier that passes answers alone (option_letter "
            "with rule: whole_response), or set the parameter answer_only to false"
        )


@hookimpl
def register_selectors(register: RegisterSelector) -> None:
    """Registers it."""
    register("gold_labels", gold_labels, responses="borrowed")
