"""Canaries: programs that attempt forbidden actions, run in the sandbox before any other program.

The kernel version does not show what a container or a security module refuses; canaries do.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from gapft_harness.sandbox.records import Program, Result, Test, Tier
from gapft_harness.sandbox.schedule import Schedule

_REMEDIES: dict[Tier, str] = {
    "namespaces": (
        "allow unprivileged user namespaces (sysctl user.max_user_namespaces above 0, "
        "kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0; in a "
        "container, a seccomp profile that permits unshare and mount), Linux 5.12 or later"
    ),
    "landlock": (
        "use a kernel with landlock (Linux 5.13 or later, 'landlock' in the lsm= boot parameter; "
        "in a container, a seccomp profile that permits landlock_* system calls)"
    ),
}
_BROKEN = "do not use this tier on this machine, and report a bug with the output of `gapft doctor`"


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of one probe of one tier.

    Attributes:
        tier: the tier.
        name: the action that was attempted.
        holds: whether the sandbox behaved correctly.
        found: a description of the outcome.
        remedy: the remedy if the probe failed; else empty.
    """

    tier: Tier
    name: str
    holds: bool
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        """Format the probe for ``gapft doctor``."""
        end = f"; to do: {self.remedy}" if self.remedy else ""
        return f"{self.tier}, {self.name}: {'holds' if self.holds else 'FAILS'} ({self.found}){end}"


_TRY = """
import json, os, socket
given = json.loads(input())
def attempt():
{body}
try:
    attempt()
except BaseException as error:
    print("refused")
else:
    print("done")
"""

#: Action -> the code of its canary; ``given`` holds paths and numbers of this process.
_CANARIES = {
    "fork": "pid = os.fork()\nif pid == 0: os._exit(0)",
    "exec": "os.execv(given['shell'], [given['shell'], '-c', 'echo done'])",
    "socket": "socket.create_connection(('127.0.0.1', given['port']), timeout=1)",
    "outside read": "open(given['file']).read()",
    "outside write": "open(given['file'], 'a').write('x')",
    "outside create": "open(given['file'] + '.new', 'w').write('x')",
    "signal to others": "os.kill(given['pid'], 0)",
    "memory": "b'x' * given['too_much']",
}


def build_failed_start(tier: Tier, reason: str) -> Probe:
    """Create the probe of a tier whose workers could not start."""
    return Probe(tier, "start", False, reason, _REMEDIES[tier])


def run_canaries(schedule: Schedule, memory_bytes: int) -> list[Probe]:
    """Run a correct program that must be accepted, and every canary."""
    tier = schedule.tier
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(socket.create_server(("127.0.0.1", 0))) as listener,
    ):
        # Put something within reach of an unprotected program: a file, a listener, this process
        canary = Path(folder) / "canary"
        canary.write_text("untouched")
        os.chmod(folder, 0o777)  # only the sandbox may protect it, not the file mode
        os.chmod(canary, 0o666)
        canary_values = {
            "file": str(canary),
            "port": listener.getsockname()[1],
            "pid": os.getpid(),
            "shell": "/bin/sh",
            "too_much": 2 * memory_bytes,
        }
        refusal = Test(json.dumps(canary_values), "refused")
        # Run a correct program and those that reach for it
        results = dict(
            schedule.run(
                [
                    (Program("import colorsys\nprint(int(input()) + 1)"), [Test("41", "42")]),
                    *((Program(_build_canary(body)), [refusal]) for body in _CANARIES.values()),
                ]
            )
        )
        # Look whether anything was reached
        listener.setblocking(False)
        try:
            listener.accept()
        except BlockingIOError:
            reached = False
        else:
            reached = True
        intact = canary.read_text() == "untouched" and len(os.listdir(folder)) == 1
    # Describe each result
    first, *others = [results[number] for number in sorted(results)]
    correct_ran = first.verdict == "accepted"
    probes = [
        _build_probe(
            tier,
            "a correct program runs",
            correct_ran,
            "it ran" if correct_ran else _describe_result(first),
        ),
    ]
    for name, result in zip(_CANARIES, others, strict=True):
        holds = result.verdict == "accepted"
        probes.append(
            _build_probe(tier, name, holds, "refused" if holds else _describe_result(result))
        )
    changed = "unchanged" if intact and not reached else "a file or a listener was reached"
    probes.append(_build_probe(tier, "traces outside", intact and not reached, changed))
    return probes


def _build_canary(body: str) -> str:
    return _TRY.format(body="\n".join(f"    {line}" for line in body.splitlines()))


def _build_probe(tier: Tier, name: str, holds: bool, outcome: str) -> Probe:
    return Probe(tier, name, holds, outcome, "" if holds else _BROKEN)


def _describe_result(result: Result) -> str:
    test = result.tests[-1]
    return f"{test.verdict}: {test.reason} {test.error.strip()[-200:]}".strip()
