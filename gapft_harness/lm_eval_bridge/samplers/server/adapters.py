"""Trained adapters on a server: found among its models, or loaded at run time (vLLM)."""

from __future__ import annotations

import secrets
from pathlib import Path

from gapft_harness.core.credentials import without_credentials
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Adapter
from gapft_harness.lm_eval_bridge.samplers.server.arguments import ServerArguments
from gapft_harness.lm_eval_bridge.samplers.server.checks import ServerFacts
from gapft_harness.lm_eval_bridge.samplers.server.client import ServerClient
from gapft_harness.lm_eval_bridge.samplers.server.errors import ServerError

#: Begins the names of adapters that we load.
OURS = "gapft:"


def adapter_name(adapter: Adapter, weights: str) -> str:
    """A name to load an adapter by, each time another: what we load, nobody else takes away.

    Args:
        adapter: the trained adapter.
        weights: SHA-256 of its weights.
    """
    return f"{OURS}{adapter.arm.name}:{weights[:16]}:{secrets.token_hex(4)}"


def serve_adapter(
    client: ServerClient,
    arguments: ServerArguments,
    facts: ServerFacts,
    adapter: Adapter,
    weights: str,
    rank: int,
) -> str:
    """Makes the server answer with an adapter.

    An adapter that the server was started with is known by its folder (``root`` in vLLM's list of
    models). Any other is loaded by vLLM's ``/v1/load_lora_adapter``; server and run must see the
    same folder. One that another sampler loaded is left to it: it is taken away when that one ends.

    Args:
        client: talks to the server.
        arguments: the checked model arguments.
        facts: what the server told of itself.
        adapter: the adapter; that it fits the model has been checked.
        weights: SHA-256 of its weights.
        rank: its highest rank.

    Returns:
        The name to ask for.

    Raises:
        UserError: the server does neither; the message says how to start it.
    """
    folder = Path(adapter.path).resolve()
    ours = adapter_name(adapter, weights)
    for entry in facts.models or ():
        name = str(entry["id"])
        same_folder = isinstance(entry.get("root"), str) and Path(entry["root"]) == folder
        if entry.get("parent") and same_folder and not name.startswith(OURS):
            return name
    try:
        client.once(
            "POST",
            arguments.url("load_lora_adapter"),
            bytes,  # vLLM confirms in plain text
            {"lora_name": ours, "lora_path": str(folder)},
        )
    except ServerError as error:
        raise UserError(_refusal(arguments, adapter, rank, error)) from error
    return ours


def unload_adapter(client: ServerClient, arguments: ServerArguments, name: str) -> None:
    """Takes an adapter that we loaded away again.

    Raises:
        ServerError: the server did not.
    """
    client.once("POST", arguments.url("unload_lora_adapter"), bytes, {"lora_name": name})


def _refusal(arguments: ServerArguments, adapter: Adapter, rank: int, error: ServerError) -> str:
    where = f"server {without_credentials(arguments.base_url)}"
    folder = Path(adapter.path).resolve()
    if error.status in (404, 405):
        # A folder that begins with a dot is there only while it is decoded (a scaled adapter).
        lasting = not folder.name.startswith(".")
        started = f", or with --lora-modules {adapter.arm.name}={folder}" if lasting else ""
        return (
            f"{where}: cannot answer with the trained adapter {adapter.arm.name}: it has no model "
            f"whose root is {folder}, and it loads no adapters at run time; with vLLM, start it "
            f"again with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora --max-lora-rank "
            f"{rank}{started}, and run the same command"
        )
    return (
        f"{where}: does not load the trained adapter {adapter.arm.name} from {folder}: "
        f"{error.what} ({error.detail}); the server must see that folder, serve the model it was "
        f"trained on, and allow rank {rank} (--max-lora-rank)"
    )
