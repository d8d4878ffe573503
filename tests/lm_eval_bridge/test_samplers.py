"""The hf sampler against a real (random, tiny) model, and the text-only sampler."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from itertools import chain
from pathlib import Path

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import (
    CONTEXT_EXCEEDED,
    GREEDY,
    STOP_STRING,
    Adapter,
    Arm,
    Attempt,
    Decoding,
)
from gapft_harness.hooks.protocols import Generated, Generation, Request, SamplerSettings
from tests.asking import generate_all, make_request
from tests.kit.tiny_models import CHAT_TEMPLATE, write_byte_llama

torch = pytest.importorskip("torch")

from transformers import (  # noqa: E402
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LlamaForCausalLM,
)

from gapft_harness.lm_eval_bridge.samplers.endings import ids_of_text  # noqa: E402
from gapft_harness.lm_eval_bridge.samplers.hf import HfSampler  # noqa: E402
from gapft_harness.lm_eval_bridge.samplers.retokenizer import Retokenizer, load_tokenizer  # noqa: E402
from gapft_harness.lm_eval_bridge.samplers.text import (  # noqa: E402
    LmEvalSampler,
    build_generation_kwargs,
    build_instances,
    dummy_sampler,
)

GREEDY_DECODE = Decoding(do_sample=False, max_gen_toks=12)
SAMPLED = Decoding(do_sample=True, max_gen_toks=12, temperature=0.9, top_p=0.95)
PROMPTS = ["Why?", "What is 2 + 2?\nAnswer:", "Name a colour of the sky.", "ä ö ü €"]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return write_byte_llama(tmp_path_factory.mktemp("byte-llama"), chat_template=CHAT_TEMPLATE)


@pytest.fixture(scope="module")
def sampler(model):
    return HfSampler(build_settings(model), None)


def build_settings(model: Path, **args) -> SamplerSettings:
    args = {"pretrained": str(model), "dtype": "float32", "device": "cpu"} | args
    return SamplerSettings("hf", args)


def build_greedy_requests(prompts=PROMPTS) -> list[Request]:
    return [make_request(f"p{i}", prompt, (GREEDY,)) for i, prompt in enumerate(prompts)]


def build_sample_requests(k: int, prompts=PROMPTS) -> list[Request]:
    return [make_request(f"p{i}", prompt, tuple(range(k))) for i, prompt in enumerate(prompts)]


def list_responses(generated) -> list[list[Generation]]:
    return [list(answer.generations) for answer in generated]


# hf: ids and texts


def test_greedy_equals_transformers(model, sampler):
    tokenizer = AutoTokenizer.from_pretrained(model)
    llama = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    for prompt, answer in zip(
        PROMPTS, generate_all(sampler, build_greedy_requests(), GREEDY_DECODE, seed=0), strict=True
    ):
        inputs = tokenizer(prompt, return_tensors="pt")
        ids = llama.generate(**inputs, do_sample=False, max_new_tokens=12)[0].tolist()
        assert answer.prompt_ids == tuple(inputs["input_ids"][0].tolist())
        new = ids[len(answer.prompt_ids) :]
        expected = new[: new.index(2)] if 2 in new else new
        assert answer.generations[0].token_ids == tuple(expected)
        assert answer.generations[0].text == tokenizer.decode(expected, skip_special_tokens=True)


def test_ids_decode_to_text(model, sampler):
    tokenizer = AutoTokenizer.from_pretrained(model)
    for prompt, answer in zip(
        PROMPTS, generate_all(sampler, build_sample_requests(16), SAMPLED, seed=3), strict=True
    ):
        assert tokenizer.decode(answer.prompt_ids) == prompt
        for generation in answer.generations:
            decoded = tokenizer.decode(generation.token_ids, skip_special_tokens=True)
            assert decoded == generation.text
            assert generation.tokens_from == "generator"
            assert 2 not in generation.token_ids


def test_sampling_depends_on_seed(sampler):
    first = generate_all(sampler, build_sample_requests(4), SAMPLED, seed=5)
    torch.rand(7)  # another use of the global generator in between
    assert generate_all(sampler, build_sample_requests(4), SAMPLED, seed=5) == first
    assert list_responses(
        generate_all(sampler, build_sample_requests(4), SAMPLED, seed=6)
    ) != list_responses(first)


def test_samples_of_a_prompt_differ(sampler):
    [answer] = generate_all(sampler, build_sample_requests(8, ["Tell me."]), SAMPLED, seed=1)
    assert len({generation.token_ids for generation in answer.generations}) == 8


def test_sampling_follows_temperature_and_top_k(sampler):
    greedy = list_responses(generate_all(sampler, build_greedy_requests(), GREEDY_DECODE, 0))
    for decoding in (replace(SAMPLED, top_k=1), replace(SAMPLED, temperature=1e-4)):
        for samples, [best] in zip(
            list_responses(generate_all(sampler, build_sample_requests(2), decoding, 9)),
            greedy,
            strict=True,
        ):
            assert [sample.token_ids for sample in samples] == [best.token_ids] * 2


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_greedy_does_not_depend_on_the_batch(model, sampler, batch_size):
    other = HfSampler(build_settings(model, batch_size=batch_size), None)
    assert generate_all(other, build_greedy_requests(), GREEDY_DECODE, 0) == generate_all(
        sampler, build_greedy_requests(), GREEDY_DECODE, 0
    )


def test_equal_prompts_get_separate_responses(sampler):
    requests = [
        make_request("a", "Same prompt", (0, 1, 2)),
        make_request("b", "Other", (0,)),
        make_request("c", "Same prompt", (0, 1)),
    ]
    answers = generate_all(sampler, requests, SAMPLED, seed=2)
    assert [len(answer.generations) for answer in answers] == [3, 1, 2]
    assert answers[0].prompt_ids == answers[2].prompt_ids != answers[1].prompt_ids
    ids = [g.token_ids for g in (*answers[0].generations, *answers[2].generations)]
    assert len(set(ids)) == 5


def test_greedy_does_not_depend_on_order(sampler):
    forward = generate_all(sampler, build_greedy_requests(), GREEDY_DECODE, 0)
    backward = generate_all(sampler, build_greedy_requests()[::-1], GREEDY_DECODE, 0)
    assert backward[::-1] == forward


# hf: how responses end


def test_response_stops_at_length_limit(sampler):
    decoding = replace(SAMPLED, max_gen_toks=3)
    generations = [
        g
        for row in list_responses(generate_all(sampler, build_sample_requests(16), decoding, 0))
        for g in row
    ]
    assert "length" in {g.finish_reason for g in generations}
    for generation in generations:
        assert (len(generation.token_ids) == 3) == (generation.finish_reason == "length")


def test_drops_end_token(tmp_path, model):
    """An enlarged row of the end token in the head makes most samples end early."""
    llama = LlamaForCausalLM.from_pretrained(model)
    folder = write_byte_llama(tmp_path / "ending")
    with torch.no_grad():
        llama.lm_head.weight[2] *= 4
    llama.save_pretrained(folder)
    decoding = replace(SAMPLED, max_gen_toks=40, temperature=2.0)
    rows = list_responses(
        generate_all(HfSampler(build_settings(folder), None), build_sample_requests(8), decoding, 0)
    )
    ended = [g for row in rows for g in row if g.finish_reason == "stop"]
    assert len(ended) > 8
    for generation in ended:
        assert len(generation.token_ids) < 40
        assert 2 not in generation.token_ids


def test_stop_string_cuts_text_and_ids(model, sampler):
    tokenizer = AutoTokenizer.from_pretrained(model)
    [free] = generate_all(sampler, build_greedy_requests(["Why?"]), GREEDY_DECODE, 0)
    text = free.generations[0].text
    stop = next(c for c in text[2:] if c not in text[:2] and c.isascii())
    [cut] = generate_all(
        sampler, build_greedy_requests(["Why?"]), replace(GREEDY_DECODE, until=(stop,)), seed=0
    )
    [generation] = cut.generations
    assert generation.text == text.split(stop)[0] != text
    assert (generation.finish_reason, generation.stop_string) == (STOP_STRING, stop)
    assert tokenizer.decode(generation.token_ids, skip_special_tokens=True) == generation.text
    assert free.generations[0].token_ids[: len(generation.token_ids)] == generation.token_ids


def test_special_token_may_be_stop_string(model, sampler):
    """lm-eval drops special tokens before it searches stop strings, so it would not stop."""
    decoding = replace(SAMPLED, max_gen_toks=60, temperature=3.0, until=("<s>",))
    rows = list_responses(generate_all(sampler, build_sample_requests(16), decoding, seed=0))
    ended = [g for row in rows for g in row if g.finish_reason == "stop"]
    assert ended
    assert all(1 not in g.token_ids for row in rows for g in row)


def test_keeps_token_that_spans_stop_string(sampler):
    tokenizer = sampler._lm.tokenizer
    ids = tokenizer("abcdef").input_ids
    assert ids_of_text(ids, "abc", tokenizer.decode) == ids[:3]
    assert ids_of_text(ids, "", tokenizer.decode) == []
    euro = tokenizer("a€b").input_ids
    assert ids_of_text(euro, "a€", tokenizer.decode) == euro[:4]


# hf: prompts


def test_renders_chat_template_and_system_turn(model):
    tokenizer = AutoTokenizer.from_pretrained(model)
    chat = replace(build_settings(model), chat_template=True, system_instruction="Be brief.")
    [answer] = generate_all(
        HfSampler(chat, None), build_greedy_requests(["Why?"]), GREEDY_DECODE, 0
    )
    assert tokenizer.decode(answer.prompt_ids) == "<s><system>Be brief.\n<user>Why?\n<assistant>"
    assert answer.prompt_ids.count(1) == 1  # a start token in the text is not added again


def test_renders_earlier_attempts(model):
    tokenizer = AutoTokenizer.from_pretrained(model)
    attempts = (Attempt("One.", (4,), "stop", "No."), Attempt("Two.", (5,), "stop", "No!"))
    requests = [
        make_request("a", "Why?", (0,), attempts),
        make_request("a", "Why?", (1,), attempts[:1]),
        make_request("a", "Why?", (2,), attempts[:1]),
    ]
    chat = replace(build_settings(model), chat_template=True)
    for sampler in (HfSampler(chat, None), LmEvalSampler(*text_sampler_arguments(chat))):
        answers = generate_all(sampler, requests, SAMPLED, 0)
        first_turns = "<s><user>Why?\n<assistant>One.\n<user>No.\n<assistant>"
        assert [tokenizer.decode(answer.prompt_ids) for answer in answers] == [
            first_turns + "Two.\n<user>No!\n<assistant>",
            first_turns,
            first_turns,
        ]
    plain = HfSampler(build_settings(model), None)
    [answer, *_] = generate_all(plain, requests, SAMPLED, 0)
    assert tokenizer.decode(answer.prompt_ids) == "Why?One.\n\nNo.\n\nTwo.\n\nNo!\n\n"


def test_renders_task_turns(model):
    tokenizer = AutoTokenizer.from_pretrained(model)
    turns = (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": "It is"},
    )
    chat = replace(build_settings(model), chat_template=True, system_instruction="Not this.")
    for sampler in (HfSampler(chat, None), LmEvalSampler(*text_sampler_arguments(chat))):
        requests = [make_request("a", "Why? It is", (0,), turns=turns)]
        [answer] = generate_all(sampler, requests, SAMPLED)
        expected = "<s><system>Be brief.\n<user>Why?\n<assistant>It is"
        assert tokenizer.decode(answer.prompt_ids) == expected


def test_template_arguments_reach_template(tmp_path):
    template = CHAT_TEMPLATE + "{% if not enable_thinking %}<think></think>{% endif %}"
    folder = write_byte_llama(tmp_path, chat_template=template)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for enabled in (True, False):
        arguments = {"chat_template_args": {"enable_thinking": enabled}}
        chat = replace(build_settings(folder, **arguments), chat_template=True)
        for sampler in (HfSampler(chat, None), LmEvalSampler(*text_sampler_arguments(chat))):
            [answer] = generate_all(sampler, build_greedy_requests(["Why?"]), GREEDY_DECODE)
            assert tokenizer.decode(answer.prompt_ids).endswith("</think>") is not enabled


def test_unfinished_reasoning_of_the_prompt_is_not_text(tmp_path, model):
    template = CHAT_TEMPLATE.replace("<assistant>", "<assistant><think>\n")
    opening = write_byte_llama(tmp_path, chat_template=template)
    for folder, is_open in ((model, False), (opening, True)):
        chat = replace(build_settings(folder), chat_template=True)
        for sampler in (HfSampler(chat, None), LmEvalSampler(*text_sampler_arguments(chat))):
            for answer in generate_all(sampler, build_sample_requests(2), SAMPLED):
                for generation in answer.generations:
                    written = generation.reasoning if is_open else generation.text
                    assert written
                    assert (generation.text if is_open else generation.reasoning) == ""
                    assert generation.token_ids


def text_sampler_arguments(chat: SamplerSettings):
    return replace(chat, backend="dummy", model_args=chat.model_args), None, Retokenizer(chat)


def test_start_tokens_match_lm_eval(tmp_path):
    """A start token comes before a text, unless the text begins with one; responses have none."""
    folder = write_byte_llama(tmp_path / "bos", chat_template=CHAT_TEMPLATE, add_bos=True)
    bytes_ids = encode_bytes(folder, "Why?")
    for prompt in ("Why?", "<s>Why?"):
        generator = HfSampler(build_settings(folder), None)
        text_only = dummy_sampler(SamplerSettings("dummy", {"pretrained": str(folder)}), None)
        for sampler in (generator, text_only):
            [answer] = generate_all(sampler, build_greedy_requests([prompt]), GREEDY_DECODE, 0)
            assert answer.prompt_ids == (1, *bytes_ids)
        assert answer.generations[0].token_ids == encode_bytes(folder, "lol")
    chat = replace(build_settings(folder), chat_template=True)
    [answer] = generate_all(
        HfSampler(chat, None), build_greedy_requests(["Why?"]), GREEDY_DECODE, 0
    )
    assert answer.prompt_ids == (1, *encode_bytes(folder, "<user>Why?\n<assistant>"))


def encode_bytes(folder: Path, text: str) -> tuple[int, ...]:
    return tuple(AutoTokenizer.from_pretrained(folder)(text, add_special_tokens=False).input_ids)


def test_rejects_template_without_system_turn(tmp_path):
    refusing = (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "{{ messages[0]['content'] }}"
    )
    folder = write_byte_llama(tmp_path / "m", chat_template=refusing)
    chat = replace(build_settings(folder), chat_template=True)
    assert generate_all(HfSampler(chat, None), build_greedy_requests(), GREEDY_DECODE, 0)
    instructed = HfSampler(replace(chat, system_instruction="Be brief."), None)
    with pytest.raises(UserError, match=r"refuses the turns system, user \(no system\)"):
        generate_all(instructed, build_greedy_requests(), GREEDY_DECODE, 0)


def test_rejects_missing_chat_template(tmp_path, model):
    plain = write_byte_llama(tmp_path / "plain")
    chat = HfSampler(replace(build_settings(plain), chat_template=True), None)
    with pytest.raises(UserError, match="chat_template is not set"):
        generate_all(chat, build_greedy_requests(), GREEDY_DECODE, 0)
    with pytest.raises(UserError, match=r"set model\.chat_template to true"):
        HfSampler(replace(build_settings(model), system_instruction="Be brief."), None)


def test_skips_prompt_beyond_context(tmp_path):
    small = HfSampler(build_settings(write_byte_llama(tmp_path / "small", context=32)), None)
    fits, too_long = "x" * 20, "y" * 21
    alone = generate_all(small, build_greedy_requests([fits]), GREEDY_DECODE, 0)
    assert alone[0].generations[0].text
    both = generate_all(small, build_greedy_requests([too_long, fits]), GREEDY_DECODE, 0)
    assert both == [Generated((), (Generation("", (), CONTEXT_EXCEEDED),)), *alone]
    samples = generate_all(small, [make_request("p", too_long, (0, 1, 2))], SAMPLED, 0)
    assert samples == [Generated((), (Generation("", (), CONTEXT_EXCEEDED),) * 3)]
    prompt = make_request("p", "x" * 10, (0,), (Attempt("no", (5, 6), "stop", "again"),))
    assert (
        generate_all(small, [prompt], GREEDY_DECODE, 0)[0].generations[0].finish_reason
        == CONTEXT_EXCEEDED
    )
    no_room = replace(GREEDY_DECODE, max_gen_toks=32)
    refused = generate_all(small, build_greedy_requests([fits]), no_room, 0)
    assert refused[0].generations[0].finish_reason == CONTEXT_EXCEEDED


def test_rejects_empty_prompt(sampler):
    with pytest.raises(UserError, match="problem p1: empty prompt"):
        generate_all(sampler, build_greedy_requests(["x", ""]), GREEDY_DECODE, 0)


def test_accepts_no_requests(sampler):
    assert generate_all(sampler, [], GREEDY_DECODE, 0) == []


# hf: the model folder


def test_ignores_generation_config(tmp_path, model, sampler):
    folder = write_byte_llama(tmp_path / "opinionated")
    GenerationConfig(
        do_sample=True,
        temperature=0.01,
        top_k=1,
        min_p=0.9,
        repetition_penalty=5.0,
        eos_token_id=[2, 77],
        pad_token_id=0,
    ).save_pretrained(folder)
    other = HfSampler(build_settings(folder), None)
    notes: list[str] = []
    other.generate(
        build_greedy_requests(), GREEDY_DECODE, lambda _, __, note="": notes.append(note)
    )
    assert "repetition_penalty=5.0" in notes[0]
    assert other.describe()["generation_config_ignored"] == {
        "min_p": "0.9",
        "repetition_penalty": "5.0",
    }
    assert other.describe()["end_ids"] == [2, 77]
    for requests, decoding in (
        (build_greedy_requests(), GREEDY_DECODE),
        (build_sample_requests(3), SAMPLED),
    ):
        plain = list_responses(generate_all(sampler, requests, decoding, 4))
        ours = list_responses(generate_all(other, requests, decoding, 4))
        for got, want in zip(chain(*ours), chain(*plain), strict=True):
            ids = want.token_ids
            assert got.token_ids == (ids[: ids.index(77)] if 77 in ids else ids)


def test_describes_model(model, sampler, tmp_path):
    facts = sampler.describe()
    assert facts["dtype"] == "float32"
    assert facts["device"] == "cpu"
    assert facts["max_length"] == 4096
    assert facts["versions"]["lm_eval"] == version("lm_eval")
    same = HfSampler(build_settings(write_byte_llama(tmp_path / "same")), None).describe()
    other = HfSampler(build_settings(write_byte_llama(tmp_path / "other", seed=1)), None).describe()
    assert same["weights_sha256"] == facts["weights_sha256"] != other["weights_sha256"]
    assert facts["chat_template_sha256"] is not None
    assert same["chat_template_sha256"] is None


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"pretrained": "/no/such/folder"}, "cannot load '/no/such/folder'"),
        ({"dytpe": "float32"}, "unexpected keyword argument 'dytpe'"),
        ({"dtype": "float33"}, "no attribute 'float33'"),
        ({"device": "cdua"}, "device: found 'cdua'; expected cpu"),
        ({"device": "cuda:99"}, "device: found 'cuda:99'"),
        ({"batch_size": "many"}, "invalid literal for int.*'many'"),
        ({"peft": "x"}, "'peft' is not supported"),
        ({"truncation": True}, "'truncation' is not supported"),
    ],
)
def test_rejects_bad_arguments(model, args, message):
    with pytest.raises(UserError, match=message):
        HfSampler(build_settings(model, **args), None)


def test_rejects_folders_without_model(tmp_path):
    with pytest.raises(UserError, match=r"cannot load .*Unrecognized model"):
        HfSampler(build_settings(tmp_path), None)
    folder = write_byte_llama(tmp_path / "headless")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"cannot load .*headless'.*safetensors"):
        HfSampler(build_settings(folder), None)
    (folder / "config.json").write_text("{not json")
    with pytest.raises(UserError, match=r"cannot load .*headless'"):
        HfSampler(build_settings(folder), None)


def test_reports_reason_of_invalid_config(tmp_path):
    folder = write_byte_llama(tmp_path / "odd")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_attention_heads": 7}))
    reason = r"hidden size \(32\) is not a multiple of the number of attention heads \(7\)"
    with pytest.raises(UserError, match=f"cannot load .*odd'.*{reason}"):
        HfSampler(build_settings(folder), None)
    with pytest.raises(UserError, match=f"odd' has no tokenizer .*{reason}"):
        load_tokenizer("pretrained", str(folder), {})


# hf: adapters


@pytest.fixture(scope="module")
def adapter(model, tmp_path_factory) -> Adapter:
    """A LoRA adapter with weights far from zero."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    lora = get_peft_model(
        LlamaForCausalLM.from_pretrained(model),
        LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False),
    )
    folder = tmp_path_factory.mktemp("adapter")
    lora.save_pretrained(folder)
    return Adapter(Arm("gapft", 13), str(folder))


