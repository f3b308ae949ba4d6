# SPDX-License-Identifier: MIT
"""Attaching to running processes, and leaving them unchanged."""
import contextlib
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

import harness
from harness import UNPRIVILEGED, fixture, tool, tracer, wait_until
from process_state import checksum_of_text, footprint, mappings, read, same_threads, signals_of, state_of


class AttachCase(harness.TestCase):
    def start(self, *command, **more):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, **more)
        self.addCleanup(harness.stop_group, process)
        return process

    def start_ready(self, *command, **more):
        process = self.start(*command, **more)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        return process

    def attach(self, pid, definitions, *options, duration="50ms"):
        words = tracer("-o", self.path("trace"), *(["-d", duration] if duration else []), *options)
        for definition in definitions:
            words += ["-p", definition]
        seen = harness.run([*words, "-P", str(pid)])
        if os.path.exists(self.path("trace")):
            seen.text = read(self.path("trace"))
        return seen

    def attach_well(self, *arguments, **more):
        seen = self.attach(*arguments, **more)
        self.assertEqual((seen.returncode, seen.stderr.count(b"keeps handlers")), (0, 0), seen.stderr)
        return seen

    def attach_in_background(self, pid, *definitions):
        words = [*tracer("-o", self.path("trace"), "-v")]
        for definition in definitions:
            words += ["-p", definition]
        process = subprocess.Popen([*words, "-P", str(pid)], stderr=subprocess.PIPE, start_new_session=True)
        self.addCleanup(harness.stop_group, process)
        for line in process.stderr:
            if line == b"uprobe-run: attached\n":
                return process
        raise AssertionError(process.stderr.read())

    def end_well(self, process, word=b"go\n"):
        out, _ = process.communicate(word, harness.TIMEOUT)
        self.assertEqual(process.returncode, 0, out)
        return out


class Waits(AttachCase):
    """A waiting thread goes on waiting; masks and text are the program's own again."""

    def check(self, program):
        process = self.start_ready(program)
        time.sleep(0.1)
        text, before = checksum_of_text(process.pid), signals_of(process.pid)
        for _ in range(4):
            seen = self.attach_well(process.pid, [f"p:w {program}:work %di:s64"])
            self.assertGreater(len(seen.hits), 0)
        self.assertEqual(checksum_of_text(process.pid), text)
        wait_until(lambda: same_threads(before, signals_of(process.pid)), "waits that go on")
        self.assertEqual(self.end_well(process), b"fine\n")

    def test_glibc(self):
        self.check(fixture("attached_waits"))

    def test_static(self):
        self.check(fixture("attached_waits_static"))

    def test_musl(self):
        self.check(fixture("attached_waits_musl_static"))


class Threads(AttachCase):
    """Between its first and its last hit no call of a thread is missed, or counted twice."""

    def check_sequences(self, hits):
        last = {}
        for hit in hits:
            number, thread = (int(value) for value in re.findall(r"=(-?\d+)", hit.arguments))
            if number < 0:
                continue  # of a handler's thread
            if (hit.event, thread) in last:
                self.assertEqual(number, last[hit.event, thread] + 1)
            last[hit.event, thread] = number
        return set(last)

    def check(self, program, cycles, *arguments):
        process = self.start_ready(program, *arguments)
        text, before = checksum_of_text(process.pid), signals_of(process.pid)
        definitions = [f"p:{name} {program}:{name} %di:s64 %si:s64" for name in ("several", "single")]
        reached = set()
        for cycle in range(cycles):
            seen = self.attach_well(process.pid, definitions, "-b", "4M", duration="30ms")
            self.assertNotIn(b"lost", seen.stderr)
            reached |= self.check_sequences(seen.hits)
            self.assertEqual(checksum_of_text(process.pid), text)
            if cycle == 1:
                size = footprint(process.pid)
        self.assertEqual(footprint(process.pid), size)
        self.assertEqual(len(reached), 16, "two functions, eight threads")
        if not arguments:
            self.assertEqual(signals_of(process.pid), before)
        self.end_well(process)

    def test_many_times(self):
        self.check(fixture("attached_busy"), harness.some_of(200))

    def test_under_signals(self):
        self.check(fixture("attached_busy"), 20, "signals")

    def test_static(self):
        self.check(fixture("attached_busy_static"), 5, "signals")

    def test_musl(self):
        self.check(fixture("attached_busy_musl_static"), 5, "signals")



