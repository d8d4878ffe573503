"""The hf sampler's decode loop: lm-eval's own greedy texts, samples of their own, less work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.errors import GapftError
from gapft_harness.core.records import FINISH_REASONS, GREEDY, STOP_STRING, Decoding
from gapft_harness.hooks.protocols import Generated, Request, SamplerSettings
from tests.asking import generate_all, request_for
from tests.tiny_models import byte_llama

torch = pytest.importorskip("torch")

from lm_eval.api.registry import get_model  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM  # noqa: E402

from gapft_harness.lm_eval_bridge.samplers import batch_sizes  # noqa: E402
from gapft_harness.lm_eval_bridge.samplers.hf import HfSampler  # noqa: E402
from gapft_harness.lm_eval_bridge.samplers.text import build_instances  # noqa: E402

GREEDY_DECODE = Decoding(False, 40)
SAMPLED = Decoding(True, 40, (), 0.9, 0.9)

SHARED = "Solve this: the quick brown fox. "
PROMPTS = [
    SHARED + own
    for own in ("Why?", "What is 2 + 2?\nAnswer:", "Name a colour of the sky, and of the sea.", "a")
]

#: Sizes of a model of any architecture, with the vocabulary of ``byte_llama``.
TINY = {
    "vocab_size": 259, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip

#: Architectures, with settings: positions turned, learned or of slopes; shared and own key-value
#: heads; windows that are long enough; experts; softcapped logits.
REPEATED: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512},
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "bloom": {"n_layer": 2, "n_head": 4},
    "mistral": {"sliding_window": 512},
    "gemma2": {"head_dim": 8, "sliding_window": 512, "query_pre_attn_scalar": 8},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "cohere": {},
}
#: What is not repeated: a short window, a recurrent state, slopes by the place in the batch.
TOGETHER: dict[str, dict[str, Any]] = {
    "gemma3_text": {"head_dim": 8, "sliding_window": 16, "query_pre_attn_scalar": 8},
    "mamba": {"state_size": 8},
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 512},
}


def architecture(folder: Path, name: str) -> Path:
    """Write a random model of an architecture, with weights so wide that responses differ."""
    byte_llama(folder)
    settings = {**TINY, **(REPEATED | TOGETHER)[name]}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **settings))
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.25)
    model.save_pretrained(folder)
    return folder


def sampler_of(folder: Path, **args: Any) -> HfSampler:
    args = {"pretrained": str(folder), "dtype": "float32", "device": "cpu"} | args
    return HfSampler(SamplerSettings("hf", args), None)


def asking(prompts: Sequence[str], *indices: int) -> list[Request]:
    return [request_for(f"p{place}", prompt, indices) for place, prompt in enumerate(prompts)]


def texts(answers: Sequence[Generated]) -> list[list[str]]:
    return [[generation.text for generation in answer.generations] for answer in answers]


def of_lm_eval(folder: Path, prompts: Sequence[str], decoding: Decoding, size: int) -> list[str]:
    """lm-eval's own greedy texts."""
    lm = get_model("hf").create_from_arg_obj(
        {"pretrained": str(folder), "dtype": "float32", "device": "cpu", "batch_size": size}
    )
    asked = build_instances(asking(prompts, GREEDY), prompts, decoding)
    found: list[str] = lm.generate_until(asked, disable_tqdm=True)
    return found


def noted(sampler: HfSampler, requests: Sequence[Request], decoding: Decoding) -> list[str]:
    """Generate, and return what was said meanwhile."""
    notes: list[str] = []

    def report(finished: int, tokens: int, note: str = "") -> None:
        notes.extend([note] if note else [])

    sampler.generate(requests, decoding, report)
    return notes


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return byte_llama(tmp_path_factory.mktemp("model"))


# Greedy texts are lm-eval's


