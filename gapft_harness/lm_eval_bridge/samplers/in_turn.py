"""``gapft eval --adapters``: several adapters on one loaded base, each evaluated by lm_eval.

lm_eval's own command runs once for the base and once for each adapter, with a model that is loaded
already. An adapter is put on it as lm_eval's own argument does, unmerged, and taken off again.
"""

from __future__ import annotations

import json
import logging
import re
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.lm_eval_bridge.samplers.adapter_fit import Named, check_adapter

logger = logging.getLogger(__name__)

#: The folder of the base's logs, which no adapter may have.
BASE = "base"
_NAME = re.compile(r"[\w][\w.@+-]*")
#: lm_eval's names of the models that adapters are put on here, and what names one's adapter.
_MODELS = {"hf": "peft", "hf-auto": "peft", "huggingface": "peft", "vllm": "lora_local_path"}
#: Arguments of a model that would put something else between base and adapter, by that name.
_NOT_BESIDE = {
    "peft": ("peft", "delta", "gptqmodel", "autogptq", "parallelize", "tp_plan"),
    "lora_local_path": ("lora_local_path", "enable_lora", "max_lora_rank", "data_parallel_size"),
}
#: Any text: what matters is that two models give it different likelihoods.
_PROBE = "In 1969, 3 + 4 = 7 (x**2): \"the answer is B\"; def f(a): return [a, 'b'] # 12%\n"


class Base(Protocol):
    """A loaded model, which wears one adapter after another."""

    lm: Any

    def put_on(self, adapter: Named) -> None:
        """Answers with the adapter from now on.

        Raises:
            UserError: it does not fit.
        """

    def take_off(self) -> None:
        """Answers without any adapter from now on."""

    def probed(self, text: str) -> list[float]:
        """What the model makes of a text, in a few numbers."""


def split_adapters(arguments: Sequence[str]) -> tuple[list[Named], list[str]]:
    """Takes ``--adapters A,NAME=B`` out of lm_eval's arguments.

    Returns:
        The adapters in order, and the arguments without them.

    Raises:
        UserError: no adapter, a name that can be no folder's, or one that stands twice.
    """
    given: list[str] = []
    others: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        option, equals, value = argument.partition("=")
        if option != "--adapters":
            others.append(argument)
            continue
        given += [one.strip() for one in (value if equals else next(rest, "")).split(",")]
        if not all(given):
            raise UserError("--adapters: expected PEFT folders: --adapters FOLDER,NAME=FOLDER,…")
    adapters = [_named(one) for one in given]
    for number, one in enumerate(adapters):
        for other in adapters[:number]:
            if one.name == other.name:
                raise UserError(
                    f"--adapters: {other.path} and {one.path} would both be named {one.name!r}; "
                    f"give one a name: --adapters NAME={one.path}"
                )
    return adapters, others


def evaluate_in_turn(
    adapters: Sequence[Named], parsed: Namespace, execute: Callable[[Namespace], Any]
) -> None:
    """Evaluates the base and every adapter; each has its folder of logs in ``--output_path``.

    Raises:
        UserError: an option that does not go with several adapters, a folder that holds logs
            already, a folder that is no adapter, or an adapter of another base.
        ValueError: of lm-eval, on an unknown task.
        GapftError: an adapter was not applied, though it is not zero.
    """
    from lm_eval.config.evaluate_config import EvaluatorConfig

    config = EvaluatorConfig.from_cli(parsed)
    arguments = dict(config.model_args or {})
    out, rank = _checked(adapters, config, arguments)
    config.process_tasks(config.metadata)  # an unknown task is refused before the base is loaded
    named_by = _MODELS[config.model]
    silent = [one for one in adapters if _is_zero(one)]
    in_turn = _InTurn(_loaded(config, arguments, adapters, rank), config.model)
    parsed.log_samples = True
    for one in (None, *adapters):
        parsed.model = in_turn.model(one, zero=one in silent)
        parsed.model_args = arguments | ({} if one is None else {named_by: one.path})
        parsed.output_path = str(out / (BASE if one is None else one.name))
        execute(parsed)
    names = " ".join(str(out / one.name) for one in adapters)
    logger.warning(f"To compare them: gapft compare {out / BASE} {names}")


def _loaded(config: Any, arguments: dict[str, Any], adapters: Sequence[Named], rank: int) -> Base:
    others = {
        "batch_size": config.batch_size,
        "max_batch_size": config.max_batch_size,
        "device": config.device,
    }
    if config.model == "vllm":
        from gapft_harness.lm_eval_bridge.samplers.vllm.process import prepare_process

        prepare_process(threads=None, asked_by="--model vllm")
        from gapft_harness.lm_eval_bridge.samplers.vllm.sampler import VllmBase

        return VllmBase(arguments, others, adapters[0], rank)
    from gapft_harness.lm_eval_bridge.samplers.hf import HfBase

    return HfBase(arguments, others)


