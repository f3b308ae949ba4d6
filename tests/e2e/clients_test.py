# SPDX-License-Identifier: MIT
"""Users and options with which a client tool may join an owner tool, and the messages of both."""
import os
import pwd
import random
import socket
import struct
import subprocess
import time
import unittest

import harness
from harness import UNPRIVILEGED, fixture, tool, tracer, wait_until
from process_state import read
from tracers_test import BusyCase, TracersCase


GREETING = struct.pack("=II", 8, 11)  # then the version, and no pass: a foreign process has none


def guest_socket(host):
    """The socket where a tool accepts client tools."""
    name = f"uprobe-run/.clients-{host}"
    folders = [os.environ.get("XDG_RUNTIME_DIR", "/nowhere"), "/tmp"]
    return next(path for path in (f"{folders[0]}/{name}", f"{folders[1]}/{name}".replace("uprobe-run", f"uprobe-run-{os.geteuid()}"))
                if os.path.exists(path))


def everything(connection):
    """All bytes until the other side closes."""
    data = b""
    try:
        while part := connection.recv(65536):
            data += part
    except ConnectionResetError:
        pass
    return data


class Words(TracersCase):
    """The messages to and about a client tool."""

    def test_list_names_owners(self):
        target = self.start_rounds()
        first = self.tracer("first", target.pid, f"p:g {self.program}:g").attached()
        guest = self.tracer("guest", target.pid, f"p:g {self.program}:f").attached()
        seen = harness.run([tool(), "--control", str(first.process.pid), "--list"])
        self.assertRegex(seen.stdout.decode(), rf"\Ap:uprobes/g \S+ # on\np:uprobes/g \S+ # on, of process {guest.process.pid}\n\Z")
        seen = harness.run([tool(), "--control", str(first.process.pid), "--clear", "--stats"])
        self.assertEqual(seen.stdout.decode(), f"removed 1 probe\nuprobes/g, of process {guest.process.pid} 0 hits, 0 lost\n".replace("removed 1 probe", "removed uprobes/g"))
        self.round()
        self.assertEqual(guest.leave().counts, {"g": 100})
        first.leave()
        self.end_well(target, b"")

    def test_triggers_of_the_first_go_on(self):
        target = self.start_rounds()
        triggers = ["-p", f"p:g {self.program}:g", "--trigger=stacktrace", "--trigger=hist:keys=common_pid"]
        first = self.tracer("first", target.pid, triggers).attached()
        guest = self.tracer("guest", target.pid, f"p:mine {self.program}:g").attached()
        self.round()
        guest.leave()
        self.round()
        first.leave()
        text = read(first.trace)
        self.assertEqual(text.count("<user stack trace>\n => g+0x0/"), 200)
        self.assertRegex(text, rf"common_pid: +{target.pid} }} hitcount: +200\n")
        self.assertNotIn("stack", read(guest.trace))
        self.end_well(target, b"")

    def refused(self, pid, *words, text):
        seen = harness.run([*tracer("-o", "/dev/null"), *words, "-P", str(pid)])
        self.assertEqual(seen.returncode, 125, seen.stderr)
        self.assertIn(text, seen.stderr.decode())

    def test_what_cannot_join(self):
        target = self.start_rounds()
        first = self.tracer("first", target.pid, f"p:g {self.program}:g").attached()
        probe = ["-p", f"p:f {self.program}:f n=%di"]
        self.refused(target.pid, *probe, "--trigger=traceoff", text="can only be given when a session starts")
        self.refused(target.pid, *probe, "--session", "it", text="cannot have a --session name")
        self.refused(target.pid, "-p", f"p:f {self.program}:f a=%di:symbol", text="shows symbol names")
        self.refused(target.pid, *probe, "-s", "5000", text="records 4096 bytes of a string")
        self.refused(target.pid, "-p", f"p:f {self.program}:nothing", text="no function 'nothing'")
        self.round()
        seen = harness.run([tool(), "--control", str(first.process.pid), "--list"])
        self.assertEqual(seen.stdout.count(b"\n"), 1, "nothing of it is there")
        self.assertEqual(first.leave().counts, {"g": 100})
        self.end_well(target, b"")

    def test_processes_that_are_traced_together(self):
        program = fixture("attached_busy")
        targets = [self.start_ready(program) for _ in range(2)]
        pids = sorted(target.pid for target in targets)
        both = ",".join(map(str, pids))
        first = self.tracer("first", both, f"p:w {program}:several").attached()
        self.refused(pids[0], "-p", f"p:w {program}:several", text=f"-P {both} joins it")
        guest = self.tracer("guest", f"{pids[1]},{pids[0]}", f"p:w {program}:several").attached()
        time.sleep(0.05)
        both_left = [first.leave(), guest.leave()]  # a trace grows as long as its tool is there
        for one in both_left:
            self.assertGreater(len({hit.tid for hit in one.hits}), 8)
        for target in targets:
            self.end_well(target)

    def test_names_of_files_are_the_guests(self):
        target = self.start_rounds()
        first = self.tracer("first", target.pid, f"p:g {self.program}:g").attached()
        os.mkdir(self.path("elsewhere"))
        os.symlink(self.program, self.path("elsewhere/here"))
        seen = harness.run([*tracer("-d", "50ms"), "-p", "p:f ./here:f", "-P", str(target.pid)], cwd=self.path("elsewhere"))
        self.assertEqual(seen.returncode, 0, seen.stderr)
        first.leave()
        self.end_well(target, b"")

    @unittest.skipIf(os.geteuid() != 0, "only root can change to another user")
    def test_root_is_anybodys_guest(self):
        program = os.path.join("/tmp", f"uprobe-tracers-{os.getpid()}")
        harness.copied(fixture("attached_busy"), program)
        self.addCleanup(os.unlink, program)
        target = self.start_ready(program, user=UNPRIVILEGED, group=UNPRIVILEGED, extra_groups=[])
        first = subprocess.Popen([*tracer("-d", "4s", "-o", "/dev/null"), "-p", f"p:w {program}:several", "-P", str(target.pid)],
                                 user=UNPRIVILEGED, group=UNPRIVILEGED, extra_groups=[], stderr=subprocess.PIPE)
        self.addCleanup(first.wait)
        wait_until(lambda: "uprobe-session" in read(f"/proc/{target.pid}/maps"), "the first")
        seen = harness.run([*tracer("-o", "/dev/null", "-P", str(target.pid)), "-p", f"p:w {program}:several"])
        self.assertEqual(seen.returncode, 125, "only when it is told to")
        name = pwd.getpwuid(UNPRIVILEGED).pw_name.encode()
        self.assertRegex(seen.stderr, rb"of user %b \(uid 65534\)\n  --join joins" % name)
        root = self.tracer("root", target.pid, f"p:w {program}:several", options=["-d", "50ms", "--join"]).end()
        self.assertIn(b"joins the session of user %b (uid 65534)" % name, root.error)
        self.assertGreater(len(root.hits), 0)
        os.mkdir(self.path("roots"), 0o700)
        words = ["--join", "-d", "50ms", "-P", str(target.pid), "-p"]
        seen = harness.run([*tracer(*words), f"p:w {program}:several"], cwd=self.path("roots"))
        self.assertEqual((seen.returncode, seen.stdout.count(b": w: ") > 0), (0, True), seen.stderr)
        os.symlink(program, self.path("roots/here"))
        seen = harness.run([*tracer(*words), "p:w here:several"], cwd=self.path("roots"))
        self.assertEqual(seen.returncode, 125, "the host cannot see the namespace's process")
        self.assertEqual(first.communicate()[1].count(b"killed"), 0)
        self.end_well(target)

    @unittest.skipIf(os.geteuid() != 0, "only root can change to another user")
    def test_an_unprivileged_tool_cannot_join_roots(self):
        program = os.path.join("/tmp", f"uprobe-tracers-{os.getpid()}")
        harness.copied(fixture("attached_busy"), program)
        self.addCleanup(os.unlink, program)
        target = self.start_ready(program, user=UNPRIVILEGED, group=UNPRIVILEGED, extra_groups=[])
        first = self.tracer("first", target.pid, f"p:several {program}:several %di:s64 %si:s64").attached()
        words = [*tracer("-o", "/dev/null", "-P", str(target.pid)), "-p", f"p:w {program}:several"]
        seen = subprocess.run(words, user=UNPRIVILEGED, group=UNPRIVILEGED, extra_groups=[], capture_output=True, check=False)
        self.assertEqual(seen.returncode, 125)
        self.assertIn(b"is traced by another uprobe-run, of another user", seen.stderr)
        self.assertEqual(BusyCase.check_sequences(self, first.leave()), 8)
        self.end_well(target)


