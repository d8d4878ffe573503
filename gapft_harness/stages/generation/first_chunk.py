"""A warning about a search's first responses: too many have no answer.

It is given as soon as the first chunk is generated, so that a wrong prompt, stop string or limit
costs minutes instead of a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import CONTEXT_EXCEEDED, STOP_STRING, Decoding, Problem
from gapft_harness.hooks.judge import Judge
from gapft_harness.hooks.protocols import Generated, Generation

#: Warn if at least one response in this many is cut and has no answer.
_CUT_DIVISOR = 10
#: Warn if at least one response in this many has no answer, for any reason.
_UNANSWERED_DIVISOR = 2
#: Number of examples in a warning, and of characters shown of each.
_MAX_EXAMPLES, _SHOWN_CHARACTERS = 3, 100

_LIMIT, _OTHER = "the token limit", "the model's own end, or an unknown one"


def check_first_chunk(
    members: Sequence[Problem],
    generated: Sequence[Generated],
    decoding: Decoding,
    judge: Judge,
) -> Iterator[str]:
    """Yield a warning on stop strings, limit and prompt from the first responses.

    Args:
        members: the problems, one for each entry of ``generated``.
        generated: their responses; those that were not generated are ignored.
        decoding: their decoding.
        judge: reads their answers; if it reads none, only white space counts as no answer.

    Yields:
        A sentence if a tenth or more of the responses were cut (at a stop string or the limit) and
        have no answer, or if half or more have no answer for any reason.

    Raises:
        PluginError: the verifier raised, or returned something that is not an answer.
    """
    # Count the responses without an answer, by cause
    rows = [
        (problem, generation)
        for problem, answer in zip(members, generated, strict=True)
        for generation in answer.generations
        if generation.finish_reason != CONTEXT_EXCEEDED
    ]
    has_answer = judge.find_answered([g.text for _, g in rows], [p.gold for p, _ in rows])
    unanswered = [row for row, is_answered in zip(rows, has_answer, strict=True) if not is_answered]
    causes = Counter(_find_cause(generation) for _, generation in unanswered)
    cut_count = len(unanswered) - causes[_OTHER]
    is_often_cut = bool(cut_count) and cut_count * _CUT_DIVISOR >= len(rows)
    is_often_missing = bool(unanswered) and len(unanswered) * _UNANSWERED_DIVISOR >= len(rows)
    if not is_often_cut and not is_often_missing:
        return
    # Name the remedies that fit
    remedies = []
    if causes[_LIMIT]:
        remedies.append(f"raise search.max_gen_toks (now {decoding.max_gen_toks:,})")
        remedies.append("let the model reason less, as with model.args.enable_thinking: false")
    if causes.keys() - {_LIMIT, _OTHER}:
        remedies.append(
            "set generation_kwargs.until in the task's file ([]: stop only at the model's own end "
            "tokens)"
        )
    if is_often_missing:
        remedies.append("check model.chat_template and the answer format that the prompt requests")
    counts = ", ".join(f"{count:,} at {cause}" for cause, count in causes.most_common())
    yield (
        f"{len(unanswered) / len(rows):.0%} of the first {len(rows):,} responses have no answer "
        f"that the verifier {judge.owner.name!r} can read: {counts}. Examples: "
        f"{'; '.join(_list_examples(unanswered))}. To change this: {'; '.join(remedies)}"
    )


def require_fitting_prompt(generated: Sequence[Generated], decoding: Decoding) -> None:
    """Stop before generation if no prompt fits the model's context.

    Raises:
        UserError: no prompt fits.
    """
    reasons = {
        generation.finish_reason for answer in generated for generation in answer.generations
    }
    if reasons == {CONTEXT_EXCEEDED}:
        raise UserError(
            f"search.max_gen_toks: none of the first {len(generated)} prompts fits the model's "
            f"context with {decoding.max_gen_toks:,} new tokens; lower it, shorten the prompt "
            "(the task's num_fewshot), or use a model with a longer context"
        )


def _find_cause(generation: Generation) -> str:
    """Return where a response ended."""
    if generation.finish_reason == "length":
        return _LIMIT
    if generation.finish_reason != STOP_STRING:
        return _OTHER
    return (
        f"the stop string {generation.stop_string!r}" if generation.stop_string else "a stop string"
    )


def _list_examples(unanswered: Sequence[tuple[Problem, Generation]]) -> list[str]:
    """Describe the ends of some responses, those that were cut first, of different problems."""
    ordered = sorted(unanswered, key=lambda row: _find_cause(row[1]) == _OTHER)
    first_by_problem = {problem.id: generation for problem, generation in reversed(ordered)}
    examples = []
    for problem_id, generation in [*reversed(first_by_problem.items())][:_MAX_EXAMPLES]:
        text = generation.text
        shown = repr(text) if len(text) <= _SHOWN_CHARACTERS else f"…{text[-_SHOWN_CHARACTERS:]!r}"
        if not text.strip():
            shown = f"no text ({len(generation.token_ids)} tokens)"
        examples.append(f"{problem_id}: {shown}")
    return examples
