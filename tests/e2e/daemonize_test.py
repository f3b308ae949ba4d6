# SPDX-License-Identifier: MIT
"""-D: the started process becomes the program, and the tool runs beside it."""
import contextlib
import errno
import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
import unittest

import harness
from harness import need, tracer

PYTHON = os.path.realpath(sys.executable)
WAIT_ALL = 0x40000000  # __WALL


def field(pid, name):
    with open(f"/proc/{pid}/status", encoding="latin-1") as file:
        return re.search(rf"^{name}:\s*(.*)$", file.read(), re.M)[1]


def processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def others_in_group(group):
    found = []
    for pid in processes():
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(pid) == group and pid != group:
                found.append(pid)
    return found


def links_of(pid):
    found = {}
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            found[int(number)] = os.readlink(f"/proc/{pid}/fd/{number}")
        except OSError:
            pass
    return found


class Beside(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.trace = self.path("trace")
        self.shell = need("sh")
        self.words = self.with_options()

    def with_options(self, *options):
        return tracer("-D", "-o", self.trace, *options, "-p", f"p:w {harness.libc_of(self.shell)}:write fd=%di:s32")

    def text(self):
        with open(self.trace, encoding="latin-1") as file:
            return file.read()

    def hits(self):
        return harness.parse_trace(self.text())

    def begin(self, *command, words=None, **ways):
        ways = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **ways}
        program = subprocess.Popen([*(words or self.words), "--", *command], start_new_session=True, **ways)
        self.addCleanup(harness.stop_group, program)
        return program

    def find_tools(self):
        """The processes that hold the trace open."""
        found = []
        for pid in processes():
            try:
                if self.trace in links_of(pid).values():
                    found.append(pid)
            except OSError:
                pass
        return found

    def tool(self):
        harness.wait_until(lambda: len(self.find_tools()) == 1, "the tool")
        return self.find_tools()[0]

    def wait_for_no_tool(self):
        harness.wait_until(lambda: not self.find_tools(), "the tool's end")

    def echoing(self):
        """cat, which has certainly begun."""
        program = self.begin(need("cat"))
        program.stdin.write(b"first\n")
        program.stdin.flush()
        self.assertEqual(program.stdout.readline(), b"first\n")
        return program

    def python(self, text, *words):
        return [PYTHON, "-S", "-c", text, *words]


