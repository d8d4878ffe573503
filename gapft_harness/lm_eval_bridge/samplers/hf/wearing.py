"""The transformers model of lm_eval, wearing one adapter after another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from lm_eval.api.registry import get_model
from peft import PeftModel

from gapft_harness.core.errors import UserError
from gapft_harness.lm_eval_bridge.samplers.adapter_fit import AdapterFolder, misfit
from gapft_harness.lm_eval_bridge.samplers.retokenizer import first_line


class HfBase:
    """A base loaded by lm_eval; see ``in_turn.Base``."""

    def __init__(self, arguments: dict[str, Any], others: Mapping[str, Any]) -> None:
        """Loads it.

        Raises:
            UserError: there are several processes.
        """
        self.lm: Any = get_model("hf").create_from_arg_obj(arguments, dict(others))
        if self.lm.world_size > 1:
            raise UserError("--adapters: evaluates with one process; start it without a launcher")
        self._pretrained = arguments["pretrained"]

    def put_on(self, adapter: AdapterFolder) -> None:
        """Puts it on unmerged, as ``peft=`` does."""
        try:
            worn = PeftModel.from_pretrained(self.lm._model, adapter.path)
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise misfit(adapter, self._pretrained, first_line(error)) from error
        self.lm._model = worn.eval()

    def take_off(self) -> None:
        """Gives the layers back that the adapter had replaced."""
        self.lm._model = self.lm._model.unload()

    def probed(self, text: str) -> list[float]:
        """Every next token's logits, in three numbers."""
        ids = self.lm.tok_encode(text)
        with torch.no_grad():
            logits = self.lm._model_call(torch.tensor([ids], device=self.lm.device)).float()
        return [float(each) for each in (logits.sum(), logits.abs().sum(), logits.std())]
