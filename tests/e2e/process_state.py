# SPDX-License-Identifier: MIT
"""The state of a process that must be the same after tracing as before."""
import os
import re
import zlib

SWITCHED = re.compile(r"^(?:State|Sig(?:Pnd|Blk|Ign|Cgt)|ShdPnd|TracerPid|Seccomp):.*$", re.M)


def read(path, mode="r"):
    with open(path, mode) as file:
        return file.read()


def mappings(pid):
    for line in read(f"/proc/{pid}/maps").splitlines():
        words = line.split(None, 5)
        begin, end = (int(word, 16) for word in words[0].split("-"))
        yield begin, end, words[1], words[5] if len(words) > 5 else ""


def checksum_of_text(pid):
    total = 0
    with open(f"/proc/{pid}/mem", "rb") as memory:
        for begin, end, rights, path in mappings(pid):
            if "x" not in rights or not (path.startswith("/") or path == "[vdso]") or "libuprobe" in path:
                continue
            memory.seek(begin)
            total = zlib.crc32(memory.read(end - begin), total)
    return total


def signals_of(pid):
    """Per thread: masks, pending signals, dispositions, tracer."""
    found = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            status = read(f"/proc/{pid}/task/{task}/status")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        found[task] = [line for line in SWITCHED.findall(status) if "State" not in line]
    return found


def same_threads(before, after):
    """Threads may have ended."""
    return after.items() <= before.items()


def footprint(pid):
    """Quantities that must not grow: mappings, address space, descriptors."""
    return (len(list(mappings(pid))), re.search(r"VmSize:\s+(\d+)", read(f"/proc/{pid}/status"))[1],
            len(os.listdir(f"/proc/{pid}/fd")))


def state_of(pid):
    return re.search(r"^State:\s+(\w)", read(f"/proc/{pid}/status"), re.M)[1]
