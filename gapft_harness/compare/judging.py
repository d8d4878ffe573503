"""Judge the responses of logs again, before they are compared."""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any

from gapft_harness.compare.choice import Rule
from gapft_harness.compare.verifier import CHUNK_SIZE, RuleJudge, open_judge, prefetch
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Gold
from gapft_harness.outcomes.logs import Evaluation, Log
from gapft_harness.outcomes.samples import Sample, find_field, list_filters, name_score
from gapft_harness.outcomes.table import find_first
from gapft_harness.recipe.reading import parse_value

#: Names of document fields that usually contain the gold answer.
_GOLD_FIELDS = ("gold", "answer", "solution", "label")
_LETTER = re.compile(r"\s*\(?([A-Z])[.)]?\s*")

#: Returns the gold answer of a sample; the place is for messages.
ReadGold = Callable[[Sample, str], Gold]


@dataclass(frozen=True, slots=True)
class JudgedLog(Log):
    """A log whose only score is the verdict of a verifier, by the verifier's name.

    Attributes:
        verifier: the verifier.
        filter: the filter whose rows were judged; None: the rows have none.
        verdicts: whether each response passed, in the log's order.
        reasons: the reason of each verdict.
    """

    verifier: str = ""
    filter: str | None = None
    verdicts: Sequence[int] = ()
    reasons: Sequence[str] = field(default=(), repr=False)

    def read_samples(self) -> Iterator[Sample]:
        """Yield the judged responses."""
        score = name_score(self.verifier, self.filter or "none")
        samples = _select_samples(Log.read_samples(self), self.filter)
        for sample, passed, reason in zip(samples, self.verdicts, self.reasons, strict=True):
            yield sample._replace(scores={score: passed}, reason=reason)


def parse_rule(text: str) -> Rule:
    """Parse ``NAME[:key=value,…]``.

    Raises:
        UserError: a parameter has no value, or is set twice.
    """
    name, _, rest = text.partition(":")
    params: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise UserError(f"--verifier {text}: expected NAME:KEY=VALUE, e.g. math:workers=1")
        if key in params:
            raise UserError(f"--verifier {text}: {key} is set twice")
        params[key] = parse_value(value, f"--verifier {text}")
    return Rule(name, params)


def judge_evaluations(
    runs: Sequence[Evaluation],
    rule: Rule,
    *,
    gold: str | None = None,
    filter: str | None = None,
    plugin_files: Sequence[str] = (),
) -> list[Evaluation]:
    """Judge all responses of evaluations.

    Args:
        runs: the evaluations.
        rule: the verifier with its parameters.
        gold: the document's field with the gold answer, ``doc`` or ``target``; None: the first that
            the verifier accepts among lm_eval's target, the letter in it, the fields gold, answer,
            solution and label, and the complete document.
        filter: the filter of the rows; None: that of each log's first row.
        plugin_files: files given by ``--plugin``.

    Raises:
        UserError: unknown verifier, a response without a text or a gold answer, or a gold answer
            that the verifier refuses.
    """
    with open_judge(rule, plugin_files) as judge:
        return [
            Evaluation(tuple(_judge_log(log, judge, gold, filter) for log in run.logs))
            for run in runs
        ]


def _judge_log(log: Log, judge: RuleJudge, gold: str | None, filter: str | None) -> JudgedLog:
    first = find_first(log, filter)
    filter_name = filter or next(iter(list_filters(first)), None)
    read_gold = _find_gold(log, first, gold, judge)
    passed, reasons = array("b"), list[str]()
    samples = _select_samples(log.read_samples(), filter_name)
    for batch in prefetch(iter(lambda: [*islice(samples, CHUNK_SIZE)], [])):
        texts = [_read_text(sample, log) for sample in batch]
        golds = [read_gold(sample, log.name_entry(sample.line)) for sample in batch]
        for verdict, _ in judge.judge(texts, golds):
            passed.append(verdict.passed)
            reasons.append(sys.intern(verdict.reason))
    own_fields = {item.name: getattr(log, item.name) for item in fields(Log)}
    name = judge.rule.name
    facts: Mapping[str, Any] = {
        **{key: value for key, value in log.facts.items() if key not in ("results", "groups")},
        "higher_is_better": {log.own_task: {name: True}},
    }
    return JudgedLog(
        **{**own_fields, "facts": facts},
        verifier=name,
        filter=filter_name,
        verdicts=passed,
        reasons=reasons,
    )


def _select_samples(samples: Iterator[Sample], filter: str | None) -> Iterator[Sample]:
    return (
        sample
        for sample in samples
        if filter is None or filter in (list_filters(sample) or [filter])
    )


def _read_text(sample: Sample, log: Log) -> str:
    if sample.text is None:
        reason = sample.reason or (
            "has no text of a response (multiple-choice and perplexity tasks score likelihoods); "
            "expected a generation task"
        )
        raise UserError(f"{log.name_entry(sample.line)}: {reason}")
    return sample.text


def _find_gold(log: Log, first: Sample, field_name: str | None, judge: RuleJudge) -> ReadGold:
    """Find how the gold answers of a log are read; see ``judge_evaluations``.

    Raises:
        UserError: the verifier accepts none of the places.
    """
    place = log.name_entry(first.line)
    _read_text(first, log)
    if field_name == "doc" and "doc" not in first.problem:
        return _check_golds("the whole document", _read_document, judge)
    if field_name == "target" and "target" not in first.problem:
        return _check_golds("target", _read_target, judge)
    if field_name is not None:
        find_field(first.problem, field_name, place)
        return _check_golds(f"doc.{field_name}", _build_field_reader(field_name), judge)
    candidates: dict[str, ReadGold] = {}
    if first.gold is not None:
        candidates["target"] = _read_target
        if isinstance(first.gold, str) and _LETTER.fullmatch(first.gold):
            candidates["the letter in target"] = _read_letter
    for name in _GOLD_FIELDS:
        if first.problem.get(name):
            candidates[f"doc.{name}"] = _build_field_reader(name)
    candidates["the whole document"] = _read_document
    faults: list[UserError] = []
    for description, read in candidates.items():
        checked = _check_golds(description, read, judge)
        try:
            checked(first, place)
        except UserError as error:
            if type(error) is not UserError:  # a broken plugin, not the user's mistake
                raise
            faults.append(error)
        else:
            return checked
    raise faults[0]


def _check_golds(description: str, read: ReadGold, judge: RuleJudge) -> ReadGold:
    """Return a function that also checks that the verifier accepts the gold answer."""

    def read_checked(sample: Sample, place: str) -> Gold:
        gold = read(sample, place)
        judge.check_golds(
            [(gold, place)],
            f"(gold: {description}, for verifier {judge.rule}); --gold FIELD uses another field of "
            "the document, --gold doc the complete document",
        )
        return gold

    return read_checked


def _read_document(sample: Sample, place: str) -> Gold:
    return dict(sample.problem)


def _read_target(sample: Sample, place: str) -> Gold:
    if sample.gold is None:
        raise UserError(f"{place}: target is missing or null; expected the gold answer")
    return sample.gold


def _read_letter(sample: Sample, place: str) -> Gold:
    gold = _read_target(sample, place)
    match = _LETTER.fullmatch(str(gold))
    return match[1] if match else gold


def _build_field_reader(name: str) -> ReadGold:
    return lambda sample, place: find_field(sample.problem, name, place)
