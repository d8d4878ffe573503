"""Selections matched to GapFT's in strata and tokens (MATH, Table 6), and repetition.

A stratum is a combination of values of some fields of a problem's record, such as subject and
level. Matching begins with the first problems of a draw in each stratum. If these have too many or
too few tokens, first other responses of the same problems are used, if any verified response is
allowed, then problems are exchanged within strata, until the tokens match.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import takewhile, zip_longest
from operator import eq
from typing import Annotated, Literal

from pydantic import Field

from gapft_harness.api import (
    GREEDY,
    Evidence,
    Pool,
    Register,
    Stream,
    UserError,
    hookimpl,
)
from gapft_harness.plugins.selectors.exchange import match_tokens

#: Values of the fields of a problem's record, in the recipe's order.
Stratum = tuple[str | int | float | bool, ...]

#: The selector whose draw gives the first problems, by states.
_DRAW_OF_STATES = {"S": "gapft", "G": "replay", "GS": "uniform"}
_SELECTOR = "matched_strata"
#: The largest difference in tokens, as a share; None: tokens are not matched.
Tolerance = Annotated[float, Field(strict=True, gt=0, lt=1)] | None


def matched_strata(
    pool: Pool,
    n: int,
    rng: Stream,
    states: Literal["G", "S", "GS"] = "GS",
    by: Sequence[str] = (),
    responses: Literal["kept", "drawn", "nearest"] = "kept",
    tokens: Tolerance = 0.02,
) -> Sequence[Evidence]:
    """Select problems of some states with GapFT's strata, within one problem, and tokens.

    Args:
        states: G solved, S recovered, GS both.
        by: fields of a problem's record that define its stratum; empty: one stratum for all.
        responses: ``kept``; ``drawn``: any verified response, at random; ``nearest``: the verified
            response with the longest common prefix with the source's greedy response. Tokens are
            matched first with other responses of the same problem, in that order, and with other
            problems only if these do not suffice.
        tokens: largest difference between two selections matched in this way in supervised tokens,
            and in processed tokens (prompts included), as a share of the larger one's; None: tokens
            are not matched.

    Raises:
        UserError: a record lacks a field, a stratum is too small, or tokens cannot be matched.
        PoolTooSmallError: GapFT itself has too few problems.
    """
    problems_by_state = {"G": pool.solved, "S": pool.recovered}
    problems = candidates = [e for state in states for e in problems_by_state[state]]
    gapft_slots = pool.draw(pool.recovered, n, Stream(rng.seed, "select/gapft"))
    if responses != "kept":  # in the pool's order, which is fastest to read
        candidates = [_rank_responses(e, responses, rng)[0] for e in problems]
    order = Stream(rng.seed, f"select/{_DRAW_OF_STATES[states]}")
    subject = f"{_SELECTOR} (states: {states}, responses: {responses})"
    labelled = _label_strata(pool.draw(candidates, len(candidates), order), by, subject)
    counts = match_counts(
        Counter(stratum for stratum, _ in _label_strata(gapft_slots, by, subject)),
        Counter(stratum for stratum, _ in labelled),
        rng.child("strata"),
        subject,
    )
    if responses != "kept":
        first_ids = {e.problem_id for e in match_tokens(labelled, counts, (), None, subject)}
        ranked = {
            e.problem_id: _rank_responses(e, responses, rng)
            for e in problems
            if e.problem_id in first_ids
        }
        labelled = _change_responses(labelled, ranked, gapft_slots, tokens, subject)
    return pool.draw(match_tokens(labelled, counts, gapft_slots, tokens, subject), n, order)


def repeated(
    pool: Pool,
    n: int,
    rng: Stream,
    times: Annotated[int, Field(strict=True, ge=1)],
    by: Sequence[str] = (),
    tokens: Tolerance = None,
) -> Sequence[Evidence]:
    """Select n / times of GapFT's problems, each in ``times`` slots: repetition on any task.

    Compared with ``gapft`` at the same n, it spends the same exposures on fewer problems (Table 3:
    94 problems with 8 exposures against 188 with 4). These are the first of GapFT's draw; with
    ``by`` the first of each stratum, in proportion to it, and with ``tokens`` some are exchanged
    for others of GapFT's.

    Args:
        times: slots per problem.
        by: see ``matched_strata``.
        tokens: see ``matched_strata``; default: not matched.

    Raises:
        UserError: ``times`` does not divide ``n``; or see ``matched_strata``.
        PoolTooSmallError: fewer than n / times problems are recovered, or fewer than n with
            matching.
    """
    if n % times:
        raise UserError(
            f"selector 'repeated': {n} slots cannot be filled with problems of {times} slots each; "
            f"set budget.n or the condition's n to a multiple of {times}, such as "
            f"{max(times, n - n % times)}"
        )
    order = Stream(rng.seed, "select/gapft")
    if not by and tokens is None:
        return pool.draw(pool.recovered, n // times, order) * times
    drawn = pool.draw(pool.recovered, n, order)
    labelled = _label_strata(drawn, by, "repeated")
    counts = divide_counts(Counter(stratum for stratum, _ in labelled), times, rng.child("strata"))
    chosen = match_tokens(labelled, counts, drawn, tokens, "repeated", times)
    return pool.draw(chosen, n // times, order) * times


def match_counts(
    target_counts: Mapping[Stratum, int],
    available: Mapping[Stratum, int],
    stream: Stream,
    subject: str,
) -> dict[Stratum, int]:
    """Compute how many problems of each stratum match another set of the same size.

    A stratum with enough problems gets the other set's count. For each stratum that lacks one
    problem, a stratum drawn from those with a spare problem gets one more.

    Args:
        target_counts: problems per stratum in the other set.
        available: candidate problems per stratum.
        stream: draws the strata that get one more.

    Returns:
        Counts by stratum; their sum is that of ``target_counts``, and each differs by at most one.

    Raises:
        UserError: no such set exists; the message names the strata.
    """
    # Where the pool has too few
    counts = {
        stratum: min(count, available.get(stratum, 0)) for stratum, count in target_counts.items()
    }
    short = [stratum for stratum, count in target_counts.items() if counts[stratum] < count]
    poor = sorted(
        _format_stratum(stratum)
        for stratum in short
        if counts[stratum] < target_counts[stratum] - 1
    )
    spare = [
        stratum for stratum, count in available.items() if count > target_counts.get(stratum, 0)
    ]
    # Refuse more than one missing problem of a stratum
    if poor or len(spare) < len(short):
        lacking = sorted(
            f"{_format_stratum(stratum)}: {counts[stratum]} of {target_counts[stratum]}"
            for stratum in short
        )
        raise UserError(
            f"selector {subject}: {len(short)} of {len(target_counts)} strata have too few "
            f"problems ({'; '.join(lacking)}), but each may differ from GapFT's slots by at most "
            "one; "
            + (
                f"more than one is missing in {len(poor)}"
                if poor
                else f"only {len(spare)} others have a spare problem"
            )
            + ". Enlarge the pool, lower budget.n, or name fewer fields in by"
        )
    # Draw the strata that give one problem more
    for stratum in sorted(spare, key=lambda stratum: stream.key(_format_stratum(stratum)))[
        : len(short)
    ]:
        counts[stratum] = target_counts.get(stratum, 0) + 1
    return counts


def divide_counts(counts: Mapping[Stratum, int], times: int, stream: Stream) -> dict[Stratum, int]:
    """Divide each stratum's count by ``times``, rounded up in some random strata, else down.

    Args:
        counts: problems per stratum; ``times`` divides their sum.
        times: divisor.
        stream: draws the strata that are rounded up.
    """
    quotients = {stratum: count // times for stratum, count in counts.items()}
    missing = sum(counts.values()) // times - sum(quotients.values())
    rest = [stratum for stratum, count in counts.items() if count % times]
    for stratum in sorted(rest, key=lambda stratum: stream.key(_format_stratum(stratum)))[:missing]:
        quotients[stratum] += 1
    return quotients


def _label_strata(
    problems: Sequence[Evidence], by: Sequence[str], subject: str
) -> list[tuple[Stratum, Evidence]]:
    """Pair each problem with its stratum.

    Raises:
        UserError: a record lacks a field.
    """
    return [(_find_stratum(e, by, subject), e) for e in problems]


def _find_stratum(evidence: Evidence, by: Sequence[str], subject: str) -> Stratum:
    record = evidence.document
    for field in by:
        if not isinstance(record.get(field), str | int | float):
            raise UserError(
                f"selector {subject}: by names {field!r}, which is not a text or number in the "
                f"record of problem {evidence.problem_id}; its fields: "
                f"{', '.join(record) or 'none'}"
            )
    return tuple(record[field] for field in by)


def _format_stratum(stratum: Stratum) -> str:
    return ", ".join(map(str, stratum)) or "all"


def _rank_responses(evidence: Evidence, responses: str, rng: Stream) -> list[Evidence]:
    """Return a problem with each verified response, in order of preference."""
    pairs = [(e, e.response) for e in evidence.each_verified() if e.response is not None]
    if responses == "drawn":
        response_stream = rng.child("responses")
        pairs.sort(key=lambda pair: response_stream.key(f"{pair[0].problem_id}/{pair[1].index}"))
        return [e for e, _ in pairs]
    greedy = evidence.each_response(lambda response, _: response.index == GREEDY)
    ids = next((e.response.token_ids for e, _ in greedy if e.response is not None), None)
    if ids is None:
        raise UserError(
            f"selector {_SELECTOR!r}: responses is 'nearest', but the greedy response to problem "
            f"{evidence.problem_id} is unknown; expected a pool that was searched"
        )
    pairs.sort(key=lambda pair: (-_count_shared_prefix(pair[1].token_ids, ids), pair[1].index))
    return [e for e, _ in pairs]


def _change_responses(
    labelled: Sequence[tuple[Stratum, Evidence]],
    ranked: Mapping[str, Sequence[Evidence]],
    gapft_slots: Sequence[Evidence],
    tokens: float | None,
    subject: str,
) -> list[tuple[Stratum, Evidence]]:
    """Change the responses of problems to bring the tokens as near to the target as possible.

    Args:
        labelled: problems with their strata, in the order of a draw.
        ranked: every response of the selected problems, in order of preference, by problem id.
        gapft_slots: the examples whose tokens are the target.
    """
    names = [e.problem_id for _, e in labelled if e.problem_id in ranked]
    ranks = zip_longest(*([(name, way) for way in ranked[name]] for name in names))
    variants = [way for rank in ranks for way in rank if way is not None]
    nearest = match_tokens(
        variants, dict.fromkeys(names, 1), gapft_slots, tokens, subject, is_required=False
    )
    chosen = {e.problem_id: e for e in nearest}
    return [(stratum, chosen.get(e.problem_id, e)) for stratum, e in labelled]


def _count_shared_prefix(first: Sequence[int], other: Sequence[int]) -> int:
    """Count how many first token ids are equal."""
    return sum(takewhile(bool, map(eq, first, other)))


@hookimpl
def register_selectors(register: Register) -> None:
    """Register both selectors."""
    register(_SELECTOR, matched_strata, responses="verified")
    register("repeated", repeated, repeats=True)
