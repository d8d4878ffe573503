"""Which model arguments and environment variables enter the key of responses."""

from __future__ import annotations

import inspect
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.identities import content_hash
from gapft_harness.core.numerics import decides_results, describe_environment
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.hooks.registration import SamplerTraits
from gapft_harness.stages import descriptions
from gapft_harness.stages.descriptions import (
    describe_libraries,
    describe_sampler,
    describe_sampling_machine,
)
from tests.kit.tiny_models import write_byte_llama

BACKENDS = ("hf", "vllm")

#: Model settings on which no response depends. Everything else is in the key.
NO_EFFECT = {"hf": set[str](), "vllm": {"gpu_memory_utilization", "kv_cache_memory_bytes"}}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_byte_llama(tmp_path_factory.mktemp("model") / "here")


def compute_key(model: Path, backend: str, /, **arguments: Any) -> str:
    settings = SamplerSettings(backend, {"pretrained": str(model), **arguments}, threads=1)
    described, is_known = describe_sampler(settings, load_plugins(), None)
    assert is_known or "subfolder" in arguments
    machine = describe_sampling_machine(load_plugins().get("sampler", backend))
    return content_hash([described, machine])


def list_arguments(backend: str) -> list[str]:
    """Return the arguments that a sampler accepts by name; vLLM need not be installed."""
    from lm_eval.models.huggingface import HFLM

    names = {
        "hf": {*inspect.signature(HFLM.__init__).parameters, "device_map", "attn_implementation"},
        "vllm": {
            "batch_size", "dtype", "enable_chunked_prefill", "enable_prefix_caching", "revision",
            "enforce_eager", "kv_cache_dtype", "max_model_len", "max_num_batched_tokens",
            "max_num_seqs", "quantization", "tensor_parallel_size", "tokenizer",
            "trust_remote_code",
        },
    }  # fmt: skip
    return sorted((names[backend] | NO_EFFECT[backend]) - {"self", "kwargs", "pretrained"})


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_argument_has_its_declared_effect(model: Path, backend: str) -> None:
    free = load_plugins().get("sampler", backend).require_traits(SamplerTraits).operational
    assert set(free) == NO_EFFECT[backend]
    names = list_arguments(backend)
    assert len(names) > 10
    without = compute_key(model, backend)
    for name in names:
        keys = {
            without,
            *(compute_key(model, backend, **{name: value}) for value in (True, 2, "two")),
        }
        assert len(keys) == (1 if name in NO_EFFECT[backend] else 4), name