class Identity(Beside):
    def test_it_is_the_process_that_was_called(self):
        program = self.begin(self.shell, "-c", "echo $$ $PPID; exec cat")
        self.assertEqual(program.stdout.readline().split(), [b"%d" % program.pid, b"%d" % os.getpid()])
        tool = self.tool()
        self.assertNotEqual(tool, program.pid)
        self.assertNotIn(tool, harness.descendants(program.pid))
        harness.wait_until(lambda: field(program.pid, "TracerPid") == "0", "a program without a tracer")
        program.stdin.close()
        self.assertEqual(program.wait(harness.TIMEOUT), 0)

    def test_exit_codes(self):
        for code in (0, 7, 125, 126, 127, 255):
            with self.subTest(code=code):
                seen = harness.run([*self.words, "--", self.shell, "-c", f"echo x; exit {code}"])
                self.assertEqual((seen.returncode, seen.stdout, seen.stderr), (code, b"x\n", b""))

    def test_deadly_signals(self):
        for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM):
            with self.subTest(signal=number):
                seen = harness.run([*self.words, "--", self.shell, "-c", f"echo x; kill -{int(number)} $$"])
                self.assertEqual((seen.returncode, seen.stdout, seen.stderr), (-number, b"x\n", b""))
                harness.wait_until(lambda: len(self.hits()) == 1, "the record")
                self.wait_for_no_tool()

    def test_the_trace_is_complete_when_the_parent_sees_the_exit(self):
        for turn in range(50):
            seen = harness.run([*self.words, "--", self.shell, "-c", f"for i in 1 2 3 4 5 6 7; do echo $i; done; exit {turn}"])
            self.assertEqual((seen.returncode, len(self.hits())), (turn, 7), self.text())

    def test_the_summary_is_in_the_file(self):
        words = [*self.with_options("-v"), "--trigger", "hist:keys=fd"]
        seen = harness.run([*words, "--", self.shell, "-c", "echo x; echo y >&2"])
        self.assertEqual(seen.returncode, 0, seen.stderr)
        self.assertRegex(self.text(), r"(?s){ fd: +1 } hitcount: +2\n.*# uprobe-run: uprobes/w .*: 2 hits\n")
        self.assertNotIn(b"hits", seen.stderr)
        self.assertIn(b"tracing", seen.stderr)

    def test_no_summary_without_a_wish(self):
        seen = harness.run([*self.words, "--", self.shell, "-c", "echo x"])
        self.assertEqual((seen.returncode, seen.stderr), (0, b""))
        self.assertNotIn("uprobe-run", self.text())

    def test_losses_are_told(self):
        job = "import os\nfor i in range(200000): os.write(3, b'')"
        seen = harness.run([*self.with_options("-b", "8K"), "--", self.shell, "-c", 'exec "$@" 3>/dev/null', "sh", *self.python(job)])
        self.assertEqual(seen.returncode, 0, seen.stderr)
        if "lost" in self.text():
            self.assertIn("# uprobe-run: lost:", self.text())

    def test_the_process_number_in_the_files_name(self):
        words = tracer("-D", "-o", self.path("t.%p"), "-p", f"p:w {harness.libc_of(self.shell)}:write")
        program = self.begin(self.shell, "-c", "echo x", words=words)
        self.assertEqual(program.wait(harness.TIMEOUT), 0)
        self.assertEqual(os.listdir(self.folder), [f"t.{program.pid}"])


class Errors(Beside):
    def check(self, code, said, *words):
        seen = harness.run(list(words))
        self.assertEqual((seen.returncode, seen.stdout), (code, b""), seen.stderr)
        self.assertRegex(seen.stderr, said)

    def test_what_cannot_be_started(self):
        plain = [word for word in self.words if word != "-D"]
        script = self.write("script", "neither", 0o755)
        for command, code in ((self.path("nowhere"), 127), (self.write("data", "x"), 126), (script, 126)):
            with self.subTest(command=command):
                without = harness.run([*plain, "--", command])
                seen = harness.run([*self.words, "--", command])
                self.assertEqual((seen.returncode, seen.stderr), (without.returncode, without.stderr))
                self.assertEqual(seen.returncode, code)
                self.wait_for_no_tool()

    def test_definitions(self):
        self.check(125, b"no function 'wrte'", *tracer("-D", "-o", self.trace, "-p", f"p:w {harness.libc_of(self.shell)}:wrte"),
                   self.shell, "-c", "echo started")

    def test_what_shows_when_it_is_the_program_already(self):
        """Nothing of the program runs."""
        words = [*self.with_options("-b", "32M"), "--", self.shell, "-c", "echo started"]
        self.check(125, b"address space is limited", need("prlimit"), "--as=1000000000", *words)
        self.wait_for_no_tool()

    def test_options(self):
        libc = harness.libc_of(self.shell)
        for words in (["-D"], ["-D", "-o", "-"], ["-D", "-o", self.trace, "--hist-file=-"]):
            self.check(125, b"file|-D needs -o FILE", *tracer(*words, "-p", f"p:w {libc}:write"), self.shell, "-c", "echo started")
        self.check(125, b"-D is for a program that is started", *tracer("-D", "-o", self.trace, "-p", f"p:w {libc}:write", "-P", str(os.getpid())))
        self.check(125, b"-D is for a program that is started", *tracer("-D", "-o", self.trace, "--dry-run", "-p", f"p:w {libc}:write"))
        self.check(125, b"-D is for a program that is started", *tracer("-D", "--control", "x", "--list"))

    def test_refused_ptrace(self):
        """Another tracer traces the process that is to become the program."""
        plain = [need("strace"), "-q", "-o", "/dev/null", *self.words]
        self.check(125, b"^uprobe-run: ptrace of the program to start: Operation not permitted\n", *plain, "--", self.shell, "-c",
                   "echo started")

    def test_a_session_that_cannot_be(self):
        """The process is the program already: nothing of it runs."""
        self.check(125, b"a session's name", *self.with_options("--session", "1"), "--", self.shell, "-c", "echo started")
        self.wait_for_no_tool()

    @unittest.skipIf(os.geteuid() != 0, "needs root")
    def test_another_namespace(self):
        self.check(125, b"another PID namespace", need("unshare"), "-p", *self.words, "--", self.shell, "-c", "echo started")