class Strangers(BusyCase):
    """Peers that connect and are not tools."""

    def connect(self, engine):
        stranger = socket.socket(socket.AF_UNIX)
        self.addCleanup(stranger.close)
        stranger.connect(guest_socket(engine))
        stranger.settimeout(harness.TIMEOUT)
        return stranger

    def test_bytes_that_are_nothing(self):
        target = self.start_busy()
        first = self.tracer("first", target.pid, *self.definitions("single")).attached()
        engine = first.engine()
        pick = random.Random(3)
        for size in (0, 1, 7, 8, 100, 70000):
            stranger = self.connect(engine)
            try:
                stranger.sendall(pick.randbytes(size))
                stranger.shutdown(socket.SHUT_WR)
                self.assertEqual(everything(stranger)[:8], GREETING, "a greeting and no more")
            except OSError:
                pass  # it has closed
        endless = self.connect(engine)
        endless.sendall(struct.pack("=II", 0x7fffffff, 1))
        self.assertEqual(everything(endless)[:8], GREETING, "a length that no tool accepts")
        silent = [self.connect(engine) for _ in range(40)]  # more than the tool accepts at a time
        self.assertIn(b"already has 32 client tools", everything(silent[-1]))
        for one in silent:
            one.close()
        guest = self.tracer("guest", target.pid, *self.definitions("several"), options=["-n", "5"]).end()
        self.assertEqual(len(guest.hits), 5)
        self.assertEqual(self.check_sequences(first.leave()), 8)
        self.check_as_before()
        self.end_well(target)


if __name__ == "__main__":
    harness.main()
