"""Functions for the worker processes of test_workers.py."""

import os
import resource
import time
from pathlib import Path

prepared = False


def prepare():
    global prepared
    prepared = True


def was_prepared(item):
    return prepared


def square(item):
    return item * item


def misbehave(item):
    """Perform the fault that the item names."""
    match item:
        case "hang in C":
            return 7 ** (7**9)
        case "sleep":
            time.sleep(600)
        case "swallow":
            while True:
                try:
                    time.sleep(600)
                except BaseException:
                    continue
        case "die":
            os._exit(3)
        case ["die once", flag]:
            if not Path(flag).exists():
                Path(flag).touch()
                os._exit(3)
            return "survived"
        case "die loudly":
            os.write(2, b"first line\nout of luck\n")
            os.abort()
        case "exhaust memory":
            return len(bytearray(1 << 40))
        case "raise":
            raise KeyError("a key")
        case "exit":
            raise SystemExit(4)
        case "unprintable":
            raise Unprintable
        case "no JSON":
            return {1, 2}
    return item


class Unprintable(Exception):
    def __str__(self):
        raise ValueError("no text for this")


def environment(item):
    return {
        "pid": os.getpid(),
        "hash_seed": os.environ["PYTHONHASHSEED"],
        "cpu_limit": resource.getrlimit(resource.RLIMIT_CPU)[0],
    }
