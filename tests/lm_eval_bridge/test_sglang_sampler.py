"""SGLang without a GPU: lm-eval's model for its server, and the requests sent."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec

import pytest

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.records import GREEDY, Decoding
from gapft_harness.hooks.protocols import SamplerSettings, beyond_context
from gapft_harness.lm_eval_bridge.samplers.sglang import SglangSampler
from tests.asking import generate_all, make_request
from tests.tiny_models import CHAT_TEMPLATE, write_byte_llama

SAMPLED = Decoding(True, 16, ("\n",), 0.7, 0.95)


class _Generate(BaseHTTPRequestHandler):
    """Imitate SGLang's ``/generate``: a new text for every request."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        batch = body["input_ids"]
        answer = f"answer {len(self.server.bodies)}"
        texts = [{"text": f"{answer}.{i}{self.server.end}"} for i in range(len(batch))]
        reply = json.dumps(texts).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def server():
    http = ThreadingHTTPServer(("127.0.0.1", 0), _Generate)
    http.bodies, http.status, http.end = [], 200, ""
    threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
    yield http
    http.shutdown()
    http.server_close()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_byte_llama(tmp_path_factory.mktemp("byte-llama"), add_bos=True)


def build_settings(server, model, **args) -> SamplerSettings:
    url = f"http://127.0.0.1:{server.server_address[1]}/generate"
    return SamplerSettings("sglang-generate", {"pretrained": str(model), "base_url": url} | args)


def test_sends_each_sample_with_settings(server, model):
    sampler = SglangSampler(build_settings(server, model), None)
    requests = [make_request("a", "One?", (0, 1, 2)), make_request("b", "Two two?", (0, 1))]
    answers = generate_all(sampler, requests, SAMPLED, seed=1)
    texts = [g.text for answer in answers for g in answer.generations]
    assert len(set(texts)) == 5
    assert {g.tokens_from for a in answers for g in a.generations} == {"retokenized"}
    lengths = sorted(len(body["input_ids"][0]) for body in server.bodies)
    assert lengths == sorted([len(answers[0].prompt_ids)] * 3 + [len(answers[1].prompt_ids)] * 2)
    for body in server.bodies:
        assert tuple(body["input_ids"][0]) in {answer.prompt_ids for answer in answers}
        assert body["input_ids"][0][0] == 1  # the start token, as with hf
        sent = body["sampling_params"]
        assert (sent["top_k"], sent["temperature"], sent["max_new_tokens"]) == (-1, 0.7, 16)
    server.bodies.clear()
    generate_all(sampler, [make_request("a", "One?", (GREEDY,))], Decoding(False, 16), seed=1)
    assert server.bodies[0]["sampling_params"]["temperature"] == 0


def test_does_not_send_prompt_beyond_context(server, model):
    sampler = SglangSampler(build_settings(server, model, max_length=65), None)
    too_long = make_request("a", "x" * 100, (0,))
    assert generate_all(sampler, [too_long], SAMPLED, seed=1) == [beyond_context(too_long)]
    assert server.bodies == []


def test_template_arguments_render_prompts_here(server, tmp_path):
    template = CHAT_TEMPLATE + "{% if not enable_thinking %}<think></think>{% endif %}"
    folder = write_byte_llama(tmp_path, chat_template=template)
    for enabled in (True, False):
        arguments = {"chat_template_args": {"enable_thinking": enabled}}
        settings = replace(build_settings(server, folder, **arguments), chat_template=True)
        [answer] = generate_all(
            SglangSampler(settings, None), [make_request("a", "?", (0,))], SAMPLED
        )
        assert server.bodies[-1]["input_ids"] == [list(answer.prompt_ids)]
    lengths = [len(body["input_ids"][0]) for body in server.bodies]
    assert lengths[1] - lengths[0] == len("<think></think>")


def test_replaces_lone_surrogate(server, model):
    """Any server model of lm-eval may return one."""
    server.end = " \ud83d"
    [answer] = generate_all(
        SglangSampler(build_settings(server, model), None),
        [make_request("a", "One?", (0,))],
        SAMPLED,
        seed=1,
    )
    assert answer.generations[0].text == "answer 1.0 \ufffd"
    assert answer.generations[0].token_ids


def test_names_failing_server(server, model):
    sampler = SglangSampler(build_settings(server, model, max_retries=1), None)
    server.status = 500
    with pytest.raises(GapftError, match="'sglang-generate' failed: 500 Server Error"):
        generate_all(sampler, [make_request("a", "One?", (0,))], SAMPLED, seed=1)


@pytest.mark.skipif(find_spec("sglang") is not None, reason="SGLang is installed here")
def test_names_missing_engine(model):
    absent = SamplerSettings("sglang", {"pretrained": str(model)})
    with pytest.raises(UserError, match=r"cannot create .* 'sglang': .*sglang"):
        SglangSampler(absent, None)
