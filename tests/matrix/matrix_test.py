# SPDX-License-Identifier: MIT
"""Programs x surroundings x doors. Each cell: the program's output, exit code and stderr are those of the run without
probes, and the number of its hits is exactly its own count; or one line says why it runs unprobed, or is not started.

Doors:  tool     the tool runs in the surroundings, and starts the program there
        around   the tool runs outside and follows execve into the surroundings
        preload  LD_PRELOAD, in the surroundings
"""
import concurrent.futures
import itertools
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest
from dataclasses import dataclass

import harness
from environments import ENDINGS, ENVIRONMENTS, UNSEEN, WRAPPERS, Environment

FOLDER = "/var/tmp"  # outputs: some surroundings have a read-only /tmp
SHAPES = ("cell", "cell_static", "cell_musl", "cell_musl_static")
WORKERS = 4
DOORS = ("tool", "around", "preload")
PYTHON_JOB = "import os, sys\nfor _ in range(5): os.getppid()\nprint(os.getuid(), sys.flags.isolated)\nos._exit(7)"
BASH_JOB = "for i in 1 2 3; do echo $i; done; (echo sub); exit 7"


@dataclass
class Program:
    name: str
    path: str
    words: list
    probe: str
    hits: int = None  # None: it prints "calls N"
    static: bool = False


def shapes(folder):
    for name in SHAPES:
        built = os.path.join(harness.Options.fixtures or "", name)
        if os.path.exists(built):
            path = shutil.copy(built, folder)
            yield Program(name, path, [], f"p:hit {path}:take_number %di:u64", None, name.endswith("static"))


def library_of(program, name):
    listing = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    match = re.search(rf"(/\S*{re.escape(name)}\S*)", listing)
    return match and os.path.realpath(match[1])


def system_programs():
    python, bash = "/usr/bin/python3", shutil.which("bash")
    libc = os.path.exists(python) and library_of(python, "libc.so")
    if libc:
        yield Program("python3", os.path.realpath(python), ["-I", "-c", PYTHON_JOB], f"p:hit {libc}:getppid", 5)
    if bash and not subprocess.run([harness.tool(), "--dry-run", "-p", f"p {bash}:echo_builtin"],
                                   capture_output=True).returncode:
        yield Program("bash", os.path.realpath(bash), ["--norc", "-c", BASH_JOB],
                      f"p:hit {os.path.realpath(bash)}:echo_builtin", 4)


def open_to_all(path):
    while path != "/":
        if os.stat(path).st_mode & 0o001 == 0:
            return False
        path = os.path.dirname(path)
    return True


