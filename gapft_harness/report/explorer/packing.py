"""Pack explorer.html into one file: an index of all problems, compressed texts, a script."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from gapft_harness.core.errors import GapftError
from gapft_harness.core.records import Verdict
from gapft_harness.core.text import natural_sort_key, replace_text_surrogates
from gapft_harness.presentation.visible import make_visible
from gapft_harness.report.explorer.content import ExplorerContent, Judging, ProblemTexts
from gapft_harness.report.rendering import page
from gapft_harness.verification.reasons import OTHER, classify_reason

#: Problems in a chunk; a chunk is unpacked to show one of them.
CHUNK_SIZE = 64
#: Most characters of all chunks in the page, so that the page with its index is below 30 MB.
MAX_PACKED_CHARS = 26_000_000
#: Characters to which long texts are cut to stay below this size, tried in this order.
TEXT_LENGTHS = (None, 8000, 4000, 2000, 1000, 500, 250, 120)
#: Separators of problems, and of the texts of one; ``make_visible`` removes them from texts.
PROBLEMS, TEXTS = "\x1e", "\x1f"

#: Characters of a prompt in the list; values of a filter field; characters of such a value.
_HEAD_CHARS, _MAX_VALUES, _VALUE_CHARS = 160, 40, 60
#: Kinds of reason that are listed separately.
_MAX_KINDS = 12
#: Problems for each value, on average, without which a field does not become a filter.
_MIN_REPEATS = 2


@dataclass(frozen=True, slots=True)
class Packed:
    """The page's data, compressed (zlib's format) and in base64.

    Attributes:
        index: a JSON object; see ``_build_index``.
        chunks: texts of ``CHUNK_SIZE`` problems each: for every problem the number of each text, so
            that equal texts are stored once, then the texts. A response with more details has more
            numbers: of its reason, its answer, its reasoning, and two for each earlier attempt.
    """

    index: str
    chunks: tuple[str, ...]


def pack_content(explored: ExplorerContent, max_chars: int = MAX_PACKED_CHARS) -> Packed:
    """Pack all problems; cut the middle of long texts where the page would be too large.

    Args:
        explored: the content.
        max_chars: characters of all chunks.
    """
    for max_length in TEXT_LENGTHS:
        heads, fields, reasons = _Heads(), _Fields(), _Reasons(1 + len(explored.models))
        chunks = _pack_chunks(explored, max_length, max_chars, heads, fields, reasons)
        if chunks is not None:
            filters = {**dict(fields.select_filters()), **explored.fields}
            index = (
                _build_index(explored, heads.build_heads(), filters, max_length)
                | reasons.build_index()
            )
            return Packed(_compress(json.dumps(index, ensure_ascii=False)), tuple(chunks))
    raise AssertionError("the last length is taken whatever the size")


def _pack_chunks(
    explored: ExplorerContent,
    max_length: int | None,
    max_chars: int,
    heads: _Heads,
    fields: _Fields,
    reasons: _Reasons,
) -> list[str] | None:
    """Pack the chunks; return None as soon as it is clear that they will be too large."""
    chunks: list[str] = []
    records: list[str] = []
    size = count = 0
    for count, entry in enumerate(explored.entries(), start=1):
        heads.add(entry.prompt)
        fields.add(entry.document)
        reasons.add(entry.judged)
        records.append(_build_record(entry, max_length))
        if len(records) == CHUNK_SIZE or count == len(explored.ids):
            chunks.append(_compress(PROBLEMS.join(records)))
            records, size = [], size + len(chunks[-1])
            will_exceed = (
                count * 20 > len(explored.ids)
                and size * len(explored.ids) / count > 1.2 * max_chars
            )
            if max_length != TEXT_LENGTHS[-1] and (will_exceed or size > max_chars):
                return None
    if count != len(explored.ids):
        raise GapftError(
            f"explorer.html: expected the texts of {len(explored.ids)} {explored.noun}s, found "
            f"{count}"
        )
    return chunks


def _build_record(entry: ProblemTexts, max_length: int | None) -> str:
    numbers: dict[str, int] = {}
    groups: list[list[str]] = [[entry.prompt], [entry.gold]]
    for number, text in enumerate(entry.responses):
        judging = entry.judged[number] if number < len(entry.judged) else Judging()
        # such a reason only repeats the answer
        reason = "" if judging.reason == f"said {judging.answer}" else judging.reason
        details = [
            reason,
            judging.answer,
            judging.reasoning,
            *(part for attempt in judging.attempts for part in attempt),
        ]
        groups.append([text, *(details if any(details) else ())])
    number_groups = (
        ":".join(str(numbers.setdefault(text, len(numbers))) for text in group) for group in groups
    )
    numbers_line = ",".join(number_groups)
    return TEXTS.join(
        (numbers_line, *(make_visible(_cut_middle(text, max_length)) for text in numbers))
    )


def _cut_middle(text: str, max_length: int | None) -> str:
    """Cut the middle of a long text: question and answer are usually at its ends."""
    if max_length is None or len(text) <= max_length:
        return text
    half = max_length // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n… {left_out:,} characters left out …\n{text[-half:]}"


def _build_index(
    explored: ExplorerContent,
    heads: Sequence[str],
    fields: Mapping[str, Sequence[str]],
    cut: int | None,
) -> dict[str, Any]:
    """Build the data for filters and the list; all texts are made visible first."""
    words: dict[str, int] = {}

    def encode_verdicts(verdicts: Sequence[str]) -> list[int]:
        return [words.setdefault(verdict, len(words)) for verdict in verdicts]

    return {
        "noun": explored.noun,
        "before": make_visible(explored.before),
        "source": encode_verdicts(explored.verdicts),
        "models": [
            {
                "condition": model.condition,
                "label": make_visible(model.label),
                "seed": make_visible(model.seed),
                "verdicts": encode_verdicts(model.verdicts),
                "outcomes": model.outcomes,
            }
            for model in explored.models
        ],
        "samples": [encode_verdicts(verdicts) for verdicts in explored.samples],
        "verdicts": list(words),
        "ids": [make_visible(name) for name in explored.ids],
        "heads": heads,
        "states": explored.states,
        "k": explored.k,
        "passing": list(explored.passing),
        "fields": {make_visible(name): _encode_values(values) for name, values in fields.items()},
        "chunk": CHUNK_SIZE,
        "cut": cut,
    }


def _encode_values(values: Sequence[str]) -> dict[str, list[Any]]:
    codes_by_value = {
        value: number for number, value in enumerate(sorted(set(values), key=natural_sort_key))
    }
    return {
        "values": [make_visible(value) for value in codes_by_value],
        "codes": [codes_by_value[value] for value in values],
    }


def _compress(text: str) -> str:
    compressed = zlib.compress(replace_text_surrogates(text).encode(), 6)
    return base64.b64encode(compressed).decode("ascii")


class _Heads:
    """The beginnings of prompts, without the words and last lines that all prompts share.

    A label at the beginning of all prompts, such as "Question:", also begins each few-shot example:
    the text before the last line with this label is left out.
    """

    def __init__(self) -> None:
        self._prompts: list[str] = []

    def add(self, prompt: str) -> None:
        self._prompts.append(prompt)

    def build_heads(self) -> list[str]:
        start = _count_shared_chars(self._prompts, r"\S*+")
        end = _count_shared_chars([prompt[start:][::-1] for prompt in self._prompts], r"[^\n]*+")
        label = self._prompts[0][:start].rpartition("\n")[2].strip()
        problem_texts = (
            prompt[_find_problem_start(prompt, label, start) : len(prompt) - end] or prompt
            for prompt in self._prompts
        )
        return [
            make_visible(" ".join(text[: 4 * _HEAD_CHARS].split())[:_HEAD_CHARS])
            for text in problem_texts
        ]


def _find_problem_start(prompt: str, label: str, start: int) -> int:
    """Find where the problem begins, after few-shot examples that begin with the same label."""
    last = prompt.rfind(f"\n{label}") if label.endswith(":") else -1
    return start if last < start else last + 1 + len(label)


def _count_shared_chars(texts: Sequence[str], cut: str) -> int:
    """Count the characters at the beginning that all texts share.

    A word or line (``cut``, a pattern) that is only partly shared does not count.
    """
    first, last = min(texts), max(texts)  # a beginning that these two share is shared by all
    pairs = enumerate(zip(first, last, strict=False))
    end = next((i for i, (a, b) in pairs if a != b), min(len(first), len(last)))
    part = re.match(cut, first[:end][::-1])  # reversed: a search would try every position
    return end - (part.end() if part else 0)


class _Reasons:
    """Why responses did not pass: the frequent kinds of reason, and the kind of each response."""

    def __init__(self, models: int) -> None:
        self._codes: list[list[int]] = [[] for _ in range(models)]
        self._kinds: dict[str, int] = {"": 0}

    def add(self, judged: Sequence[Judging]) -> None:
        for number, codes in enumerate(self._codes):
            judging = judged[number] if number < len(judged) else Judging()
            kind = classify_reason(Verdict("fail", judging.reason))[1] if judging.reason else ""
            codes.append(self._kinds.setdefault(kind, len(self._kinds)))

    def build_index(self) -> dict[str, Any]:
        """Return the most frequent kinds, if there are several; the others share one number."""
        counts = Counter(code for codes in self._codes for code in codes if code)
        common = sorted(counts, key=lambda code: (-counts[code], code))
        if len(common) < _MIN_REPEATS:
            return {"kinds": [], "reasons": []}
        numbers_by_code = {code: place for place, code in enumerate(common[:_MAX_KINDS], start=1)}
        names = {code: kind for kind, code in self._kinds.items()}
        kinds = [make_visible(names[code]) for code in numbers_by_code]
        if len(common) > len(numbers_by_code):
            kinds.append(OTHER)
        return {
            "kinds": kinds,
            # 0: no reason; n: the nth kind
            "reasons": [
                [numbers_by_code.get(c, len(kinds)) if c else 0 for c in codes]
                for codes in self._codes
            ],
        }


class _Fields:
    """The fields of documents with few values, all short."""

    def __init__(self) -> None:
        self._values: dict[str, list[str]] = {}
        self._distinct: dict[str, set[str]] = {}
        self._dropped: set[str] = set()
        self._count = 0

    def add(self, document: Mapping[str, Any]) -> None:
        for name, value in document.items():
            if name not in self._dropped:
                self._add_value(name, value)
        self._count += 1

    def _add_value(self, name: str, value: Any) -> None:
        text = str(value)[: _VALUE_CHARS + 1] if isinstance(value, str | int | bool) else ""
        distinct = self._distinct.setdefault(name, set())
        distinct.add(text)
        if len(distinct) > _MAX_VALUES or not 0 < len(text) <= _VALUE_CHARS:
            self._dropped.add(name)
            self._values.pop(name, None)
            return
        values = self._values.setdefault(name, [])
        values += [""] * (self._count - len(values))
        values.append(text)

    def select_filters(self) -> Iterator[tuple[str, list[str]]]:
        for name, values in self._values.items():
            column = values + [""] * (self._count - len(values))
            if 1 < len(set(column)) <= self._count / _MIN_REPEATS:
                yield name, column


#: The scripts, in the order of their dependencies.
_SCRIPTS = ("data", "differences", "view", "dom", "list", "detail", "filters", "main")


def render_explorer(explored: ExplorerContent) -> str:
    """Render the page. Texts are only in its data, and the script shows them as text."""
    return replace_text_surrogates(
        page.fill_template(
            "explorer/explorer.html.j2",
            style=page.build_style("style.css", "explorer/explorer.css"),
            script="\n".join(_read_template(f"{name}.js") for name in _SCRIPTS),
            content=explored,
            packed=pack_content(explored),
        )
    )


def _read_template(name: str) -> str:
    templates = files("gapft_harness.report.rendering").joinpath("templates", "explorer")
    return templates.joinpath(name).read_text("utf-8")
