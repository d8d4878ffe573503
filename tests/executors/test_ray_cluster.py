"""The environment of Ray's workers."""

from __future__ import annotations

import os
import sys

import pytest

from gapft_harness.executors.ray_cluster import build_worker_environment


def test_environment_passes_settings_but_no_secrets_or_paths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed_on = {
        "VLLM_BATCH_INVARIANT": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "HF_HUB_OFFLINE": "1",
        "GAPFT_DATA_DIR": "/shared/data",
        "GAPFT_REVISION_MATH": "abc",
    }
    kept_here = (
        *("OPENAI_API_KEY", "HF_TOKEN", "VLLM_API_KEY", "GAPFT_SOME_SECRET", "HF_HOME"),
        *("VLLM_HOST_IP", "VLLM_PORT", "VLLM_CACHE_ROOT", "VLLM_DP_RANK", "AWS_SECRET_ACCESS_KEY"),
    )
    for name, value in {**passed_on, **dict.fromkeys(kept_here, "own")}.items():
        monkeypatch.setenv(name, value)
    environment = build_worker_environment(2)
    assert passed_on.items() <= environment.items()
    assert not environment.keys() & set(kept_here)
    assert environment["OMP_NUM_THREADS"] == "2"


def test_environment_omits_installed_package_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """This includes the extra folders of Debian's Python: each node has its own."""
    debians, own = "/usr/lib/python3/dist-packages", "/home/me/plugins"
    monkeypatch.setattr("site.getsitepackages", lambda: [debians])
    monkeypatch.setattr("sys.path", [own, debians, *sys.path])
    assert build_worker_environment(2)["PYTHONPATH"].split(os.pathsep)[0] == own
    assert debians not in build_worker_environment(2)["PYTHONPATH"].split(os.pathsep)
