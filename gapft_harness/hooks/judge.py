"""Judge responses: a verifier as the harness calls it."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeVar

from annotated_types import MinLen

from gapft_harness.core.errors import GapftError, UserError, describe_error
from gapft_harness.core.json_values import find_json_fault
from gapft_harness.core.processes import Closing
from gapft_harness.core.records import CONTEXT_EXCEEDED, Gold, Response, Verdict
from gapft_harness.core.text import replace_text_surrogates
from gapft_harness.core.thoughts import THOUGHT_RULES, remove_thoughts
from gapft_harness.hooks.checked import check_facts, require_methods
from gapft_harness.hooks.registration import Registration

T = TypeVar("T")

#: What ``feedback`` returns: a text that is not empty, or None, for each response.
_FEEDBACK = Sequence[Annotated[str, MinLen(1)] | None]

#: A verdict on a response, and the answer that the verifier reads in it, or None.
VerdictAndAnswer = tuple[Verdict, str | None]

#: The verdict on a response that was not generated (V = 0); the verifier is not called.
_NOT_GENERATED = Verdict("fail", "prompt does not fit the context")


class Judge(Closing):
    """A verifier with the harness's rules for its calls.

    Every method of the verifier gets responses without reasoning blocks, and gets each distinct
    pair of a response and a gold once. Results are checked, and exceptions have a note with the
    verifier's name. The methods are those of ``protocols.Verifier``, for many responses at once.

    Attributes:
        owner: the verifier's registration, for messages.
        think_end_token: the end of the model's reasoning, besides the known tags; or None.
        reads_answers: whether the verifier has the method ``answer``.
        reads_openings: whether it has the method ``opening``.
        gives_feedback: whether it has the method ``feedback``.
    """

    def __init__(
        self,
        verifier: Any,
        owner: Registration | None = None,
        *,
        think_end_token: str | None = None,
        sees_thoughts: bool = False,
    ) -> None:
        """Wrap a verifier.

        Args:
            verifier: an object with the methods of ``protocols.Verifier``.
            owner: its registration; default: one that is built from its class.
            think_end_token: the end of the model's reasoning, besides the known tags.
            sees_thoughts: whether it gets responses with their reasoning blocks.

        Raises:
            PluginError: the verifier lacks a method that it needs.
        """
        verifier_class = type(verifier)
        self.owner = owner or Registration(
            "verifier", verifier_class.__qualname__, verifier_class.__module__, verifier_class
        )
        self.think_end_token = think_end_token
        self._verifier = verifier
        self._sees_thoughts = sees_thoughts
        require_methods(self.owner, verifier, "verify")
        self.reads_answers = self._has_method("answer")
        self.reads_openings = self._has_method("opening")
        self.gives_feedback = self._has_method("feedback")
        # An answer may depend on what the problem shows, such as the texts of its options.
        self._answer_sees_gold = (
            self.reads_answers and "gold" in inspect.signature(verifier.answer).parameters
        )

    def close(self) -> None:
        """Stop the verifier's worker processes, if it has any."""
        if self._has_method("close"):
            with self.owner.wrap_errors():
                self._verifier.close()

    def describe(self) -> dict[str, Any]:
        """Return its description for ``run.json``, with the version of the rules on thoughts.

        Raises:
            PluginError: it is not a dictionary of JSON values.
        """
        facts: dict[str, Any] = {} if self._sees_thoughts else {"thought_rules": THOUGHT_RULES}
        if self._has_method("describe"):
            describe = self._verifier.describe
            with self.owner.wrap_errors():
                description = describe()
            facts |= check_facts(self.owner, description, "a description", describe)
        return facts

    def check_golds(self, golds: Iterable[tuple[Gold, str]]) -> None:
        """Check gold answers before responses are generated.

        Without the method ``check_gold``, only the JSON is checked.

        Args:
            golds: each gold answer with the place of its record, such as ``train.jsonl, line 7``.

        Raises:
            UserError: a gold answer is invalid; the message begins with the place.
            PluginError: ``check_gold`` returned a value that is not text.
        """
        for gold, place in golds:
            # A mapping may be a complete document, whose unused fields may be NaN (missing).
            if fault := find_json_fault(gold, finite=not isinstance(gold, Mapping)):
                raise UserError(f"{place}: the gold answer {fault}; expected a JSON value")
            if fault := self.find_gold_fault(gold, place):
                name = self.owner.name
                raise UserError(f"{place}: the verifier {name!r} refuses the gold answer: {fault}")

    def find_gold_fault(self, gold: Gold, place: str = "") -> str:
        """Return the verifier's own description of a gold's fault; ``""`` if it is valid.

        Args:
            gold: a gold answer.
            place: the place of its record, for the note of an exception.
        """
        if not self._has_method("check_gold"):
            return ""
        fault: str = self.owner.call(self._verifier.check_gold, gold, returns=str, place=place)
        return fault

    # Verdicts

    def verify(self, responses: Sequence[str], golds: Sequence[Gold]) -> list[Verdict]:
        """Judge ``responses[i]`` against ``golds[i]``.

        A verifier must not raise. If it does, its pairs are judged one by one. Each pair on which
        it raises gets an ``error`` verdict with the exception as the reason, so one unusual
        response does not end a run. If it raises on each of several pairs, the first exception is
        raised again.

        Raises:
            PluginError: the verifier returned a wrong number of verdicts, or a value that is not a
                ``Verdict``.
            ValueError: the numbers of responses and golds differ.
        """
        return self._call_once_each(self._judge_pairs, responses, golds)

    def judge_responses(
        self,
        responses: Sequence[Response],
        golds: Sequence[Gold],
        verdicts: Sequence[Verdict | None] = (),
    ) -> list[VerdictAndAnswer]:
        """Judge responses and read their answers.

        Args:
            responses: the responses; those that were not generated fail, without an answer.
            golds: the gold answer of each response.
            verdicts: the existing verdict of each response, or None to judge it; default: judge
                all.

        Returns:
            The verdict and the answer of each response.
        """
        known = verdicts or [None] * len(responses)
        written = [i for i, r in enumerate(responses) if r.finish_reason != CONTEXT_EXCEEDED]
        new = [i for i in written if known[i] is None]
        new_verdicts = self.verify([responses[i].text for i in new], [golds[i] for i in new])
        judged = dict(zip(new, new_verdicts, strict=True))
        texts = [responses[i].text for i in written]
        answers = dict(
            zip(written, self.read_answers(texts, [golds[i] for i in written]), strict=True)
        )
        return [
            (judged.get(place) or known[place] or _NOT_GENERATED, answers.get(place))
            for place in range(len(responses))
        ]

    def _judge_pairs(self, texts: Sequence[str], golds: Sequence[Gold]) -> list[Verdict]:
        try:
            return self._call_verifier(texts, golds)
        except GapftError:
            raise
        except Exception as error:
            first_error = error
        judged = []
        failures = 0
        for text, gold in zip(texts, golds, strict=True):
            try:
                judged += self._call_verifier([text], [gold])
            except GapftError:
                raise
            except Exception as error:
                failures += 1
                judged.append(Verdict("error", f"the verifier raised {describe_error(error)}"))
        if failures == len(texts) > 1:
            first_error.add_note(f"Raised on all {failures} pairs of a response and a gold")
            raise first_error
        return judged

    def _call_verifier(self, texts: Sequence[str], golds: Sequence[Gold]) -> list[Verdict]:
        method = self._verifier.verify
        pairs = (list(texts), list(golds))
        verdicts = self.owner.call(method, *pairs, returns=Sequence[Verdict], count=len(texts))
        # A reason may quote a response with lone surrogates, which tables cannot store.
        return [replace(v, reason=replace_text_surrogates(v.reason)) for v in verdicts]

    # Answers and feedback

    def read_answers(self, texts: Sequence[str], golds: Sequence[Gold]) -> list[str | None]:
        """Read the answer in each response; None where it has none, or the verifier reads none.

        Raises:
            PluginError: the verifier returned neither text nor None.
        """
        if not self.reads_answers:
            return [None] * len(texts)
        answer = self._verifier.answer
        if self._answer_sees_gold:
            return self._read_each(lambda text, gold: answer(text, gold=gold), texts, golds, answer)
        # Without golds, equal responses to all problems are read once.
        return self._read_each(lambda text, _: answer(text), texts, [None] * len(texts), answer)

    def read_openings(self, texts: Sequence[str], golds: Sequence[Gold]) -> list[str | None]:
        """Read the answer that each response opens with; only if ``reads_openings``.

        Raises:
            PluginError: the verifier returned neither text nor None.
        """
        opening = self._verifier.opening
        return self._read_each(opening, texts, golds, opening)

    def find_answered(self, texts: Sequence[str], golds: Sequence[Gold]) -> list[bool]:
        """Return for each response whether it gives an answer, right or wrong."""
        if self.reads_answers:
            return [answer is not None for answer in self.read_answers(texts, golds)]
        if not self._has_method("has_answer"):
            return [bool(text.strip()) for text in self._hide_thoughts(texts)]
        has_answer = self._verifier.has_answer
        visible = self._hide_thoughts(texts)
        with self.owner.wrap_errors():
            return [bool(has_answer(text, gold)) for text, gold in zip(visible, golds, strict=True)]

    def give_feedback(self, texts: Sequence[str], golds: Sequence[Gold]) -> list[str | None]:
        """Return what the model sees after each response of an episode; only if ``gives_feedback``.

        Raises:
            PluginError: the verifier returned neither None nor a text that is not empty.
        """

        def call(texts: Sequence[str], golds: Sequence[Gold]) -> list[str | None]:
            method = self._verifier.feedback
            pairs = (list(texts), list(golds))
            feedback = self.owner.call(method, *pairs, returns=_FEEDBACK, count=len(texts))
            return [_clean_text(text) for text in feedback]

        return self._call_once_each(call, texts, golds)

    def _read_each(
        self,
        read: Callable[[str, Gold], Any],
        texts: Sequence[str],
        golds: Sequence[Gold],
        method: object,
    ) -> list[str | None]:
        def call(texts: Sequence[str], golds: Sequence[Gold]) -> list[str | None]:
            with self.owner.wrap_errors():
                answers = [read(text, gold) for text, gold in zip(texts, golds, strict=True)]
            self.owner.check_result(answers, list[str | None], method)
            return [_clean_text(answer) for answer in answers]

        return self._call_once_each(call, texts, golds)

    # Calls

    def _has_method(self, name: str) -> bool:
        return callable(getattr(self._verifier, name, None))

    def _hide_thoughts(self, texts: Sequence[str]) -> Sequence[str]:
        if self._sees_thoughts:
            return texts
        return [remove_thoughts(text, self.think_end_token) for text in texts]

    def _call_once_each(
        self,
        call: Callable[[Sequence[str], Sequence[Gold]], list[T]],
        texts: Sequence[str],
        golds: Sequence[Gold],
    ) -> list[T]:
        """Call with the distinct pairs of a visible text and a gold; return results for all pairs.

        Two golds are equal if their JSON is equal; the order of keys does not matter.

        Raises:
            ValueError: the numbers of texts and golds differ.
        """
        if len(texts) != len(golds):
            raise ValueError(f"found {len(texts)} responses, but {len(golds)} golds")
        # A gold may hold hundreds of megabytes of tests, and samples of a problem share it.
        gold_by_id = {id(gold): gold for gold in golds}
        hash_by_id = {key: _hash_gold(gold) for key, gold in gold_by_id.items()}
        visible = self._hide_thoughts(texts)
        keys = [(t, hash_by_id[id(gold)]) for t, gold in zip(visible, golds, strict=True)]
        distinct: dict[tuple[str, bytes], Gold] = {}
        for key, gold in zip(keys, golds, strict=True):
            distinct.setdefault(key, gold)
        if not distinct:
            return []
        results = call([text for text, _ in distinct], list(distinct.values()))
        result_by_key = dict(zip(distinct, results, strict=True))
        return [result_by_key[key] for key in keys]


def _hash_gold(gold: Gold) -> bytes:
    text = json.dumps(gold, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).digest()


def _clean_text(text: str | None) -> str | None:
    """Make a text of a verifier storable in a table."""
    return text if text is None or text.isascii() else replace_text_surrogates(text)
