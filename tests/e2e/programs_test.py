# SPDX-License-Identifier: MIT
"""Real programs doing real work with probes in their hot functions: output, exit code and the effects on other programs must be
the same as without. program_jobs.py has the jobs. UPROBE_TEST_LONG=1 arms all functions of each target at once, under the tool and
under LD_PRELOAD, which takes minutes.
"""
import os
import random
import re
import shutil
import signal
import subprocess
import time
import unittest

import harness
import oracle
import program_jobs
from harness import LONG

SECONDS = 600 if LONG else 60



def without_ours(stderr):
    return b"".join(line for line in stderr.splitlines(keepends=True) if not line.startswith(b"uprobe-run: "))


class Jobs(harness.TestCase):
    def run_job(self, job, options=(), **variables):
        """In an empty folder of the same name each time. `options`: of the tool, which does not run without any."""
        folder = self.path("job")
        os.mkdir(folder)
        command = [job.shell, "-c", job.script]
        if options:
            command = harness.tracer(*options, "--", *command)
        seen = harness.run(command, env={**program_jobs.ENVIRONMENT, "BUILT": self.path("built"), **variables},
                           cwd=folder, timeout=SECONDS)
        shutil.rmtree(folder)
        return seen

    def read_trace(self, path):
        with open(path, encoding="latin-1", newline="") as file:
            counts = {}
            for line in file:
                match = harness.RECORD.fullmatch(line.rstrip("\n"))
                if match:
                    counts[match["event"]] = counts.get(match["event"], 0) + 1
        os.remove(path)
        return counts

    def assert_same(self, seen, plain):
        self.assertEqual((seen.returncode, seen.stdout, without_ours(seen.stderr)),
                         (plain.returncode, plain.stdout, plain.stderr))

    def prepare(self, job):
        harness.tool()
        os.chmod(self.folder, 0o755)
        os.mkdir(self.path("built"))
        target = program_jobs.target_of(job, self.path("built"))
        if not target:
            self.skipTest(f"{job.target} or what its job needs is not here")
        return target

    def check_hot(self, job):
        target = self.prepare(job)
        definitions = [f"p:e{n} {target}:{name} %di %si +0(%di):x64" for n, name in enumerate(job.hot.split())]
        if not definitions:  # a stripped program: every twentieth of its functions
            definitions = program_jobs.definitions_of(job, target, harness.tool())[::20]
        listed = self.write("definitions", "\n".join(definitions) + "\n")
        plain = self.run_job(job)
        seen = self.run_job(job, ["-q", "-b", "16M", "-o", self.path("trace"), "-i", listed])
        self.assert_same(seen, plain)
        counts = self.read_trace(self.path("trace"))
        if job.hot:
            self.assertEqual(sorted(counts), [f"e{n}" for n in range(len(definitions))], (job.hot, counts))
        self.assertNotEqual(counts, {})

    def check_all(self, job):
        target = self.prepare(job)
        listed = self.write("definitions", "\n".join(program_jobs.definitions_of(job, target, harness.tool())) + "\n")
        plain = self.run_job(job)
        self.assert_same(self.run_job(job, ["-q", "-b", "16M", "-o", self.path("trace"), "-i", listed]), plain)
        self.assertNotEqual(self.read_trace(self.path("trace")), {})
        if job.build or job.counts_variables:
            return
        preloaded = harness.preloaded(UPROBE_PROBES_FILE=listed, UPROBE_OUTPUT=self.path("trace"))
        self.assert_same(self.run_job(job, **preloaded), plain)
        self.assertNotEqual(self.read_trace(self.path("trace")), {})


def add_jobs():
    for job in program_jobs.JOBS:
        def test(self, job=job):
            self.check_all(job) if LONG else self.check_hot(job)
        if LONG or job.brief:
            setattr(Jobs, "test_" + re.sub(r"\W", "_", job.name), test)


