# SPDX-License-Identifier: MIT
"""Attaching to all processes with a name or a mapped file, now and later."""
import collections
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import harness
from harness import UNPRIVILEGED, fixture, tracer, wait_until

ATTACHED = re.compile(rb"uprobe-run: attached to process (\d+) \((.*)\)\n")


def read(path, mode="r"):
    with open(path, mode) as file:
        return file.read()


def is_free(pid):
    return "uprobe-session" not in read(f"/proc/{pid}/maps") and "TracerPid:\t0\n" in read(f"/proc/{pid}/status")


def left_in(pid):
    """What shows in a process that is not free."""
    maps = [line for line in read(f"/proc/{pid}/maps").splitlines() if "uprobe" in line]
    return maps, re.findall("(?:State|TracerPid):.*", read(f"/proc/{pid}/status"))


class ManyCase(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.name = f"told{os.getpid()}"[:15]  # of this test alone: the tool attaches to every process of the name
        self.program = harness.copied(fixture("attached_told"), self.path(self.name))
        self.object = harness.copied(fixture("libplugin.so"), self.path("object.so"))
        self.processes = []

    def start(self, *command, **more):
        process = subprocess.Popen(command or [self.program, self.object], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   start_new_session=True, **more)
        self.addCleanup(harness.stop_group, process)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        self.processes.append(process)
        return process

    def tell(self, process, letter, answer=b"done\n"):
        process.stdin.write(letter)
        process.stdin.flush()
        self.assertEqual(process.stdout.readline(), answer)

    def session(self, *options, probe=None, **more):
        words = [*tracer("-o", self.path("trace"), *options), "-p", probe or f"p:w {self.program}:work %di:s64"]
        process = subprocess.Popen(words, stderr=subprocess.PIPE, start_new_session=True, **more)
        self.addCleanup(harness.stop_group, process)
        process.said = b""
        return process

    def await_attached(self, session, count):
        """Lines of so many processes; their ids."""
        pids = set()
        while len(pids) < count:
            line = session.stderr.readline()
            session.said += line
            self.assertNotEqual(line, b"", session.said)
            if match := ATTACHED.fullmatch(line):
                pids.add(int(match[1]))
        return pids

    def await_said(self, session, text):
        while text not in session.said:
            line = session.stderr.readline()
            session.said += line
            self.assertNotEqual(line, b"", session.said)

    def hits(self):
        return collections.Counter(hit.tid for hit in harness.parse_trace(read(self.path("trace"))))

    def finish(self, session, how=signal.SIGINT):
        """All of the tool's messages; every process goes on as before, and ends well."""
        if how:
            session.send_signal(how)
        session.said += session.communicate(timeout=harness.TIMEOUT)[1]
        for process in self.processes:
            self.assertTrue(is_free(process.pid), (session.said, left_in(process.pid)))
            out, _ = process.communicate(b"w", harness.TIMEOUT)
            self.assertEqual((out, process.returncode), (b"done\n", 0))
        return session.said


class Present(ManyCase):
    def test_twenty_of_a_name(self):
        processes = [self.start() for _ in range(20)]
        other = self.start(harness.copied(self.program, self.path("another")))
        session = self.session("--comm", self.name)
        self.assertEqual(self.await_attached(session, 20), {process.pid for process in processes})
        for times, process in enumerate(processes):
            for _ in range(times):
                self.tell(process, b"w")
        self.tell(other, b"w")
        said = self.finish(session)
        self.assertEqual(session.returncode, 0)
        self.assertEqual(self.hits(), {p.pid: 100 * n for n, p in enumerate(processes) if n})
        self.assertIn(b": 19,000 hits", said)

    def test_patterns_and_process_ids(self):
        one, two = self.start(), self.start()
        third = self.start(harness.copied(self.program, self.path("else" + self.name[4:])))
        session = self.session("-P", f"{third.pid},{one.pid}", "--comm", "t[n-p]ld" + self.name[4:-1] + "?",
                               probe=f"p:w {self.program}:work")
        self.assertEqual(self.await_attached(session, 1), {two.pid})
        for process in (one, two, third):
            self.tell(process, b"w")
        self.finish(session)
        self.assertEqual(self.hits(), {one.pid: 100, two.pid: 100})

    def test_of_a_mapped_file(self):
        """By its inode: a renamed file is the same, another in its place is not."""
        mapping, by_loader, none = self.start(), self.start(env={**os.environ, "LD_PRELOAD": self.object}), self.start()
        self.tell(mapping, b"m")
        os.link(self.object, self.path("another_name"))
        os.unlink(self.object)
        session = self.session("--object", self.path("another_name"))
        self.assertEqual(self.await_attached(session, 2), {mapping.pid, by_loader.pid})
        for process in (mapping, by_loader, none):
            self.tell(process, b"w")
        self.finish(session)
        self.assertEqual(self.hits(), {mapping.pid: 100, by_loader.pid: 100})

    def test_it_ends_with_the_last_of_them(self):
        processes = [self.start() for _ in range(3)]
        session = self.session("--comm", self.name)
        self.await_attached(session, 3)
        for process in processes:
            self.tell(process, b"w")
        for process in processes:
            process.communicate(timeout=harness.TIMEOUT)
        said = session.communicate(timeout=harness.TIMEOUT)[1]
        self.assertEqual((session.returncode, said.count(b"the processes have ended")), (0, 1), said)
        self.assertEqual(self.hits(), {process.pid: 100 for process in processes})

    def test_quiet(self):
        process = self.start()
        session = self.session("-q", "--comm", self.name, "-d", "100ms")
        self.assertEqual(self.finish(session, how=None), b"")
        self.assertEqual(process.returncode, 0)


class Later(ManyCase):
    def test_all_that_comes_after_the_line(self):
        session = self.session("--comm", self.name, "--wait")
        early = [self.start() for _ in range(3)]
        pids = self.await_attached(session, 3)
        late = [self.start() for _ in range(4)]
        pids |= self.await_attached(session, 4)
        self.assertEqual(pids, {process.pid for process in early + late})
        for times, process in enumerate(early + late, 1):
            for _ in range(times):
                self.tell(process, b"w")
        self.assertIsNone(session.poll())
        said = self.finish(session)
        self.assertEqual(self.hits(), {p.pid: 100 * n for n, p in enumerate(early + late, 1)})
        self.assertIn(b": 2,800 hits", said)

    def test_it_outlives_them(self):
        session = self.session("--comm", self.name, "--wait")
        for _ in range(2):
            process = self.start()
            self.await_attached(session, 1)
            self.tell(process, b"w")
            process.communicate(timeout=harness.TIMEOUT)
            self.processes.remove(process)
        self.assertIsNone(session.poll())
        self.finish(session)
        self.assertEqual(sum(self.hits().values()), 200)

    def test_a_file_that_is_mapped_later(self):
        session = self.session("--object", self.object, "--wait")
        process, other = self.start(), self.start()
        time.sleep(0.3)  # it has been looked at before
        self.tell(process, b"w")
        self.tell(process, b"m")
        self.assertEqual(self.await_attached(session, 1), {process.pid})
        self.tell(process, b"w")
        self.tell(other, b"w")
        self.finish(session)
        self.assertEqual(self.hits(), {process.pid: 100})

    def test_children_and_programs_of_the_attached(self):
        """Followed as ever, and not attached to a second time."""
        process = self.start()
        session = self.session("--comm", self.name, "--wait")
        self.await_attached(session, 1)
        for _ in range(20):
            self.tell(process, b"c")
        self.tell(process, b"x", b"ready\n")
        self.tell(process, b"w")
        said = self.finish(session)
        self.assertEqual(len(ATTACHED.findall(said)), 1, said)
        hits = self.hits()
        self.assertEqual((hits.pop(process.pid), set(hits.values()), len(hits)), (100, {10}, 20))

    def test_number_of_events_and_duration(self):
        session = self.session("--comm", self.name, "--wait", "-n", "150")
        one, two = self.start(), self.start()
        self.await_attached(session, 2)
        self.tell(one, b"w")
        self.tell(two, b"w")
        self.finish(session, how=None)
        self.assertEqual((session.returncode, sum(self.hits().values())), (0, 150))
        session = self.session("--comm", self.name, "--wait", "-d", "100ms")
        self.assertIn(b": 0 hits", session.communicate(timeout=harness.TIMEOUT)[1])
        self.assertEqual(session.returncode, 0)

    def test_control(self):
        session = self.session("--comm", self.name, "--wait", probe=f"p:other {self.program}:main")
        before = self.start()
        self.await_attached(session, 1)
        subprocess.run([harness.tool(), "--control", str(session.pid), "-p", f"p:w {self.program}:work"], check=True)
        after = self.start()
        self.await_attached(session, 1)
        self.tell(before, b"w")
        self.tell(after, b"w")
        self.finish(session)
        self.assertEqual(self.hits(), {before.pid: 100, after.pid: 100})


class Storm(ManyCase):
    """Programs that start and end all the time behave as untraced, and the tool lets go of every one that it attached to."""
    JOBS = ((["/bin/echo", "one"], b"one\n", 0),
            (["sh", "-c", "for i in 1 2 3; do /bin/echo $i | cat; done; exit 7"], b"1\n2\n3\n", 7),
            (["sh", "-c", "trap 'echo caught' USR1; kill -USR1 $$; sleep 0.06; echo end"], b"caught\nend\n", 0),
            (["sh", "-c", "sleep 0.05; kill -TERM $$"], b"", -signal.SIGTERM),
            ([sys.executable, "-S", "-c", "import os; os.fork() and os.wait(); print(6 * 7)"], b"42\n42\n", 0))

    def test_short_lived_programs(self):
        session = self.session("--object", self.object, "--wait", "-v",
                               probe=f"p:w {harness.libc_of(shutil.which('sh'))}:write fd=%di")
        environment = {**os.environ, "LD_PRELOAD": self.object}
        for turn in range(30):
            running = [(job, subprocess.Popen(job[0], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment))
                       for job in self.JOBS]
            for (command, expected, code), process in running:
                out, err = process.communicate(timeout=harness.TIMEOUT)
                self.assertEqual((out, err, process.returncode), (expected, b"", code), (turn, command))
        lasting = self.start(self.program, env=environment)
        while lasting.pid not in self.await_attached(session, 1):
            pass
        self.assertLess(len(os.listdir(f"/proc/{harness.descendants(session.pid)[0]}/fd")), 40)
        said = self.finish(session)
        self.assertGreater(len(ATTACHED.findall(said)), 10)
        self.assertNotIn(b"keeps handlers", said)
        self.assertEqual(session.returncode, 0)


class Ended(ManyCase):
    def test_tool_is_killed(self):
        processes = [self.start() for _ in range(3)]
        session = self.session("--comm", self.name, "--wait")
        self.await_attached(session, 3)
        session.kill()
        session.wait()
        for process in processes:
            wait_until(lambda p=process: is_free(p.pid), "the detach")
        late = self.start()
        time.sleep(0.2)
        self.assertTrue(is_free(late.pid))
        self.finish(session, how=None)

    def test_engine_is_killed(self):
        """The launcher does not know which processes the tracer had attached to: it finds them."""
        processes = [self.start() for _ in range(3)]
        session = self.session("--comm", self.name, "--wait")
        self.await_attached(session, 3)
        self.tell(processes[0], b"w")
        os.kill(harness.descendants(session.pid)[0], signal.SIGKILL)
        said = self.finish(session, how=None)
        self.assertEqual(session.returncode, 125)
        self.assertIn(b"the tracer was killed by signal 9; its probes are removed", said)

    def test_engine_is_killed_at_any_moment(self):
        for delay in range(1, 41, 3):
            process = self.start()
            session = self.session("--comm", self.name, "--wait")
            wait_until(lambda s=session: harness.descendants(s.pid), "the engine")
            time.sleep(delay / 1000)
            os.kill(harness.descendants(session.pid)[0], signal.SIGKILL)
            self.finish(session, how=None)
            self.assertEqual(process.returncode, 0)
            self.processes.clear()


class LeftOut(ManyCase):
    def check_refused(self, words, text):
        seen = harness.run([*tracer("-o", "/dev/null", *words), "-p", f"p:w {self.program}:work"])
        self.assertEqual(seen.returncode, 125, seen.stderr)
        self.assertIn(text, seen.stderr.decode())
        return seen

    def test_no_such_process(self):
        self.check_refused(["--comm", self.name], f"no process is called '{self.name}'")
        self.check_refused(["--object", self.object], f"no process maps {self.object}")

    def test_words(self):
        self.check_refused(["--wait"], "--wait needs a name or a file to wait for")
        self.check_refused(["--wait", "-P", "1"], "--wait needs a name or a file to wait for")
        self.check_refused(["--comm", "0123456789abcdef"], "the kernel keeps 15 bytes of a name")
        self.check_refused(["--object", self.path("none")], "No such file")
        self.check_refused(["--object", self.folder, "--wait"], "is not a file that a process can map")

    def test_one_that_another_tracer_has(self):
        harness.need("strace")
        free, taken = self.start(), self.start()
        strace = subprocess.Popen(["strace", "-qq", "-o", "/dev/null", "-p", str(taken.pid)])
        self.addCleanup(strace.wait)
        self.addCleanup(strace.kill)
        wait_until(lambda: "TracerPid:\t0" not in read(f"/proc/{taken.pid}/status"), "strace")
        session = self.session("--comm", self.name, "--wait")
        self.assertEqual(self.await_attached(session, 1), {free.pid})
        self.await_said(session, b"is traced by")
        time.sleep(0.3)  # it is looked at again, and not told again
        self.tell(free, b"w")
        session.send_signal(signal.SIGINT)
        said = session.said + session.communicate(timeout=harness.TIMEOUT)[1]
        self.assertEqual(said.count(f"process {taken.pid} ({self.name}): is traced by".encode()), 1, said)
        self.assertEqual(self.hits(), {free.pid: 100})
        seen = self.check_refused(["--comm", self.name, "-P", str(taken.pid)], "is traced by")
        self.assertNotIn(b"attached to", seen.stderr)
        self.assertTrue(is_free(free.pid))

    def test_those_of_another_session(self):
        process = self.start()
        first = self.session("--comm", self.name)
        self.await_attached(first, 1)
        self.check_refused(["--comm", self.name], f"is traced by another uprobe-run, process {first.pid}")
        self.tell(process, b"w")
        self.finish(first)
        self.assertEqual(self.hits(), {process.pid: 100})

    def test_the_tools_themselves_and_zombies(self):
        """Both have the name."""
        zombie = subprocess.Popen([self.program], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.addCleanup(zombie.wait)
        wait_until(lambda: "State:\tZ" in read(f"/proc/{zombie.pid}/status"), "the end")
        self.check_refused(["--comm", self.name], "no process is called")
        self.check_refused(["--comm", "uprobe-*"], "no process is called")

    @unittest.skipIf(os.geteuid() != 0, "only root can change to another user")
    def test_those_of_another_user(self):
        os.chmod(self.folder, 0o755)
        foreign = self.start()
        unprivileged = {"user": UNPRIVILEGED, "group": UNPRIVILEGED, "extra_groups": []}
        own = self.start(**unprivileged)
        session = self.session("-o", "/dev/null", "--comm", self.name, **unprivileged)
        self.assertEqual(self.await_attached(session, 1), {own.pid})
        self.await_said(session, b"is skipped")
        said = self.finish(session)
        self.assertEqual(said.count(f"process {foreign.pid} ({self.name}) belongs to another user".encode()), 1, said)
        self.assertEqual(session.returncode, 0)


if __name__ == "__main__":
    harness.main()