class Streams(Beside):
    def test_a_reader_sees_the_end(self):
        for order in (f'{" ".join(map(self.quoted, self.words))} -- echo hi | cat',
                      f'{" ".join(map(self.quoted, self.words))} -- echo hi 2>&1 | cat',
                      f'echo $({" ".join(map(self.quoted, self.words))} --until=last -- sh -c "sleep 2 >/dev/null 2>&1 & echo hi")'):
            with self.subTest(order=order):
                seen = harness.run([self.shell, "-c", order])
                self.assertEqual((seen.returncode, seen.stdout, seen.stderr), (0, b"hi\n", b""))

    def quoted(self, word):
        return "'" + word + "'"

    def test_standard_input_is_the_programs(self):
        seen = harness.run([*self.words, "--", need("cat")], stdin=b"one\ntwo\n")
        self.assertEqual((seen.returncode, seen.stdout), (0, b"one\ntwo\n"))

    def test_definitions_from_standard_input(self):
        definition = f"p:r {harness.libc_of(self.shell)}:write\n"
        seen = harness.run([*tracer("-D", "-o", self.trace, "-i", "-"), "--", self.shell, "-c", "echo x"], stdin=definition.encode())
        self.assertEqual((seen.returncode, [hit.event for hit in self.hits()]), (0, ["r"]), seen.stderr)

    def test_what_the_tool_holds(self):
        given = os.pipe()
        os.set_inheritable(given[1], True)
        program = self.begin(need("cat"), pass_fds=[given[1]])
        program.stdin.write(b"x\n")
        program.stdin.flush()
        program.stdout.readline()
        tool = self.tool()
        harness.wait_until(lambda: links_of(tool).get(2) == "/dev/null", "the tool's silence")
        theirs = {os.readlink(f"/proc/{os.getpid()}/fd/{pipe.fileno()}") for pipe in (program.stdin, program.stdout, program.stderr)}
        theirs.add(os.readlink(f"/proc/self/fd/{given[1]}"))
        self.assertFalse(theirs & set(links_of(tool).values()))
        self.assertTrue(theirs <= set(links_of(program.pid).values()))
        self.assertEqual([links_of(tool)[number] for number in range(3)], ["/dev/null"] * 3)
        self.assertEqual(os.getsid(tool), tool)
        self.assertNotEqual(os.getsid(program.pid), tool)
        os.close(given[0]), os.close(given[1])

    def test_closed_streams(self):
        for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            with self.subTest(closed=closed):
                order = f'{" ".join(map(self.quoted, self.words))} -- sh -c "ls -l /proc/self/fd >/dev/null; exit 4" {closed}'
                self.assertEqual(harness.run([self.shell, "-c", order]).returncode, 4)


FAMILY = """
import errno, os, resource, signal, sys
def wait(how):
    try:
        return os.waitpid(-1, how)
    except ChildProcessError as error:
        return errno.errorcode[error.errno]
os.write(1, (' '.join([str(wait(int(how))) for how in sys.argv[1:]]) + '\\n').encode())
used = resource.getrusage(resource.RUSAGE_CHILDREN)
os.write(1, f'{used.ru_utime} {used.ru_stime} {used.ru_minflt} {used.ru_maxrss} {signal.sigpending()}\\n'.encode())
for _ in range(3):
    if os.fork() == 0:
        os.write(2, b'child\\n')
        os._exit(3)
ended = 0
while True:
    try:
        os.wait()
        ended += 1
    except ChildProcessError:
        break
os.write(1, f'{ended}\\n'.encode())
"""