class Counts(harness.TestCase):
    """Programs of one process, with a C library of their own: every hit that the kernel counts, and no more."""

    def check(self, command, functions, stdin=b""):
        oracle.require()
        harness.need(command[0])
        listing = subprocess.check_output(["ldd", shutil.which(command[0])], text=True)
        found = re.search(r"(/\S*/libc\.so\.6)", listing)
        if not found:
            self.skipTest("not a glibc program")
        os.mkdir(self.path("lib"))
        libc = shutil.copy(os.path.realpath(found[1]), self.path("lib/libc.so.6"))
        environment = {**program_jobs.ENVIRONMENT, "LD_LIBRARY_PATH": self.path("lib")}
        definitions = [f"p:{name} {libc}:{name} %di" for name in functions.split()]
        kernel = oracle.run_kernel(definitions, command, stdin, environment, randomise=False)
        seen = harness.run_tool(definitions, command, ["-q", "-b", "16M"], stdin, environment, randomise=False)
        self.assertEqual((seen.returncode, seen.stdout, seen.stderr), (kernel.returncode, kernel.stdout, kernel.stderr))
        self.assertGreater(len(kernel.hits), 0)
        self.assertEqual(seen.counts(), kernel.counts())

    def test_python(self):
        self.check(["/usr/bin/python3", "-c", program_jobs.PYTHON_TEXT], "malloc free realloc calloc read lseek64 sigaction")

    def test_perl(self):
        self.check(["perl", "-e", "my %h; $h{$_ % 17} .= 'x' x $_ for 1..200; print length join '', values %h"],
                   "malloc free realloc write getenv exit")

    def test_sqlite(self):
        job = b"create table t(a,b);\n" + b"".join(b"insert into t values(%d,'x%d');\n" % (n, n) for n in range(50))
        self.check(["sqlite3", ":memory:"], "malloc free realloc fgets write", job + b"select sum(a),max(b) from t;\n")

    def test_dash_and_its_children(self):
        self.check(["dash", "-c", program_jobs.SHELL], "malloc free fork execve waitpid write sigaction _exit")

    def test_sort(self):
        self.check(["sort"], "malloc fwrite strcoll getenv", b"".join(b"%d\n" % (n * 7919 % 1009) for n in range(1000)))

    def test_sed_and_gzip(self):
        self.check(["sed", "-E", "s/([0-9])1/<\\1>/g"], "malloc free regexec re_search getdelim",
                   b"".join(b"%d\n" % n for n in range(300)))
        shutil.rmtree(self.path("lib"))
        self.check(["gzip", "-nc"], "malloc write", bytes(range(256)) * 400)

    def test_hundreds_of_programs_at_once(self):
        """All of them send the tool a request before any has an answer."""
        libc = next(line.split()[-1] for line in open("/proc/self/maps") if line.rstrip().endswith("/libc.so.6"))
        script = self.write("at_once", "for i in $(seq 100); do (/bin/true | /bin/cat | /bin/true) & done; wait")
        seen = harness.run_tool([f"p:begins {libc}:__libc_start_main", f"p:ends {libc}:_exit"], ["bash", script])
        self.assertEqual(seen.returncode, 0, seen.stderr)
        self.assertNotIn(b"unprobed", seen.stderr)
        self.assertEqual(seen.counts(), {"begins": 302, "ends": 402})
        self.assertEqual(len({hit.tid for hit in seen.hits if hit.event == "ends"}), 402)


    def test_go_preempts(self):
        """Goroutines that are preempted at any place, and go on in other threads. The function has no stack check, so
        that it is entered once a call."""
        harness.need("go")
        program = self.path("preempted")
        environment = {**os.environ, "GO111MODULE": "off", "GOCACHE": self.path("cache")}
        subprocess.run(["go", "build", "-o", program, self.write("preempted.go", GO_PREEMPTED)], env=environment, check=True)
        seen = harness.run_tool([f"p:x {program}:main.probed %ax"], [program], ["-q", "-b", "16M"])
        self.assertEqual((seen.returncode, seen.stdout), (0, b"end\n"), seen.stderr)
        self.assertEqual(seen.counts(), {"x": 80000})


GO_PREEMPTED = """package main

import (
	"fmt"
	"runtime"
	"sync"
)

//go:noinline
//go:nosplit
func probed(a, b int) int { return a*3 + b }

func main() {
	runtime.GOMAXPROCS(4)
	var wait sync.WaitGroup
	sums := make([]int, 8)
	for g := range sums {
		wait.Add(1)
		go func(g int) {
			defer wait.Done()
			for i := 0; i < 10000; i++ { sums[g] += probed(i, g) }
		}(g)
	}
	done := make(chan bool)
	go func() {
		var m runtime.MemStats
		for { select { case <-done: return; default: runtime.ReadMemStats(&m) } }
	}()
	wait.Wait()
	close(done)
	fmt.Println("end")
}
"""
BUSY = """
import sys
n = 0
text = []
for i in range({rounds}):
    n = (n * 31 + len(str(i))) % 1000003
    if i % 50000 == 0:
        text.append(bytes(1000 + i % 777))
        print(n, len(text), flush=True)
sys.exit(9)
"""
COUNTS_SIGNALS = """
import signal, sys, time
got = set()
signal.signal(signal.SIGWINCH, lambda *_: got.add(len(str([1] * 20))))
print("ready", flush=True)
for line in sys.stdin:
    pass
print(sorted(got))
"""
WAITS = """
import sys, time
print("ready", flush=True)
while True:
    time.sleep(0.0005)
    x = [str(i) for i in range(200)]
"""


