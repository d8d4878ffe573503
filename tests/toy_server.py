"""A small OpenAI-compatible server on loopback, with a toy model and faults on demand.

The toy model draws a text of letters from (prompt, seed, temperature), as a real engine draws from
its seeds; greedy decodes depend on the prompt alone. A real engine does not fail on demand, so
faults are queued here, and each applies to one generation request.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: A fault gets the handler after the request was read; it may answer.
Fault = Callable[["Handler"], None]


@dataclass
class Behaviour:
    """How the server behaves.

    Attributes:
        models: the list at ``/v1/models``; None if the path does not exist.
        key: the required bearer key; empty if none.
        extended: whether it takes vLLM's fields and returns token ids, or refuses them with 400.
        version: the version at ``/version``; None if the path does not exist.
        loads_adapters: whether ``/v1/load_lora_adapter`` exists.
        encode: token ids of a text; needed where ``extended``.
        render: token ids of the prompt of a chat request, by the model's template.
        context: the model's context in tokens, for ``encode`` and ``render``; None: not limited.
        reasoning: the field of chat messages with the reasoning, as with a reasoning parser; empty
            without one. The toy model then reasons in ``<think>`` tags before its text.
        faults: applied to generation requests, one each, in order.
    """

    models: list[dict[str, Any]] | None = field(default_factory=lambda: [{"id": "toy"}])
    key: str = ""
    extended: bool = False
    version: str | None = None
    loads_adapters: bool = False
    encode: Callable[[str], list[int]] | None = None
    render: Callable[[dict[str, Any]], list[int]] | None = None
    context: int | None = None
    reasoning: str = ""
    faults: deque[Fault] = field(default_factory=deque)


class ToyServer:
    """The server; use it as a context manager.

    Attributes:
        behaviour: the behaviour; may be changed while the server runs.
        requests: the body of every generation request, in order of arrival.
        served: the bodies of requests that were answered completely.
        loaded: the paths of adapters that were loaded at run time, by name.
        most_parallel: the largest number of simultaneous generation requests.
    """

    def __init__(self, behaviour: Behaviour | None = None) -> None:
        self.behaviour = behaviour or Behaviour()
        self.requests: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.served: list[dict[str, Any]] = []
        self.loaded: dict[str, str] = {}
        self.under_way = 0
        self.most_parallel = 0
        self.lock = threading.Lock()
        self.hold = threading.Event()
        self.hold.set()
        self._http = _Server(("127.0.0.1", 0), Handler)
        self._http.toy = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> ToyServer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.hold.set()
        self._http.shutdown()
        self._http.server_close()

    def url(self, path: str = "/v1/completions") -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}{path}"


#: Letters of a text that no limit cuts.
LETTERS = 12


def respond(body: dict[str, Any], adapter: str = "") -> str:
    """Return the toy model's text: up to 12 letters, the same for the same prompt and seed."""
    is_greedy = body["temperature"] == 0 or body.get("top_k") == 1 or body.get("top_p", 1) < 0.01
    drawn = "greedy" if is_greedy else f"{body['seed']} {body['temperature']}"
    prompt = json.dumps(body.get("messages", body.get("prompt")))
    digest = hashlib.sha256(f"{adapter}|{prompt}|{drawn}".encode()).digest()
    return "".join(chr(97 + byte % 26) for byte in digest[: min(LETTERS, body["max_tokens"])])


def reason(text: str) -> str:
    """Return the toy model's reasoning before a text."""
    return f"or {text[::-1]}?"


# Faults


def answer(handler: Handler) -> None:
    """Answer without a fault."""
    refused = handler.find_refusal(handler.body)
    if refused is not None:
        handler.reply(*refused)
        return
    toy = handler.server.toy
    with toy.lock:
        toy.served.append(handler.body)
    handler.reply(handler.build_completion(handler.body))