class Children(Beside):
    def test_no_child_is_the_tool(self):
        seen = harness.run([*self.words, "--", *self.python(FAMILY, "0", str(WAIT_ALL))])
        self.assertEqual((seen.returncode, seen.stdout), (0, b"ECHILD ECHILD\n0.0 0.0 0 0 set()\n3\n"), seen.stderr)
        self.assertEqual(len({hit.tid for hit in self.hits()}), 4, "the children are recorded")

    def test_children_from_before(self):
        """The program's children are there for it, as without the tool."""
        job = "import os\nos.write(1, b'%d\\n' % (os.wait()[1] >> 8))\nos.write(1, b'%d\\n' % (os.wait()[1] >> 8))"
        order = '(exit 5) & (sleep 0.3; exit 5) & exec "$@"'
        seen = harness.run([self.shell, "-c", order, "sh", *self.words, "--", *self.python(job)])
        self.assertEqual((seen.returncode, seen.stdout), (0, b"5\n5\n"), seen.stderr)

    def test_a_subreaper(self):
        job = "import ctypes, os, sys\nctypes.CDLL(None).prctl(36, 1)\nos.execv(sys.argv[1], sys.argv[1:])"
        seen = harness.run([*self.python(job), *self.words, "--", *self.python(FAMILY, "0", str(WAIT_ALL))])
        self.assertEqual((seen.returncode, seen.stdout.splitlines()[0]), (0, b"ECHILD ECHILD"), seen.stderr)

    def test_ignored_and_blocked_signals(self):
        def before():
            for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGCHLD})
        command = [need("grep"), "-E", "SigBlk|SigIgn|ShdPnd|SigPnd", "/proc/self/status"]
        seen = harness.run([*self.words, "--", *command], before_exec=before)
        self.assertEqual((seen.returncode, seen.stdout), (0, harness.run(command, before_exec=before).stdout), seen.stderr)

    def test_every_shape_of_a_program(self):
        """By each C library, static and not: complete when the parent sees the exit."""
        for shape in ("subject", "subject_static", "subject_static_pie", "subject_musl", "subject_musl_static"):
            for words in (["exit", "9"], ["threads", "4", "50"], ["forks", "3", "20"], ["vfork", "20"]):
                with self.subTest(shape=shape, words=words):
                    try:
                        program = harness.fixture(shape)
                    except unittest.SkipTest:
                        continue
                    trace = ["-o", self.trace, "-p", f"p:n {program}:take_numbers", "--", program, *words]
                    plain = harness.run(tracer(*trace))
                    expected = len(self.hits())
                    seen = harness.run(tracer("-D", *trace))
                    self.assertEqual((seen.returncode, seen.stdout), (plain.returncode, plain.stdout), seen.stderr)
                    self.assertEqual(len(self.hits()), expected)
                    self.assertGreater(expected, 0)

    def test_surroundings(self):
        command = [self.shell, "-c", "ls -l /proc/self/fd | wc -l; ulimit -a; umask; pwd; env; cat /proc/self/oom_score_adj; nice"]
        env = {"PATH": os.environ["PATH"], "A": "b"}
        seen = harness.run([*self.words, "--", *command], env=env)
        self.assertEqual((seen.returncode, seen.stdout), (0, harness.run(command, env=env).stdout), seen.stderr)

    def test_it_executes_another_program(self):
        seen = harness.run([*self.words, "--", self.shell, "-c", 'echo a; exec sh -c "echo b; exec /bin/echo c"'])
        self.assertEqual((seen.returncode, seen.stdout), (0, b"a\nb\nc\n"))
        self.assertEqual([hit.task for hit in self.hits()], [os.path.basename(self.shell), "sh", "echo"])

    def test_threads(self):
        job = ("import os, threading\n"
               "def work():\n for _ in range(100): os.write(1, b'x')\n"
               "threads = [threading.Thread(target=work) for _ in range(4)]\n"
               "for thread in threads: thread.start()\n"
               "for thread in threads: thread.join()\n"
               "threading.Thread(target=__import__('time').sleep, args=(60,), daemon=True).start()\n"
               "os._exit(9)")
        seen = harness.run([*self.words, "--", *self.python(job)])
        self.assertEqual((seen.returncode, seen.stdout, len(self.hits())), (9, b"x" * 400, 400), seen.stderr)


