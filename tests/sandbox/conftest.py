from __future__ import annotations

import pytest

from gapft_harness.sandbox import Limits, Sandbox
from gapft_harness.sandbox.records import TIERS
from tests.sandbox.outside_world import World

#: Small limits, so that an attack does not disturb the machine that runs the tests.
LIMITS = Limits(
    cpu_s=0.4, wall_s=5, memory_bytes=256 << 20, output_bytes=1 << 20, disk_bytes=2 << 20
)


@pytest.fixture(scope="module", params=TIERS)
def sandbox(request, world):
    """A started sandbox of each tier; this machine must support both.

    It starts after the world, which tells its processes from those of earlier tests.
    """
    with Sandbox(tier=request.param, workers=1, limits=LIMITS) as started:
        yield started


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    outside = World(tmp_path_factory.mktemp("outside"))
    yield outside
    outside.close()