class FromOutside(harness.TestCase):
    """Signals that others send to a traced program in the middle of its hits."""

    def setUp(self):
        super().setUp()
        self.python = os.path.realpath(harness.need("/usr/bin/python3"))
        self.definitions = []
        for definition in (f"p:alloc {self.python}:PyObject_Malloc %di", f"p:malloc {program_jobs.LIBC}:malloc %di",
                           f"p:text {self.python}:PyUnicode_New %di", f"p:long {self.python}:PyObject_Str %di"):
            self.definitions += ["-p", definition]

    def start(self, text):
        command = harness.tracer("-q", "-o", self.path("trace"), *self.definitions, "--", self.python, "-c", text)
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=program_jobs.ENVIRONMENT, start_new_session=True)
        self.addCleanup(harness.stop_group, process)
        harness.wait_until(lambda: self.program_of(process), "the program")
        return process, self.program_of(process)

    def program_of(self, process):
        for pid in harness.descendants(process.pid):
            try:
                if os.path.realpath(f"/proc/{pid}/exe") == self.python:
                    return pid
            except OSError:
                pass
        return None

    def test_stopped_and_continued(self):
        text = BUSY.format(rounds=400000)
        plain = harness.run([self.python, "-c", text], env=program_jobs.ENVIRONMENT)
        process, pid = self.start(text)
        stops = 0
        while stops < 100 and process.poll() is None:
            try:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(random.random() / 200)
                os.kill(pid, signal.SIGCONT)
                time.sleep(random.random() / 200)
            except ProcessLookupError:
                break
            stops += 1
        out, err = process.communicate(timeout=harness.TIMEOUT)
        self.assertEqual((process.returncode, out, err), (plain.returncode, plain.stdout, plain.stderr))
        self.assertGreater(stops, 5)

    def test_window_changes(self):
        process, pid = self.start(COUNTS_SIGNALS)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        for _ in range(2000):
            os.kill(pid, signal.SIGWINCH)
        out, err = process.communicate(b"x\n", timeout=harness.TIMEOUT)
        self.assertEqual((process.returncode, out, err), (0, b"[60]\n", b""))

    def test_killed_at_random_moments(self):
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGSEGV, signal.SIGQUIT) * (10 if LONG else 2):
            with self.subTest(signal=number):
                process, pid = self.start(WAITS)
                if number == signal.SIGINT:  # before its handler is there it dies at once
                    process.stdout.readline()
                time.sleep(random.random() / 20)
                os.kill(pid, number)
                _, err = process.communicate(timeout=harness.TIMEOUT)
                self.assertEqual(process.returncode, -number, err)
                if number != signal.SIGINT:
                    self.assertEqual(err, b"")

    def test_killed_while_it_is_loaded(self):
        for _ in range(200 if LONG else 20):
            command = harness.tracer("-q", "-o", self.path("trace"), *self.definitions, "--", "sleep", "9")
            process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
            self.addCleanup(harness.stop_group, process)
            harness.wait_until(lambda process=process: harness.descendants(process.pid), "a child")
            time.sleep(random.random() / 300)
            os.kill(harness.descendants(process.pid)[0], signal.SIGKILL)
            _, err = process.communicate(timeout=harness.TIMEOUT)
            self.assertEqual((process.returncode, err), (-signal.SIGKILL, b""))

    def test_interrupted_at_the_terminal(self):
        """^C goes to the whole group: the tool waits for the program, whose end counts."""
        process, _ = self.start(WAITS)
        process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=harness.TIMEOUT)
        self.assertEqual(process.returncode, -signal.SIGINT)
        self.assertIn(b"KeyboardInterrupt", err)


add_jobs()

if __name__ == "__main__":
    harness.main()
