# SPDX-License-Identifier: MIT
"""Adversaries at the socket of a session: other users, uid 0 without capabilities, other namespaces, prepared folders, silent peers."""
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
import unittest

import harness
from harness import tool, tracer, wait_until
from tracers_test import TracersCase

STRANGER = 48731  # a user without other processes
POWERLESS = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]

# Says bytes to a socket and prints what comes back.
TALK = """import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(20)
s.connect(sys.argv[1])
try: s.sendall(bytes.fromhex(sys.argv[2])); s.shutdown(1)
except OSError: pass
while part := s.recv(65536): sys.stdout.buffer.write(part)
"""
CLEAR = "0100000006000000000000000000000000000000"  # a command, without version and pass


@unittest.skipIf(os.geteuid() != 0, "only root can change to another user")
class Door(TracersCase):
    def setUp(self):
        super().setUp()
        tool()
        self.runtime = tempfile.mkdtemp(prefix="uprobe-run.")
        self.addCleanup(shutil.rmtree, self.runtime, ignore_errors=True)
        self.sockets = os.path.join(self.runtime, "uprobe-run")
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": self.runtime}
        self.program = self.copy_of(harness.fixture("live"))

    def launch(self, prefix=(), env=None):
        words = [*prefix, *tracer("--session", "it", "-q", "-o", "/dev/null"), "-p", f"p:secret {self.program}:g n=%di"]
        self.target = self.process = subprocess.Popen([*words, "--", self.program, "rounds"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                      stderr=subprocess.PIPE, start_new_session=True, env=env or self.environment)
        self.addCleanup(harness.stop_group, self.process)
        self.assertEqual(self.process.stdout.readline(), b"ready\n")

    def ask(self, *words, prefix=()):
        return harness.run([*prefix, tool(), "--control", "it", *words], env=self.environment)

    def check_unharmed(self):
        self.round()
        seen = self.ask("--list", "--stats")
        self.assertEqual((seen.returncode, seen.stdout.count(b"uprobes/secret")), (0, 2), seen.stderr)
        self.process.stdin.close()
        self.assertEqual(self.process.wait(harness.TIMEOUT), 0)

    def doors(self):
        return [os.path.join(self.sockets, name) for name in os.listdir(self.sockets)]


class Strangers(Door):
    def test_other_users(self):
        """Whatever the file modes are."""
        self.launch()
        for path in (self.runtime, self.sockets, *self.doors()):
            os.chmod(path, 0o777)
        for path in self.doors():
            seen = harness.run(["setpriv", f"--reuid={STRANGER}", "--clear-groups", "python3", "-c", TALK, path, CLEAR])
            self.assertIn(b"another user's", seen.stdout, seen.stderr)
            self.assertNotRegex(seen.stdout, rb"secret|\d{3}", "no definition, no process")
        for path in (self.runtime, self.sockets):
            os.chmod(path, 0o700)
        self.check_unharmed()

    def test_root_without_capabilities(self):
        self.launch()
        for words in (["--list"], ["--clear"], ["-p", f"p:mine {self.program}:f"]):
            seen = self.ask(*words, prefix=POWERLESS)
            self.assertEqual((seen.returncode, seen.stdout), (125, b""), words)
            self.assertIn(b"more rights", seen.stderr)
        for path in self.doors():
            seen = harness.run([*POWERLESS, "python3", "-c", TALK, path, CLEAR])
            self.assertNotIn(b"secret", seen.stdout)
        self.check_unharmed()

    def test_root_of_a_user_namespace(self):
        self.launch()
        for namespace in (["unshare", "--user", "--map-root-user"], ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]):
            seen = self.ask("--list", prefix=namespace)
            self.assertEqual((seen.returncode, seen.stdout), (125, b""))
            seen = harness.run([*namespace, "python3", "-c", TALK, os.path.join(self.sockets, "it"), CLEAR])
            self.assertRegex(seen.stdout, rb"another (user|PID) namespace|another version")
            self.assertNotIn(b"secret", seen.stdout)
        self.check_unharmed()

    def test_another_pid_namespace(self):
        self.launch()
        seen = self.ask("--list", prefix=["unshare", "--pid", "--fork", "--mount-proc"])
        self.assertEqual((seen.returncode, seen.stdout), (125, b""))
        self.check_unharmed()

    def test_orders_without_a_pass(self):
        self.launch()
        for request in (CLEAR, "01005155" + "00000000" + CLEAR, "01005155" + "20000000" + 32 * "61" + CLEAR, "ff" * 1000, ""):
            seen = harness.run(["python3", "-c", TALK, os.path.join(self.sockets, "it"), request])
            self.assertNotIn(b"removed", seen.stdout)
        self.check_unharmed()


