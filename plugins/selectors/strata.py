"""Selections matched to GapFT's in strata and supervised tokens (MATH, Table 6), and repetition.

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
from typing import Any

from gapft_harness.api import (
    Evidence,
    Pool,
    RegisterSelector,
    Stream,
    UserError,
    hookimpl,
)
from gapft_harness.plugins.selectors.exchange import exchanged, supervised_tokens
from gapft_harness.plugins.selectors.related import of_states
from gapft_harness.plugins.selectors.replacing_replay import check_whole

#: Values of the fields of a problem's record, in the recipe's order.
Stratum = tuple[str | int | float | bool, ...]

#: The selector whose draw gives the first problems, by states.
_DRAWS = {"S": "gapft", "G": "replay", "GS": "uniform"}
_MATCHED = "matched_strata"
_RESPONSES = ("kept", "drawn", "nearest")


def matched_strata(
    pool: Pool,
    n: int,
    rng: Stream,
    states: str = "GS",
    by: Sequence[str] = (),
    responses: str = "kept",
    tokens: float | None = 0.02,
) -> Sequence[Evidence]:
    """Select problems of some states with GapFT's strata, within one problem, and tokens.

    Args:
        states: G solved, S recovered, GS both.
        by: fields of a problem's record that define its stratum; empty: one stratum for all.
        responses: ``kept``; ``drawn``: any verified response, at random; ``nearest``: the verified
            response with the longest common prefix with the source's greedy response. Tokens are
            matched first with other responses of the same problem, in that order, and with other
            problems only if these do not suffice.
        tokens: largest difference between two selections matched in this way, as a share of the
            larger one's supervised tokens; None: tokens are not matched.

    Raises:
        UserError: a parameter is invalid, a record lacks a field, a stratum is too small, or tokens
            cannot be matched.
        PoolTooSmallError: GapFT itself has too few problems.
    """
    found = candidates = of_states(pool, states, _MATCHED)
    if responses not in _RESPONSES:
        raise UserError(
            f"selector {_MATCHED!r}: responses is {responses!r}, expected one of "
            f"{', '.join(map(repr, _RESPONSES))}"
        )
    wanted = pool.draw(pool.recovered, n, Stream(rng.seed, "select/gapft"))
    if responses != "kept":  # in the pool's order, which is fastest to read
        candidates = [_ranked(e, responses, rng)[0] for e in found]
    order = Stream(rng.seed, f"select/{_DRAWS[''.join(sorted(set(states)))]}")
    who = f"{_MATCHED} (states: {states}, responses: {responses})"
    labelled = _labelled(pool.draw(candidates, len(candidates), order), by, who)
    counts = matched_counts(
        Counter(stratum for stratum, _ in _labelled(wanted, by, who)),
        Counter(stratum for stratum, _ in labelled),
        rng.child("strata"),
        who,
    )
    target = sum(supervised_tokens(e) for e in wanted)
    if responses != "kept":
        first = {e.problem_id for e in exchanged(labelled, counts, target, None, who)}
        each = {e.problem_id: _ranked(e, responses, rng) for e in found if e.problem_id in first}
        labelled = _reworded(labelled, each, target, tokens, who)
    return pool.draw(exchanged(labelled, counts, target, tokens, who), n, order)


def repeated(
    pool: Pool,
    n: int,
    rng: Stream,
    times: int,
    by: Sequence[str] = (),
    tokens: float | None = None,
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
        UserError: ``times`` is not a positive integer, or does not divide ``n``; or see
            ``matched_strata``.
        PoolTooSmallError: fewer than n / times problems are recovered, or fewer than n with
            matching.
    """
    check_whole("times", times, 1, "repeated")
    if n % times:
        raise UserError(
            f"selector 'repeated': {n} slots cannot be filled with problems of {times} slots each; "
            f"set budget.n or the condition's n to a multiple of {times}, such as "
            f"{max(times, n - n % times)}"
        )
    order = Stream(rng.seed, "select/gapft")
    if not by and tokens is None:
        return pool.draw(pool.recovered, n // times, order) * times
    whole = pool.draw(pool.recovered, n, order)
    labelled = _labelled(whole, by, "repeated")
    counts = shares(Counter(of for of, _ in labelled), times, rng.child("strata"))
    target = sum(supervised_tokens(e) for e in whole)
    chosen = exchanged(labelled, counts, target, tokens, "repeated", times)
    return pool.draw(chosen, n // times, order) * times


def matched_counts(
    wanted: Mapping[Stratum, int], available: Mapping[Stratum, int], stream: Stream, who: str
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
    taken = {of: min(count, available.get(of, 0)) for of, count in wanted.items()}
    short = [of for of, count in wanted.items() if taken[of] < count]
    poor = sorted(_name(of) for of in short if taken[of] < wanted[of] - 1)
    spare = [of for of, count in available.items() if count > wanted.get(of, 0)]
    if poor or len(spare) < len(short):
        lacking = sorted(f"{_name(of)}: {taken[of]} of {wanted[of]}" for of in short)
        raise UserError(
            f"selector {who}: {len(short)} of {len(wanted)} strata have too few problems "
            f"({'; '.join(lacking)}), but each may differ from GapFT's slots by at most one; "
            + (
                f"more than one is missing in {len(poor)}"
                if poor
                else f"only {len(spare)} others have a spare problem"
            )
            + ". Enlarge the pool, lower budget.n, or name fewer fields in by"
        )
    for of in sorted(spare, key=lambda of: stream.key(_name(of)))[: len(short)]:
        taken[of] = wanted.get(of, 0) + 1
    return taken


def shares(counts: Mapping[Stratum, int], times: int, stream: Stream) -> dict[Stratum, int]:
    """Divide each stratum's count by ``times``, rounded up in some random strata, else down.

    Args:
        counts: problems per stratum; ``times`` divides their sum.
        times: divisor.
        stream: draws the strata that are rounded up.
    """
    found = {of: count // times for of, count in counts.items()}
    missing = sum(counts.values()) // times - sum(found.values())
    rest = [of for of, count in counts.items() if count % times]
    for of in sorted(rest, key=lambda of: stream.key(_name(of)))[:missing]:
        found[of] += 1
    return found


def _labelled(
    problems: Sequence[Evidence], by: Sequence[str], who: str
) -> list[tuple[Stratum, Evidence]]:
    """Pair each problem with its stratum.

    Raises:
        UserError: ``by`` is not a list, or a record lacks a field.
    """
    if not isinstance(by, list | tuple) or not all(isinstance(field, str) for field in by):
        raise UserError(
            f"selector {who}: by is {by!r}, expected a list of fields of the record, such as "
            "[subject, level]"
        )
    return [(_stratum(e, by, who), e) for e in problems]


def _stratum(evidence: Evidence, by: Sequence[str], who: str) -> Stratum:
    record = evidence.document
    for field in by:
        if not isinstance(record.get(field), str | int | float):
            raise UserError(
                f"selector {who}: by names {field!r}, which is not a text or number in the record "
                f"of problem {evidence.problem_id}; its fields: {', '.join(record) or 'none'}"
            )
    return tuple(record[field] for field in by)


def _name(stratum: Stratum) -> str:
    return ", ".join(map(str, stratum)) or "all"


def _ranked(evidence: Evidence, responses: str, rng: Stream) -> list[Evidence]:
    """Return a problem with each verified response, in order of preference."""
    each = [(e, e.response) for e in evidence.each_verified() if e.response is not None]
    if responses == "drawn":
        among = rng.child("responses")
        each.sort(key=lambda of: among.key(f"{of[0].problem_id}/{of[1].index}"))
        return [e for e, _ in each]
    read = evidence.read_greedy
    deployed = read(evidence.problem_id) if read is not None else None
    if deployed is None:
        raise UserError(
            f"selector {_MATCHED!r}: responses is 'nearest', but the greedy response to problem "
            f"{evidence.problem_id} is unknown; expected a pool that was searched"
        )
    ids = deployed.token_ids
    each.sort(key=lambda of: (-_shared(of[1].token_ids, ids), of[1].index))
    return [e for e, _ in each]


def _reworded(
    labelled: Sequence[tuple[Stratum, Evidence]],
    each: Mapping[str, Sequence[Evidence]],
    target: int,
    tokens: float | None,
    who: str,
) -> list[tuple[Stratum, Evidence]]:
    """Change the responses of problems to bring the tokens as near to the target as possible.

    Args:
        labelled: problems with their strata, in the order of a draw.
        ranked: every response of the selected problems, in order of preference, by problem id.
    """
    names = [e.problem_id for _, e in labelled if e.problem_id in each]
    ranks = zip_longest(*([(name, way) for way in each[name]] for name in names))
    ways = [way for rank in ranks for way in rank if way is not None]
    near = exchanged(ways, dict.fromkeys(names, 1), target, tokens, who, must=False)
    taken = {e.problem_id: e for e in near}
    return [(stratum, taken.get(e.problem_id, e)) for stratum, e in labelled]


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Count how many first token ids are equal."""
    return sum(takewhile(bool, map(eq, one, other)))


def repeated_as(params: Mapping[str, Any], k: int) -> tuple[str, Mapping[str, Any]] | None:
    """Name the selector that equals repetition with one slot per problem: GapFT."""
    return ("gapft", {}) if params.get("times") == 1 else None


@hookimpl
def register_selectors(register: RegisterSelector) -> None:
    """Register both selectors."""
    register(_MATCHED, matched_strata, responses="verified")
    register("repeated", repeated, repeats=True, same_as=repeated_as)