class Lifetimes(Beside):
    def test_the_tool_is_killed(self):
        program = self.echoing()
        os.kill(self.tool(), signal.SIGKILL)
        program.stdin.write(b"x\n")
        program.stdin.close()
        self.assertEqual((program.stdout.read(), program.wait(harness.TIMEOUT)), (b"x\n", 0))

    def test_the_tool_is_killed_before(self):
        definition = f"p:all/* {harness.libc_of(self.shell)}:*"
        program = self.begin(self.shell, "-c", "echo started", words=tracer("-D", "-o", self.trace, "-p", definition))
        harness.wait_until(lambda: others_in_group(program.pid), "the tool")
        for pid in others_in_group(program.pid):  # the process that starts the tool may be among them
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        out, said = program.communicate(timeout=harness.TIMEOUT)
        self.assertEqual((program.returncode, out, said), (125, b"", b"uprobe-run: the tool has ended; the program was not started\n"))

    def test_the_tool_is_stopped(self):
        program = self.echoing()
        tool = self.tool()
        self.addCleanup(os.kill, tool, signal.SIGKILL)
        os.kill(tool, signal.SIGSTOP)
        program.stdin.close()
        self.assertEqual(program.wait(harness.TIMEOUT), 0)

    def test_the_tool_is_asked_to_end(self):
        program = self.begin(self.shell, "-c", "echo a; read line; echo b; read line; exit 4")
        program.stdout.readline()
        harness.wait_until(lambda: len(self.hits()) == 1, "the first record")
        os.kill(self.tool(), signal.SIGTERM)
        self.wait_for_no_tool()
        program.stdin.write(b"\n\n")
        program.stdin.close()
        self.assertEqual((program.wait(harness.TIMEOUT), len(self.hits())), (4, 1))

    def test_early_ends(self):
        job = "for i in 1 2 3 4 5 6 7 8 9; do /bin/echo $i; done; exit 6"
        for options in (("-n", "3"), ("-d", "50ms")):
            with self.subTest(options=options):
                seen = harness.run([*self.with_options(*options), "--", self.shell, "-c", job])
                self.assertEqual((seen.returncode, seen.stdout), (6, b"1\n2\n3\n4\n5\n6\n7\n8\n9\n"), seen.stderr)
                self.wait_for_no_tool()
                if options[0] == "-n":
                    self.assertEqual(len(self.hits()), 3)

    def test_until_the_last_has_ended(self):
        program = self.begin(self.shell, "-c", "(sleep 1; /bin/echo late) >&2 & echo first; exit 3",
                             words=self.with_options("--until=last", "-v"))
        self.assertEqual(program.wait(harness.TIMEOUT), 3)
        self.assertEqual(len(self.hits()), 1, "complete when the parent sees it")
        self.wait_for_no_tool()
        self.assertIn("echo", {hit.task for hit in self.hits()})
        self.assertIn("# uprobe-run: uprobes/w", self.text())

    def test_until_the_first_has_ended(self):
        program = self.begin(self.shell, "-c", "(sleep 1; /bin/echo late) >&2 & exit 3", words=self.with_options("-v"))
        self.assertEqual(program.wait(harness.TIMEOUT), 3)
        self.wait_for_no_tool()
        self.assertRegex(self.text(), "# uprobe-run: .* on untraced; --until=last")

    def test_it_is_killed_while_it_waits(self):
        """Planning takes long enough: every function of libc."""
        libc = harness.libc_of(self.shell)
        words = tracer("-D", "-o", self.trace, "-p", f"p:all/* {libc}:*")
        program = self.begin(self.shell, "-c", "echo started", words=words)
        time.sleep(0.05)
        program.kill()
        self.assertEqual((program.stdout.read(), program.wait(harness.TIMEOUT)), (b"", -signal.SIGKILL))
        self.wait_for_no_tool()

    def test_control(self):
        program = self.begin(need("cat"), words=self.with_options("--session", f"beside-{os.getpid()}"))
        self.tool()
        for session in (str(program.pid), f"beside-{os.getpid()}"):
            with self.subTest(session=session):
                harness.wait_until(lambda: harness.run([harness.tool(), "--control", session, "--list"]).returncode == 0, "the session")
        seen = harness.run([harness.tool(), "--control", str(program.pid), "-p", f"p:more {harness.libc_of(need('cat'))}:read"])
        self.assertEqual(seen.returncode, 0, seen.stderr)
        program.stdin.write(b"x\n")
        program.stdin.close()
        self.assertEqual((program.stdout.read(), program.wait(harness.TIMEOUT)), (b"x\n", 0))
        self.assertEqual({hit.event for hit in self.hits()}, {"w", "more"})

    def test_a_guest(self):
        program = self.begin(need("cat"))
        self.tool()
        guest = subprocess.Popen([*tracer("-v", "-o", self.path("guest"), "-p", f"p:g {harness.libc_of(need('cat'))}:read"), "-P",
                                  str(program.pid)], stderr=subprocess.PIPE, start_new_session=True)
        self.addCleanup(harness.stop_group, guest)
        for line in guest.stderr:
            if line == b"uprobe-run: attached\n":
                break
        program.stdin.write(b"x\n")
        program.stdin.close()
        self.assertEqual((program.stdout.read(), program.wait(harness.TIMEOUT)), (b"x\n", 0))
        self.assertEqual([hit.event for hit in self.hits()], ["w"])
        self.assertEqual(guest.wait(harness.TIMEOUT), 0)


