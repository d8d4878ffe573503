"""Starting a Ray on this machine, and the environment of its workers."""

from __future__ import annotations

import importlib.util
import mmap
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.errors import GapftError
from gapft_harness.executors.ray_cluster import (
    RAY_ENVIRONMENT,
    _start_with_retries,
    build_worker_environment,
)


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


def test_ray_knows_its_start_settings() -> None:
    """Ray silently ignores an unknown setting."""
    spec = importlib.util.find_spec("ray")
    assert spec is not None
    assert spec.origin
    folder = Path(spec.origin).parent
    unknown = {name.encode() for name in RAY_ENVIRONMENT}
    private = [path for path in folder.glob("_*/**/*.py") if path.stat().st_size]
    for path in [*private, folder / "_raylet.so", folder / "core/src/ray/raylet/raylet"]:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            unknown = {name for name in unknown if text.find(name) < 0}
    assert not unknown


def test_retries_ray_start_before_error() -> None:
    """Uses a fake ray: a real one fails to start only on a very busy machine."""

    class Busy:
        calls = 0

        def init(self, **settings: Any) -> None:
            self.calls += 1
            if self.calls != 6:
                raise Exception("The current node timed out during startup.")

        def shutdown(self) -> None:
            pass

    busy = Busy()
    with pytest.raises(GapftError, match=r"did not start .* 3 attempts: The current"):
        _start_with_retries(busy, 2)
    assert busy.calls == 3
    _start_with_retries(busy, 2)
    assert busy.calls == 6
