"""A verifier, a response rule and a selector, as docs/verifiers.md and docs/plugins.md of 0.1 say."""

from gapft_harness import hookimpl
from gapft_harness.records import Verdict


class Contains:
    """Passes a response that holds one of the gold letters."""

    def __init__(self, word=""):
        self._word = word

    def verify(self, responses, golds):
        return [self._judge(text, gold) for text, gold in zip(responses, golds)]

    def _judge(self, text, gold):
        if self._word and self._word not in text:
            return Verdict("error", f"no {self._word}")
        found = [letter for letter in gold if letter in text]
        return Verdict("pass", f"has {found[0]}") if found else Verdict("fail", f"none of {gold}")


def longest(passing):
    """The longest of those that pass, the first of equals."""
    return max(passing, key=lambda response: (len(response.text), -response.index))


def easiest(pool, n, rng):
    """The recovered problems that search solved most often, each twice."""
    found = sorted(pool.recovered, key=lambda e: (-e.passing_samples, e.problem_id))[: n // 2]
    return found + found


@hookimpl
def register_verifiers(register):
    register("contains", Contains, rejudge=True)


@hookimpl
def register_response_rules(register):
    register("longest", longest)


@hookimpl
def register_selectors(register):
    register("easiest", easiest, repeats=True)
