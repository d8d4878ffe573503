"""Model arguments that only say how a model is asked, or how much memory it may take.

They are no part of a run's identity: they may change between two commands on a run, and from one
shard to another. All other arguments are bound, those that decide which responses are computed
side by side among them (``batch_size``, ``max_num_seqs``, ``max_num_batched_tokens``,
``tensor_parallel_size``): a batch's shape decides rounding, and of two nearly tied tokens rounding
decides which is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: How a server is reached, and how patiently. Which model answers is ``model``'s and
#: ``pretrained``'s to say; they are bound, and a server that serves no such model is refused.
#: ``header`` is bound, since a gateway may choose a model by it.
_SERVER = frozenset(
    {
        "base_url", "num_concurrent", "max_retries", "timeout", "verify_certificate",
        "ca_cert_path",
    }
)  # fmt: skip

#: By backend. An engine's memory is the machine's, which is not bound either: with less of it
#: requests may wait longer for each other, as they do on a smaller GPU.
OPERATIONAL: Mapping[str, frozenset[str]] = {
    "local-completions": _SERVER,
    "local-chat-completions": _SERVER,
    "sglang-generate": _SERVER,
    "vllm": frozenset({"gpu_memory_utilization", "kv_cache_memory_bytes"}),
    "sglang": frozenset({"mem_fraction_static"}),
}


def binding(backend: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """The model arguments that a run is bound to."""
    free = OPERATIONAL.get(backend, frozenset())
    return {key: value for key, value in args.items() if key not in free}
