"""The contract of samplers: a check of each promise, on the bench of a backend."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gapft_harness.api import (
    GREEDY,
    Decoding,
    Generated,
    Generation,
    Request,
    Sampler,
    UserError,
    beyond_context,
)
from gapft_harness.core.records import FINISH_REASONS, STOP_STRING, Attempt
from tests.asking import generate_all, make_request
from tests.kit.samplers import CONTEXT, PROMPTS, Bench, K, Promise
from tests.kit.tiny_models import write_byte_adapter, write_byte_llama

INDICES = (GREEDY, *range(K))
LIMIT = 20
GREEDY_DECODE = Decoding(do_sample=False, max_gen_toks=LIMIT)
SAMPLED = Decoding(do_sample=True, max_gen_toks=LIMIT, temperature=1.5, top_p=0.95)

#: A response is identified by its problem and its index.
Key = tuple[str, int]
Check = Callable[[Bench], None]

#: The checks with the promises that each needs.
CONTRACT: dict[Check, tuple[Promise, ...]] = {}


def needs(*promises: Promise) -> Callable[[Check], Check]:
    """Add a check to the contract of the backends that make all these promises."""

    def add(check: Check) -> Check:
        CONTRACT[check] = promises
        return check

    return add


def ask(problem: str, *indices: int, **fields: Any) -> Request:
    return make_request(problem, PROMPTS[problem], indices, **fields)


ALL_REQUESTS = [ask(problem, *INDICES) for problem in PROMPTS]


def draw(
    sampler: Sampler,
    decoding: Decoding = SAMPLED,
    seed: int = 1,
    requests: Sequence[Request] = ALL_REQUESTS,
) -> dict[Key, Generation]:
    """Generate, and return the responses by problem and index."""
    answers = generate_all(sampler, requests, decoding, seed)
    return {
        (request.problem_id, index): generation
        for request, answer in zip(requests, answers, strict=True)
        for index, generation in zip(request.indices, answer.generations, strict=True)
    }


def list_samples(responses: dict[Key, Generation]) -> list[Generation]:
    return [generation for (_, index), generation in responses.items() if index != GREEDY]


# Which responses come back


@needs()
def check_every_request_is_answered_in_order(bench: Bench) -> None:
    sampler = bench.open()
    assert generate_all(sampler, [], SAMPLED) == []
    requests = [ask("p1", 2, GREEDY, 0), ask("p0", 5), ask("p2", *INDICES)]
    answers = generate_all(sampler, requests, SAMPLED)
    assert [len(answer.generations) for answer in answers] == [3, 1, len(INDICES)]
    assert generate_all(sampler, requests, SAMPLED) == answers, "the same again"


@needs(Promise.ALONE)
def check_response_depends_on_its_request_alone(bench: Bench) -> None:
    """Not on the batch, the order, other requests, or how work is divided into calls."""
    sampler = bench.open()
    whole = draw(sampler)

    # no shrinking: a backend is slow
    @settings(max_examples=8, deadline=None, phases=[Phase.generate])
    @given(st.permutations([*whole]).map(lambda keys: keys[:25]), st.integers(1, 4))
    def check_division(keys: list[Key], calls: int) -> None:
        for start in range(calls):
            members = keys[start::calls]
            problems = dict.fromkeys(problem for problem, _ in members)
            requests = [ask(p, *(index for q, index in members if q == p)) for p in problems]
            part = draw(sampler, requests=requests)
            assert part == {key: whole[key] for key in part}
            assert part.keys() == {*members}

    check_division()
    if bench.has(Promise.COMPUTES):
        assert draw(bench.open(args={"batch_size": 7})) == whole


@needs(Promise.DRAWS)
def check_samples_follow_their_seeds(bench: Bench) -> None:
    """Samples of other indices, problems and seeds differ, also of equal prompts."""
    sampler = bench.open()
    first, second = draw(sampler, seed=1), draw(sampler, seed=2)
    texts = [g.text for responses in (first, second) for g in list_samples(responses)]
    long_texts = [text for text in texts if len(text) > 4]  # short ones may be equal by chance
    assert len(set(long_texts)) == len(long_texts) > 15
    for problem in PROMPTS:
        assert first[problem, GREEDY] == second[problem, GREEDY]
    assert draw(sampler, seed=1) == first


@needs(Promise.OBEYS)
def check_greedy_decode_ignores_sampling(bench: Bench) -> None:
    """The deployment decode is greedy also among samples; those of the top token alone equal it."""
    sampler = bench.open()
    greedy = draw(sampler, GREEDY_DECODE, requests=[ask(p, GREEDY) for p in PROMPTS])
    among_samples = draw(sampler)
    assert {key: among_samples[key] for key in greedy} == greedy
    narrow = [replace(SAMPLED, top_p=1e-6)]
    if bench.has(Promise.TOP_K):
        narrow.append(replace(SAMPLED, top_k=1))
    else:
        with pytest.raises(UserError, match=r"top_k"):
            draw(sampler, replace(SAMPLED, top_k=7))
    for decoding in narrow:
        for (problem, _), response in draw(sampler, decoding).items():
            assert response == greedy[problem, GREEDY], decoding


# Token ids and ends


def decode(bench: Bench, ids: Sequence[int]) -> str:
    text: str = bench.tokenizer.decode(ids, skip_special_tokens=True)
    return text


@needs()
def check_token_ids_are_those_of_the_text(bench: Bench) -> None:
    answers = generate_all(bench.open(), ALL_REQUESTS, SAMPLED)
    for request, answer in zip(ALL_REQUESTS, answers, strict=True):
        generations = answer.generations
        assert {g.tokens_from for g in generations} == {bench.backend.tokens_from}
        assert {g.finish_reason for g in generations} <= {*FINISH_REASONS}
        if not bench.has(Promise.IDS):
            assert {answer.prompt_ids, *(g.token_ids for g in generations)} == {()}
            continue
        prompt = f"<user>{request.prompt}\n<assistant>"
        expected = prompt if bench.backend.is_chat else request.prompt
        assert decode(bench, answer.prompt_ids) == expected
        for generation in generations:
            assert decode(bench, generation.token_ids) == generation.text
            assert bench.tokenizer.eos_token_id not in generation.token_ids
            if not bench.has(Promise.EXACT_IDS):
                assert list(generation.token_ids) == bench.tokenizer(generation.text).input_ids


@needs(Promise.OBEYS)
def check_responses_end_at_the_length_limit(bench: Bench) -> None:
    sampler, reasons = bench.open(), set()
    for limit in (1, 5, LIMIT):
        for generation in draw(sampler, replace(SAMPLED, max_gen_toks=limit)).values():
            reasons.add(generation.finish_reason)
            if bench.has(Promise.EXACT_IDS):
                assert len(generation.token_ids) <= limit
                reached = len(generation.token_ids) == limit
                assert reached == (generation.finish_reason == "length")
    assert reasons == ({"stop", "length"} if bench.has(Promise.ENDS) else {"unknown"})


@needs(Promise.OBEYS)
def check_stop_strings_cut_as_in_lm_eval(bench: Bench) -> None:
    """A text ends before the first occurrence of each stop string, one after another."""
    sampler = bench.open()
    free = draw(sampler)
    letters = [c for g in free.values() for c in g.text[1:] if c.isascii() and c.isprintable()]
    common = max(sorted(set(letters)), key=letters.count)
    pair = next(g.text[2:4] for g in free.values() if g.text[2:4].isalnum())
    others = ("no such text", "nor this", "or that", "nor any of these")  # many servers take four
    for stops in ((common,), (*others, pair, common), others):
        cut = draw(sampler, replace(SAMPLED, until=stops))
        for key, generation in cut.items():
            expected = free[key].text
            for stop in stops:
                expected = expected.split(stop)[0]
            assert generation.text == expected
            is_cut = expected != free[key].text
            if bench.has(Promise.IDS):
                assert decode(bench, generation.token_ids) == expected
            if bench.has(Promise.ENDS):
                assert (generation.finish_reason == STOP_STRING) == is_cut
                assert (generation.stop_string in stops) == is_cut
            if bench.has(Promise.EXACT_IDS):
                count = len(generation.token_ids)
                assert generation.token_ids == free[key].token_ids[:count]
        assert (cut != free) == (common in stops)


@needs(Promise.COMPUTES)
def check_special_token_may_be_stop_string(bench: Bench) -> None:
    """lm-eval drops special tokens before it searches stop strings, so it would not stop."""
    hot = replace(SAMPLED, max_gen_toks=60, temperature=2.0, top_p=1.0)
    requests = [ask("p0", *range(64))]
    free = draw(bench.open(), hot, requests=requests)
    cut = draw(bench.open(), replace(hot, until=("<s>",)), requests=requests)
    assert any(1 in generation.token_ids for generation in free.values())
    for key, generation in cut.items():
        ids = free[key].token_ids
        if 1 not in ids:
            assert generation == free[key]
            continue
        assert generation.token_ids == ids[: ids.index(1)]
        assert generation.finish_reason == "stop"


# Prompts

ATTEMPTS = (Attempt("One.", (4,), "stop", "No."), Attempt("Two.", (5,), "stop", "No!"))
TURNS = (
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Why?"},
    {"role": "assistant", "content": "It is"},
)
BRIEF = {"system_instruction": "Be brief."}
SILENT = {"args": {"chat_template_args": {"enable_thinking": False}}}

#: By settings (equal ones together) and fields of a request: the prompt that the model gets.
CHATS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {}, "<s><user>Why?\n<assistant>"),
    ({}, {"attempts": ATTEMPTS[:1]}, "<s><user>Why?\n<assistant>One.\n<user>No.\n<assistant>"),
    (BRIEF, {}, "<s><system>Be brief.\n<user>Why?\n<assistant>"),
    (
        BRIEF,
        {"attempts": ATTEMPTS},
        "<s><system>Be brief.\n<user>Why?\n<assistant>One.\n<user>No.\n<assistant>Two.\n"
        "<user>No!\n<assistant>",
    ),
    (BRIEF, {"turns": TURNS}, "<s><system>Be kind.\n<user>Why?\n<assistant>It is"),
    (SILENT, {}, "<s><user>Why?\n<assistant><think></think>"),
]


@needs(Promise.CHATS)
def check_chats_are_rendered_by_the_template(bench: Bench) -> None:
    for changes, fields, expected in CHATS:
        sampler = bench.open(chat_template=True, **changes)
        [answer] = generate_all(sampler, [ask("p0", GREEDY, **fields)], GREEDY_DECODE)
        assert bench.tokenizer.decode(answer.prompt_ids) == expected
        assert answer.prompt_ids.count(1) == 1, "a start token in the text is not added again"


@needs(Promise.RENDERS, Promise.IDS)
def check_attempts_continue_a_plain_prompt(bench: Bench) -> None:
    requests = [ask("p0", GREEDY, attempts=ATTEMPTS)]
    [answer] = generate_all(bench.open(), requests, GREEDY_DECODE)
    assert decode(bench, answer.prompt_ids) == "Why?One.\n\nNo.\n\nTwo.\n\nNo!\n\n"


@needs(Promise.OPEN_THOUGHTS)
def check_unfinished_reasoning_is_not_text(bench: Bench) -> None:
    arguments = {"chat_template_args": {"opens_thought": True}}
    closed = draw(bench.open(chat_template=True))
    assert any(g.text for g in closed.values())
    assert not any(g.reasoning for g in closed.values())
    opened = draw(bench.open(chat_template=True, args=arguments))
    assert any(g.reasoning for g in opened.values())
    assert not any(g.text for g in opened.values())
    assert any(g.token_ids for g in opened.values())


@needs(Promise.CONTEXT)
def check_prompt_beyond_context_is_answered(bench: Bench) -> None:
    """It gets empty responses, and the other requests the same responses as without it."""
    sampler = bench.open()
    overhead = len("<s><user>\n<assistant>") - 2 if bench.backend.is_chat else 0
    room = CONTEXT - LIMIT - overhead
    fits, too_long = (make_request("fits", "x" * room, (0, 1)) for _ in range(2))
    too_long = replace(too_long, problem_id="long", prompt="x" * (room + 1))
    [alone] = generate_all(sampler, [fits], SAMPLED)
    assert alone.generations[0].finish_reason in ("stop", "length")
    answers = generate_all(sampler, [too_long, fits], SAMPLED)
    assert answers == [beyond_context(too_long), alone]
    longer = replace(fits, attempts=ATTEMPTS[:1])
    assert generate_all(sampler, [longer], SAMPLED) == [beyond_context(longer)]


@needs(Promise.CONTEXT, Promise.RENDERS)
def check_empty_prompt_is_refused(bench: Bench) -> None:
    with pytest.raises(UserError, match="nothing-to-ask"):
        generate_all(bench.open(), [make_request("nothing-to-ask", "", (0,))], SAMPLED)


@needs()
def check_start_tokens(bench: Bench) -> None:
    """The number is exact, or the backend refuses to set it."""
    if not bench.has(Promise.START_TOKENS):
        with pytest.raises(UserError, match=r"start_tokens"):
            bench.open(start_tokens=2)
        return
    assert bench.supports_start_tokens
    requests = [ask("p0", GREEDY), make_request("p1", "<s>Why?", (GREEDY,))]
    ids = tuple(bench.tokenizer("Why?", add_special_tokens=False).input_ids)
    for count in (1, 2):
        sampler = bench.open(start_tokens=count)
        assert sampler.describe()["start_ids"] == [1] * count
        for answer in generate_all(sampler, requests, GREEDY_DECODE):
            assert answer.prompt_ids == (*[1] * count, *ids)
    chat = bench.open(start_tokens=2, chat_template=True)
    [answer] = generate_all(chat, requests[:1], GREEDY_DECODE)
    assert bench.tokenizer.decode(answer.prompt_ids) == "<s><s><user>Why?\n<assistant>"


# Adapters


@needs()
def check_adapter_is_applied_or_refused(bench: Bench) -> None:
    greedy = [ask(problem, GREEDY) for problem in PROMPTS]
    base = draw(bench.open(), GREEDY_DECODE, requests=greedy)
    name = bench.adapter.arm.name
    assert name not in json.dumps(bench.open().describe())
    if not bench.has(Promise.ADAPTERS):
        with pytest.raises(UserError):
            bench.open(bench.adapter)
        return
    sampler = bench.open(bench.adapter)
    assert name in json.dumps(sampler.describe())
    trained = draw(sampler, GREEDY_DECODE, requests=greedy)
    assert sum(trained[key] != base[key] for key in base) > 2
    assert draw(bench.open(), GREEDY_DECODE, requests=greedy) == base
    if bench.server is not None:
        assert bench.server.loaded == {}, "a closed sampler unloads its adapter"


@needs(Promise.ADAPTERS, Promise.DRAWS)
def check_unsuitable_adapter_is_refused(bench: Bench) -> None:
    """A folder without an adapter, and an adapter of a larger model."""
    empty, other = (bench.folder / name for name in ("empty", "other"))
    empty.mkdir()
    write_byte_adapter(write_byte_llama(other, hidden=64), other / "adapter")
    for path in (empty, other / "adapter"):
        with pytest.raises(UserError, match=bench.adapter.arm.name):
            bench.open(replace(bench.adapter, path=str(path)))


# Description, progress, errors


@needs()
def check_description_names_the_model(bench: Bench) -> None:
    facts = bench.open().describe()
    bench.close()
    assert bench.open().describe() == facts == json.loads(json.dumps(facts))
    assert facts["backend"] in (bench.backend.name, "hf")
    assert facts.get("url") == (bench.server and bench.args["base_url"])
    model = str(bench.model) if "MODEL" in bench.backend.args.values() else "toy"
    assert model in json.dumps(facts)
    if bench.has(Promise.COMPUTES):
        assert len(facts["weights_sha256"]) == 64
        assert {"revision", "dtype", "device", "max_length", "versions"} <= facts.keys()
        assert facts["end_ids"] == [2]
        assert (facts["dtype"], facts["max_length"]) == ("float32", CONTEXT)


@needs(Promise.REPORTS)
def check_progress_counts_responses_and_tokens(bench: Bench) -> None:
    reports: list[tuple[int, int]] = []
    sampler = bench.open()
    answers: list[Generated] = sampler.generate(
        ALL_REQUESTS, SAMPLED, lambda *report, note="": reports.append(report)
    )
    generations = [g for answer in answers for g in answer.generations]
    assert reports == sorted(reports)
    assert len(set(reports)) > 10, "also within the call"
    finished, tokens = reports[-1]
    assert finished == len(generations)
    if bench.has(Promise.COUNTS):  # the end of a response is a token, too
        counts = [len(g.token_ids) + (g.finish_reason == "stop") for g in generations]
        assert tokens == sum(counts)


@needs()
def check_mistakes_are_refused(bench: Bench) -> None:
    for culprit, args in bench.backend.mistakes.items():
        with pytest.raises(UserError) as refused:
            bench.open(args=args)
        assert culprit in str(refused.value), args


def list_checks(bench_promises: frozenset[Promise]) -> list[Check]:
    """Return the checks for a backend with these promises."""
    return [check for check, needed in CONTRACT.items() if bench_promises.issuperset(needed)]