class Signals(AttachCase):
    """A thread that changes masks, dispositions or stacks while a tool comes or goes keeps its own settings."""

    def check(self, name):
        program = fixture(name)
        process = self.start_ready(program)
        for _ in range(12):
            self.attach_well(process.pid, [f"p:c {program}:changed %di:s64"], "-b", "256K", duration="10ms")
        out = self.end_well(process)
        self.assertEqual(out, b"0 mistakes\n")

    def test_masks(self):
        self.check("attached_masks")

    def test_masks_static(self):
        self.check("attached_masks_static")

    def test_masks_musl(self):
        self.check("attached_masks_musl_static")

    def test_actions(self):
        self.check("attached_actions")

    def test_actions_static(self):
        self.check("attached_actions_static")

    def test_actions_musl(self):
        self.check("attached_actions_musl_static")

    @unittest.expectedFailure
    def test_stack_flags(self):
        """The kernel lets no process set them back to 0 without a stack."""
        self.check("attached_stack_flags")

    def test_stack_flags_alone(self):
        self.assertEqual(self.end_well(self.start_ready(fixture("attached_stack_flags"))), b"0 mistakes\n")


class ReturningHandlers(AttachCase):
    """A handler that is about to return when a tool comes: after that, the signals that it had blocked are open."""

    def check(self, name):
        program = fixture(name)
        for words in (["0"], ["7"], ["0", "inside"], ["7", "inside"]):
            with self.subTest(words=words):
                process = self.start(program, *words)
                returning = int(process.stdout.readline())
                session = self.attach_in_background(returning, f"p:c {program}:changed %di:s64")
                os.kill(returning, signal.SIGCONT)
                self.assertEqual(process.stdout.readline(), b"0 mistakes\n")
                session.send_signal(signal.SIGINT)
                self.assertEqual(session.wait(harness.TIMEOUT), 0)
                self.assertEqual(self.end_well(process), b"0 mistakes\n" * 3)

    def test_all(self):
        for name in ("attached_returns", "attached_returns_static", "attached_returns_musl_static"):
            with self.subTest(name=name):
                self.check(name)


