"""explorer.html: every problem with its responses and verdicts, to filter, search and read.

The page is one file. Its texts are compressed in chunks, and a chunk is unpacked when it is needed,
so that a browser opens a page with 10,000 problems.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from gapft_harness.core.text import replace_text_surrogates
from gapft_harness.presentation.page import (
    build_style,
    create_environment,
    read_template,
)
from gapft_harness.presentation.visible import make_visible

#: Problems in a chunk.
CHUNK_SIZE = 64
#: Most characters of all chunks, so that the page with its index is below 30 MB.
MAX_PACKED_CHARS = 26_000_000
#: Characters to which long texts are cut to stay below this size, tried in this order.
TEXT_LENGTHS = (None, 8000, 4000, 2000, 1000, 500, 250, 120)

#: Characters of a prompt in the list.
_HEAD_CHARS = 160
_WORDS = {"pass": "right", "fail": "wrong"}


class ExploredModel(NamedTuple):
    """A model whose responses the page shows.

    Attributes:
        name: of the condition or model, for people.
        seed: the training seed, where models differ by seed alone.
    """

    name: str
    seed: str = ""


class ExploredResponse(NamedTuple):
    """A response with its verdict.

    Attributes:
        text: the response.
        verdict: a word of ``name_verdict``, or a number under a metric without right and wrong.
        reason: why the verifier gave the verdict.
        answer: the answer that the verifier read.
        reasoning: the reasoning that came apart from the text.
        attempts: earlier attempts of an episode: the text, and the feedback to the model.
    """

    text: str
    verdict: str | float
    reason: str = ""
    answer: str = ""
    reasoning: str = ""
    attempts: Sequence[tuple[str, str]] = ()


class ExploredProblem(NamedTuple):
    """A problem with all its texts.

    Attributes:
        id: its name; no other problem of the page has the same one.
        facts: short values to show and to filter by, such as the state; each problem has the same
            keys.
        prompt: as the models received it.
        gold: the gold answer.
        responses: one for each model.
        samples: of the first model, where their texts are recorded.
    """

    id: str
    facts: Mapping[str, str]
    prompt: str
    gold: str
    responses: Sequence[ExploredResponse]
    samples: Sequence[ExploredResponse] = ()


@dataclass(frozen=True, slots=True)
class Explored:
    """The content of the page.

    Attributes:
        title: the heading.
        models: the model before training, then those after it; a name's seeds are adjacent.
        read: yields the problems in the order of the list; may be called several times.
        remark: a sentence that readers should know about these problems.
    """

    title: str
    models: Sequence[ExploredModel]
    read: Callable[[], Iterator[ExploredProblem]]
    remark: str = ""


def name_verdict(status: str) -> str:
    """Return the page's word for a status: ``right``, ``wrong``, ``timeout`` or ``error``."""
    return _WORDS.get(status, status)


def render_explorer(explored: Explored) -> str:
    """Render the page. Texts are only in its data, and the script shows them as text."""
    index, chunks = _pack(explored)
    template = create_environment().get_template("explorer.html.j2")
    html = template.render(
        explored=explored,
        index=index,
        chunks=chunks,
        style=build_style("style.css", "explorer.css"),
        script=read_template("explorer.js"),
    )
    return replace_text_surrogates(html)


def _pack(explored: Explored) -> tuple[str, list[str]]:
    """Pack the index and the chunks; cut long texts where the page would be too large."""
    for max_length in TEXT_LENGTHS:
        limit = math.inf if max_length == TEXT_LENGTHS[-1] else MAX_PACKED_CHARS
        rows: list[dict[str, Any]] = []
        prompts: list[str] = []
        chunks: list[str] = []
        problems = explored.read()
        while batch := list(islice(problems, CHUNK_SIZE)):
            rows += map(_build_row, batch)
            prompts += [problem.prompt for problem in batch]
            texts = [_build_texts(problem) for problem in batch]
            chunks.append(_compress(_make_visible(texts, max_length)))
            if sum(map(len, chunks)) > limit:
                break
        else:
            break
    heads = _list_heads(prompts)
    index = {
        "models": [model._asdict() for model in explored.models],
        "problems": [{**row, "head": head} for row, head in zip(rows, heads, strict=True)],
        "chunk": CHUNK_SIZE,
        "cut": max_length,
    }
    return _compress(_make_visible(index)), chunks


def _build_row(problem: ExploredProblem) -> dict[str, Any]:
    """Build a row of the list: the models' verdicts, and 1 for a gain, -1 for a loss."""
    ranks = [_rank_verdict(response.verdict) for response in problem.responses]
    return {
        "id": problem.id,
        "facts": dict(problem.facts),
        "verdicts": [_format_verdict(response.verdict) for response in problem.responses],
        "changes": [(rank > ranks[0]) - (rank < ranks[0]) for rank in ranks],
    }


def _build_texts(problem: ExploredProblem) -> dict[str, Any]:
    return {
        "prompt": problem.prompt,
        "gold": problem.gold,
        "responses": [response._asdict() for response in problem.responses],
        "samples": [
            {**sample._asdict(), "verdict": _format_verdict(sample.verdict)}
            for sample in problem.samples
        ],
    }


def _rank_verdict(verdict: str | float) -> float:
    return float(verdict == "right") if isinstance(verdict, str) else verdict


def _format_verdict(verdict: str | float) -> str:
    return verdict if isinstance(verdict, str) else f"{verdict:g}"


def _list_heads(prompts: Sequence[str]) -> list[str]:
    """List the beginnings of prompts, without the words that all prompts begin with.

    A label at their end, such as ``Question:``, also begins each few-shot example: the text before
    the last line with this label is left out.
    """
    first = min(prompts, default="")
    last = max(prompts, default="")
    pairs = enumerate(zip(first, last, strict=False))  # all prompts share what these two share
    end = next((position for position, (a, b) in pairs if a != b), 0)
    start = 1 + max(first.rfind(space, 0, end) for space in " \n")
    label = first[:start].rpartition("\n")[2].strip()
    heads = []
    for prompt in prompts:
        last_label = prompt.rfind(f"\n{label}") if label.endswith(":") else -1
        text = prompt[max(start, last_label + 1 + len(label)) :]
        heads.append(" ".join(text.split())[:_HEAD_CHARS])
    return heads


def _make_visible(value: Any, max_length: int | None = None) -> Any:
    """Make all texts of a JSON value visible, and cut the middle of long ones.

    The question and the answer are usually at the ends of a text.
    """
    if isinstance(value, str):
        if max_length is not None and len(value) > max_length:
            half = max_length // 2
            left_out = len(value) - 2 * half
            value = f"{value[:half]}\n… {left_out:,} characters left out …\n{value[-half:]}"
        return make_visible(value)
    if isinstance(value, Mapping):
        return {make_visible(key): _make_visible(item, max_length) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_make_visible(item, max_length) for item in value]
    return value


def _compress(value: Any) -> str:
    """Compress a JSON value (zlib's format), in base64."""
    text = replace_text_surrogates(json.dumps(value, ensure_ascii=False))
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode("ascii")