@pytest.mark.parametrize("name", [*REPEATED, *TOGETHER])
def test_greedy_texts_are_lm_evals_and_samples_the_same_either_way(
    tmp_path: Path, name: str
) -> None:
    folder = architecture(tmp_path, name)
    sampler = sampler_of(folder, batch_size=3)
    found = texts(generate_all(sampler, asking(PROMPTS, GREEDY), GREEDY_DECODE))
    assert [text for [text] in found] == of_lm_eval(folder, PROMPTS, GREEDY_DECODE, 3)
    samples = generate_all(sampler, asking(PROMPTS, *range(5)), SAMPLED)
    assert len({text for row in texts(samples) for text in row}) > 5
    if name in ("mamba", "mpt"):
        assert sampler._loop.reason
        assert sampler._loop.reason in sampler.describe()["prompt_cache"]
    else:
        assert sampler.describe()["prompt_cache"] == "repeated"
        sampler._loop.reason = "as if it were not repeated"
        assert generate_all(sampler, asking(PROMPTS, *range(5)), SAMPLED) == samples


def test_what_is_not_repeated_is_said_once(tmp_path: Path) -> None:
    for name in ("gemma3_text", "mamba"):
        sampler = sampler_of(architecture(tmp_path / name, name))
        requests = asking(PROMPTS, GREEDY)
        assert len(noted(sampler, requests, GREEDY_DECODE)) == 1
        assert noted(sampler, requests, GREEDY_DECODE) == []
    short = sampler_of(tmp_path / "gemma3_text")
    brief = replace(GREEDY_DECODE, max_gen_toks=3)
    assert noted(short, asking("ab", GREEDY), brief) == [], "within the window it is repeated"


@pytest.mark.parametrize("stops", [("\n",), ("e",), ("ab", "th", "é"), (" the", "q")])
@pytest.mark.parametrize("size", [1, 4])
def test_stop_strings_cut_as_lm_eval_cuts(model: Path, stops: tuple[str, ...], size: int) -> None:
    prompts = [f"{SHARED}{place}" for place in range(12)]
    decoding = replace(GREEDY_DECODE, until=stops, max_gen_toks=60)
    found = generate_all(sampler_of(model, batch_size=size), asking(prompts, GREEDY), decoding)
    assert [text for [text] in texts(found)] == of_lm_eval(model, prompts, decoding, size)
    for answer in found:
        [of] = answer.generations
        assert of.finish_reason in FINISH_REASONS
        assert (of.finish_reason == STOP_STRING) == (of.stop_string in stops)


def test_a_stop_string_of_several_tokens_is_found(model: Path) -> None:
    """Each byte is a token here; what follows the stop string is not computed."""
    sampler = sampler_of(model)
    [[text]] = texts(generate_all(sampler, asking(["Why?"], GREEDY), GREEDY_DECODE))
    for start, length in ((3, 4), (10, 9)):
        stop = text[start : start + length]
        with counting(sampler) as counts:
            [answer] = generate_all(
                sampler, asking(["Why?"], GREEDY), replace(GREEDY_DECODE, until=(stop,))
            )
        assert answer.generations[0].text == text.split(stop)[0]
        assert answer.generations[0].finish_reason == STOP_STRING
        assert counts.rows <= len((text.split(stop)[0] + stop).encode()) + 1


# Samples depend on their seed and prompt alone


def test_samples_are_the_same_in_any_batch_order_and_company(model: Path) -> None:
    requests = [*asking(PROMPTS, GREEDY, *range(10)), request_for("one", "Short", (3, 12))]
    whole = generate_all(sampler_of(model), requests, SAMPLED)
    for size in (1, 2, 5, 7, 64):
        assert generate_all(sampler_of(model, batch_size=size), requests, SAMPLED) == whole
    sampler = sampler_of(model, batch_size=4)
    assert generate_all(sampler, requests[::-1], SAMPLED)[::-1] == whole
    for request, answer in zip(requests, whole, strict=True):
        [alone] = generate_all(sampler, [request], SAMPLED)
        assert alone == answer
    one = replace(requests[2], indices=(7,), seeds=())
    [single] = generate_all(sampler, [one], SAMPLED)
    assert single.generations == whole[2].generations[8:9]