class Killed(AttachCase):
    """The tool dies at any moment; the process does not notice, and the next tool works."""

    def command(self, process, program, function, duration):
        return [*tracer("-q", "-b", "64K", "-o", "/dev/null", "-P", str(process.pid), "-d", duration), "-p",
                f"p:w {program}:{function} %di:s64"]

    def check_as_before(self, process):
        self.assertEqual(checksum_of_text(process.pid), self.text)
        wait_until(lambda: same_threads(self.before, signals_of(process.pid)), "waits that go on")

    def take_over(self, process, program, function):
        self.assertIsNone(process.poll())
        seen = self.attach_well(process.pid, [f"p:w {program}:{function} %di:s64"])
        self.assertGreater(len(seen.hits), 0)
        self.check_as_before(process)

    def begin(self, program):
        process = self.start_ready(program)
        time.sleep(0.1)
        self.text, self.before = checksum_of_text(process.pid), signals_of(process.pid)
        return process

    def kill_at_random(self, name, function, kill, times):
        program = fixture(name)
        process = self.begin(program)
        begin = time.monotonic()
        subprocess.run(self.command(process, program, function, "10ms"), check=True)
        whole = time.monotonic() - begin
        moments = random.Random(1)
        for count in range(times):
            victim = subprocess.Popen(self.command(process, program, function, "10ms"), stderr=subprocess.PIPE)
            time.sleep(moments.uniform(0, 1.2 * whole))
            kill(victim)
            err = victim.communicate(timeout=harness.TIMEOUT)[1]
            self.assertIsNone(process.poll())
            self.check_victim(process, victim.returncode, err)
            if count % 20 == 19:
                self.take_over(process, program, function)
        self.take_over(process, program, function)
        self.end_well(process)

    def check_victim(self, process, code, err):
        self.assertIn(code, (0, -signal.SIGKILL), err)

    def test_among_busy_threads(self):
        self.kill_at_random("attached_busy", "several", subprocess.Popen.kill, harness.some_of(100))

    def test_among_waits(self):
        self.kill_at_random("attached_waits", "work", subprocess.Popen.kill, harness.some_of(100))

    def test_between_any_two_steps(self):
        harness.need("strace")
        program = fixture("attached_busy")
        process = self.begin(program)
        for step in range(3, 900, 37 if harness.LONG else 111):
            subprocess.run(["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=ptrace", "-e", "signal=none", "-e",
                            f"inject=ptrace:signal=KILL:when={step}", *tracer("-q", "-b", "64K", "-o", "/dev/null", "-P",
                                                                           str(process.pid), "-d", "10ms"),
                            "-p", f"p:w {program}:several %di:s64"], stderr=subprocess.DEVNULL, timeout=harness.TIMEOUT)
            self.assertIsNone(process.poll(), f"killed at ptrace call {step}")
        self.take_over(process, program, "several")
        self.end_well(process)

    def test_between_any_two_steps_in_a_new_process(self):
        """Also code that is mapped there for the first time."""
        harness.need("strace")
        program = fixture("attached_told")
        for step in range(3, 150, 7 if harness.LONG else 21):
            process = self.begin(program)
            subprocess.run(["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=ptrace", "-e", "signal=none", "-e",
                            f"inject=ptrace:signal=KILL:when={step}", *self.command(process, program, "work", "10ms")],
                           stderr=subprocess.DEVNULL, timeout=harness.TIMEOUT)
            self.assertIsNone(process.poll(), f"killed at ptrace call {step}")
            session = self.attach_in_background(process.pid, f"p:w {program}:work")
            process.stdin.write(b"w")
            process.stdin.flush()
            self.assertEqual(process.stdout.readline(), b"done\n")
            session.send_signal(signal.SIGINT)
            self.assertIn(b": 100 hits", session.communicate(timeout=harness.TIMEOUT)[1])
            self.check_as_before(process)
            self.assertEqual(self.end_well(process, b""), b"")

    def test_by_name_or_group(self):
        """A signal for the tool does not reach the process that the tool holds."""
        program = fixture("attached_busy")
        process = self.begin(program)
        for group in (False, True):
            session = self.attach_in_background(process.pid, f"p:w {program}:several")
            engine = int(read(f"/proc/{session.pid}/task/{session.pid}/children"))
            self.assertEqual((read(f"/proc/{session.pid}/comm"), read(f"/proc/{engine}/comm")),
                             ("uprobe-run\n", "uprobe-engine\n"))
            self.assertNotIn("uprobe-run", read(f"/proc/{engine}/cmdline"))
            self.assertEqual(os.getsid(engine), engine)
            os.killpg(session.pid, signal.SIGKILL) if group else session.kill()
            session.wait()
            wait_until(lambda: not os.path.exists(f"/proc/{engine}"), "the engine's end")
            self.check_as_before(process)
        self.end_well(process)


class EngineKilled(Killed):
    """The launcher removes the probes that the tracer has left."""
    test_among_waits = test_by_name_or_group = None
    test_between_any_two_steps = test_between_any_two_steps_in_a_new_process = None

    def check_victim(self, process, code, err):
        if code == 0:
            return
        self.assertEqual((code, err), (125, b"uprobe-run: the tracer was killed by signal 9; its probes are removed\n"))
        self.check_as_before(process)

    @staticmethod
    def kill_engine(victim):
        for engine in read(f"/proc/{victim.pid}/task/{victim.pid}/children").split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(engine), signal.SIGKILL)

    def test_among_busy_threads(self):
        self.kill_at_random("attached_busy", "several", self.kill_engine, harness.some_of(50))


