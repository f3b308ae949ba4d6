# SPDX-License-Identifier: MIT
"""The table of the matrix: one line for each surrounding, and one for each way in which a program can end.

A surrounding is made by tests/matrix/surround.c from `words`. `outcome` names, for a door (or a door and a program),
the text of the tool's one line if the program runs unprobed; through all other doors it is traced.
"""
import signal
from dataclasses import dataclass, field

ADDR_NO_RANDOMIZE, ADDR_COMPAT_LAYOUT = 0x0040000, 0x0200000
CORE, CPU, DATA, FSIZE, STACK, NPROC, NOFILE, AS, SIGPENDING = 4, 0, 2, 1, 3, 6, 7, 9, 11
UNLIMITED = -1


@dataclass
class Environment:
    name: str
    words: list = field(default_factory=list)
    outcome: dict = field(default_factory=dict)
    variables: dict = field(default_factory=dict)
    arguments: list = field(default_factory=list)
    doors: tuple = ()  # all
    only: tuple = ()  # all programs
    root: bool = True
    bare: bool = False  # no variables at all
    buffer: str = "64K"  # one ring
    hits: int = None  # if the program cannot count

    def refused(self, door, program):
        for key in ((door, program.name), door):
            if key in self.outcome:
                return self.outcome[key]
        return None


UNSEEN = "no probe, no line"  # and a line of docs/limits.md
OWN_FILTER = "seccomp filter of its own"


def all_doors(reason):
    return {"tool": reason, "around": reason, "preload": reason}


E = Environment
MUSL = ("cell_musl", "cell_musl_static")
FROM_OUTSIDE = ("around", "preload")
CELLS = ("cell", "cell_static", "cell_musl", "cell_musl_static")
BIG = {f"BIG{n}": "x" * 120_000 for n in range(8)}

ENVIRONMENTS = [
    E("plain", root=False),
    # users
    E("unprivileged user", ["user=65534"]),
    E("root without capabilities", ["capabilities"]),
    E("no new privileges", ["no-new-privileges"], root=False),
    E("unprivileged user without new privileges", ["no-new-privileges", "user=65534"]),
    # namespaces
    E("new user namespace", ["user-namespace"]),
    E("new user namespace for an unprivileged user", ["user=65534", "user-namespace"]),
    E("new network, ipc, mounts", ["namespaces", "mounts"]),
    E("first process of a namespace", ["processes", "mounts", "proc"]),
    E("first process on an overlay", ["processes", "mounts", "proc", "overlay={out}/o.{number}"], {"around": UNSEEN}),
    E("overlay", ["mounts", "overlay={out}/o.{number}"], {"around": UNSEEN}),
    E("other PID namespace's proc", ["processes"], {"tool": "/proc", "preload": "/proc"}),
    E("no proc", ["mounts", "no-proc"], {"tool": "/proc", "preload": "/proc", ("preload", "cell_musl"): UNSEEN}),
    E("hidden processes", ["mounts", "no-proc", "proc=hidepid=2"]),
    E("hidden processes, unprivileged user", ["mounts", "no-proc", "proc=hidepid=2", "user=65534"]),
    # files
    E("read-only /tmp, no HOME", ["mounts", "read-only=/tmp"]),
    E("library where nothing may be executed", ["mounts", "no-exec={library}"], doors=("tool", "around")),
    E("bare root", ["root={bare}"], doors=("around",), only=("cell_static", "cell_musl_static")),
    E("deleted folder", ["deleted-folder={out}/gone.{number}"]),
    E("folder of another user", ["folder=/root", "user=65534"]),
    # filters
    E("filter of a container", ["filter=container"], {"around": OWN_FILTER}),
    E("no tracing", ["filter=tracing"], {"tool": "ptrace", "around": OWN_FILTER}),
    E("no memfd", ["filter=memfd"], {"tool": "memfd", "around": OWN_FILTER, "preload": "errno 1"}),
    E("no executable memory", ["filter=executable"],
      {"tool": "not permitted", "around": OWN_FILTER, "preload": "not permitted"}),
    E("death for executable memory", ["filter=executable-kill"], {"preload": "seccomp"}, doors=("preload",)),
    E("allow-list", ["filter=others"], {"around": OWN_FILTER, "preload": ""}, doors=FROM_OUTSIDE, only=CELLS),
    E("allow-list, death for the rest", ["filter=others-kill"], {"around": OWN_FILTER, "preload": "seccomp"},
      doors=FROM_OUTSIDE, only=CELLS),
    # memory
    E("no randomisation", [f"personality={ADDR_NO_RANDOMIZE}"], root=False),
    E("legacy layout", [f"personality={ADDR_COMPAT_LAYOUT}"], root=False),
    E("legacy layout without randomisation", [f"personality={ADDR_COMPAT_LAYOUT | ADDR_NO_RANDOMIZE}"], root=False),
    E("unlimited stack", [f"limit={STACK}:{UNLIMITED}"]),
    E("small stack", [f"limit={STACK}:{256 << 10}"], root=False),
    E("tiny stack", [f"limit={STACK}:{32 << 10}"], {"preload": "ended before"}, only=MUSL, doors=FROM_OUTSIDE,
      root=False),
    E("tiny stack that may grow", [f"limit={STACK}:{32 << 10}:{UNLIMITED}"], only=MUSL, doors=FROM_OUTSIDE),
    E("small address space that may grow", [f"limit={AS}:{60 << 20}:{UNLIMITED}"], only=MUSL, doors=FROM_OUTSIDE),
    E("no writable code", ["mdwe"], root=False),
    E("address space of 400 MB", [f"limit={AS}:{400 << 20}"], root=False),
    E("address space of 60 MB", [f"limit={AS}:{60 << 20}"], root=False, only=MUSL, doors=("around",)),
    E("address space of 60 MB, large buffers", [f"limit={AS}:{60 << 20}"], all_doors("address space"), root=False,
      only=CELLS, buffer="4M"),
    E("data of 4 MB", [f"limit={DATA}:{4 << 20}"], {"tool": "run out|does not fit into memory", "preload": "run out"}, only=CELLS, root=False),
    E("data of 3 MB, many threads", [f"limit={DATA}:{3 << 20}"], arguments=["crowd"], only=CELLS, root=False,
      doors=("around",)),
    # limits
    E("4 descriptors", [f"limit={NOFILE}:4"], {"tool": "", "preload": ""}, root=False),
    E("8 descriptors, 64 at most", [f"limit={NOFILE}:8:64"], root=False),
    E("no file may grow", [f"limit={FSIZE}:0"], {"tool": "too large", "preload": "errno 27"}, root=False),
    E("no further process", ["user=65533", f"limit={NPROC}:1"], {"tool": "fork", "preload": "errno 11"},
      only=(*CELLS, "python3")),
    E("no pending signals", [f"limit={SIGPENDING}:0"], root=False),
    E("no core", [f"limit={CORE}:0"], root=False),
    E("data of 64 MB", [f"limit={DATA}:{64 << 20}"], root=False),
    # descriptors
    E("no standard input", ["close=0"], root=False),
    E("no standard output", ["close=1"], root=False, hits=18, only=CELLS),
    E("no standard error", ["close=2"], root=False),
    E("no descriptor", ["close-all"], root=False, hits=18, only=CELLS),
    # signals
    *[E(f"{name} blocked", [f"block={int(number)}"], root=False)
      for name, number in (("SIGTRAP", signal.SIGTRAP), ("SIGSEGV", signal.SIGSEGV), ("SIGBUS", signal.SIGBUS))],
    *[E(f"{name} ignored", [f"ignore={int(number)}"], root=False)
      for name, number in (("SIGTRAP", signal.SIGTRAP), ("SIGSEGV", signal.SIGSEGV), ("SIGBUS", signal.SIGBUS),
                           ("SIGPIPE", signal.SIGPIPE), ("SIGCHLD", signal.SIGCHLD))],
    E("all signals blocked", ["block=0"], root=False),
    E("SIGTRAP blocked and ignored", ["ignore=5", "block=5"], root=False),
    # the scheduler
    E("nice 19", ["nice=19"], root=False),
    E("real-time", ["fifo=1"]),
    E("one CPU", ["cpu=0"], root=False),
    E("real-time on one CPU", ["fifo=1", "cpu=0"]),
    E("subreaper", ["reaper"], root=False),
    # what a program is given
    E("no variable", bare=True, root=False),
    E("huge environment", variables=BIG, root=False),
    E("huge arguments", arguments=["x" * 120_000] * 8, root=False, only=CELLS),
    E("no arguments at all", ["no-words"], doors=FROM_OUTSIDE, only=CELLS, root=False),
    E("no rseq", variables={"GLIBC_TUNABLES": "glibc.pthread.rseq=0"}, root=False),
    E("no time stamps", ["no-tsc"], doors=("around",), only=("cell_static", "cell_musl_static"), root=False),
]