def test_merged_adapter_matches_lm_eval_peft(model, adapter, sampler):
    from lm_eval.api.registry import get_model

    served = get_model("hf").create_from_arg_obj(
        {**build_settings(model).model_args, "peft": adapter.path, "batch_size": 4}
    )
    requests = build_greedy_requests()
    expected = served.generate_until(
        build_instances(requests, PROMPTS, GREEDY_DECODE), disable_tqdm=True
    )
    merged = HfSampler(build_settings(model), adapter)
    texts = [
        row[0].text for row in list_responses(generate_all(merged, requests, GREEDY_DECODE, 0))
    ]
    source = [
        row[0].text for row in list_responses(generate_all(sampler, requests, GREEDY_DECODE, 0))
    ]
    assert texts == expected
    assert texts != source
    assert merged.describe()["adapter"]["arm"] == "gapft-seed13"
    assert merged.describe()["weights_sha256"] == sampler.describe()["weights_sha256"]


def test_rejects_unsuitable_adapters(model, tmp_path, adapter):
    with pytest.raises(UserError, match=r"gapft-seed13: adapter_config\.json"):
        HfSampler(build_settings(model), Adapter(Arm("gapft", 13), str(tmp_path)))
    wider = write_byte_llama(tmp_path / "wider", hidden=64)
    with pytest.raises(UserError, match="does not fit the model"):
        HfSampler(build_settings(wider), adapter)
    deeper = write_byte_llama(tmp_path / "deeper", layers=3)
    with pytest.raises(UserError, match="does not fit the model"):
        HfSampler(build_settings(deeper), adapter)


