"""Every backend that generates responses, with what its documentation promises, and a bench to
open it on: a small random model, or a toy server.

A new sampler needs a row in ``BACKENDS``; ``tests/kit/sampler_contract.py`` checks its promises.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from gapft_harness.api import GREEDY, Adapter, Arm, Sampler, SamplerSettings
from gapft_harness.hooks.manager import load_plugins
from tests.kit.plugins import build_plugin
from tests.kit.tiny_models import CHAT_TEMPLATE, write_byte_adapter, write_byte_llama
from tests.toy_server import Behaviour, ToyServer


class Promise(Enum):
    """What a backend may promise, besides what all promise."""

    IDS = "prompts and responses have token ids"
    EXACT_IDS = "the ids of a response are those that the model generated"
    DRAWS = "a sample is drawn from the random stream of its seed"
    ALONE = "a response depends on its request alone, not on others or on the division of work"
    OBEYS = "a response ends at max_gen_toks and at stop strings"
    ENDS = "it is known how a response ended"
    TOP_K = "samples are drawn from the top_k tokens"
    RENDERS = "prompts without a chat template are texts"
    CHATS = "prompts are rendered through the model's chat template"
    OPEN_THOUGHTS = "reasoning that the prompt opens and the response does not close is no text"
    CONTEXT = "a prompt that does not fit the context is answered, not cut"
    START_TOKENS = "the number of start tokens can be set"
    ADAPTERS = "a trained adapter is applied"
    REPORTS = "progress counts every response"
    COUNTS = "progress counts every token"
    COMPUTES = "it computes a local model"


@dataclass(frozen=True)
class Backend:
    """A registered sampler.

    Attributes:
        name: its registered name.
        promises: what it promises.
        tokens_from: where its token ids come from.
        args: its ``model.args``; MODEL is the model's folder, FOLDER one for files.
        server: the behaviour of its server; None if it needs none.
        mistakes: refused arguments by the word that the error must contain.
        plugin: the source of the plugin that registers it; empty if it is bundled.
    """

    name: str
    promises: frozenset[Promise]
    tokens_from: str = "generator"
    args: Mapping[str, Any] = field(default_factory=dict)
    server: Mapping[str, Any] | None = None
    mistakes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    plugin: str = ""

    @property
    def is_chat(self) -> bool:
        """Whether its prompts are always chats."""
        return Promise.RENDERS not in self.promises


ALL = frozenset(Promise)
#: A server answers without a model on this machine.
SERVED = ALL - {Promise.COMPUTES}
#: A tokenizer encodes the texts, without a model.
RETOKENIZED = frozenset(
    {Promise.IDS, Promise.RENDERS, Promise.CHATS, Promise.START_TOKENS, Promise.ALONE}
)
#: A model of lm-eval that returns text: it takes no seed for one response.
TEXT = frozenset(
    {
        Promise.IDS, Promise.DRAWS, Promise.OBEYS, Promise.TOP_K, Promise.RENDERS, Promise.CHATS,
        Promise.OPEN_THOUGHTS,
    }
)  # fmt: skip
CHAT_SERVED = SERVED - {Promise.RENDERS, Promise.START_TOKENS, Promise.OPEN_THOUGHTS}

CPU = {"pretrained": "MODEL", "dtype": "float32", "device": "cpu"}
#: Arguments of a local model have no effect, so that a recipe may change to a server.
SERVER = {**CPU, "batch_size": 64, "model": "toy", "max_retries": 2}
TOKENIZED = {**SERVER, "tokenizer": "MODEL"}

#: lm-eval's model of Transformers as a plugin's author may use any lm-eval model.
LM_EVAL_PLUGIN = build_plugin(
    """
from dataclasses import replace


def text_of_hf(settings, adapter):
    return LmEvalSampler(replace(settings, backend="hf"), adapter, Retokenizer(settings))
