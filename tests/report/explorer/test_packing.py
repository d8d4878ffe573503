"""The page's data: all texts unchanged, once each, and always the same bytes."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.errors import GapftError
from gapft_harness.core.records import Attempt, Problem, Response, Verdict
from gapft_harness.report.explorer import packing
from gapft_harness.report.explorer.content import Judging, ProblemTexts
from gapft_harness.report.explorer.packing import pack_content
from gapft_harness.report.explorer.run_content import collect_audit
from gapft_harness.report.reading.texts import AuditTexts
from gapft_harness.report.rendering.visible import make_visible
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.parquet import write_batches
from gapft_harness.run_directory.tables import build_response_row, response_schema, write_problems
from tests.report import planted
from tests.report.explorer.made import build_content, unpack_page


def test_page_holds_every_text_in_full() -> None:
    content = build_content()
    index, texts = unpack_page(packing.render_explorer(content))
    expected = [[e.prompt, e.gold, *e.responses] for e in content.entries()]
    assert texts == expected
    assert index["ids"] == content.ids
    words = index["verdicts"]
    assert [words[code] for code in index["source"]] == content.verdicts
    for packed_model, model in zip(index["models"], content.models, strict=True):
        assert (packed_model["condition"], packed_model["seed"]) == (model.condition, model.seed)
        assert [words[code] for code in packed_model["verdicts"]] == model.verdicts
        assert packed_model["outcomes"] == model.outcomes
    assert [[words[code] for code in row] for row in index["samples"]] == content.samples
    assert pack_content(content) == pack_content(build_content()), "the same bytes again"


def test_builds_field_filters_and_prompt_heads() -> None:
    index, _ = unpack_page(packing.render_explorer(build_content()))
    assert list(index["fields"]) == ["subject", "level"]
    level = index["fields"]["level"]
    assert [level["values"][code] for code in level["codes"]] == [str(i % 5) for i in range(120)]
    assert index["heads"][7] == "7: how many are 7 (times two)?"


@pytest.mark.parametrize(
    ("values", "is_filter"),
    [
        (["a", "b"] * 30, True),
        (["a"] * 60, False),
        ([f"{i}" for i in range(60)], False),
        ([f"{i % 41}" for i in range(60)], False),
        (["a", "b" * 61] * 30, False),
        (["a", {"of": "b"}] * 30, False),
        (["a", None] * 30, False),
        ([True, False] * 30, True),
    ],
    ids=str,
)
def test_selects_fields_for_filters(values: list[Any], is_filter: bool) -> None:
    base = build_content(60)
    pairs = list(zip(base.entries(), values, strict=True))
    content = replace(
        base,
        entries=lambda: (ProblemTexts(e.prompt, e.gold, e.responses, {"f": v}) for e, v in pairs),
    )
    assert list(unpack_page(packing.render_explorer(content))[0]["fields"]) == (
        ["f"] if is_filter else []
    )


def test_missing_field_has_empty_value() -> None:
    content = build_content(60)
    entries = [
        ProblemTexts(e.prompt, e.gold, e.responses, {"f": "a"} if i % 3 else {})
        for i, e in enumerate(content.entries())
    ]
    field = unpack_page(packing.render_explorer(replace(content, entries=lambda: iter(entries))))[
        0
    ]["fields"]["f"]
    assert field["values"] == ["", "a"]
    assert field["codes"] == [1 if i % 3 else 0 for i in range(60)]


def test_cuts_middle_of_texts_above_size_limit() -> None:
    content = build_content(60)
    whole = sum(map(len, pack_content(content).chunks))
    assert unpack_page(packing.render_explorer(content))[0]["cut"] is None
    assert pack_content(content, max_chars=whole).chunks == pack_content(content).chunks
    most = whole * 5 // 6
    assert sum(map(len, pack_content(content, most).chunks)) <= most
    smallest = pack_content(content, max_chars=1).chunks
    assert sum(map(len, smallest)) < most
    texts = zlib.decompress(base64.b64decode(smallest[0])).decode()
    assert re.search(r"First add 0 .*\n… [12],\d{3} characters left out …\n", texts)
    assert "So the source says 0." in texts, "the end of an answer is kept"
    text = "a" * 700 + "b" * 700
    assert (
        packing._cut_middle(text, 1000) == f"{'a' * 500}\n… 400 characters left out …\n{'b' * 500}"
    )
    assert packing._cut_middle(text, 1400) == text


def test_builds_content_from_run_tables(tmp_path: Path) -> None:
    inputs = planted.build_inputs(sizes=(9, 7, 5), k=3)
    ids = inputs.audit.ids.tolist()
    problems = [
        Problem(name, "no prompt", "no gold", {"kind": "abc"[place % 3]})
        for place, name in enumerate(ids)
    ]
    place = tmp_path / layout.problems_path("audit")
    place.parent.mkdir()
    write_problems(place, problems, lambda names: iter([(1,)] * len(names)))
    tried = (Attempt("first", (1,), "stop", "it failed"), Attempt("second", (), "stop", "again"))
    rows = [
        build_response_row(
            Response(
                name,
                index,
                f"{name} sample {index}",
                (),
                "stop",
                0,
                attempts=tried,
                reasoning=f"perhaps {index}",
            ),
            Verdict("fail", f"wrong on test {index}"),
            f"read {index}",
        )
        for name in ids
        for index in range(-1, 3)
    ]
    write_batches(tmp_path / layout.responses_path("audit"), response_schema(), [rows])
    for trained in inputs.arms:
        rows = [
            build_response_row(
                Response(name, -1, "", (), "stop", 0), Verdict("fail", trained.arm.name), "C"
            )
            for name in ids
        ]
        table = tmp_path / layout.decisions_path(trained.arm)
        table.parent.mkdir(exist_ok=True)
        write_batches(table, response_schema(), [rows])
    content = collect_audit(replace(inputs, texts=AuditTexts(tmp_path)), "a run")
    index, texts = unpack_page(packing.render_explorer(content))
    earlier = [("first", "it failed"), ("second", "again")]
    for entry in content.entries():
        assert [*entry.judged] == [
            Judging("wrong on test -1", "read -1", earlier, "perhaps -1"),
            *(Judging(trained.arm.name, "C", []) for trained in inputs.arms),
            *(
                Judging(f"wrong on test {i}", f"read {i}", earlier, f"perhaps {i}")
                for i in range(3)
            ),
        ]
    audit = inputs.audit
    for place, (name, problem_texts) in enumerate(zip(ids, texts, strict=True)):
        assert problem_texts == [
            make_visible(text)
            for text in (
                audit.prompts[place],
                json.loads(audit.golds[place]),
                audit.deployed.texts[place],
                *(trained.deployed.texts[place] for trained in inputs.arms),
                *(f"{name} sample {number}" for number in range(3)),
            )
        ]
    assert index["fields"]["kind"]["values"] == ["a", "b", "c"]
    assert index["states"] == "".join(audit.states)
    assert index["passing"] == audit.verdicts.passing.tolist()
    for packed_model, trained in zip(index["models"], inputs.arms, strict=True):
        right = ["ck".count(letter) == 1 for letter in packed_model["outcomes"]]
        assert right == trained.deployed.passed.tolist()
        was_right = ["kr".count(letter) == 1 for letter in packed_model["outcomes"]]
        assert was_right == audit.verdicts.deployed.tolist()
    with pytest.raises(GapftError, match="expected rows of problem"):
        packing.render_explorer(
            collect_audit(
                replace(
                    inputs,
                    audit=replace(inputs.audit, ids=inputs.audit.ids[::-1]),
                    texts=AuditTexts(tmp_path),
                ),
                "another",
            )
        )


@pytest.mark.parametrize(
    ("prompts", "heads"),
    [
        (
            ["Q: one\nA: 1\n\nQ: is it so?\nA:", "Q: two\nA: 2\n\nQ: is it\nQ too?\nA:"],
            ["is it so?", "is it Q too?"],
        ),
        (["Be brief.\nQ: why?\nA:", "Be brief.\nQ: one\nA: 1\n\nQ: how?\nA:"], ["why?", "how?"]),
        (
            ["The first.\nThe last.", "The second.\nThe end."],
            ["first. The last.", "second. The end."],
        ),
    ],
)
def test_heads_omit_few_shot_examples(prompts: list[str], heads: list[str]) -> None:
    entries = [ProblemTexts(prompt, "", ["x"], {}) for prompt in prompts]
    content = replace(build_content(2), models=[], k=0, samples=(), entries=lambda: iter(entries))
    assert unpack_page(packing.render_explorer(content))[0]["heads"] == heads