class _InTurn:
    """Puts one adapter after another on a base, and sees that each is applied."""

    def __init__(self, base: Base, kind: str) -> None:
        self._base = base
        self._title, self._kind = BASE, kind
        # lm_eval prints the model itself above its table, where it is no name
        named = type(base.lm)
        base.lm.__class__ = type(
            named.__name__,
            (named,),
            {"__module__": named.__module__, "__str__": lambda _: f"{self._title}: {self._kind}"},
        )
        self._of_base = base.probed(_PROBE)
        if base.probed(_PROBE) != self._of_base:
            raise GapftError(
                "--adapters: asked twice, the base computes other numbers for one text, so nobody "
                "can see whether an adapter is applied; evaluate each in a command of its own"
            )
        self._bare = True

    def model(self, adapter: Named | None, *, zero: bool) -> Any:
        """lm_eval's model with an adapter on the base, or the base alone.

        Raises:
            GapftError: the adapter before this one left something behind, or this one does not
                change what the base computes, though its weights are not zero.
        """
        if not self._bare:
            self._base.take_off()
            if self._base.probed(_PROBE) != self._of_base:
                raise GapftError(
                    "--adapters: the base computes something else after an adapter was taken off; "
                    "evaluate that adapter in a command of its own"
                )
        if adapter is not None:
            self._base.put_on(adapter)
            self._bare = False
            changed = self._base.probed(_PROBE) != self._of_base
            if zero:
                logger.warning(f"{adapter.path}: all its updates are zero: it answers as the base")
            elif not changed:
                raise GapftError(
                    f"{adapter.path}: was not applied: with it the base computes the same to the "
                    "last bit, though its weights are not zero. If they are very small, the "
                    "base's dtype rounds them away: --model_args dtype=float32"
                )
        self._title = BASE if adapter is None else adapter.name
        return self._base.lm


def _named(given: str) -> Named:
    name, equals, path = given.partition("=")
    if not equals or Path(given).exists():
        name, path = Path(given).resolve().name, given
    if name == BASE or not _NAME.fullmatch(name):
        raise UserError(
            f"--adapters: {given}: its logs would be in a folder {name!r}"
            f"{', which is that of the model without adapter' if name == BASE else ''}; "
            f"give it another name: --adapters NAME={path}"
        )
    return Named(name, path)


def _checked(adapters: Sequence[Named], config: Any, arguments: dict[str, Any]) -> tuple[Path, int]:
    """Checks all that can be before the model is loaded.

    Returns:
        The folder for logs, and the adapters' highest rank.
    """
    if config.model not in _MODELS:
        raise UserError(
            f"--adapters: the model {config.model!r} takes no adapters here; expected --model hf "
            "or vllm"
        )
    for key in _NOT_BESIDE[_MODELS[config.model]]:
        if arguments.get(key):
            raise UserError(f"--model_args {key}=…: does not go with --adapters; leave it out")
    if config.use_cache:
        raise UserError(
            "--use_cache: does not go with --adapters: the cache knows one model, and would give "
            "the base's answers for every adapter"
        )
    if not arguments.get("pretrained"):
        raise UserError("--adapters: expected the base: --model_args pretrained=MODEL")
    if not config.output_path:
        raise UserError("--adapters: expected a folder for the logs: --output_path FOLDER")
    out = Path(config.output_path)
    for name in (BASE, *(one.name for one in adapters)):
        if any((out / name).rglob("samples_*.jsonl")):
            raise UserError(f"{out / name}: holds logs already; give another --output_path")
    ranks = []
    for one in adapters:
        ranks.append(check_adapter(one, arguments))
        trained_on = json.loads((Path(one.path) / "adapter_config.json").read_text("utf-8")).get(
            "base_model_name_or_path"
        )
        if trained_on and Path(trained_on).name != Path(arguments["pretrained"]).name:
            logger.warning(
                f"{one.path}: says that it was trained on {trained_on!r}; it is put on "
                f"{arguments['pretrained']!r}, whose layers have the same shapes"
            )
    return out, max(ranks)


def _is_zero(adapter: Named) -> bool:
    """Whether every update of a LoRA adapter is zero; weights besides count as they are."""
    from peft import load_peft_weights

    weights = load_peft_weights(adapter.path, device="cpu")
    zero = {name for name, weight in weights.items() if not weight.any()}
    # beside an embedding's update PEFT also writes the embedding itself
    own = {name for name in weights if ".base_layer." in name}
    return all(name in zero or _partner(name) in zero for name in weights.keys() - own)


def _partner(name: str) -> str:
    """The other factor of a LoRA update."""
    other = {"A": "B", "B": "A"}
    return re.sub("(lora_(?:embedding_)?)([AB])", lambda found: found[1] + other[found[2]], name)
