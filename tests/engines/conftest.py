"""A real ``vllm serve`` on loopback, shared by all modules."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from gapft_harness.recipe.recipe import resolve_model
from tests.kit.tiny_models import CHAT_TEMPLATE

#: The command beside this Python, as with `make test-vllm`, or on the path.
VLLM = shutil.which("vllm", path=str(Path(sys.executable).parent)) or shutil.which("vllm")

#: A 1 GiB engine without GPU, hub access or usage reports.
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The root URL of a server. The demo policy has no chat template."""
    if VLLM is None:
        pytest.skip("no vllm command here: `make test-vllm` sets up an environment that has it")
    model = resolve_model("bundled:demo")
    folder = tmp_path_factory.mktemp("vllm-serve")
    template = folder / "template.jinja"
    template.write_text(CHAT_TEMPLATE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [
                *(VLLM, "serve", model, "--served-model-name", "demo", model),
                *("--host", "127.0.0.1", "--port", str(port)),
                *("--dtype", "float32", "--enforce-eager", "--max-model-len", "256"),
                # The CPU engine cannot restore a generator after part of a prompt.
                "--no-enable-chunked-prefill",
                *("--enable-lora", "--max-lora-rank", "8", "--chat-template", str(template)),
            ],
            env={**os.environ, **ENVIRONMENT},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_for_server(server, f"http://127.0.0.1:{port}/health", folder / "log")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait(60)


def wait_for_server(server: subprocess.Popen[bytes], health: str, log: Path) -> None:
    for _ in range(240):
        assert server.poll() is None, f"vllm serve ended:\n{log.read_text()[-3000:]}"
        with contextlib.suppress(OSError):  # not started, or slow to answer
            urllib.request.urlopen(health, timeout=5)
            return
        time.sleep(0.5)
    raise AssertionError(f"vllm serve did not start:\n{log.read_text()[-3000:]}")