@dataclass
class Ending:
    """A way to go on or to end that the program chooses itself: a mode of tests/matrix/cell.c."""
    mode: str
    hits: tuple = ()  # at least, at most; empty: the program's own count
    words: list = field(default_factory=list)  # a surrounding
    said: list = field(default_factory=list)  # by the tool; a preloaded agent goes on with the daemon


# A daemon outlives its starter: the tool stops tracing then, a helper goes on.
ENDINGS = [
    Ending("work"),
    Ending("signals"),
    Ending("strict"),
    Ending("filter"),
    Ending("user"),
    Ending("undumpable"),
    Ending("undumpable", words=["user=65534"]),
    Ending("unlinked"),
    Ending("unlinked", words=["user=65534"]),
    Ending("descriptors"),
    Ending("daemon", hits=(4, 6),
           said=["uprobe-run: 1 traced process goes on untraced; --until=last stays until the last has ended"]),
    Ending("chain 3", hits=(4, 4)),
    Ending("chain 3", hits=(4, 4), words=["user=65534"]),
    Ending("chain 3", hits=(4, 4), words=["filter=container"]),
    Ending("stopped"),
    Ending("failing-execs"),
    *[Ending(f"signal {int(number)}") for number in (signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV, signal.SIGTRAP,
                                                     signal.SIGTERM, signal.SIGHUP, signal.SIGINT)],
    Ending("quick"),
    Ending("at-once"),
    Ending("without-main"),
]

# Programs that start the program, with the tool before them or the library in both.
WRAPPERS = {
    "timeout": ["timeout", "60"],
    "nohup": ["nohup"],
    "setsid": ["setsid", "--wait"],
    "nice": ["nice", "-n", "5"],
    "env": ["env", "A=b"],
    "sh": ["sh", "-c", 'exec "$@"', "sh"],
    "sh and child": ["sh", "-c", '"$@"; exit $?', "sh"],
    "substitution": ["sh", "-c", 'out=$("$@"); code=$?; echo "$out"; exit $code', "sh"],
    "pipe": ["bash", "-c", 'set -o pipefail; "$@" | cat', "bash"],
    "xargs": ["sh", "-c", 'echo work | xargs "$1"', "sh"],
}