class Silent(Door):
    """A peer that sends nothing, little, too much, or is stopped delays no other one."""

    def connect(self, path):
        one = socket.socket(socket.AF_UNIX)
        self.addCleanup(one.close)
        one.settimeout(harness.TIMEOUT)

        def is_connected():
            try:
                return one.connect(path) is None
            except BlockingIOError:
                return False  # more wait than the queue takes
        wait_until(is_connected, "a connection")
        return one

    def test_clients_that_are_silent(self):
        self.launch()
        path = os.path.join(self.sockets, "it")
        silent = [self.connect(path) for _ in range(40)]
        for one in silent[:20]:
            try:
                one.sendall(b"\1")
            except OSError:
                pass  # it has made room
        for _ in range(3):
            begun = time.monotonic()
            self.assertEqual(self.ask("--list").returncode, 0)
            self.assertLess(time.monotonic() - begun, 4, "no silent one is waited for")
        wait_until(lambda: silent[-1].recv(1) == b"", "the end of their time")
        self.check_unharmed()

    def test_a_client_without_an_end(self):
        self.launch()
        one = self.connect(os.path.join(self.sockets, "it"))
        sent = 0
        try:
            while sent < 64 << 20:
                sent += one.send(bytes(1 << 16))
        except OSError:
            pass
        self.assertLess(sent, 8 << 20, "the tool does not read that much")
        self.check_unharmed()

    def test_a_tool_that_is_stopped(self):
        target = self.start_rounds()
        environment = {**os.environ, "XDG_RUNTIME_DIR": self.runtime}
        first = subprocess.Popen([*tracer("-v", "-o", "/dev/null", "--session", "it", "-P", str(target.pid)), "-p", f"p:g {self.program}:g"],
                                 env=environment, stderr=subprocess.PIPE, start_new_session=True)
        self.addCleanup(harness.stop_group, first)
        for line in first.stderr:
            if line == b"uprobe-run: attached\n":
                break
        engine = next(pid for pid in harness.descendants(first.pid) if harness.name_of(pid) == "uprobe-engine")
        harness.stop(engine)
        self.addCleanup(lambda: os.path.exists(f"/proc/{engine}") and os.kill(engine, signal.SIGCONT))
        seen = self.ask("--list")
        self.assertEqual(seen.returncode, 125)
        self.assertRegex(seen.stderr.decode(), rf"is stopped \(process {engine}\)\n  kill -CONT {engine}")
        seen = harness.run([*tracer("-o", "/dev/null", "-P", str(target.pid)), "-p", f"p:f {self.program}:f"], env=environment)
        self.assertEqual(seen.returncode, 125)
        self.assertRegex(seen.stderr.decode(), r"is stopped\n  kill -CONT")
        os.kill(engine, signal.SIGCONT)
        first.send_signal(signal.SIGINT)
        self.assertEqual(first.wait(harness.TIMEOUT), 0)
        first.stderr.close()
        self.end_well(target, b"")


class Folders(Door):
    """A file or folder that another user has put in the folder's place is neither used nor changed."""

    def run_as_stranger(self, *options):
        program = f"/tmp/uprobe-joining-{os.getpid()}"
        if not os.path.exists(program):
            harness.copied(harness.fixture("live"), program)
            self.addCleanup(os.unlink, program)
        environment = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
        words = [*tracer(*options, "-o", "-"), "-p", f"p:g {program}:g", "--", program, "rounds"]
        return subprocess.run(words, input=b"\n", capture_output=True, timeout=harness.TIMEOUT, user=STRANGER, group=STRANGER, extra_groups=[],
                              env=environment, check=False)

    def test_prepared_in_tmp(self):
        place, trap = f"/tmp/uprobe-run-{STRANGER}", self.path("trap")
        os.mkdir(trap, 0o777)
        os.chmod(trap, 0o777)
        os.chmod(self.folder, 0o755)

        def foreign():
            os.mkdir(place, 0o777)
            os.chmod(place, 0o777)

        def open_to_others():
            os.mkdir(place)
            os.chown(place, STRANGER, STRANGER)
            os.chmod(place, 0o777)

        def remove():
            if os.path.islink(place) or not os.path.isdir(place):
                os.unlink(place)
            else:
                self.assertEqual(os.listdir(place), [])
                os.rmdir(place)

        def link_of_the_users():
            os.symlink(trap, place)
            os.chown(place, STRANGER, STRANGER, follow_symlinks=False)

        self.assertFalse(os.path.lexists(place))
        for prepare in (foreign, open_to_others, lambda: os.symlink(trap, place), link_of_the_users, lambda: os.mkfifo(place),
                        lambda: self.write_at(place)):
            prepare()
            try:
                seen = self.run_as_stranger()
                self.assertEqual(seen.returncode, 0, seen.stderr)
                self.assertEqual(seen.stdout.count(b": g: ("), 200)
                self.assertEqual(len(re.findall(rb"^uprobe-run: no other tool can join or change this session: /tmp/\S+ (?:belongs|is) .*$",
                                                seen.stderr, re.M)), 1, seen.stderr)
                seen = self.run_as_stranger("--session", "mine")
                self.assertEqual((seen.returncode, seen.stdout.count(b"ready")), (125, 0), seen.stderr)
                self.assertIn(place.encode(), seen.stderr)
                self.assertEqual(os.listdir(trap), [])
            finally:
                remove()
        self.assertEqual(self.run_as_stranger("--session", "mine").returncode, 0)
        self.assertFalse(os.path.lexists(place), "gone with the session")

    @staticmethod
    def write_at(path):
        with open(path, "w", encoding="ascii") as file:
            file.write("a file")

    def test_a_runtime_folder_of_another_user(self):
        os.chown(self.runtime, STRANGER, STRANGER)
        self.launch(env=self.environment)
        self.assertEqual(os.listdir(self.runtime), [])
        self.assertEqual(self.ask("--list").returncode, 0, "it is in /tmp")
        self.assertTrue(stat.S_ISSOCK(os.stat(f"/tmp/uprobe-run-0/{self.process.pid}").st_mode))
        self.check_unharmed()

    def test_what_is_not_its_own_stays(self):
        self.launch()
        victim = os.path.join(self.sockets, str(self.process.pid))
        os.unlink(victim)
        for path in (victim, os.path.join(self.sockets, "a-file")):
            self.write_at(path)
        self.round()
        self.process.stdin.close()
        self.assertEqual(self.process.wait(harness.TIMEOUT), 0)
        self.assertEqual(sorted(os.listdir(self.sockets)), sorted([str(self.process.pid), "a-file"]))
        self.launch()
        self.check_unharmed()
        self.assertIn("a-file", os.listdir(self.sockets), "sweeping takes sockets and links")

    def test_a_path_and_no_abstract_name(self):
        self.launch()
        with open("/proc/net/unix", encoding="ascii") as file:
            self.assertNotIn(f"@uprobe-run/{self.process.pid}", file.read())
        self.assertEqual({os.stat(path).st_mode & 0o777 for path in self.doors()}, {0o600})
        self.check_unharmed()