class Life(AttachCase):
    def test_ends_when_the_process_ends(self):
        process = self.start_ready(fixture("attached_busy"))
        session = self.attach_in_background(process.pid, f"p:w {fixture('attached_busy')}:several")
        self.end_well(process)
        _, err = session.communicate(timeout=harness.TIMEOUT)
        self.assertEqual(session.returncode, 0)
        self.assertIn(b"the process has ended", err)

    def test_interrupt_and_termination_detach(self):
        program = fixture("attached_busy")
        process = self.start_ready(program)
        before = signals_of(process.pid)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            session = self.attach_in_background(process.pid, f"p:w {program}:several")
            session.send_signal(number)
            session.communicate(timeout=harness.TIMEOUT)
            self.assertEqual(session.returncode, 0)
            self.assertEqual(signals_of(process.pid), before)
        self.end_well(process)

    def test_number_of_events_and_two_processes(self):
        program = fixture("attached_busy")
        two = [self.start_ready(program) for _ in range(2)]
        seen = self.attach_well(",".join(str(p.pid) for p in two), [f"p:w {program}:several"], "-n", "2000", duration=None)
        self.assertEqual(len(seen.hits), 2000)
        tasks = [set(int(task) for task in os.listdir(f"/proc/{p.pid}/task")) for p in two]
        self.assertTrue(all(any(hit.tid in of for hit in seen.hits) for of in tasks))
        for process in two:
            self.end_well(process)

    def test_a_stopped_process_stays_stopped(self):
        program = fixture("attached_busy")
        process = self.start_ready(program)
        os.kill(process.pid, signal.SIGSTOP)
        wait_until(lambda: state_of(process.pid) == "T", "the stop")
        self.assertEqual(self.attach_well(process.pid, [f"p:w {program}:several"]).hits, [])
        wait_until(lambda: state_of(process.pid) == "T", "the stop again")
        session = self.attach_in_background(process.pid, f"p:w {program}:several")
        wait_until(lambda: state_of(process.pid) == "T", "the stop again")
        os.kill(process.pid, signal.SIGCONT)
        wait_until(lambda: ": w: " in read(self.path("trace")), "a hit")
        session.send_signal(signal.SIGINT)
        session.communicate(timeout=harness.TIMEOUT)
        self.end_well(process)

    @unittest.skipIf(os.geteuid() != 0, "only root can change to another user")
    def test_no_descriptor_is_left(self):
        """Limits and descriptors are as before."""
        program = fixture("attached_told")
        process = self.start_ready(program, fixture("libplugin.so"))
        numbers = [int(name) for name in os.listdir(f"/proc/{process.pid}/fd")]
        limits = (max(numbers) + 1, resource.prlimit(process.pid, resource.RLIMIT_NOFILE)[1])
        while len(numbers) < limits[0]:  # a lower number may be free
            limits = (limits[0] - 1, limits[1])
            numbers = [number for number in numbers if number < limits[0]]
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limits)
        before = footprint(process.pid)[2]
        for _ in range(2):
            self.attach_well(process.pid, [f"p:w {program}:work %di:s64"])
            self.assertEqual(resource.prlimit(process.pid, resource.RLIMIT_NOFILE), limits)
            self.assertEqual(footprint(process.pid)[2], before)

    def test_as_another_user(self):
        program = os.path.join("/tmp", f"uprobe-attach-{os.getpid()}")
        harness.copied(fixture("attached_busy"), program)
        self.addCleanup(os.unlink, program)
        process = self.start_ready(program, user=UNPRIVILEGED, group=UNPRIVILEGED, extra_groups=[])
        foreign = self.start_ready(program)
        command = [*tracer("-d", "50ms"), "-p", f"p:w {program}:several"]
        seen = subprocess.run([*command, "-P", str(process.pid)], capture_output=True, user=UNPRIVILEGED, group=UNPRIVILEGED,
                              extra_groups=[], check=False)
        self.assertEqual(seen.returncode, 0, seen.stderr)
        self.assertIn(b": w: ", seen.stdout)
        seen = subprocess.run([*command, "-P", str(foreign.pid)], capture_output=True, user=UNPRIVILEGED, group=UNPRIVILEGED,
                              extra_groups=[], check=False)
        self.assertEqual(seen.returncode, 125)
        self.assertIn(b"belongs to another user", seen.stderr)
        self.end_well(process)
        self.end_well(foreign)


