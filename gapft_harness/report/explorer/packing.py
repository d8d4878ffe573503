"""explorer.html as one file: an index of all problems, texts in compressed chunks, a script."""

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

#: Problems in a chunk: what is unpacked to show one of them.
CHUNK = 64
#: Most characters of all chunks in the page. With the index it stays under 30 MB.
MOST = 26_000_000
#: To stay below, long texts lose their middle: to so many characters, tried in this order.
LENGTHS = (None, 8000, 4000, 2000, 1000, 500, 250, 120)
#: Separate problems, and the texts of one; ``visible`` leaves no such character in a text.
PROBLEMS, TEXTS = "\x1e", "\x1f"

#: Characters of a prompt in the list, values of a field that is a filter, characters of a value.
_HEAD, _VALUES, _VALUE = 160, 40, 60
#: Kinds of reason that are told apart.
_KINDS = 12
#: A field whose values recur less often is none to filter by.
_RECURS = 2


@dataclass(frozen=True, slots=True)
class Packed:
    """What the page holds, each compressed (zlib's format) and in base64.

    Attributes:
        index: a JSON object; see ``_index``.
        chunks: texts of ``CHUNK`` problems each: for every problem the number of each text, by
            which equal texts stand once, then the texts. A response of which more is known has
            further numbers: of its reason, its answer, and two for each earlier attempt.
    """

    index: str
    chunks: tuple[str, ...]


def pack(explored: Explored, most: int = MOST) -> Packed:
    """Packs everything; where the page would grow too large, long texts lose their middle."""
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
    """The chunks, or None as soon as it is seen that they will be too large."""
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
        raise GapftError(f"explorer.html: texts of {count} of {len(explored.ids)} {explored.noun}s")
    return chunks


def _record(entry: Entry, longest: int | None) -> str:
    numbers: dict[str, int] = {}
    groups: list[list[str]] = [[entry.prompt], [entry.gold]]
    for number, text in enumerate(entry.responses):
        of = entry.judged[number] if number < len(entry.judged) else Judging()
        reason = "" if of.reason == f"said {of.answer}" else of.reason  # that says the same twice
        said = [reason, of.answer, *(part for attempt in of.attempts for part in attempt)]
        groups.append([text, *(said if any(said) else ())])
    places = (
        ":".join(str(numbers.setdefault(text, len(numbers))) for text in group) for group in groups
    )
    first = ",".join(places)
    return TEXTS.join((first, *(visible(_cut(text, longest)) for text in numbers)))


def _cut(text: str, longest: int | None) -> str:
    """A text without its middle, if it is too long: what it asks or answers is at its ends."""
    if longest is None or len(text) <= longest:
        return text
    half = longest // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n… {left_out:,} characters left out …\n{text[-half:]}"


def _index(
    explored: Explored, heads: Sequence[str], fields: Mapping[str, Sequence[str]], cut: int | None
) -> dict[str, Any]:
    """What filters and the list need; all texts are as ``visible`` makes them."""
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

    A label with which all prompts begin, such as "Question:", begins each few-shot example too:
    what comes before its last line of a prompt is left out.
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
    """Where the problem itself begins, after few-shot examples with labels of the same words."""
    last = prompt.rfind(f"\n{label}") if label.endswith(":") else -1
    return start if last < start else last + 1 + len(label)


def _shared(texts: Sequence[str], cut: str) -> int:
    """Characters at the beginning that all texts share, without a word or line that is cut."""
    first, last = min(texts), max(texts)  # what these two share, all between them do
    pairs = enumerate(zip(first, last, strict=False))
    end = next((i for i, (a, b) in pairs if a != b), min(len(first), len(last)))
    part = re.match(cut, first[:end][::-1])  # from its end: else each place would be tried
    return end - (part.end() if part else 0)


class _Reasons:
    """Why responses did not pass: kinds of reason that recur, and which one each response has."""

    def __init__(self, models: int) -> None:
        self._codes: list[list[int]] = [[] for _ in range(models)]
        self._kinds: dict[str, int] = {"": 0}

    def add(self, judged: Sequence[Judging]) -> None:
        for number, codes in enumerate(self._codes):
            of = judged[number] if number < len(judged) else Judging()
            kind = kind_of(Verdict("fail", of.reason))[1] if of.reason else ""
            codes.append(self._kinds.setdefault(kind, len(self._kinds)))

    def shown(self) -> dict[str, Any]:
        """The commonest kinds, if there are several; the others are counted together."""
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
            # 0: none was given; n: the nth kind
            "reasons": [
                [kept.get(c, len(kinds)) if c else 0 for c in codes] for codes in self._codes
            ],
        }


class _Fields:
    """The fields of documents that have few values, each short."""

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


#: The scripts in the order in which they build on each other.
_SCRIPTS = ("data", "differences", "view", "dom", "list", "detail", "filters", "main")


def render(explored: Explored) -> str:
    """The whole page. Texts are in its data alone, and the script shows them as text."""
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
