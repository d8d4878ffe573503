"""Read the logs of ``lm_eval --log_samples``: a line for each document and filter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError, quote_unprintable
from gapft_harness.core.json_values import read_objects, require_object
from gapft_harness.core.records import FINISH_REASONS, GREEDY, STATUSES
from gapft_harness.outcomes.samples import (
    NO_FILTER,
    PASS_AT_1,
    Sample,
    spread_scores,
)

#: Fields that are not metrics.
_FIELDS = frozenset(
    (
        "doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics",
        "doc_hash", "prompt_hash", "target_hash", "verdicts", "finish_reasons", "tokens",
    )
)  # fmt: skip


def read_lm_eval_log(path: Path) -> Iterator[Sample]:
    """Yield the responses of each line; one of a line without several is the deployment decode.

    Raises:
        UserError: the file cannot be read, a line is not a JSON object, the first line does not
            belong to a known kind of log, or verdicts and responses differ in number.
    """
    is_first = True
    for line, fields, place in read_objects(path):
        if is_first and not fields.keys() & {"doc", "resps", "metrics", "filter"}:
            raise unknown_log_error(place, fields)
        is_first = False
        yield from _read_line(fields, line, place)


def unknown_log_error(place: str, record: Mapping[str, Any]) -> UserError:
    """Build the error for a log that no reader recognises."""
    return UserError(
        f"{place}: unknown kind of log (its keys: "
        f"{', '.join(map(quote_unprintable, record)) or 'none'}). Recognised by a key of the first "
        "line: lm_eval's samples (resps), plain JSON lines (text), Every Eval Ever's instance "
        "records (evaluation_id); by name: Inspect's logs "
        "(FILE.eval, FILE.json); by the columns doc, metric and model_response: lighteval's "
        "details (FILE.parquet). Add a reader of another kind with --plugin FILE"
    )


def _read_line(fields: Mapping[str, Any], line: int, place: str) -> Iterator[Sample]:
    texts = _find_texts(fields.get("resps"))
    options = _find_options(fields) if texts is None else (None, None)
    count = 1 if texts is None else len(texts)
    entries = _find_verdicts(fields, count, place)
    scores = spread_scores(
        _find_numbers(fields),
        str(fields.get("filter", NO_FILTER)),
        count,
        [entry["status"] == "pass" for entry in entries],
    )
    answers = [options[1]] if texts is None else _find_answers(fields, count)
    prompt = _find_request(fields, 0).get("arg_0")
    problem = require_object(fields["doc"], f"{place}: doc") if "doc" in fields else {}
    endings = fields.get("finish_reasons")
    lengths = fields.get("tokens")
    for number in range(count):
        ended = endings[number] if isinstance(endings, list) and number < len(endings) else ""
        yield Sample(
            problem=problem,
            index=GREEDY if count == 1 else number,
            scores=scores[number],
            text=None if texts is None else texts[number],
            gold=fields.get("target") if options[0] is None else options[0],
            prompt=prompt if isinstance(prompt, str) else "",
            answer=answers[number],
            reason=_format_reason(entries[number]) if entries else "",
            ended=ended if ended in FINISH_REASONS else "unknown",
            tokens=lengths[number] if isinstance(lengths, list) and number < len(lengths) else None,
            line=line,
            number=fields.get("doc_id"),
        )


def _find_numbers(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Find the metrics with a number per document; lists are of corpus-level metrics."""
    names = fields.get("metrics")
    if names is None:  # logs before November 2024
        names = [name for name in fields if name not in _FIELDS]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return {}
    numbers = {name: fields[name] for name in (*names, PASS_AT_1) if name in fields}
    scalars = {name: value for name, value in numbers.items() if not isinstance(value, list | dict)}
    return scalars or numbers


def _find_texts(responses: Any) -> list[str] | None:
    """Find the texts of the only request; None if likelihoods of options were scored."""
    if isinstance(responses, list) and len(responses) == 1 and isinstance(responses[0], list):
        responses = responses[0]  # lmms-eval logs the texts without this list
    if not isinstance(responses, list) or not responses:
        return None
    return responses if all(isinstance(text, str) for text in responses) else None


def _find_answers(fields: Mapping[str, Any], count: int) -> list[str | None]:
    """Find what the filter read in each response; None for each if any is missing."""
    value = fields.get("filtered_resps")
    while isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    texts = value if isinstance(value, list) else [value]
    if len(texts) == count and all(isinstance(text, str) for text in texts):
        return list(texts)
    return [None] * count


def _find_verdicts(fields: Mapping[str, Any], count: int, place: str) -> list[dict[str, Any]]:
    """Find the log's verdict on each response; empty if it has none.

    Raises:
        UserError: the numbers of verdicts and responses differ.
    """
    entries = fields.get("verdicts")
    if not isinstance(entries, list) or not entries:
        return []
    if not all(isinstance(entry, dict) and entry.get("status") in STATUSES for entry in entries):
        return []
    if len(entries) != count:
        raise UserError(
            f"{place}: {len(entries)} verdicts on {count} responses; expected one per response (a "
            "damaged log?)"
        )
    return entries


def _format_reason(entry: Mapping[str, Any]) -> str:
    """Format the reason of a verdict, after the status of one that could not be reached."""
    status = entry["status"] if entry["status"] in ("error", "timeout") else ""
    return ": ".join(filter(None, (status, str(entry.get("reason", "")))))


def _find_options(fields: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Name the right and the likeliest option; None for each if no options were scored."""
    options = fields.get("filtered_resps")
    likelihoods = [_parse_likelihood(o) for o in options] if isinstance(options, list) else []
    known = [likelihood for likelihood in likelihoods if likelihood is not None]
    if not len(known) == len(likelihoods) > 1:
        return None, None
    gold = str(fields.get("target", ""))
    if gold.isdecimal() and int(gold) < len(known):  # lm_eval counts options from 0
        gold = _name_option(fields, int(gold)) or gold
    return gold, _name_option(fields, known.index(max(known)))


def _parse_likelihood(option: Any) -> float | None:
    """Parse an option's log-likelihood as lm_eval logs it: ``["-1.25", "False"]``."""
    try:
        return float(option[0]) if isinstance(option, list) and len(option) == 2 else None
    except (TypeError, ValueError, OverflowError):
        return None


def _name_option(fields: Mapping[str, Any], number: int) -> str | None:
    request = _find_request(fields, number)
    return f"option {number + 1}: {str(request.get('arg_1')).strip()}" if request else None


def _find_request(fields: Mapping[str, Any], number: int) -> dict[str, Any]:
    arguments = fields.get("arguments")
    if isinstance(arguments, list):  # before November 2024: a list for each request
        request = arguments[number] if number < len(arguments) else None
        if isinstance(request, list):
            return {f"arg_{position}": value for position, value in enumerate(request)}
    request = arguments.get(f"gen_args_{number}") if isinstance(arguments, dict) else None
    return request if isinstance(request, dict) else {}