class Followed(AttachCase):
    """Later arrivals: libraries, forked children, programs that execve starts."""
    SCRIPT = """
import ctypes, os, subprocess, sys
print("ready", flush=True)
sys.stdin.readline()
library = ctypes.CDLL(sys.argv[1])
library.plugin_call(b"a")
child = os.fork()
if child == 0:
    library.plugin_call(b"b")
    os._exit(0)
os.waitpid(child, 0)
subprocess.run([sys.executable, "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1]).plugin_call(b'c')", sys.argv[1]],
               check=True)
print("done", flush=True)
sys.stdin.readline()
library.plugin_call(b"d")
"""

    def test_library_fork_and_exec(self):
        library = fixture("libplugin.so")
        process = self.start_ready(sys.executable, "-c", self.SCRIPT, library)
        session = self.attach_in_background(process.pid, f"p:c {library}:plugin_call +0(%di):string")
        process.stdin.write(b"go\n")
        process.stdin.flush()
        self.assertEqual(process.stdout.readline(), b"done\n")
        session.send_signal(signal.SIGINT)
        session.communicate(timeout=harness.TIMEOUT)
        self.assertEqual(session.returncode, 0)
        self.end_well(process)
        hits = harness.parse_trace(read(self.path("trace")))
        self.assertEqual([hit.arguments for hit in hits], ['arg1="a"', 'arg1="b"', 'arg1="c"'])
        self.assertEqual(len({hit.tid for hit in hits}), 3)


    def test_threads_forks_and_spawns_all_the_time(self):
        program = fixture("attached_spawns")
        process = self.start_ready(program)
        hits = 0
        for _ in range(8):
            hits += len(self.attach_well(process.pid, [f"p:w {program}:work"], "-b", "4M").hits)
        self.assertGreater(hits, 0)
        self.assertEqual(self.end_well(process), b"0 mistakes\n")


class Refused(AttachCase):
    """One line, exit code 125, and the process as it was."""

    def check(self, pid, text):
        seen = self.attach(pid, [f"p:w {fixture('attached_busy')}:several"])
        self.assertEqual(seen.returncode, 125)
        self.assertIn(text, seen.stderr.decode())

    def test_no_such_process(self):
        self.check(4194304, "no process 4194304")

    def test_words(self):
        self.check("12,", "'12,' is not a list of process ids")

    def test_zombie(self):
        process = self.start(shutil.which("true"))
        wait_until(lambda: state_of(process.pid) == "Z", "the end")
        self.check(process.pid, "has ended")

    def test_kernel_thread(self):
        if not os.path.exists("/proc/2/comm") or read("/proc/2/comm") != "kthreadd\n":
            self.skipTest("no kernel thread is to be seen")
        self.check(2, "is a kernel thread")

    def test_thread(self):
        process = self.start_ready(fixture("attached_busy"))
        other = max(int(task) for task in os.listdir(f"/proc/{process.pid}/task"))
        self.check(other, f"{other} is a thread of process {process.pid}")
        self.end_well(process)

    def test_traced_already(self):
        harness.need("strace")
        process = self.start_ready(fixture("attached_busy"))
        strace = subprocess.Popen(["strace", "-qq", "-o", "/dev/null", "-p", str(process.pid)])
        self.addCleanup(strace.wait)
        self.addCleanup(strace.kill)
        wait_until(lambda: "TracerPid:\t0" not in read(f"/proc/{process.pid}/status"), "strace")
        self.check(process.pid, f"is traced by process {strace.pid} (strace) already")

    def test_a_session_that_takes_no_other_tool(self):
        program = fixture("attached_busy")
        process = self.start_ready(program, env={**os.environ, **harness.preloaded(UPROBE_PROBES=f"p:w {program}:several",
                                                                                   UPROBE_OUTPUT="/dev/null")})
        seen = harness.run([*tracer("-o", "/dev/null"), "-p", f"p:w {program}:single", "-P", str(process.pid)])
        self.assertEqual(seen.returncode, 125)
        self.assertRegex(seen.stderr, rb"is traced by another uprobe-run, process \d+")
        self.end_well(process)

    def test_seccomp(self):
        """Without rt_sigaction (13) the agent could not do the program's own calls: also root, who can read the filter, is refused."""
        script = """
import ctypes, struct, sys
libc = ctypes.CDLL(None)
libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
code = b"".join(struct.pack("HBBI", *insn) for insn in ((0x20, 0, 0, 0), (0x15, 0, 1, 13), (6, 0, 0, 0x50001), (6, 0, 0, 0x7fff0000)))
code = ctypes.create_string_buffer(code, len(code))
program = struct.pack("HxxxxxxP", 4, ctypes.addressof(code))
assert libc.prctl(22, 2, program, 0, 0) == 0  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
print("ready", flush=True)
sys.stdin.readline()
"""
        process = self.start_ready(sys.executable, "-c", script)
        self.check(process.pid, "has a seccomp filter")
        self.end_well(process)