def test_a_further_block_changes_none_that_is_there(model: Path) -> None:
    """To the last bit of the logits: a block's batches are the same whichever others are drawn."""
    seen: list[list[Any]] = []

    def logits(indices: range) -> list[Any]:
        sampler = sampler_of(model, batch_size=6)
        steps: list[Any] = []
        forward = sampler._loop._forward
        sampler._loop._forward = lambda *given: steps.append(forward(*given)) or steps[-1]  # type: ignore[method-assign]
        seen.append(generate_all(sampler, asking(PROMPTS, *indices), SAMPLED))
        return steps

    eight, sixteen = logits(range(8)), logits(range(16))
    assert all(torch.equal(a, b) for a, b in zip(eight, sixteen, strict=False))
    for few, more in zip(*seen, strict=True):
        assert few.generations == more.generations[:8]


def test_another_seed_and_another_problem_draw_others(model: Path) -> None:
    sampler = sampler_of(model)
    asked = [request_for("a", "Why?", range(8)), request_for("b", "Why?", range(8))]
    first = texts(generate_all(sampler, asked, SAMPLED, seed=1))
    second = texts(generate_all(sampler, asked, SAMPLED, seed=2))
    assert len({text for row in (*first, *second) for text in row}) == 32


# What is computed


class Counts:
    """What a model was given: rows of decoding steps, and tokens of prompts."""

    rows = 0
    widest = 0
    prompt_tokens = 0


class counting:
    """Counts what a sampler's model computes inside."""

    def __init__(self, sampler: HfSampler) -> None:
        self._model = sampler._lm.model

    def __enter__(self) -> Counts:
        self._counts = counts = Counts()

        def look(module: Any, args: Any, given: Any) -> None:
            ids = given["input_ids"]
            if ids.shape[1] == 1:
                counts.rows += len(ids)
                counts.widest = max(counts.widest, len(ids))
            else:
                mask = given["attention_mask"][:, -ids.shape[1] :]
                counts.prompt_tokens += int(mask.sum())

        self._hook = self._model.register_forward_pre_hook(look, with_kwargs=True)
        return counts

    def __exit__(self, *_: object) -> None:
        self._hook.remove()


def test_a_prompt_is_computed_once_and_what_all_share_once_for_all(model: Path) -> None:
    sampler = sampler_of(model, batch_size=16)
    with counting(sampler) as counts:
        answers = generate_all(sampler, asking(PROMPTS, GREEDY, *range(16)), SAMPLED)
    shared = len(SHARED)
    assert counts.prompt_tokens == shared + sum(len(a.prompt_ids) - shared for a in answers)


def test_finished_rows_leave_and_others_take_their_place(tmp_path: Path) -> None:
    """With the end token's row of the head enlarged, responses have very different lengths."""
    folder = byte_llama(tmp_path / "m")
    llama = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        llama.lm_head.weight[2] *= 4
    llama.save_pretrained(folder)
    sampler = sampler_of(folder, batch_size=16)
    decoding = Decoding(True, 200, (), 2.0)
    with counting(sampler) as counts:
        answers = generate_all(sampler, asking(PROMPTS * 4, *range(8)), decoding)
    lengths = [len(g.token_ids) for answer in answers for g in answer.generations]
    assert max(lengths) > 3 * sum(lengths) / len(lengths), "a long tail"
    assert counts.rows < 1.3 * sum(lengths), "static batches would compute several times as many"


def test_the_heads_input_is_contiguous(model: Path) -> None:
    """Else torch expands the head's weight over the batch."""
    sampler, seen = sampler_of(model), []
    sampler._lm.model.lm_head.register_forward_hook(
        lambda module, inputs, output: seen.append((inputs[0].is_contiguous(), output.shape[1]))
    )
    generate_all(sampler, asking(PROMPTS, GREEDY, 0, 1), SAMPLED)
    assert set(seen) == {(True, 1)}, "and one position of each row"