""",
    samplers=['"text_of_hf", text_of_hf'],
)

SERVER_MISTAKES: dict[str, dict[str, Any]] = {
    "base_url": {"base_url": None},
    "localhost:8000": {"base_url": "localhost:8000"},
    "http://h:8000/v1": {"base_url": "http://h:8000/v1"},
    "http://h/v1/embeddings": {"base_url": "http://h/v1/embeddings"},
    "model": {"model": None, "pretrained": None},
    "num_concurent": {"num_concurent": 4},
    "num_concurrent": {"num_concurrent": 0},
    "timeout": {"timeout": "long"},
    "model.args.seed": {"seed": 1},
    "max_length": {"max_length": True},
    "tokenizer_backend": {"tokenizer_backend": "tiktoken"},
    "/no/such.pem": {"ca_cert_path": "/no/such.pem"},
    "X-Api-Key": {"header": {"X-Api-Key": "k"}},
    "'toys'": {"model": "toys"},
}

BACKENDS = {
    "hf": Backend(
        "hf",
        ALL,
        args={**CPU, "batch_size": 4},
        mistakes={
            "/no/such/folder": {"pretrained": "/no/such/folder"},
            "dytpe": {"dytpe": "float32"},
            "float33": {"dtype": "float33"},
            "cdua": {"device": "cdua"},
            "cuda:99": {"device": "cuda:99"},
            "many": {"batch_size": "many"},
            "peft": {"peft": "x"},
            "truncation": {"truncation": True},
        },
    ),
    "vllm": Backend(
        "vllm",
        ALL - {Promise.COUNTS},
        args={"pretrained": "MODEL", "dtype": "float32"},
        mistakes={
            "/no/such/folder": {"pretrained": "/no/such/folder"},
            "batch_size": {"batch_size": 0},
            "data_parallel_size": {"data_parallel_size": 2},
            "lora_local_path": {"lora_local_path": "x"},
            "search.seed": {"seed": 3},
            "enable_chunked_prefill": {"enable_chunked_prefill": True},
        },
    ),
    "text of lm-eval's hf": Backend(
        "text_of_hf", TEXT, "retokenized", {**CPU, "batch_size": 4}, plugin=LM_EVAL_PLUGIN
    ),
    "dummy": Backend(
        "dummy", RETOKENIZED - {Promise.START_TOKENS}, "retokenized", {"pretrained": "MODEL"}
    ),
    "recorded": Backend(
        "recorded",
        RETOKENIZED | {Promise.ADAPTERS},
        "retokenized",
        {"pretrained": "MODEL", "responses": "FOLDER/responses.jsonl"},
        mistakes={"responses": {"responses": None}, "/none.jsonl": {"responses": "/none.jsonl"}},
    ),
    "server that returns ids": Backend(
        "local-completions",
        SERVED,
        args=TOKENIZED,
        server={"extended": True, "loads_adapters": True},
        mistakes=SERVER_MISTAKES,
    ),
    "server that returns text": Backend(
        "local-completions",
        SERVED - {Promise.TOP_K, Promise.START_TOKENS, Promise.EXACT_IDS, Promise.COUNTS},
        "retokenized",
        {**TOKENIZED, "tokenized_requests": False},
        server={"loads_adapters": True},
    ),
    "server without a tokenizer": Backend(
        "local-completions",
        frozenset(
            {Promise.DRAWS, Promise.ALONE, Promise.OBEYS, Promise.ENDS, Promise.CONTEXT,
             Promise.RENDERS}
        ),
        "none",
        {**SERVER, "tokenizer_backend": "None"},
        server={},
    ),
    "chat server that returns ids": Backend(
        "local-chat-completions",
        CHAT_SERVED,
        args=TOKENIZED,
        server={"extended": True, "loads_adapters": True},
        mistakes={"base_url": {"base_url": "http://h/v1/completions"}},
    ),
    "chat server that returns text": Backend(
        "local-chat-completions",
        CHAT_SERVED - {Promise.TOP_K, Promise.EXACT_IDS, Promise.IDS, Promise.CHATS}
        - {Promise.COUNTS},
        "none",
        {**SERVER, "tokenizer_backend": "None"},
        server={"loads_adapters": True},
    ),
}  # fmt: skip

#: The problems of the contract; two have the same prompt.
PROMPTS = {
    "p0": "Why?", "p1": "What is 2 + 2?\nAnswer:", "p2": "Name a colour of the sky and sea.",
    "p3": "ä ö ü €", "p4": "Why?",
}  # fmt: skip
K = 8
CONTEXT = 512
ARM = Arm("gapft", 13)

#: Template arguments decide whether reasoning is turned off, or opened by the prompt.
TEMPLATE = (
    CHAT_TEMPLATE
    + "{% if enable_thinking is false %}<think></think>{% endif %}"
    + "{% if opens_thought %}<think>\n{% endif %}"
)


@dataclass
class Bench:
    """A backend with a model, and at most one open sampler.

    Attributes:
        backend: the row.
        model: the model's folder.
        adapter: an adapter of the model.
        tokenizer: the model's tokenizer.
        server: the backend's server.
        folder: a folder for files.
    """

    backend: Backend
    model: Path
    adapter: Adapter
    tokenizer: Any
    server: ToyServer | None
    folder: Path
    _sampler: Sampler | None = None
    _opened: tuple[Any, ...] | None = None

    def has(self, *promises: Promise) -> bool:
        """Return whether the backend makes all these promises."""
        return self.backend.promises.issuperset(promises)

    def open(
        self,
        adapter: Adapter | None = None,
        args: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Sampler:
        """Return a sampler, created as a run creates it. It closes the one that was opened before.

        Args:
            adapter: the adapter, if any.
            args: ``model.args`` besides those of the row.
            settings: other fields of ``SamplerSettings``.
        """
        opened = (adapter, dict(args or {}), settings)
        if self._sampler is None or opened != self._opened:
            self.close()
            self._sampler = self._plugins.create_sampler(
                SamplerSettings(
                    self.backend.name,
                    {**self.args, **(args or {})},
                    **{"chat_template": self.backend.is_chat, **settings},
                ),
                adapter,
            )
            self._opened = opened
        return self._sampler

    def close(self) -> None:
        """Close the open sampler, if there is one."""
        if self._sampler is not None:
            self._sampler.close()
        self._sampler = None

    @property
    def supports_start_tokens(self) -> bool:
        """Whether the registered traits say that start tokens can be set."""
        entry = self._plugins.get("sampler", self.backend.name)
        return bool(getattr(entry.traits, "start_tokens", False))

    @property
    def _plugins(self) -> Any:
        return load_plugins([str(self.folder / "plugin.py")] if self.backend.plugin else [])

    @property
    def args(self) -> dict[str, Any]:
        """The row's ``model.args``, with the folders and the server's URL."""
        places = {"MODEL": str(self.model), "FOLDER": str(self.folder)}
        args = dict(self.backend.args)
        for key, value in args.items():
            for name, place in places.items():
                if isinstance(value, str):
                    args[key] = value = value.replace(name, place)
        if self.server is not None:
            path = "chat/completions" if self.backend.is_chat else "completions"
            args["base_url"] = self.server.url(f"/v1/{path}")
        return args


@contextmanager
def open_bench(backend: Backend, model: Path, adapter: Adapter, folder: Path) -> Iterator[Bench]:
    """Start a backend's server, if it needs one, and write its files."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    _write_records(folder / "responses.jsonl")
    (folder / "plugin.py").write_text(backend.plugin)
    bench = Bench(backend, model, adapter, tokenizer, None, folder)
    try:
        if backend.server is None:
            yield bench
        else:
            with ToyServer(build_behaviour(tokenizer, **backend.server)) as bench.server:
                yield bench
                bench.close()
    finally:
        bench.close()


