"""Warnings about a search's first responses: cut before an answer, or without an answer.

They are given as soon as the first chunk is generated, so that a wrong prompt, stop string or limit
costs minutes instead of a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import CONTEXT_EXCEEDED, STOP_STRING, Decoding, Problem
from gapft_harness.core.thoughts import scan_thoughts
from gapft_harness.hooks.judge import Judge
from gapft_harness.hooks.protocols import Generated, Generation

#: Warn if at least one response in this many is cut and has no answer.
_CUT_DIVISOR = 10
#: Warn if at least one response in this many has no answer, for any reason.
_UNANSWERED_DIVISOR = 2
#: Warn if at least one reasoning block in this many is cut at the limit.
_CUT_THOUGHTS_DIVISOR = 2
#: Number of examples in a warning, and of characters shown of each.
_MAX_EXAMPLES, _SHOWN_CHARACTERS = 3, 100


@dataclass(frozen=True, slots=True)
class _Unanswered:
    """A response without an answer."""

    problem_id: str
    generation: Generation

    @property
    def cause(self) -> str:
        """The reason why the response was cut; empty if it was not."""
        if self.generation.finish_reason == "length":
            return "the token limit"
        if self.generation.finish_reason == STOP_STRING:
            stop = self.generation.stop_string
            return f"the stop string {stop!r}" if stop else "a stop string"
        return ""

    def describe(self) -> str:
        """Describe its problem and the end of its text, where it was cut."""
        text = self.generation.text
        if not text.strip():
            excerpt = f"no text ({len(self.generation.token_ids)} tokens)"
        else:
            excerpt = (
                repr(text) if len(text) <= _SHOWN_CHARACTERS else f"…{text[-_SHOWN_CHARACTERS:]!r}"
            )
        return f"{self.problem_id}: {excerpt}"


@dataclass(frozen=True, slots=True)
class _Thoughts:
    """The reasoning of responses.

    Attributes:
        total: the number of responses with a reasoning block, complete or not.
        cut: the places of those whose block was cut at the limit.
    """

    total: int
    cut: frozenset[int]

    @classmethod
    def find(cls, generations: Sequence[Generation], judge: Judge) -> _Thoughts:
        """Find the reasoning blocks of responses.

        If the prompt opens the block, a response without its closing tag has no tag at all. So if
        other responses close a block that they did not open, or the verifier has a
        ``think_end_token``, a response at the limit without a tag counts as cut.
        """
        token = judge.think_end_token
        scans = [scan_thoughts(generation.text, token) for generation in generations]
        opened_by_prompt = token is not None or any(scan.began_before for scan in scans)
        total, cut = 0, set()
        for place, (generation, scan) in enumerate(zip(generations, scans, strict=True)):
            is_at_limit = generation.finish_reason == "length"
            is_separate = bool(generation.reasoning)
            is_hidden = opened_by_prompt and is_at_limit and not scan.is_found and not is_separate
            total += scan.is_found or is_separate or is_hidden
            is_unclosed = scan.is_open or (is_separate and not generation.text.strip())
            if is_at_limit and (is_unclosed or is_hidden):
                cut.add(place)
        return cls(total, frozenset(cut))

    def describe(self, responses: int, decoding: Decoding) -> str:
        """Describe the share of cut blocks, with the remedies."""
        return (
            f"{_format_share(len(self.cut), responses)} of the first {responses:,} responses were "
            f"cut at the token limit while the model was still reasoning ({self.total:,} of them "
            "have reasoning), so they have no answer. To change this: raise search.max_gen_toks "
            f"(now {decoding.max_gen_toks:,}), or let the model reason less, as with "
            "model.args.enable_thinking: false"
        )


def check_first_chunk(
    members: Sequence[Problem],
    generated: Sequence[Generated],
    decoding: Decoding,
    judge: Judge,
) -> Iterator[str]:
    """Yield warnings on stop strings, limit and prompt from the first responses.

    Args:
        members: the problems, one for each entry of ``generated``.
        generated: their responses; those that were not generated are ignored.
        decoding: their decoding.
        judge: reads their answers; if it reads none, only white space counts as no answer.

    Yields:
        A sentence if half or more of the reasoning blocks were cut at the limit; one if a tenth or
        more of the other responses were cut (at a stop string or the limit) and have no answer; and
        one if half or more have no answer, for any other reason.

    Raises:
        PluginError: the verifier raised, or returned something that is not an answer.
    """
    rows = [
        (problem, generation)
        for problem, answer in zip(members, generated, strict=True)
        for generation in answer.generations
        if generation.finish_reason != CONTEXT_EXCEEDED
    ]
    has_answer = judge.find_answered([g.text for _, g in rows], [p.gold for p, _ in rows])
    thoughts = _Thoughts.find([generation for _, generation in rows], judge)
    if thoughts.cut and len(thoughts.cut) * _CUT_THOUGHTS_DIVISOR >= thoughts.total:
        yield thoughts.describe(len(rows), decoding)
        reported = thoughts.cut
    else:
        reported = frozenset()
    unanswered = [
        _Unanswered(problem.id, generation)
        for place, ((problem, generation), is_answered) in enumerate(
            zip(rows, has_answer, strict=True)
        )
        if not is_answered and place not in reported
    ]
    cut = [response for response in unanswered if response.cause]
    if cut and len(cut) * _CUT_DIVISOR >= len(rows):
        yield _describe_cut(cut, len(rows), decoding)
    if unanswered and len(unanswered) * _UNANSWERED_DIVISOR >= len(rows):
        yield _describe_unanswered(unanswered, len(rows), judge)


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


def _describe_cut(cut: Sequence[_Unanswered], total: int, decoding: Decoding) -> str:
    causes = Counter(response.cause for response in cut).most_common()
    counts = ", ".join(f"{count} at {cause}" for cause, count in causes)
    example = next(response for response in cut if response.cause == causes[0][0])
    remedies = []
    if any(response.generation.finish_reason == "length" for response in cut):
        remedies.append(f"raise search.max_gen_toks (now {decoding.max_gen_toks:,})")
    if any(response.generation.finish_reason == STOP_STRING for response in cut):
        remedies.append(
            "set generation_kwargs.until in the task's file ([]: stop only at the model's own end "
            "tokens)"
        )
    return (
        f"{_format_share(len(cut), total)} of the first {total:,} responses were cut before they "
        f"gave an answer: {counts}. Example: {example.describe()}. To change this: "
        f"{'; '.join(remedies)}"
    )


def _describe_unanswered(unanswered: Sequence[_Unanswered], total: int, judge: Judge) -> str:
    by_problem: dict[str, _Unanswered] = {}
    for response in unanswered:
        by_problem.setdefault(response.problem_id, response)
    # from different problems first: the responses to one problem are often similar
    responses = list(dict.fromkeys([*by_problem.values(), *unanswered]))[:_MAX_EXAMPLES]
    examples = "; ".join(response.describe() for response in responses)
    name = judge.owner.name
    return (
        f"{_format_share(len(unanswered), total)} of the first {total:,} responses have no answer "
        f"that the verifier {name!r} can read. Examples: {examples}. Check model.chat_template, "
        "the answer format that the prompt requests, and search.max_gen_toks"
    )


def _format_share(count: int, total: int) -> str:
    return f"{count / total:.0%} ({count:,})"