class Matrix(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="uprobe-matrix.", dir=FOLDER)
        cls.addClassCleanup(folder.cleanup)
        cls.work = folder.name
        for inner in (".", "programs", "out"):
            os.makedirs(os.path.join(cls.work, inner), exist_ok=True)
            os.chmod(os.path.join(cls.work, inner), 0o777)
        # beside each other, where everybody can reach them
        cls.tool = shutil.copy(harness.tool(), os.path.join(cls.work, "programs"))
        cls.library = shutil.copy(os.path.join(os.path.dirname(harness.tool()), "libuprobe.so"),
                                  os.path.join(cls.work, "programs"))
        surround = os.path.join(harness.Options.fixtures or "", "surround")
        if not os.path.exists(surround):
            raise unittest.SkipTest("no static C library: nothing to make surroundings with")
        cls.surround = shutil.copy(surround, os.path.join(cls.work, "programs"))
        cls.programs = [*shapes(os.path.join(cls.work, "programs")), *system_programs()]
        cls.numbers = itertools.count()
        cls.bare = os.path.join(cls.work, "bare")  # a root with nothing but the static programs, under their own names
        os.makedirs(cls.bare + os.path.join(cls.work, "programs"))
        for program in cls.programs:
            if program.static:
                os.link(program.path, cls.bare + program.path)

    def fill_in(self, word):
        return word.format(out=f"{self.work}/out", library=self.library, bare=self.bare, number=next(self.numbers))

    def variables(self, environment):
        return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", **environment.variables} if not environment.bare else {}

    def plain_run(self, environment, program, words):
        words = [*map(self.fill_in, environment.words), "--", program.path, *words]
        return harness.run([self.surround, *words], env=self.variables(environment))

    def run_through(self, door, environment, program, words, trace):
        make = [self.surround, *map(self.fill_in, environment.words), "--"]
        traced = [self.tool, "-b", environment.buffer, "-o", trace, "-p", program.probe, "--"]
        variables = self.variables(environment)
        if door == "tool":
            return harness.run([*make, *traced, program.path, *words], env=variables)
        if door == "around":
            return harness.run([*traced, *make, program.path, *words], env=variables)
        variables.update(LD_PRELOAD=self.library, UPROBE_PROBES=program.probe, UPROBE_OUTPUT=trace,
                         UPROBE_BUFFER_SIZE=environment.buffer)
        return harness.run([*make, program.path, *words], env=variables)

    def hits_in(self, trace):
        if not os.path.exists(trace):
            return []
        with open(trace, encoding="latin-1", newline="") as file:
            return harness.parse_trace(file.read())

    def expected_hits(self, program, plain):
        if program.hits is not None:
            return program.hits if plain.returncode == 7 else None
        counted = re.findall(rb"^calls (\d+)$", plain.stdout, re.M)
        return int(counted[-1]) if counted else None

    def await_hits(self, trace, expected):
        """After a violent death the last records follow a little later."""
        deadline = time.monotonic() + 5
        while len(self.hits_in(trace)) < expected and time.monotonic() < deadline:
            time.sleep(0.01)
        return len(self.hits_in(trace))

    def check_wrapped(self, door, program, wrapper):
        wrapped = Program(program.name, shutil.which(wrapper[0]), [], program.probe)
        words = [*wrapper[1:], program.path, *(["work"] if wrapper[1:2] != ["echo"] else [])]
        environment = Environment("wrapped")
        plain = self.plain_run(environment, wrapped, words)
        trace = os.path.join(self.work, "out", f"trace.{next(self.numbers)}")
        seen = self.run_through(door, environment, wrapped, words, trace)
        said, rest = self.complaints(seen.stderr)
        self.assertEqual((seen.returncode, seen.stdout, rest),
                         (plain.returncode, plain.stdout, plain.stderr.decode("latin-1").split("\n")))
        self.assertEqual(([line for line in said if "total: " not in line], len(self.hits_in(trace))), ([], 18))

    def copy_for(self, program, ending):
        """One that deletes itself gets a file of its own."""
        if ending.mode != "unlinked":
            return program
        path = harness.copied(program.path, f"{program.path}.{next(self.numbers)}")
        return Program(program.name, path, [], program.probe.replace(program.path, path))

    def check_ending(self, door, program, ending):
        words, environment = ending.mode.split(), Environment(ending.mode, ending.words)
        plain = self.plain_run(environment, self.copy_for(program, ending), words)
        own = self.copy_for(program, ending)
        trace = os.path.join(self.work, "out", f"trace.{next(self.numbers)}")
        seen = self.run_through(door, environment, own, words, trace)
        said, rest = self.complaints(seen.stderr)
        said = [line for line in said if not re.search(r"total: ", line)]
        self.assertEqual((seen.returncode, seen.stdout, rest, said),
                         (plain.returncode, plain.stdout, plain.stderr.decode("latin-1").split("\n"),
                          ending.said if door == "tool" else []))
        least, most = ending.hits or (int(re.findall(rb"^calls (\d+)$", plain.stdout, re.M)[-1]),) * 2
        if door == "preload":
            least = most
        hits = self.await_hits(trace, least)
        self.assertTrue(least <= hits <= most, f"{least} <= {hits} <= {most}: {said}")

    def complaints(self, stderr):
        """The lines of the tool or the agent, without the summary; and the remaining lines."""
        lines = stderr.decode("latin-1").split("\n")
        ours = [line for line in lines if re.match(r"uprobe(-run)?: ", line)]
        said = [line for line in ours if not re.search(r": \d+ hits?\b", line)]
        return said, [line for line in lines if line not in ours]

    def check(self, door, environment, program, words=()):
        """None, or the reason why it cannot run here."""
        plain = self.plain_run(environment, program, words)
        if plain.returncode == 77:
            return plain.stderr.decode().strip() or "not here"
        trace = os.path.join(self.work, "out", f"trace.{next(self.numbers)}")
        seen = self.run_through(door, environment, program, words, trace)
        hits = self.hits_in(trace)
        reason = environment.refused(door, program)
        said, rest = self.complaints(seen.stderr)
        where = f"{environment.name}, {door}, {program.name}: said {said}, stderr {rest}"
        if reason is UNSEEN:
            self.assertEqual((said, hits), ([], []), where)
        elif reason is None:
            self.assertEqual(said, [], where)
            self.assertEqual(len(hits), environment.hits if environment.hits is not None else
                             self.expected_hits(program, plain), where)
        else:
            self.assertEqual((len([line for line in said if re.search(reason, line)]), len(hits)), (1, 0), where)
        if reason is not None and door == "tool":
            self.assertEqual((seen.returncode, seen.stdout), (125, b""), where)
            return None
        self.assertEqual(rest, plain.stderr.decode("latin-1").split("\n"), where)
        self.assertEqual((seen.returncode, self.text_of(seen, door)), (plain.returncode, self.text_of(plain, door)),
                         where)
        return None

    def text_of(self, seen, door):
        """Under the tool, the tool is the reaper or the first process."""
        text = seen.stdout.decode("latin-1")
        return re.sub(r"\b(reaper|first) 1\b", r"\1 0", text) if door == "tool" else text


    def cells_of(self, environment):
        for program in self.programs:
            if environment.only and program.name not in environment.only:
                continue
            for door in environment.doors or DOORS:
                if door != "preload" or not program.static:
                    yield door, program

    def check_all(self, cells, check):
        """Several at a time: most of a run is waiting. Skips when none of them could be run."""
        def outcome(cell):
            try:
                return check(*cell)
            except AssertionError as error:
                return error
        cells = list(cells)
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            outcomes = list(pool.map(outcome, cells))
        for cell, result in zip(cells, outcomes):
            with self.subTest(door=cell[0], program=cell[1].name):
                if isinstance(result, AssertionError):
                    raise result
        if outcomes and all(isinstance(result, str) for result in outcomes):
            self.skipTest("; ".join(sorted(set(outcomes))))