def build_behaviour(tokenizer: Any, **changes: Any) -> Behaviour:
    """Describe a toy server that encodes and renders prompts with a model's tokenizer."""

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer(text, add_special_tokens=False).input_ids
        return ids

    def render(body: dict[str, Any]) -> list[int]:
        text = tokenizer.apply_chat_template(
            body["messages"],
            add_generation_prompt=body.get("add_generation_prompt", True),
            continue_final_message=body.get("continue_final_message", False),
            tokenize=False,
            **body.get("chat_template_kwargs", {}),
        )
        return encode(text)

    return Behaviour(encode=encode, render=render, context=CONTEXT, **changes)


def write_model(folder: Path) -> tuple[Path, Adapter]:
    """Write a random model whose responses have different lengths, and an adapter of it."""
    import torch
    from transformers import AutoModelForCausalLM

    # vLLM's engine for CPUs needs heads of 32 dimensions.
    model = write_byte_llama(folder / "model", hidden=128, context=CONTEXT, chat_template=TEMPLATE)
    llama = AutoModelForCausalLM.from_pretrained(model)
    with torch.no_grad():
        llama.lm_head.weight[2] *= 3  # the end token
    llama.save_pretrained(model)
    return model, Adapter(ARM, str(write_byte_adapter(model, folder / "adapter")))


def _write_records(path: Path) -> None:
    """Write recorded responses of the source and of the adapter's arm."""
    arms: list[dict[str, Any]] = [{}, {"condition": ARM.condition, "seed": ARM.seed}]
    records = [
        {
            "id": problem, "index": "greedy" if index == GREEDY else index, "attempt": attempt,
            "text": f"{problem} {index} {attempt} {arm}",
            "finish_reason": "length" if index % 2 else "stop", **arm,
        }
        for arm in arms
        for problem in PROMPTS
        for index in (GREEDY, *range(K))
        for attempt in (1, 2, 3)
    ]  # fmt: skip
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