# no text names a folder of the system, whose files would be hashed: /proc/kmsg has no end
texts = st.text(st.characters(codec="ascii", exclude_characters="/"), max_size=5)
values = st.recursive(
    st.booleans() | st.integers(-(2**40), 2**40) | texts
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
some_arguments = st.dictionaries(st.sampled_from([f"argument{i}" for i in range(5)]), values)


def rewrite_value(value: Any, rng: random.Random) -> Any:
    """Return the same value, written differently."""
    if isinstance(value, dict):
        items = [(name, rewrite_value(inner, rng)) for name, inner in value.items()]
        rng.shuffle(items)
        return dict(items)
    if isinstance(value, list):
        return rng.choice([list, tuple])(rewrite_value(inner, rng) for inner in value)
    if isinstance(value, int) and not isinstance(value, bool) and float(value) == value:
        return rng.choice([int, float])(value)
    return value


@given(arguments=some_arguments, seed=st.integers(0, 2**32))
def test_equal_arguments_give_equal_keys(model: Path, arguments: dict[str, Any], seed: int) -> None:
    rng = random.Random(seed)
    expected = compute_key(model, "vllm", **arguments)
    same = {**rewrite_value(arguments, rng), "unset": None, "gpu_memory_utilization": rng.random()}
    assert compute_key(model, "vllm", **same) == expected
    name = rng.choice([f"argument{i}" for i in range(5)])
    assert compute_key(model, "vllm", **{**arguments, name: "another value"}) != expected


@pytest.mark.parametrize("text", [".", "..", "/", "//"])
def test_text_that_happens_to_name_the_working_folder_is_a_text(text: str) -> None:
    assert descriptions.describe_argument([text]) == [text]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_files_named_by_arguments_count_by_content(model: Path, tmp_path: Path, kind: str) -> None:
    places = [tmp_path / name for name in ("one", "other")]
    files = [place / "template" for place in places]
    for file in files:
        file.parent.mkdir()
        file.write_text("{{ messages }}")
    arguments = [str(path) for path in (files if kind == "file" else places)]
    (places[1] / "code.pyc").write_text("compiled at another time")
    first, second = (compute_key(model, "hf", template=name) for name in arguments)
    assert first == second
    files[1].write_text("{{ messages }} ")
    assert compute_key(model, "hf", template=arguments[1]) != first


#: Environment variables that change how results are computed.
OF_LIBRARIES = (
    "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG",
    "ATEN_CPU_CAPABILITY", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA", "USE_HUB_KERNELS", "NCCL_ALGO",
    "TORCH_BLAS_PREFER_CUBLASLT", "FLASH_ATTENTION_DETERMINISTIC",
)  # fmt: skip
OF_VLLM = ("VLLM_ATTENTION_BACKEND", "VLLM_BATCH_INVARIANT", "VLLM_USE_V1", "VLLM_ANY_NEW_ONE")
NO_INFLUENCE = (
    "VLLM_LOGGING_LEVEL", "VLLM_CACHE_ROOT", "VLLM_API_KEY", "VLLM_HOST_IP", "VLLM_NO_USAGE_STATS",
    "VLLM_CPU_OMP_THREADS_BIND", "OMP_NUM_THREADS", "HF_HOME", "HF_HUB_OFFLINE", "GAPFT_STORE",
    "HOME", "TQDM_DISABLE",
)  # fmt: skip


@pytest.mark.parametrize("name", [*OF_LIBRARIES, *OF_VLLM, *NO_INFLUENCE])
def test_environment_variables_have_their_declared_effect(
    model: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv(name, raising=False)
    before = {backend: compute_key(model, backend) for backend in BACKENDS}
    monkeypatch.setenv(name, "1")
    changed = {backend for backend in BACKENDS if compute_key(model, backend) != before[backend]}
    expected = (*BACKENDS,) if name in OF_LIBRARIES else ("vllm",) if name in OF_VLLM else ()
    assert changed == set(expected)


def test_vllm_process_variables_change_no_key(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key does not change when an engine starts in the process."""
    from gapft_harness.lm_eval_bridge.samplers.vllm.process import _ENVIRONMENT

    for name in _ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    before = compute_key(model, "vllm")
    for name, value in _ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    assert compute_key(model, "vllm") == before
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    assert compute_key(model, "vllm") != before


def test_training_key_covers_torch_but_not_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    assert "NVIDIA_TF32_OVERRIDE" in describe_environment()
    assert "VLLM_BATCH_INVARIANT" not in describe_environment()
    assert decides_results("VLLM_BATCH_INVARIANT")


def test_visible_gpus_and_library_builds_count(
    model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number, name in enumerate(("A", "B")):
        (tmp_path / f"gpus/{number}").mkdir(parents=True)
        (tmp_path / f"gpus/{number}/information").write_text(f"Model: \t {name}\n")
    monkeypatch.setattr(descriptions, "Path", lambda path: tmp_path / str(path).rpartition("/")[2])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    texts = []
    for visible in (None, "", "0", "1"):
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        texts.append(json.dumps(descriptions.describe_accelerators()))
    assert texts[:2] == ['["A", "B", "shown: all"]', "[]"]
    assert len(set(texts)) == 4
    monkeypatch.setenv("GAPFT_VISIBLE_DEVICES", "all")
    assert json.dumps(descriptions.describe_accelerators()) == texts[0], "in a worker"
    builds: list[Callable[[str], str]] = [lambda name: "2.9.1+cpu", lambda name: "2.9.1+cu128"]
    for build in builds:
        monkeypatch.setattr(descriptions, "find_version", build)
        texts.append(describe_libraries(("torch",))["torch"])
    assert texts[-2:] == ["2.9+cpu", "2.9+cu128"]