class Programs(AttachCase):
    """Real ones, under load."""

    @staticmethod
    def answers(port):
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    def test_redis(self):
        benchmark = harness.need("redis-benchmark")
        server = shutil.which("redis-server")  # as it is called: a link to a program of several names
        if not server:
            self.skipTest("redis-server is not installed")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        process = self.start(server, "--port", port, "--save", "", "--bind", "127.0.0.1")
        wait_until(lambda: self.answers(int(port)), "the server")
        load = subprocess.Popen([benchmark, "-p", port, "-q", "-n", "20000", "-t", "set,get,lpush"],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        hits = 0
        for _ in range(5):
            hits += len(self.attach_well(process.pid, [f"p:c {server}:call"]).hits)
        out, _ = load.communicate(timeout=harness.TIMEOUT)
        self.assertEqual((load.returncode, out.count(b"rror")), (0, 0), out)
        self.assertGreater(hits, 0)
        self.assertIsNone(process.poll())

    def test_python(self):
        script = """
import json, sys, threading
print("ready", flush=True)
stop = False
def work(number):
    while not stop:
        assert json.loads(json.dumps({"a": [number] * 50}))["a"] == [number] * 50
threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
[thread.start() for thread in threads]
sys.stdin.readline()
stop = True
[thread.join() for thread in threads]
print("fine")
"""
        python = os.path.realpath(sys.executable)
        libc = harness.libc_of(python)
        process = self.start_ready(python, "-c", script)
        for _ in range(5):
            seen = self.attach_well(process.pid, [f"p:{f} {libc}:{f} %di" for f in ("malloc", "free", "memcpy")], "-b", "16M")
            self.assertGreater(len(seen.hits), 0)
        self.assertEqual(self.end_well(process), b"fine\n")

    def test_go(self):
        go = harness.need("go")
        self.write("go.mod", "module attached\n")
        self.write("main.go", """package main

import ("bufio"; "fmt"; "os"; "sync/atomic"; "time")

//go:noinline
func Work(i int) int { return i*3 + 1 }

func main() {
	var stop, wrong int64
	for g := 0; g < 16; g++ {
		go func() {
			for i := 0; atomic.LoadInt64(&stop) == 0; i++ {
				if Work(i) != i*3+1 || fmt.Sprint(i) == "" { atomic.AddInt64(&wrong, 1) }
				if i%100 == 0 { time.Sleep(time.Millisecond) }
			}
		}()
	}
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadString('\\n')
	atomic.StoreInt64(&stop, 1)
	fmt.Println("wrong", wrong)
}
""")
        built = subprocess.run([go, "build", "-o", self.path("program"), "."], cwd=self.folder, capture_output=True,
                               env={**os.environ, "GOCACHE": self.path("cache"), "GOFLAGS": "-mod=mod"}, check=False)
        if built.returncode != 0:
            self.skipTest("go cannot build here")
        process = self.start_ready(self.path("program"))
        for _ in range(5):
            seen = self.attach_well(process.pid, [f"p:w {self.path('program')}:main.Work %ax:s64"], "-b", "16M")
            self.assertGreater(len(seen.hits), 0)
        self.assertEqual(self.end_well(process), b"wrong 0\n")


if __name__ == "__main__":
    harness.main()
