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
from gapft_harness.core.text import natural, whole_text
from gapft_harness.report.explorer.explored import Entry, Explored, Judging
from gapft_harness.report.rendering import page
from gapft_harness.report.rendering.visible import visible
from gapft_harness.verification.reasons import OTHER, kind_of

#: Problems in a chunk; a chunk is unpacked to show one of them.
CHUNK = 64
#: Most characters of all chunks in the page, so that the page with its index is below 30 MB.
MOST = 26_000_000
#: Characters to which long texts are cut to stay below this size, tried in this order.
LENGTHS = (None, 8000, 4000, 2000, 1000, 500, 250, 120)
#: Separators of problems, and of the texts of one; ``make_visible`` removes them from texts.
PROBLEMS, TEXTS = "\x1e", "\x1f"

#: Characters of a prompt in the list; values of a filter field; characters of such a value.
_HEAD, _VALUES, _VALUE = 160, 40, 60
#: Kinds of reason that are listed separately.
_KINDS = 12
#: Problems for each value, on average, without which a field does not become a filter.
_RECURS = 2


@dataclass(frozen=True, slots=True)
class Packed:
    """The page's data, compressed (zlib's format) and in base64.

    Attributes:
        index: a JSON object; see ``_build_index``.
        chunks: texts of ``CHUNK_SIZE`` problems each: for every problem the number of each text, so
            that equal texts are stored once, then the texts. A response with more details has more
            numbers: of its reason, its answer, and two for each earlier attempt.
    """

    index: str
    chunks: tuple[str, ...]


def pack(explored: Explored, most: int = MOST) -> Packed:
    """Pack all problems; cut the middle of long texts where the page would be too large.

    Args:
        explored: the content.
        max_chars: characters of all chunks.
    """
    for longest in LENGTHS:
        heads, fields, reasons = _Heads(), _Fields(), _Reasons(1 + len(explored.models))
        chunks = _chunks(explored, longest, most, heads, fields, reasons)
        if chunks is not None:
            shown = {**dict(fields.found()), **explored.fields}
            index = _index(explored, heads.shown(), shown, longest) | reasons.shown()
            return Packed(_packed(json.dumps(index, ensure_ascii=False)), tuple(chunks))
    raise AssertionError("the last length is taken whatever the size")


