"""A packaged plugin as anyone may write one: a selector, a verifier, a report section."""

from gapft_harness.api import Verdict, hookimpl


def hardest_recovered(pool, n, rng):
    """The recovered failures that search found last, one problem each."""
    ordered = sorted(pool.recovered, key=lambda e: (-e.first_success, rng.key(e.problem_id)))
    return ordered[:n]


class EndsWith:
    """Passes a response that ends with the gold answer."""

    def verify(self, responses, golds):
        """Judges each response by its end."""
        return [
            Verdict("pass" if text.rstrip().endswith(str(gold)) else "fail")
            for text, gold in zip(responses, golds, strict=True)
        ]


def thanks(results):
    """A line at the report's end."""
    return f"Example section: {len(results['conditions'])} conditions were compared."


@hookimpl
def register_selectors(register):
    """Registers the selector."""
    register("hardest_recovered", hardest_recovered)


@hookimpl
def register_verifiers(register):
    """Registers the verifier."""
    register("ends_with", EndsWith)


@hookimpl
def register_report_sections(register):
    """Registers the section."""
    register("thanks", thanks)