def add_environment(environment):
    def test(self):
        if environment.root and os.geteuid() != 0:
            self.skipTest("needs root")
        if not open_to_all(self.work):
            self.skipTest("the folder is closed to others")
        def check(door, program):
            return self.check(door, environment, program, program.words + environment.arguments)
        self.check_all(self.cells_of(environment), check)
    test.__name__ = "test_" + re.sub(r"\W+", "_", environment.name)
    setattr(Matrix, test.__name__, test)


def add_ending(ending):
    def test(self):
        if ending.words and os.geteuid() != 0:
            self.skipTest("needs root")
        cells = [(door, program) for program in self.programs if program.hits is None
                 for door in ("tool", "preload") if door == "tool" or not program.static]
        self.check_all(cells, lambda door, program: self.check_ending(door, program, ending))
    test.__name__ = "test_ending_" + re.sub(r"\W+", "_", " ".join([ending.mode, *ending.words]))
    setattr(Matrix, test.__name__, test)


def add_wrapper(name, wrapper):
    def test(self):
        if not shutil.which(wrapper[0]):
            self.skipTest(f"{wrapper[0]} is not installed")
        cells = [(door, program) for program in self.programs if program.hits is None
                 for door in ("tool", "preload") if door == "tool" or not program.static]
        self.check_all(cells, lambda door, program: self.check_wrapped(door, program, wrapper))
    test.__name__ = "test_under_" + re.sub(r"\W+", "_", name)
    setattr(Matrix, test.__name__, test)


for line in ENVIRONMENTS:
    add_environment(line)
for line in ENDINGS:
    add_ending(line)
for line in WRAPPERS.items():
    add_wrapper(*line)


if __name__ == "__main__":
    harness.main()
