"""Corrected failures against regressions: the points, their intervals, who is on the frontier."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.analysis.bootstrap import Interval
from gapft_harness.experiments.frontier import FrontierPart, FrontierPoint, _judged
from gapft_harness.report.findings.whole import compute
from tests.report.planted import inputs as planted

NONE = Interval(0, 0)


def test_points_are_the_terms_of_the_decomposition_and_their_difference_the_gain() -> None:
    of = planted()
    points, findings = FrontierPart().compute(of, read=True), compute(of)
    assert [point.name for point in points] == list(of.conditions)
    for point in points:
        terms = findings.conditions[point.name].mean.terms
        assert (point.corrected, point.lost) == (terms.s + terms.u, -terms.g)
        assert point.gain == terms.total
        for rate, interval in (
            (point.corrected, point.corrected_interval),
            (point.lost, point.lost_interval),
        ):
            assert interval.low < rate < interval.high


def test_intervals_are_of_the_reports_own_draws() -> None:
    """A model that only corrects has nothing lost, so its gain is what it corrects."""
    of = planted(conditions=("gapft",), sizes=(1, 500, 499))
    (point,) = FrontierPart().compute(of, read=True)
    gain = compute(of).contrast("gapft", "source").interval
    assert point.lost == 0
    assert point.corrected_interval == gain


rates = st.integers(0, 6).map(lambda count: Fraction(count, 10))


@given(st.lists(st.tuples(rates, rates), min_size=1, max_size=8))
def test_the_frontier_is_what_nothing_else_beats(drawn: list[tuple[Fraction, Fraction]]) -> None:
    points = [FrontierPoint(f"c{n}", x, y, NONE, NONE) for n, (x, y) in enumerate(drawn)]
    found = list(_judged(points))
    best = [point for point in found if point.best]
    assert best
    for point in found:
        above = [
            other
            for other in best
            if other.lost <= point.lost and other.corrected >= point.corrected
        ]
        assert above, "whatever is not on it is beaten by what is"
        assert point.best == all(
            (other.lost, other.corrected) == (point.lost, point.corrected) for other in above
        )
    assert list(_judged(points[::-1])) == found[::-1]
