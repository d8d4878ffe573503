"""The gold-label control: source failures chosen by gold answers, recovered by search or not.

Section 5 of the paper: as many failures as GapFT, from S and U, uniformly within each class of gold
answers, each with one of GapFT's target strings for the same answer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gapft_harness.api import Evidence, Pool, Register, Stream, UserError, hookimpl
from gapft_harness.core.golds import gold_answer, gold_fault, is_answer_alone


def gold_labels(pool: Pool, n: int, rng: Stream, answer_only: bool = True) -> Sequence[Evidence]:
    """Select as many failures of each gold answer (S and U) as GapFT, with GapFT's target strings.

    The targets are, slot by slot, those of GapFT's training set under the same seed, so target
    strings, supervised tokens, N and J are equal; only the problems differ. Each target keeps its
    origin: the problem that it is a response to.

    Args:
        answer_only: keep GapFT's own problem in a slot whose target contains more than the answer,
            because such a text refers to its problem. False: pair a problem with any verified
            response with the same answer.

    Raises:
        UserError: a problem has no comparable gold answer, or no target is the answer alone.
        PoolTooSmallError: GapFT itself has too few recovered failures.
    """
    targets = pool.draw(pool.recovered, n, Stream(rng.seed, "select/gapft"))
    kept_ids = {
        target.problem_id
        for target in targets
        if answer_only and not is_answer_alone(_find_text(target), target.gold)
    }
    if kept_ids and len(kept_ids) == len(targets):
        raise _no_bare_answer_error(targets[0])
    failures: dict[str, list[Evidence]] = defaultdict(list)
    for failure in (*pool.recovered, *pool.missed):
        if failure.problem_id not in kept_ids:
            failures[find_answer(failure)].append(failure)
    counts = Counter(find_answer(target) for target in targets if target.problem_id not in kept_ids)
    replacements: dict[str, Iterator[Evidence]] = {
        answer: iter(pool.draw(failures[answer], count, rng)) for answer, count in counts.items()
    }
    return [
        target
        if target.problem_id in kept_ids
        else replace(next(replacements[find_answer(target)]), response=target.response)
        for target in targets
    ]


def find_answer(evidence: Evidence) -> str:
    """Return the gold answer of a problem, which is its class: an option letter, a word, a number.

    Raises:
        UserError: the gold has another form.
    """
    answer = gold_answer(evidence.gold)
    if answer is None:
        raise UserError(
            f"gold labels: the gold answer of problem {evidence.problem_id} "
            f"{gold_fault(evidence.gold)}"
        )
    return answer


def _find_text(target: Evidence) -> str:
    assert target.response is not None
    return target.response.text


def _no_bare_answer_error(target: Evidence) -> UserError:
    return UserError(
        f"gold labels: no target of GapFT is the answer alone: for problem {target.problem_id} it "
        f"is {_find_text(target)!r:.60}, with gold answer {find_answer(target)!r}; expected "
        "targets such as 'A' or 'A.', because a longer text refers to its own problem. Use a "
        "verifier that passes only bare answers (option_letter with rule: whole_response), or set "
        "the parameter answer_only to false"
    )


@hookimpl
def register_selectors(register: Register) -> None:
    """Register the selector."""
    register("gold_labels", gold_labels, responses="borrowed", check_gold=gold_fault)