def fail_with_status(
    code: int, headers: dict[str, str] | None = None, message: str = "busy"
) -> Fault:
    """Answer with an error status."""
    return lambda handler: handler.reply({"error": {"message": message}}, code, headers or {})


def drop_connection(handler: Handler) -> None:
    """Close the connection without an answer."""
    handler.close_connection = True
    handler.connection.shutdown(2)


def send_half_body(handler: Handler) -> None:
    """Announce a complete body, send half of it and close the connection."""
    body = json.dumps(handler.build_completion(handler.body)).encode()
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[: len(body) // 2])
    handler.wfile.flush()
    drop_connection(handler)


def send_half_json(handler: Handler) -> None:
    """Send half of the JSON as a complete body."""
    body = json.dumps(handler.build_completion(handler.body)).encode()
    handler.reply_raw(body[: len(body) // 2])


def send_web_page(handler: Handler) -> None:
    """Answer with a web page."""
    handler.reply_raw(b"<html>Welcome to nginx!</html>")


def send_other_json(handler: Handler) -> None:
    """Answer with unrelated JSON."""
    handler.reply({"result": "ok"})


def abort_generation(handler: Handler) -> None:
    """Answer with an aborted generation, as vLLM does when it is stopped."""
    whole = handler.build_completion(handler.body)
    whole["choices"][0]["finish_reason"] = "abort"
    handler.reply(whole)


def end_with_half_surrogate(handler: Handler) -> None:
    """End the text with half of a surrogate pair, as a generation cut inside an emoji may."""
    reply = handler.build_completion(handler.body)
    reply["choices"][0]["text"] = "hi \ud83d"
    handler.reply(reply)


def hang(handler: Handler) -> None:
    """Do not answer until the server's ``hold`` is set."""
    handler.server.toy.hold.wait()
    drop_connection(handler)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # with the default of 5, a busy machine loses connections
    toy: ToyServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print no traceback if a client disconnects, which is what the tests do."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    wbufsize = 65536  # headers and body in one packet; otherwise each reply waits for an ACK
    server: _Server
    body: dict[str, Any]

    def parse_request(self) -> bool:
        """Record the requested path; if it is a URL, as for a proxy, answer its path."""
        parsed = super().parse_request()
        if parsed:
            self.server.toy.asked.append(self.path)
            if self.path.startswith("http://"):
                self.path = "/" + self.path.split("/", 3)[3]
        return parsed

    def log_message(self, *args: Any) -> None:
        """Write nothing."""

    def do_GET(self) -> None:
        behaviour = self.server.toy.behaviour
        if not self._is_key_valid():
            self.reply({"error": {"message": f"bad key {self._read_key()}"}}, 401)
        elif self.path == "/v1/models" and behaviour.models is not None:
            cards = [{"id": n, "root": p, "parent": "toy"} for n, p in self._list_loaded().items()]
            self.reply({"object": "list", "data": behaviour.models + cards})
        elif self.path == "/version" and behaviour.version is not None:
            self.reply({"version": behaviour.version})
        else:
            self.reply({"detail": "Not Found"}, 404)

    def do_POST(self) -> None:
        toy = self.server.toy
        self.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._is_key_valid():
            self.reply({"error": {"message": f"bad key {self._read_key()}"}}, 401)
        elif self.path in ("/v1/completions", "/v1/chat/completions"):
            self._generate(toy)
        elif self.path == "/v1/load_lora_adapter" and toy.behaviour.loads_adapters:
            with toy.lock:
                is_loaded = self.body["lora_name"] in toy.loaded
                toy.loaded.setdefault(self.body["lora_name"], self.body["lora_path"])
            if is_loaded:  # as vLLM
                self.reply({"error": {"message": "has already been loaded"}}, 400)
            else:
                self.reply_raw(b"Success: added", "text/plain")
        elif self.path == "/v1/unload_lora_adapter" and toy.behaviour.loads_adapters:
            del toy.loaded[self.body["lora_name"]]
            self.reply_raw(b"Success: removed", "text/plain")
        else:
            self.reply({"detail": "Not Found"}, 404)

    def _generate(self, toy: ToyServer) -> None:
        with toy.lock:
            toy.requests.append(self.body)
            toy.under_way += 1
            toy.most_parallel = max(toy.most_parallel, toy.under_way)
            fault = toy.behaviour.faults.popleft() if toy.behaviour.faults else None
        try:
            if fault is not None:
                fault(self)
                return
            answer(self)
        finally:
            with toy.lock:
                toy.under_way -= 1

    def find_refusal(self, body: dict[str, Any]) -> tuple[Any, int] | None:
        """Return the error of a request and its status, or None."""
        behaviour = self.server.toy.behaviour
        known_models = {m["id"] for m in behaviour.models or ()} | set(self._list_loaded())
        if behaviour.models is not None and body["model"] not in known_models:
            message = f"The model `{body['model']}` does not exist."
            return {"error": {"message": message}}, 404
        if not {"prompt", "messages"} & body.keys():
            return {"error": {"message": "the prompt is missing"}}, 400
        if behaviour.context is not None:
            length = len(self._encode_prompt(body)) + body["max_tokens"]
            if length > behaviour.context:
                message = f"This model's maximum context length is {behaviour.context} tokens."
                return {"error": {"message": message}}, 400
        if "top_k" in body and not behaviour.extended:
            return {"error": {"message": "Unrecognized request argument: top_k"}}, 400
        return None

    def build_completion(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the reply to a request."""
        behaviour = self.server.toy.behaviour
        text = respond(body, self._list_loaded().get(body["model"], ""))
        ended: dict[str, Any] = {
            # the end of a text is a token, too
            "finish_reason": "length" if body["max_tokens"] <= LETTERS else "stop",
            "stop_reason": None,
        }
        stops = sorted((s for s in body.get("stop") or [] if s in text), key=text.index)
        ids = None
        thought = ""
        if behaviour.reasoning:
            thought = reason(text)
            if body["max_tokens"] < LETTERS:  # cut while reasoning
                thought, text = thought[: body["max_tokens"]], ""
        if behaviour.extended and behaviour.encode is not None:
            tagged = f"<think>{thought}{'</think>' if text else ''}{text}" if thought else text
            ids = behaviour.encode(tagged) + ([] if ended["finish_reason"] == "length" else [2])
        if stops:
            ended = {"finish_reason": "stop", "stop_reason": stops[0]}
            text = text.split(stops[0])[0]
        choice = {"index": 0, **ended}
        if "messages" in body:
            choice["message"] = {"role": "assistant", "content": text or None}
            if thought:
                choice["message"] |= {behaviour.reasoning: thought}
        else:
            choice["text"] = text
        reply: dict[str, Any] = {"object": "completion", "choices": [choice]}
        if ids is not None and body.get("return_token_ids"):
            choice["token_ids"] = ids
            reply["prompt_token_ids"] = self._encode_prompt(body)
        return reply

    def _encode_prompt(self, body: dict[str, Any]) -> list[int]:
        """Return the token ids of a request's prompt."""
        behaviour = self.server.toy.behaviour
        if "messages" in body:
            return behaviour.render(body) if behaviour.render else []
        prompt = body["prompt"]
        if isinstance(prompt, list):
            return prompt
        return behaviour.encode(prompt) if behaviour.encode else [0] * len(prompt)

    def reply(self, content: Any, code: int = 200, headers: dict[str, str] | None = None) -> None:
        self.reply_raw(json.dumps(content).encode(), "application/json", code, headers)

    def reply_raw(
        self,
        body: bytes,
        kind: str = "text/html",
        code: int = 200,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _read_key(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def _is_key_valid(self) -> bool:
        return (
            not self.server.toy.behaviour.key or self._read_key() == self.server.toy.behaviour.key
        )

    def _list_loaded(self) -> dict[str, str]:
        return dict(self.server.toy.loaded)
