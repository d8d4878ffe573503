"""Training on several processes: the launcher that the local executor's jobs use.

``python -m gapft_harness.stages.train.launch`` is torch's own launcher, ended with the process that
started it. The processes that it starts run ``python -m gapft_harness.training`` and report on
standard output, a line of JSON each; other lines are what they print.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from gapft_harness.core.errors import ERRORS, GapftError
from gapft_harness.core.processes import die_with, thread_limits
from gapft_harness.core.records import Arm
from gapft_harness.hooks.protocols import ReportProgress
from gapft_harness.recipe.sections import ExecutorChoice

#: What a line of a report begins with.
MARK = "gapft-training: "


def launch(
    run: Path,
    arms: Sequence[Arm],
    plugin_files: Sequence[str],
    settings: ExecutorChoice,
    progress: ReportProgress,
) -> dict[str, list[str]]:
    """Trains arms on ``settings.processes`` processes of this machine, and waits for them.

    Returns:
        By arm name, what trackers could not do, if anything.

    Raises:
        GapftError: the error of the process that failed.
    """
    command = [
        sys.executable,
        "-s",
        "-m",
        "gapft_harness.stages.train.launch",
        str(os.getpid()),
    ]
    command += ["--standalone", f"--nproc-per-node={settings.processes}", "-m"]
    command += ["gapft_harness.training", str(run), "--held"]
    for arm in arms:
        command += ["--arm", arm.name]
    for file in plugin_files:
        command += ["--plugin", file]
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            **thread_limits(settings.threads),
            "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path))),
        },
    )
    assert child.stdout is not None
    failure: GapftError | None = None
    warnings: dict[str, list[str]] = {}
    for line in child.stdout:
        if not line.startswith(MARK):
            print(line, end="")
            continue
        kind, *fields = json.loads(line.removeprefix(MARK))
        if kind == "progress":
            progress(*fields)
        elif kind == "warnings":
            (warnings,) = fields
        elif failure is None:  # the first tells the cause; others may fail for its absence
            name, text = fields
            failure = next((e for e in ERRORS if e.__name__ == name), GapftError)(text)
    if child.wait() or failure:
        raise failure or GapftError(
            f"training on {settings.processes} processes ended with exit status {child.returncode}"
        )
    return warnings


if __name__ == "__main__":
    from torch.distributed.run import main

    die_with(int(sys.argv[1]))
    main(sys.argv[2:])
    # All processes have ended well. The interpreter's own end, with the rendezvous's threads still
    # there, has been seen not to come.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
