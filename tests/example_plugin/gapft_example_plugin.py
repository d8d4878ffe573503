"""An example of a packaged plugin: a selector and a verifier."""

from gapft_harness.api import Verdict, hookimpl


def hardest_recovered(pool, n, rng):
    """Select the recovered failures that the search solved last.

    Args:
        pool: the problems to select from.
        n: how many to select.
        rng: the randomness, which breaks ties.
    """
    ordered = sorted(pool.recovered, key=lambda e: (-e.first_success, rng.key(e.problem_id)))
    return ordered[:n]


class EndsWith:
    """A verifier that passes a response if it ends with the gold answer."""

    def verify(self, responses, golds):
        """Return the verdict on each response."""
        return [
            Verdict("pass" if text.rstrip().endswith(str(gold)) else "fail")
            for text, gold in zip(responses, golds, strict=True)
        ]


@hookimpl
def register_selectors(register):
    """Register the selector."""
    register("hardest_recovered", hardest_recovered)


@hookimpl
def register_verifiers(register):
    """Register the verifier."""
    register("ends_with", EndsWith)
