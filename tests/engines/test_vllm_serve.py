"""A real ``vllm serve`` on loopback as search and audit model, against the hf backend."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.errors import UserError
from gapft_harness.lm_eval_bridge.hf_sampler import HfSampler
from gapft_harness.lm_eval_bridge.server_sampler import ServerSampler
from gapft_harness.lm_eval_bridge.tasks import load_task
from gapft_harness.models import resolve_model
from gapft_harness.protocols import Generated, Request, SamplerSettings, beyond_context
from gapft_harness.records import GREEDY, Adapter, Arm, Attempt, Decoding, Problem
from tests.tiny_models import CHAT_TEMPLATE, byte_adapter

#: The command beside this Python, as in the environment of `make test-vllm`, or on the path.
VLLM = shutil.which("vllm", path=str(Path(sys.executable).parent)) or shutil.which("vllm")

pytestmark = [
    pytest.mark.xdist_group("vllm"),
    pytest.mark.skipif(
        VLLM is None,
        reason="no vllm command here: `make test-vllm` sets up an environment that has it",
    ),
]

GREEDY_DECODE = Decoding(do_sample=False, max_gen_toks=32)
SAMPLED = Decoding(True, 32, (), 1.0, 1.0, 0)
K = 8
#: An engine of 1 GiB that needs no GPU, no hub and reports to nobody.
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The root of a server's URLs. The demo policy has no chat template of its own."""
    folder = tmp_path_factory.mktemp("vllm-serve")
    template = folder / "template.jinja"
    template.write_text(CHAT_TEMPLATE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [
                *(str(VLLM), "serve", resolve_model("bundled:demo")),
                *("--served-model-name", "demo", "--host", "127.0.0.1", "--port", str(port)),
                *("--dtype", "float32", "--enforce-eager", "--max-model-len", "256"),
                # The CPU engine cannot set a generator back after a part of a prompt.
                "--no-enable-chunked-prefill",
                *("--enable-lora", "--max-lora-rank", "8", "--chat-template", str(template)),
            ],
            env={**os.environ, **ENVIRONMENT},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait(server, f"http://127.0.0.1:{port}/health", folder / "log")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait(60)


def _wait(server: subprocess.Popen[bytes], health: str, log: Path) -> None:
    for _ in range(1200):
        assert server.poll() is None, f"vllm serve ended:\n{log.read_text()[-3000:]}"
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            urllib.request.urlopen(health, timeout=5)
            return
        time.sleep(0.5)
    raise AssertionError(f"vllm serve did not start:\n{log.read_text()[-3000:]}")


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    return list(load_task("gapft_demo").pool()[:40])


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Adapter:
    folder = tmp_path_factory.mktemp("adapter")
    byte_adapter(Path(resolve_model("bundled:demo")), folder)
    return Adapter(Arm("gapft", 13), str(folder))


def settings(url: str, **args: Any) -> SamplerSettings:
    given = {
        "pretrained": resolve_model("bundled:demo"),
        "model": "demo",
        "base_url": f"{url}/completions",
    }
    return SamplerSettings("local-completions", given | args)


def hf(adapter: Adapter | None = None) -> HfSampler:
    given = {"pretrained": resolve_model("bundled:demo"), "dtype": "float32", "device": "cpu"}
    return HfSampler(SamplerSettings("hf", given), adapter)


def asked(problems: list[Problem], indices: tuple[int, ...]) -> list[Request]:
    return [Request(problem.id, problem.prompt, indices) for problem in problems]


def texts(answers: list[Generated]) -> list[list[str]]:
    return [[g.text for g in answer.generations] for answer in answers]


@pytest.mark.parametrize("until", [(), ("; \\boxed",), ("=",), ("</s>",)])
def test_greedy_responses_and_ids_are_those_of_hf(
    url: str, problems: list[Problem], until: tuple[str, ...]
) -> None:
    decoding = Decoding(False, 32, until)
    requests = asked(problems, (GREEDY,))
    server = ServerSampler(settings(url), None)
    assert server.describe()["token_ids"] == "generator"
    assert server.generate(requests, decoding, 0) == hf().generate(requests, decoding, 0)


def test_samples_are_independent_and_repeat(url: str, problems: list[Problem]) -> None:
    """As many distinct responses as hf gives, within what chance allows, and none dealt twice."""
    requests = asked(problems, tuple(range(K)))
    server = ServerSampler(settings(url), None)
    rows = texts(server.generate(requests, SAMPLED, 1))
    again = texts(server.generate(requests, SAMPLED, 1))
    pairs = [
        pair for row, twin in zip(rows, again, strict=True) for pair in zip(row, twin, strict=True)
    ]
    # Requests meet in other batches each time, which round differently: near ties may tip over.
    assert sum(one == two for one, two in pairs) >= 0.99 * len(pairs)
    distinct = sum(len(set(row)) for row in rows)
    of_hf = sum(len(set(row)) for row in texts(hf().generate(requests, SAMPLED, 1)))
    # 40 problems of 8: the standard deviation of either sum is below 8.
    assert abs(distinct - of_hf) < 40
    other = texts(server.generate(requests, SAMPLED, 2))
    for i in range(K):
        for j in range(i):
            assert any(row[i] != row[j] for row in rows)
        assert any(row[i] != twin[i] for row, twin in zip(rows, other, strict=True))


def test_an_adapter_of_ours_is_loaded_and_answers_as_hf_with_peft(
    url: str, problems: list[Problem], adapter: Adapter
) -> None:
    requests = asked(problems, (GREEDY,))
    source = ServerSampler(settings(url), None).generate(requests, GREEDY_DECODE, 0)
    arm = ServerSampler(settings(url), adapter)
    answers = arm.generate(requests, GREEDY_DECODE, 0)
    assert answers == hf(adapter).generate(requests, GREEDY_DECODE, 0)
    assert sum(a != b for a, b in zip(texts(answers), texts(source), strict=True)) > 5
    name = arm.describe()["model"]
    arm.close()
    with pytest.raises(UserError, match=f"serves no model '{name}'.*known: demo"):
        ServerSampler(settings(url, model=name), None)


def test_an_adapter_above_the_servers_rank_is_refused_with_its_words(
    url: str, tmp_path: Path
) -> None:
    byte_adapter(Path(resolve_model("bundled:demo")), tmp_path, rank=16)
    with pytest.raises(UserError, match=r"rank 16 is greater than max_lora_rank 8"):
        ServerSampler(settings(url), Adapter(Arm("gapft", 13), str(tmp_path)))


def test_a_chat_is_rendered_by_the_server(url: str) -> None:
    chat = settings(url, base_url=f"{url}/chat/completions", tokenizer_backend="None")
    chat = SamplerSettings("local-chat-completions", chat.model_args, chat_template=True)
    request = Request("a", "Find 1 +1.", (0, 1), (Attempt("By eye.", (), "stop", "No."),))
    [answer] = ServerSampler(chat, None).generate([request], SAMPLED, 3)
    rendered = "<user>Find 1 +1.\n<assistant>By eye.\n<user>No.\n<assistant>"
    tokenizer = hf()._lm.tokenizer
    ids = tokenizer(rendered, add_special_tokens=False).input_ids
    assert answer.prompt_ids == (tokenizer.bos_token_id, *ids)
    assert {g.tokens_from for g in answer.generations} == {"generator"}


def test_mistakes_are_named_before_anything_is_generated(url: str) -> None:
    with pytest.raises(UserError, match="serves no model 'dmeo'; did you mean 'demo'"):
        ServerSampler(settings(url, model="dmeo"), None)
    with pytest.raises(UserError, match="has nothing at this path"):
        ServerSampler(settings(url, base_url=f"{url}/v1/completions"), None)


def test_a_prompt_beyond_the_context_fails_alone_whoever_renders_it(url: str) -> None:
    asked = [Request("long", "1 + " * 300, (GREEDY,)), Request("short", "Find 1 +1.", (GREEDY,))]
    as_ids = settings(url)
    as_text = settings(url, tokenizer_backend="None")
    args = settings(url, base_url=f"{url}/chat/completions", tokenizer_backend="None").model_args
    as_chat = SamplerSettings("local-chat-completions", args, chat_template=True)
    for way in (as_ids, as_text, as_chat):
        long, short = ServerSampler(way, None).generate(asked, GREEDY_DECODE, 0)
        assert long == beyond_context(asked[0])
        assert short.generations[0].text