def _chunks(
    explored: Explored,
    longest: int | None,
    most: int,
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
        records.append(_record(entry, longest))
        if len(records) == CHUNK or count == len(explored.ids):
            chunks.append(_packed(PROBLEMS.join(records)))
            records, size = [], size + len(chunks[-1])
            early = count * 20 > len(explored.ids) and size * len(explored.ids) / count > 1.2 * most
            if longest != LENGTHS[-1] and (early or size > most):
                return None
    if count != len(explored.ids):
        raise GapftError(
            f"explorer.html: expected the texts of {len(explored.ids)} {explored.noun}s, found "
            f"{count}"
        )
    return chunks


def _record(entry: Entry, longest: int | None) -> str:
    numbers: dict[str, int] = {}
    groups: list[list[str]] = [[entry.prompt], [entry.gold]]
    for number, text in enumerate(entry.responses):
        of = entry.judged[number] if number < len(entry.judged) else Judging()
        # such a reason only repeats the answer
        reason = "" if of.reason == f"said {of.answer}" else of.reason
        said = [reason, of.answer, *(part for attempt in of.attempts for part in attempt)]
        groups.append([text, *(said if any(said) else ())])
    places = (
        ":".join(str(numbers.setdefault(text, len(numbers))) for text in group) for group in groups
    )
    first = ",".join(places)
    return TEXTS.join((first, *(visible(_cut(text, longest)) for text in numbers)))


def _cut(text: str, longest: int | None) -> str:
    """Cut the middle of a long text: question and answer are usually at its ends."""
    if longest is None or len(text) <= longest:
        return text
    half = longest // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n… {left_out:,} characters left out …\n{text[-half:]}"


def _index(
    explored: Explored, heads: Sequence[str], fields: Mapping[str, Sequence[str]], cut: int | None
) -> dict[str, Any]:
    """Build the data for filters and the list; all texts are made visible first."""
    words: dict[str, int] = {}

    def codes(verdicts: Sequence[str]) -> list[int]:
        return [words.setdefault(verdict, len(words)) for verdict in verdicts]

    return {
        "noun": explored.noun,
        "before": visible(explored.before),
        "source": codes(explored.verdicts),
        "models": [
            {
                "condition": model.condition,
                "label": visible(model.label),
                "seed": visible(model.seed),
                "verdicts": codes(model.verdicts),
                "outcomes": model.outcomes,
            }
            for model in explored.models
        ],
        "samples": [codes(verdicts) for verdicts in explored.samples],
        "verdicts": list(words),
        "ids": [visible(name) for name in explored.ids],
        "heads": heads,
        "states": explored.states,
        "k": explored.k,
        "passing": list(explored.passing),
        "fields": {visible(name): _coded(values) for name, values in fields.items()},
        "chunk": CHUNK,
        "cut": cut,
    }


def _coded(values: Sequence[str]) -> dict[str, list[Any]]:
    known = {value: number for number, value in enumerate(sorted(set(values), key=natural))}
    return {
        "values": [visible(value) for value in known],
        "codes": [known[value] for value in values],
    }


def _packed(text: str) -> str:
    compressed = zlib.compress(whole_text(text).encode(), 6)
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

    def shown(self) -> list[str]:
        start = _shared(self._prompts, r"\S*+")
        end = _shared([prompt[start:][::-1] for prompt in self._prompts], r"[^\n]*+")
        label = self._prompts[0][:start].rpartition("\n")[2].strip()
        own = (
            prompt[_after_examples(prompt, label, start) : len(prompt) - end] or prompt
            for prompt in self._prompts
        )
        return [visible(" ".join(text[: 4 * _HEAD].split())[:_HEAD]) for text in own]


def _after_examples(prompt: str, label: str, start: int) -> int:
    """Find where the problem begins, after few-shot examples that begin with the same label."""
    last = prompt.rfind(f"\n{label}") if label.endswith(":") else -1
    return start if last < start else last + 1 + len(label)


def _shared(texts: Sequence[str], cut: str) -> int:
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
            of = judged[number] if number < len(judged) else Judging()
            kind = kind_of(Verdict("fail", of.reason))[1] if of.reason else ""
            codes.append(self._kinds.setdefault(kind, len(self._kinds)))

    def shown(self) -> dict[str, Any]:
        """Return the most frequent kinds, if there are several; the others share one number."""
        counts = Counter(code for codes in self._codes for code in codes if code)
        common = sorted(counts, key=lambda code: (-counts[code], code))
        if len(common) < _RECURS:
            return {"kinds": [], "reasons": []}
        kept = {code: place for place, code in enumerate(common[:_KINDS], start=1)}
        names = {code: kind for kind, code in self._kinds.items()}
        kinds = [visible(names[code]) for code in kept]
        if len(common) > len(kept):
            kinds.append(OTHER)
        return {
            "kinds": kinds,
            # 0: no reason; n: the nth kind
            "reasons": [
                [kept.get(c, len(kinds)) if c else 0 for c in codes] for codes in self._codes
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
                self._take(name, value)
        self._count += 1

    def _take(self, name: str, value: Any) -> None:
        text = str(value)[: _VALUE + 1] if isinstance(value, str | int | bool) else ""
        distinct = self._distinct.setdefault(name, set())
        distinct.add(text)
        if len(distinct) > _VALUES or not 0 < len(text) <= _VALUE:
            self._dropped.add(name)
            self._values.pop(name, None)
            return
        values = self._values.setdefault(name, [])
        values += [""] * (self._count - len(values))
        values.append(text)

    def found(self) -> Iterator[tuple[str, list[str]]]:
        for name, values in self._values.items():
            full = values + [""] * (self._count - len(values))
            if 1 < len(set(full)) <= self._count / _RECURS:
                yield name, full


#: The scripts, in the order of their dependencies.
_SCRIPTS = ("data", "differences", "view", "dom", "list", "detail", "filters", "main")


def render(explored: Explored) -> str:
    """Render the page. Texts are only in its data, and the script shows them as text."""
    return whole_text(
        page.filled(
            "explorer/explorer.html.j2",
            style=page.style("style.css", "explorer/explorer.css"),
            script="\n".join(_read(f"{name}.js") for name in _SCRIPTS),
            of=explored,
            packed=pack(explored),
        )
    )


def _read(name: str) -> str:
    templates = files("gapft_harness.report.rendering").joinpath("templates", "explorer")
    return templates.joinpath(name).read_text("utf-8")
