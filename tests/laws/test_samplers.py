"""The law of samplers: every registered backend keeps the contract, as far as it promises.

The rows are in ``tests/kit/samplers.py``, the checks in ``tests/kit/sampler_contract.py``. The row
of vLLM is checked in ``tests/engines``, in vLLM's environment.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.nn.modules.module import register_module_forward_pre_hook
from transformers import LlamaForCausalLM

from gapft_harness.api import Adapter
from gapft_harness.hooks.manager import load_plugins
from tests.kit.sampler_contract import Check, draw, list_checks
from tests.kit.samplers import BACKENDS, Bench, open_bench, write_model

HERE = [name for name in BACKENDS if name != "vllm"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Adapter]:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def bench(
    request: pytest.FixtureRequest,
    model: tuple[Path, Adapter],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("bench")
    with open_bench(BACKENDS[request.param], *model, folder) as opened:
        yield opened


@pytest.mark.parametrize(
    ("bench", "check"),
    [(name, check) for name in HERE for check in list_checks(BACKENDS[name].promises)],
    indirect=["bench"],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_backend_keeps_the_contract(bench: Bench, check: Check) -> None:
    check(bench)


@pytest.mark.parametrize("bench", ["hf", "text of lm-eval's hf"], indirect=True)
def test_error_of_the_model_is_not_swallowed(bench: Bench) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("planted")

    sampler = bench.open()
    hook = register_module_forward_pre_hook(fail)
    try:
        with pytest.raises(Exception, match="planted"):
            draw(sampler)
    finally:
        hook.remove()
    assert draw(sampler)


@pytest.mark.parametrize("bench", ["hf", "text of lm-eval's hf"], indirect=True)
def test_closed_sampler_frees_its_model(bench: Bench) -> None:
    def count_models() -> int:
        gc.collect()
        return sum(type(thing) is LlamaForCausalLM for thing in gc.get_objects())

    bench.close()
    before = count_models()
    bench.open()
    assert count_models() == before + 1
    bench.close()
    assert count_models() == before


def test_every_registered_sampler_has_a_row() -> None:
    registered = {entry.name for entry in load_plugins().all() if entry.kind == "sampler"}
    assert registered == {row.name for row in BACKENDS.values() if not row.plugin}
