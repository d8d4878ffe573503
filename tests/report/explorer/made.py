"""Generated content for the explorer page, and a reader of the page's data."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gapft_harness.report.explorer import packing
from gapft_harness.report.explorer.content import (
    ExplorerContent,
    ExplorerModel,
    ProblemTexts,
    classify_outcome,
)
from gapft_harness.report.explorer.packing import PROBLEMS, TEXTS

CONDITIONS = {"gapft": "GapFT", "uniform": "uniform", "replay": "replay", "all_verified": "all"}
SEEDS = ("13", "21", "73")
WORDS = ("right", "wrong")

#: Text that tries to be executed, to escape its element, or to hide.
HOSTILE = (
    "</script><script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
    "\u202ereversed\x00\x1b[31m\u200b{{ 7*7 }} ]]> <!-- <b>bold</b> &lt; \x1e\x1f \ud83d"
    + "x"
    * 3000
)


def build_content(
    problems: int = 120, k: int = 8, seed: int = 3, **changes: Any
) -> ExplorerContent:
    """Build content with random verdicts; responses name their model; every tenth is long."""
    rng = np.random.default_rng(seed)
    solved_before = rng.random(problems) < 0.45
    samples = rng.random((problems, k)) < 0.25
    states = np.where(solved_before, "G", np.where(samples.any(axis=1), "S", "U"))
    subjects = rng.choice(["Algebra", "Geometry & <i>logic</i>", "Number theory"], problems)
    models = []
    for condition, label in CONDITIONS.items():
        for name in SEEDS:
            solved_after = solved_before ^ (rng.random(problems) < 0.25)
            outcomes = "".join(map(classify_outcome, solved_before.tolist(), solved_after.tolist()))
            models.append(
                ExplorerModel(condition, label, name, list_verdicts(solved_after), outcomes)
            )

    def entries() -> Iterator[ProblemTexts]:
        for place in range(problems):
            words = f"First add {place} and one.\nThen take it twice. " * (
                40 if place % 10 == 0 else 1
            )
            yield ProblemTexts(
                prompt=f"Be brief. Question {place}: how many are {place} (times two)?\nAnswer:",
                gold=f"gold {2 * place}",
                responses=[
                    f"{words}So the source says {place}.",
                    *(
                        f"{words}So {m.condition} of {m.seed} says {m.verdicts[place]}."
                        for m in models
                    ),
                    *(f"Sample {number} of {place}: {words}" for number in range(k)),
                ],
                document={"subject": str(subjects[place]), "level": place % 5, "text": f"q{place}"},
            )

    content = ExplorerContent(
        title="made on a task",
        noun="problem",
        before="source, greedy",
        ids=[f"problem-{place:05}" for place in range(problems)],
        verdicts=list_verdicts(solved_before),
        models=models,
        states="".join(states.tolist()),
        k=k,
        passing=samples.sum(axis=1).tolist(),
        samples=[list_verdicts(row) for row in samples],
        entries=entries,
        report=True,
    )
    return replace(content, **changes)


def list_verdicts(solved: Any) -> list[str]:
    return [WORDS[0 if is_right else 1] for is_right in solved.tolist()]


def map_texts(content: ExplorerContent, text: Callable[[str], str]) -> ExplorerContent:
    """Return the content with a function applied to every text."""

    def entries() -> Iterator[ProblemTexts]:
        for entry in content.entries():
            yield ProblemTexts(
                text(entry.prompt), text(entry.gold), [*map(text, entry.responses)], entry.document
            )

    return replace(content, entries=entries)


def write_page(content: ExplorerContent, folder: Path) -> str:
    """Write the page and return its address."""
    path = folder / "explorer.html"
    path.write_text(packing.render_explorer(content), "utf-8")
    return path.as_uri()


def unpack_page(html: str) -> tuple[dict[str, Any], list[list[str]]]:
    """Return the page's index, and for each problem its texts: prompt, gold, responses."""

    def text(packed: str) -> str:
        return zlib.decompress(base64.b64decode(packed)).decode()

    (index,) = re.findall(r'<script type="text/plain" id="index">(.*?)</script>', html)
    chunks = re.findall(r'<script type="text/plain" class="chunk">(.*?)</script>', html)
    problems = []
    for record in PROBLEMS.join(map(text, chunks)).split(PROBLEMS):
        numbers, *texts = record.split(TEXTS)
        problems.append([texts[int(group.partition(":")[0])] for group in numbers.split(",")])
    return json.loads(text(index)), problems