class Terminal(Beside):
    """An interactive shell, and jobs of it."""

    def setUp(self):
        super().setUp()
        bash = need("bash")
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.environ["PS1"] = "ready> "
            os.execv(bash, [bash, "--norc", "--noprofile", "--noediting", "-i"])
        self.addCleanup(self.end)
        self.seen = b""
        self.read_to(b"ready> ")

    def end(self):
        for pid in [self.pid, *harness.descendants(self.pid)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        os.waitpid(self.pid, 0)
        os.close(self.master)

    def read_to(self, mark):
        deadline = time.monotonic() + harness.TIMEOUT
        while not re.search(mark, self.seen):
            if not select.select([self.master], [], [], max(0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"no {mark} in {self.seen}")
            self.seen += os.read(self.master, 4096)
        found = re.search(mark, self.seen)
        self.seen = self.seen[found.end():]
        return found

    def type(self, text):
        os.write(self.master, text)

    def job(self, *command):
        self.type((" ".join("'" + word + "'" for word in [*self.words, "--", *command]) + "\n").encode())

    def test_interrupted(self):
        job = ("import os, signal, sys, time\n"
               "left = [1, 2]\n"
               "signal.signal(signal.SIGINT, lambda *_: (left.pop(), os.write(1, b'INTERR' + b'UPTED\\n')))\n"
               "os.write(1, b'BEG' + b'UN\\n')\n"
               "while left: time.sleep(0.01)\n"
               "sys.exit(5)")
        job = self.write("job.py", job)
        self.job(PYTHON, "-S", job)
        self.read_to(b"BEGUN\r\n")
        tool = self.tool()
        for _ in range(2):  # no wish to detach
            self.type(b"\x03")
            self.read_to(b"INTERRUPTED\r\n")
        self.read_to(b"ready> ")
        self.type(b"echo code=$?\n")
        self.read_to(b"code=5\r\n")
        self.assertEqual(len(self.hits()), 3)
        self.assertNotEqual(tool, 0)

    def test_stopped_and_continued(self):
        self.job(need("cat"))
        tool = self.tool()
        self.type(b"one\n")
        self.read_to(b"one\r\none\r\n")
        self.type(b"\x1a")
        self.read_to(b"Stopped.*\r\n")
        self.read_to(b"ready> ")
        stopped = [pid for pid in harness.descendants(self.pid) if field(pid, "State").startswith("T")]
        self.assertEqual([field(pid, "Name") for pid in stopped], ["cat"])
        self.assertFalse(field(tool, "State").startswith("T"))
        self.type(b"jobs -l; fg\n")
        self.read_to(b"%d Stopped" % stopped[0])
        self.read_to(b"\r\n.*cat'?\r\n")
        self.type(b"two\n")
        self.read_to(b"two\r\ntwo\r\n")
        self.type(b"\x04")
        self.read_to(b"ready> ")
        self.type(b"echo code=$?\n")
        self.read_to(b"code=0\r\n")
        self.assertEqual(len([hit for hit in self.hits() if hit.task == "cat"]), 2)

    def test_stopped_before_it_begins(self):
        """The tool waits too; the shell continues it."""
        definition = f"p:all/* {harness.libc_of(self.shell)}:*"
        words = " ".join("'" + word + "'" for word in tracer("-D", "-o", self.trace, "-p", definition))
        self.type(f"{words} -- /bin/echo STAR''TED\n".encode())
        time.sleep(0.05)
        self.type(b"\x1a")
        self.read_to(b"(Stopped|STARTED)")
        self.type(b"fg\n")
        self.read_to(b"STARTED|no such job|current")


@unittest.skipIf(os.geteuid() != 0, "needs root")
class FirstProcess(Beside):
    """Process 1 of a PID namespace."""

    def setUp(self):
        super().setUp()
        self.namespaces = [need("unshare"), "-f", "-p", "--mount-proc"]
        if harness.run([*self.namespaces, "true"]).returncode != 0:
            self.skipTest("no PID namespaces here")

    def test_no_child_is_the_tool(self):
        for ways in (["-Ufp", "--mount-proc", "-r"], ["-fp", "--mount-proc"]):
            with self.subTest(ways=ways):
                seen = harness.run([self.namespaces[0], *ways, *self.words, "--", *self.python(FAMILY, "0")])
                self.assertEqual((seen.returncode, seen.stdout), (0, b"ECHILD\n0.0 0.0 0 0 set()\n3\n"), seen.stderr)
                self.assertEqual(len(self.hits()), 6)

    def test_the_trace_is_complete_when_the_parent_sees_the_exit(self):
        job = "for i in 1 2 3 4 5 6 7; do echo $i; done; echo $$; exit 3"
        for _ in range(20):
            seen = harness.run([*self.namespaces, *self.with_options("-v"), "--", self.shell, "-c", job])
            self.assertEqual((seen.returncode, seen.stdout.splitlines()[-1], len(self.hits())), (3, b"1", 8), seen.stderr)
            self.assertRegex(self.text(), "# uprobe-run: uprobes/w .*: 8 hits\n")

    def test_orphans_are_the_programs(self):
        job = "import os, time\nif os.fork() == 0:\n if os.fork() == 0: time.sleep(0.2); os._exit(7)\n os._exit(0)\n" \
              "print(sorted([os.wait()[1] >> 8, os.wait()[1] >> 8]), flush=True)\ntry:\n os.wait()\nexcept ChildProcessError: os._exit(4)"
        seen = harness.run([*self.namespaces, *self.words, "--", *self.python(job)])
        self.assertEqual((seen.returncode, seen.stdout), (4, b"[0, 7]\n"), seen.stderr)

    def test_without_a_proc_of_its_own(self):
        seen = harness.run([self.namespaces[0], "-fp", *self.words, "--", self.shell, "-c", "echo started"])
        self.assertEqual((seen.returncode, seen.stdout), (125, b""))
        self.assertIn(b"PID namespace", seen.stderr)


if __name__ == "__main__":
    harness.main()