def test_progress_moves_within_a_call(model: Path) -> None:
    reports: list[tuple[int, int]] = []
    answers = sampler_of(model, batch_size=4).generate(
        asking(PROMPTS, GREEDY, *range(4)), SAMPLED, lambda *report: reports.append(report)
    )
    assert reports == sorted(reports)
    assert len(set(reports)) > 100
    lengths = [
        len(g.token_ids) + (g.finish_reason == "stop") for a in answers for g in a.generations
    ]
    assert reports[-1] == (20, sum(lengths))


# Memory


@pytest.fixture
def cramped() -> dict[str, Any]:
    """A device on which more than so many rows do not fit, with the error that says so."""
    limits: dict[str, Any] = {"rows": 3, "error": torch.OutOfMemoryError("CUDA out of memory.")}

    def crowd(sampler: HfSampler) -> None:
        def refuse(module: Any, args: Any, given: Any) -> None:
            if len(given["input_ids"]) > limits["rows"]:
                raise limits["error"]

        sampler._lm.model.register_forward_pre_hook(refuse, with_kwargs=True)

    return {"limits": limits, "crowd": crowd}


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory"
        ),
        MemoryError(),
    ],
)
def test_a_batch_that_does_not_fit_is_halved_once_per_size(
    model: Path, cramped: dict[str, Any], error: Exception
) -> None:
    expected = generate_all(sampler_of(model), asking(PROMPTS, GREEDY, *range(8)), SAMPLED)
    sampler = sampler_of(model, batch_size=16)
    cramped["limits"]["error"] = error
    cramped["crowd"](sampler)
    requests = asking(PROMPTS, GREEDY, *range(8))
    notes = noted(sampler, requests, SAMPLED)
    assert len(notes) == 3, "from 16 to 8, to 4, to 2, and never again"
    assert all("batch_size" in note for note in notes)
    assert noted(sampler, requests, SAMPLED) == []
    assert generate_all(sampler, requests, SAMPLED) == expected


def test_one_response_that_does_not_fit_is_an_error(model: Path, cramped: dict[str, Any]) -> None:
    sampler = sampler_of(model)
    cramped["limits"]["rows"] = 0
    cramped["crowd"](sampler)
    with pytest.raises(GapftError, match=r"max_gen_toks|memory"):
        generate_all(sampler, asking(PROMPTS, 0, 1), SAMPLED)


def test_another_error_is_not_taken_for_want_of_memory(
    model: Path, cramped: dict[str, Any]
) -> None:
    sampler = sampler_of(model)
    cramped["limits"]["error"] = RuntimeError("size mismatch")
    cramped["crowd"](sampler)
    with pytest.raises(RuntimeError, match="size mismatch"):
        generate_all(sampler, asking(PROMPTS, 0, 1), SAMPLED)


def test_auto_goes_by_the_memory_that_is_free(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = generate_all(sampler_of(model), asking(PROMPTS, *range(8)), SAMPLED)
    widest: dict[float, int] = {}
    per_token = sampler_of(model)._loop.bytes_per_token
    assert per_token == 2 * 2 * 2 * 8 * 4, "layers, keys and values, heads, size, bytes"
    for free in (0.0, 8.0, 40.0, 1e9):
        monkeypatch.setattr(
            batch_sizes, "measure_free_memory", lambda device, f=free: f * 100 * 3 * per_token
        )
        sampler = sampler_of(model, batch_size="auto")
        with counting(sampler) as counts:
            assert generate_all(sampler, asking(PROMPTS, *range(8)), SAMPLED) == expected
        widest[free] = counts.widest
    assert widest[0.0] == 1
    assert 1 < widest[8.0] < widest[40.0] < widest[1e9] == 32