class Elsewhere(Door):
    """A live tool is not taken for dead because it cannot be reached."""

    def attached_from(self, prefix, pid):
        first = subprocess.Popen([*prefix, *tracer("-v", "-o", "/dev/null", "-P", str(pid)), "-p", f"p:g {self.program}:g"],
                                 stderr=subprocess.PIPE, start_new_session=True)
        self.addCleanup(harness.stop_group, first)
        for line in first.stderr:
            if line == b"uprobe-run: attached\n":
                return first
        raise AssertionError("not attached")

    def leave(self, first):
        front = next(pid for pid in [first.pid, *harness.descendants(first.pid)] if os.path.realpath(f"/proc/{pid}/exe") == tool())
        os.kill(front, signal.SIGINT)
        self.assertEqual(first.wait(harness.TIMEOUT), 0)
        first.stderr.close()

    def refused(self, pid, text, prefix=()):
        begun = time.monotonic()
        seen = harness.run([*prefix, *tracer("-o", "/dev/null", "-P", str(pid)), "-p", f"p:f {self.program}:f"])
        self.assertEqual(seen.returncode, 125, seen.stderr)
        self.assertRegex(seen.stderr.decode(), text)
        self.assertLess(time.monotonic() - begun, 30)

    def test_another_mount_namespace(self):
        target = self.start_rounds()
        first = self.attached_from(["unshare", "--mount", "env", "XDG_RUNTIME_DIR=/run/hidden", "sh", "-c",
                                    'mount -t tmpfs none /run && mkdir -m 700 /run/hidden && exec "$@"', "sh"], target.pid)
        self.refused(target.pid, r"cannot be joined from here: it is in another mount namespace\n  end that one")
        self.round()
        self.leave(first)
        self.end_well(target, b"")

    def start_in_pid_namespace(self):
        """unshare, and the program in it, by its number in this namespace."""
        target = subprocess.Popen(["unshare", "--pid", "--fork", "--mount-proc", self.program, "rounds"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, start_new_session=True)
        self.addCleanup(harness.stop_group, target)
        self.target = target
        self.assertEqual(target.stdout.readline(), b"ready\n")
        return target, harness.descendants(target.pid)[0]

    def test_a_tool_that_cannot_be_seen(self):
        """The target is in a PID namespace, its tool outside; another tool comes inside, where root sees no process that has it."""
        target, pid = self.start_in_pid_namespace()
        first = self.attached_from([], pid)
        inside = ["nsenter", "-t", str(pid), "--pid", "--mount"]
        self.refused(1, "is traced by another uprobe-run, of another user or in another namespace\n  join or end that one", inside)
        self.round()
        self.leave(first)
        target.stdin.close()
        self.assertEqual(target.wait(harness.TIMEOUT), 0)
        target.stdout.close()

    def test_a_tool_in_a_pid_namespace(self):
        """The tool is inside, and another one comes from outside."""
        target, pid = self.start_in_pid_namespace()
        first = self.attached_from(["nsenter", "-t", str(pid), "--pid", "--mount"], 1)
        self.refused(pid, "another (PID|mount) namespace")
        self.round()
        self.leave(first)
        target.stdin.close()
        self.assertEqual(target.wait(harness.TIMEOUT), 0)
        target.stdout.close()


if __name__ == "__main__":
    harness.main()
