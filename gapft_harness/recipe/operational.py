"""Model arguments that only say how a model is asked, or how much memory it may take.

They are no part of a run's identity: they may change between two commands on a run, and from one
shard to another. All other arguments are bound, those that decide which responses are computed
side by side among them (``batch_size``, ``max_num_seqs``, ``max_num_batched_tokens``,
``tensor_parallel_size``): a batch's shape decides rounding, and of two nearly tied tokens rounding
decides which is drawn.

Which arguments these are, a sampler declares when it is registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.registered import SamplerTraits


def binding(backend: str, args: Mapping[str, Any], plugins: Plugins) -> dict[str, Any]:
    """The model arguments that a run is bound to; all of them where no sampler has that name."""
    if not plugins.has("sampler", backend):
        return dict(args)
    free = plugins.get("sampler", backend).declared(SamplerTraits).operational
    return {key: value for key, value in args.items() if key not in free}