# Text-only models


def test_dummy_does_not_import_torch():
    script = (
        "import sys\n"
        "from gapft_harness.plugins.samplers.lm_eval_models import dummy\n"
        "from gapft_harness.hooks.protocols import Request, SamplerSettings\n"
        "from gapft_harness.core.records import Decoding\n"
        "s = dummy(SamplerSettings('dummy', {'pretrained': 'none'}), None)\n"
        "d = Decoding(True, 4)\n"
        "ids, seeds = tuple(range(8)), (0,) * 8\n"
        "g = s.generate([Request(str(i), 'x', ids, seeds) for i in range(100)], d, print)\n"
        "assert len(g) == 100 and all(len(a.generations) == 8 for a in g)\n"
        "assert g[0].generations[0].text == 'lol', g[0]\n"
        "assert g[0].generations[0].tokens_from == 'none' and g[0].prompt_ids == ()\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_dummy_tokenizes_with_model_folder(model):
    tokenizer = AutoTokenizer.from_pretrained(model)
    dummy = dummy_sampler(SamplerSettings("dummy", {"pretrained": str(model)}), None)
    [answer] = generate_all(dummy, [make_request("a", "Why?", (GREEDY, 0))], GREEDY_DECODE, 0)
    assert answer.prompt_ids == tuple(tokenizer("Why?").input_ids)
    assert (
        answer.generations
        == (Generation("lol", tuple(tokenizer("lol").input_ids), "unknown", "retokenized"),) * 2
    )


def test_text_only_models_replace_lone_surrogates(model, monkeypatch):
    """Any server model of lm-eval may return one."""
    dummy = dummy_sampler(SamplerSettings("dummy", {"pretrained": str(model)}), None)
    monkeypatch.setattr(dummy._lm, "generate_until", lambda *_, **__: ["answer \ud83d"])
    [answer] = generate_all(dummy, [make_request("a", "Why?", (0,))], GREEDY_DECODE, 0)
    assert answer.generations[0].text == "answer \ufffd"
    assert answer.generations[0].token_ids


def test_text_only_models_reject_unsupported_settings(model, adapter):
    plain = SamplerSettings("dummy", {})
    with pytest.raises(UserError, match="trained adapters"):
        LmEvalSampler(plain, adapter, None)
    with pytest.raises(UserError, match="has no tokenizer"):
        LmEvalSampler(replace(plain, chat_template=True), None, None)
    with pytest.raises(UserError, match="cannot create the lm-eval model 'no-such-model'"):
        LmEvalSampler(replace(plain, backend="no-such-model"), None, None)
    with pytest.raises(UserError, match=r"cannot create .* 'gguf': must pass `base_url`"):
        LmEvalSampler(replace(plain, backend="gguf"), None, None)


def test_generation_kwargs_are_explicit():
    assert build_generation_kwargs(GREEDY_DECODE) == {
        "do_sample": False,
        "max_gen_toks": 12,
        "until": [],
    }
    assert build_generation_kwargs(replace(SAMPLED, until=("\n",))) == {
        "do_sample": True,
        "max_gen_toks": 12,
        "until": ["\n"],
        "temperature": 0.9,
        "top_p": 0.95,
        "top_k": 0,
    }
