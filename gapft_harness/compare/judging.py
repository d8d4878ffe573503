"""Judge the responses of logs again, before they are compared."""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any

from gapft_harness.compare.options import CompareOptions, Rule
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Gold
from gapft_harness.hooks.judge import Judge
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.outcomes.logs import Evaluation, Log
from gapft_harness.outcomes.samples import (
    NO_FILTER,
    Sample,
    find_field,
    list_filters,
    name_score,
    select_samples,
)
from gapft_harness.outcomes.table import find_first
from gapft_harness.recipe.reading import parse_yaml

#: Number of responses judged at once.
_CHUNK = 4096
#: Names of document fields that usually contain the gold answer.
_GOLD_FIELDS = ("gold", "answer", "solution", "label")
#: Sources of the gold answer, as shown in messages; that of a document's field is ``doc.FIELD``.
_TARGET = "target"
_LETTER_OF_TARGET = "the letter in target"
_DOCUMENT = "doc"
_LETTER = re.compile(r"\s*\(?([A-Z])[.)]?\s*")


@dataclass(frozen=True, slots=True)
class JudgedLog(Log):
    """A log whose only score is the verdict of a verifier, by the verifier's name.

    Attributes:
        verifier: the verifier.
        filter: the filter whose rows were judged; None: the rows have none.
        passed: 1 for each response that passed, else 0, in the log's order.
        reasons: the reason of each verdict.
        unjudged: the number of verdicts that are ``error`` or ``timeout``; these are not passed.
    """

    verifier: str = ""
    filter: str | None = None
    passed: Sequence[int] = ()
    reasons: Sequence[str] = field(default=(), repr=False)
    unjudged: int = 0

    def read_samples(self) -> Iterator[Sample]:
        """Yield the judged responses."""
        score = name_score(self.verifier, self.filter or NO_FILTER)
        samples = select_samples(Log.read_samples(self), self.filter)
        for sample, passed, reason in zip(samples, self.passed, self.reasons, strict=True):
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
        params[key] = parse_yaml(value, f"--verifier {text}")
    return Rule(name, params)


def judge_evaluations(
    evaluations: Sequence[Evaluation], options: CompareOptions
) -> list[Evaluation]:
    """Judge all responses of evaluations by the verifier that the user chose.

    Args:
        evaluations: the evaluations.
        options: ``verifier``; ``gold``: the document's field with the gold answer, ``doc`` or
            ``target``, or None for the first that the verifier accepts among lm_eval's target, the
            letter in it, the fields gold, answer, solution and label, and the complete document;
            ``filter``: that of the rows, or None for that of each log's first row.

    Raises:
        UserError: unknown verifier, a response without a text or a gold answer, or a gold answer
            that the verifier refuses.
    """
    rule = options.verifier
    assert rule is not None
    plugins = load_plugins(options.plugin_files)
    with plugins.create_verifier(rule.name, rule.params) as judge:
        return [
            Evaluation(tuple(_judge_log(log, judge, rule, options) for log in evaluation.logs))
            for evaluation in evaluations
        ]


def _judge_log(log: Log, judge: Judge, rule: Rule, options: CompareOptions) -> JudgedLog:
    """Judge all responses of a log under one filter; its verdicts are the only score left."""
    # Choose the filter, and the source of the gold answer from the first response.
    first = find_first(log, options.filter)
    filter_name = options.filter or next(iter(list_filters(first)), None)
    gold_source = _find_gold_source(log, first, options.gold, judge, rule)
    # Judge in chunks.
    passed = array("b")
    reasons = list[str]()
    unjudged = 0
    samples = select_samples(log.read_samples(), filter_name)
    while batch := [*islice(samples, _CHUNK)]:
        texts = [log.require_text(sample) for sample in batch]
        golds = [_read_gold(gold_source, sample, log, judge, rule) for sample in batch]
        for verdict in judge.verify(texts, golds):
            passed.append(verdict.passed)
            reasons.append(sys.intern(verdict.reason))
            unjudged += verdict.status in ("error", "timeout")
    # Replace the log's own results by the new score.
    own_fields = {item.name: getattr(log, item.name) for item in fields(Log)}
    facts: Mapping[str, Any] = {
        **{key: value for key, value in log.facts.items() if key not in ("results", "groups")},
        "higher_is_better": {log.own_task: {rule.name: True}},
    }
    return JudgedLog(
        **{**own_fields, "facts": facts},
        verifier=rule.name,
        filter=filter_name,
        passed=passed,
        reasons=reasons,
        unjudged=unjudged,
    )


def _find_gold_source(log: Log, first: Sample, name: str | None, judge: Judge, rule: Rule) -> str:
    """Find where a log has its gold answers: the user's source, or the first that fits.

    Raises:
        UserError: the verifier accepts none of the sources.
    """
    log.require_text(first)  # raises if the log has no texts to judge
    sources = [_TARGET, _LETTER_OF_TARGET] if first.gold is not None else []
    sources += [f"doc.{field}" for field in _GOLD_FIELDS if first.problem.get(field)]
    sources.append(_DOCUMENT)
    if name is not None:
        is_field = name in first.problem or name not in (_TARGET, _DOCUMENT)
        sources = [f"doc.{name}" if is_field else name]
    faults: list[UserError] = []
    for source in sources:
        try:
            _read_gold(source, first, log, judge, rule)
        except UserError as error:
            if type(error) is not UserError:  # a broken plugin, not the user's mistake
                raise
            faults.append(error)
        else:
            return source
    raise faults[0]


def _read_gold(source: str, sample: Sample, log: Log, judge: Judge, rule: Rule) -> Gold:
    """Read a gold answer, and check that the verifier accepts it."""
    place = log.name_entry(sample.line)
    gold: Gold = sample.gold
    if source == _DOCUMENT:
        gold = dict(sample.problem)
    elif source.startswith("doc."):
        gold = find_field(sample.problem, source.removeprefix("doc."), place)
    elif gold is None:
        raise UserError(f"{place}: target is missing or null; expected the gold answer")
    elif source == _LETTER_OF_TARGET and (letter := _LETTER.fullmatch(str(gold))):
        gold = letter[1]
    try:
        judge.check_golds([(gold, place)])
    except UserError as error:
        if type(error) is not UserError:
            raise
        raise UserError(
            f"{error} (gold: {source}, for verifier {rule}); --gold FIELD uses another field of "
            "the document, --gold doc the complete document"
        ) from error
    return gold
