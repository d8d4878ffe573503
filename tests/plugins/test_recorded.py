"""The recorded sampler: replayed responses and errors for invalid files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY, Adapter, Arm, Attempt, Decoding
from gapft_harness.hooks.protocols import Request, SamplerSettings
from gapft_harness.plugins.samplers.recorded import RecordedSampler
from tests.asking import generate_all, make_request
from tests.kit.tiny_models import CHAT_TEMPLATE, write_byte_llama

DECODE = Decoding(do_sample=False, max_gen_toks=4)
RECORDS = [
    {"id": "a", "index": "greedy", "text": "A"},
    {"id": "a", "index": 0, "text": "It is B", "finish_reason": "stop"},
    {"id": "a", "index": 1, "text": "A"},
    {"prompt": "Second?", "index": "greedy", "text": "ü"},
    {"id": "a", "index": "greedy", "text": "B", "condition": "gapft", "seed": 13},
    {"id": "a", "index": "greedy", "text": "C", "condition": "gapft", "seed": 21},
]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return write_byte_llama(tmp_path_factory.mktemp("byte-llama"), chat_template=CHAT_TEMPLATE)


@pytest.fixture
def write_records(tmp_path):
    def write(*records) -> Path:
        path = tmp_path / "responses.jsonl"
        texts = [r if isinstance(r, str) else json.dumps(r) for r in records]
        path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
        return path

    return write


def build_settings(path: Path, model: Path) -> SamplerSettings:
    return SamplerSettings("recorded", {"pretrained": str(model), "responses": str(path)})


def generate_texts(sampler, *requests: Request) -> list[list[str]]:
    return [[g.text for g in a.generations] for a in generate_all(sampler, requests, DECODE, 0)]


def test_replays_by_id_and_prompt_in_request_order(write_records, model):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    sampler = RecordedSampler(build_settings(write_records(*RECORDS), model), None)
    requests = [
        make_request("b", "Second?", (GREEDY,)),
        make_request("a", "First?", (1, GREEDY, 0)),
    ]
    assert generate_texts(sampler, *requests) == [["ü"], ["A", "A", "It is B"]]
    second, first = generate_all(sampler, requests, DECODE, 0)
    assert tokenizer.decode(first.prompt_ids) == "First?"
    assert second.generations[0].token_ids == tuple(tokenizer("ü").input_ids)
    assert first.generations[2].finish_reason == "stop"
    assert first.generations[0].finish_reason == "unknown"
    assert {g.tokens_from for g in first.generations} == {"retokenized"}


def test_arm_gets_own_responses(write_records, model):
    path = write_records(*RECORDS)
    for seed, text in ((13, "B"), (21, "C")):
        sampler = RecordedSampler(
            build_settings(path, model), Adapter(Arm("gapft", seed), "unused")
        )
        assert generate_texts(sampler, make_request("a", "First?", (GREEDY,))) == [[text]]
        assert sampler.describe()["arm"] == f"gapft-seed{seed}"
        assert sampler.describe()["records"] == 1
    with pytest.raises(UserError, match="condition 'replay' and seed 13 among 6"):
        RecordedSampler(build_settings(path, model), Adapter(Arm("replay", 13), "unused"))


FIRST = Attempt("A", (), "stop", "No.")


def test_distinguishes_attempts_of_episode(write_records, model):
    later = {**RECORDS[0], "attempt": 2, "text": "again"}
    sampler = RecordedSampler(build_settings(write_records(*RECORDS, later), model), None)
    requests = [make_request("a", "?", (GREEDY,)), make_request("a", "?", (GREEDY,), (FIRST,))]
    assert generate_texts(sampler, *requests) == [["A"], ["again"]]


BOTH = {"prompt": "First?", "index": 0, "text": "other"}


@pytest.mark.parametrize(
    ("request_", "seed", "message"),
    [
        (make_request("a", "x", (0, 1, 2)), None, "'a': sample 2 of the source model"),
        (make_request("b", "x", (GREEDY,)), 13, "'b': greedy response of the trained model gapft-"),
        (make_request("a", "x", (GREEDY,), (FIRST,)), None, "'a': greedy response, attempt 2 of"),
        (make_request("a", "First?", (0,)), None, "two records for problem 'a': sample 0"),
    ],
)
def test_missing_or_ambiguous_response_is_named(write_records, model, request_, seed, message):
    settings = build_settings(write_records(*RECORDS, BOTH), model)
    sampler = RecordedSampler(settings, Adapter(Arm("gapft", seed), "unused") if seed else None)
    with pytest.raises(UserError, match=message):
        generate_all(sampler, [request_], DECODE, 0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "x"', "column 11"),
        ("[1, 2]", "list"),
        ({"id": "x", "index": 0, "txt": "A"}, "'txt'.*'text'"),
        ({"id": "x", "prompt": "y", "index": 0, "text": "A"}, "'id'.*'prompt'"),
        ({"id": "x", "index": 0}, "'text'"),
        ({"id": "x", "index": True, "text": "A"}, "'index'"),
        ({"id": "x", "index": 0, "text": "A", "seed": 13}, "'condition'.*'seed'"),
        ({"id": "x", "index": 0, "text": "A", "attempt": 0}, "'attempt'"),
        ({**RECORDS[0], "text": "other"}, "repeats line 1 "),
    ],
)
def test_reports_file_and_line_of_malformed_record(write_records, model, line, message):
    with pytest.raises(UserError, match=rf"responses\.jsonl, line 2: .*{message}"):
        RecordedSampler(build_settings(write_records(RECORDS[0], line), model), None)
