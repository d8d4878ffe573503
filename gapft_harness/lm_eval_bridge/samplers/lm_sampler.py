"""What the samplers have in common whose model lm-eval's class holds in this process."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from gapft_harness.core.extras import find_version
from gapft_harness.core.pretrained import to_id_list
from gapft_harness.core.records import Adapter
from gapft_harness.core.weights import find_hub_commit, find_weights_folder, weights_hash
from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.lm_eval_bridge.samplers.endings import find_end_ids, find_turn_end_ids

_LIBRARIES = ("lm_eval", "torch", "transformers", "peft", "tokenizers")


class LmSampler(ABC):
    """A sampler with lm-eval's model.

    Attributes:
        backend: the name of lm-eval's model.
        libraries: packages besides torch and Transformers that generate.
    """

    backend: str
    libraries: Sequence[str] = ()
    _lm: Any
    _settings: SamplerSettings
    _adapter: Adapter | None
    _arguments: dict[str, Any]
    _ignored: dict[str, Any]
    _own_end_ids: set[int]
    _start_ids: Sequence[int] | None

    def _find_own_end_ids(self, generation_config: Any, settings: SamplerSettings) -> set[int]:
        """Find the ids that end a response by the model's files, and by its chat template."""
        return {
            *to_id_list(generation_config.eos_token_id),
            *to_id_list(self._lm.tokenizer.eos_token_id),
            *find_turn_end_ids(self._lm.tokenizer, settings),
        }

    def describe(self) -> dict[str, Any]:
        """Return model, weights, device and versions; slow, since it hashes the weight files.

        ``weights_sha256`` covers the content of every weight file (``weights_hash``).
        """
        template = self._lm.tokenizer.chat_template
        return {
            "backend": self.backend,
            "pretrained": self._arguments["pretrained"],
            "revision": find_hub_commit(self._arguments),
            "weights_sha256": weights_hash(find_weights_folder(self._arguments)),
            "max_length": int(self._lm.max_length),
            "chat_template_sha256": None
            if template is None
            else hashlib.sha256(str(template).encode()).hexdigest(),
            "adapter": self._adapter and self._adapter.arm.name,
            "versions": {name: find_version(name) for name in (*_LIBRARIES, *self.libraries)},
            "end_ids": find_end_ids(self._lm.tokenizer, self._own_end_ids, ()),
            "generation_config_ignored": {key: str(v) for key, v in self._ignored.items()},
            "chat_template": self._settings.chat_template,
            "system_instruction": self._settings.system_instruction,
            "threads": self._settings.threads,
            "start_ids": self._start_ids,
            **self._describe_engine(),
        }

    @abstractmethod
    def _describe_engine(self) -> dict[str, Any]:
        """Describe what holds the model: its architecture, dtype, device and own settings."""
