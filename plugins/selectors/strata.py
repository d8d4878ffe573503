"""Selections matched to GapFT's in strata and supervised tokens (MATH, Table 6), and repetition.

A stratum is what some fields of a problem's record say together, such as subject and level. Who is
matched begins with the first problems of a draw in each stratum. Where these have too many or too
few tokens, other responses of the same problems are taken, if any verified one may be, and after
them problems are exchanged within strata, until they do not.
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

#: What the fields of a problem's record say, in the recipe's order.
Stratum = tuple[str | int | float | bool, ...]

#: Of which selector's draw the first problems are, by state.
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
    """Problems of some states with GapFT's strata, to one problem, and its supervised tokens.

    Args:
        states: G solved, S recovered, GS both.
        by: fields of a problem's record that make its stratum; none: all are of one.
        responses: ``kept``; ``drawn``: any of its verified ones at random; ``nearest``: the
            verified one that departs latest from the source's own greedy response. Tokens are
            matched by others of the same problem first, the next in that order, and by other
            problems only where these do not suffice.
        tokens: two selections that are matched so differ by no more than this share of the
            larger's supervised tokens; None: they are not matched.

    Raises:
        UserError: a parameter that is none, a record without such a field, a stratum that is too
            small, or tokens that cannot be matched.
        PoolTooSmallError: GapFT itself has too few problems.
    """
    found = candidates = of_states(pool, states, _MATCHED)
    if responses not in _RESPONSES:
        raise UserError(
            f"selector {_MATCHED!r}: responses is {responses!r}, expected one of "
            f"{', '.join(map(repr, _RESPONSES))}"
        )
    wanted = pool.draw(pool.recovered, n, Stream(rng.seed, "select/gapft"))
    if responses != "kept":  # in the pool's order, in which they are read fastest
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
    """Repetition on any task: n / times of GapFT's problems, each in so many slots.

    Beside ``gapft`` at the same n it spends the same exposures on fewer problems (Table 3: 94
    problems with 8 exposures against 188 with 4). These are the first of GapFT's draw; with ``by``
    the first of each stratum, as many as its share, and with ``tokens`` exchanged for others of
    GapFT's.

    Args:
        times: slots of a problem.
        by: as of ``matched_strata``.
        tokens: as of ``matched_strata``; default: as they come.

    Raises:
        UserError: ``times`` is no whole number from 1, or does not divide ``n``; or as
            ``matched_strata``.
        PoolTooSmallError: too few problems are recovered: fewer than n / times, or than n where
            they are matched.
    """
    check_whole("times", times, 1, "repeated")
    if n % times:
        raise UserError(
            f"selector 'repeated': {n} slots cannot be filled by problems of {times} slots each; "
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
    """How many problems to take of each stratum, so that a set matches another of the same size.

    A stratum that has enough gives as many as the other set has. For each that lacks one, a stratum
    drawn from those that have one to spare gives one more.

    Args:
        wanted: problems of each stratum in the other set.
        available: problems of each stratum to choose from.
        stream: draws which strata give one more.

    Returns:
        By stratum; the sum is that of ``wanted``, and none differs by more than one.

    Raises:
        UserError: there is no such set; the message names the strata.
    """
    taken = {of: min(count, available.get(of, 0)) for of, count in wanted.items()}
    short = [of for of, count in wanted.items() if taken[of] < count]
    poor = sorted(_name(of) for of in short if taken[of] < wanted[of] - 1)
    spare = [of for of, count in available.items() if count > wanted.get(of, 0)]
    if poor or len(spare) < len(short):
        lacking = sorted(f"{_name(of)}: {taken[of]} of {wanted[of]}" for of in short)
        raise UserError(
            f"selector {who}: a stratum may have one problem less than GapFT's slots or one more, "
            f"and {len(short)} of {len(wanted)} have too few ({'; '.join(lacking)}); "
            + (
                f"more than one is missing in {len(poor)}"
                if poor
                else f"only {len(spare)} others have one to spare"
            )
            + ". Enlarge the pool, lower budget.n, or name fewer fields in by"
        )
    for of in sorted(spare, key=lambda of: stream.key(_name(of)))[: len(short)]:
        taken[of] = wanted.get(of, 0) + 1
    return taken


def shares(counts: Mapping[Stratum, int], times: int, stream: Stream) -> dict[Stratum, int]:
    """A ``times``-th of each stratum's problems, rounded up in some that are drawn, else down.

    Args:
        counts: problems of each stratum; ``times`` divides their sum.
        times: into how many parts.
        stream: draws which are rounded up.
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
    """Each problem with its stratum.

    Raises:
        UserError: ``by`` is no list, or a record has no such field.
    """
    if not isinstance(by, list | tuple) or not all(isinstance(field, str) for field in by):
        raise UserError(
            f"selector {who}: by is {by!r}, expected a list of a record's fields, as in "
            "[subject, level]"
        )
    return [(_stratum(e, by, who), e) for e in problems]


def _stratum(evidence: Evidence, by: Sequence[str], who: str) -> Stratum:
    record = evidence.document
    for field in by:
        if not isinstance(record.get(field), str | int | float):
            raise UserError(
                f"selector {who}: by names {field!r}, which is no text or number in the record "
                f"of problem {evidence.problem_id}; its fields: {', '.join(record) or 'none'}"
            )
    return tuple(record[field] for field in by)


def _name(stratum: Stratum) -> str:
    return ", ".join(map(str, stratum)) or "all"


def _ranked(evidence: Evidence, responses: str, rng: Stream) -> list[Evidence]:
    """A problem with each verified response, the one that is asked for first."""
    each = [(e, e.response) for e in evidence.each_verified() if e.response is not None]
    if responses == "drawn":
        among = rng.child("responses")
        each.sort(key=lambda of: among.key(f"{of[0].problem_id}/{of[1].index}"))
        return [e for e, _ in each]
    read = evidence.read_greedy
    deployed = read(evidence.problem_id) if read is not None else None
    if deployed is None:
        raise UserError(
            f"selector {_MATCHED!r}: responses is 'nearest', and the greedy response to problem "
            f"{evidence.problem_id} is not known; expected a pool that was searched"
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
    """Problems whose tokens are too far off with other responses, as near as these bring them.

    Args:
        labelled: problems with their strata, in the order of a draw.
        each: of those that are taken every response, the one that is asked for first.
    """
    names = [e.problem_id for _, e in labelled if e.problem_id in each]
    ranks = zip_longest(*([(name, way) for way in each[name]] for name in names))
    ways = [way for rank in ranks for way in rank if way is not None]
    near = exchanged(ways, dict.fromkeys(names, 1), target, tokens, who, must=False)
    taken = {e.problem_id: e for e in near}
    return [(stratum, taken.get(e.problem_id, e)) for stratum, e in labelled]


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many first token ids are the same."""
    return sum(takewhile(bool, map(eq, one, other)))


def repeated_as(params: Mapping[str, Any], k: int) -> tuple[str, Mapping[str, Any]] | None:
    """Name the selector that repetition is where every problem has one slot: GapFT."""
    return ("gapft", {}) if params.get("times") == 1 else None


@hookimpl
def register_selectors(register: RegisterSelector) -> None:
    """Registers both."""
    register(_MATCHED, matched_strata, responses="verified")
    register("repeated", repeated, repeats=True, same_as=repeated_as)
