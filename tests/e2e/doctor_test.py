# SPDX-License-Identifier: MIT
"""--doctor: what it says in the situations that a user can be in, and that what it says is so."""
import ctypes
import os
import re
import shutil
import subprocess
import unittest

import harness
from harness import tool

UNPRIVILEGED = 48733  # a user without other processes
PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 22, 24, 38
CAP_SYS_PTRACE = 19
SYS_PTRACE = 101


def become_unprivileged():
    harness.become(UNPRIVILEGED)


def drop_ptrace():
    """As a container without SYS_PTRACE: gone with the next execve."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_PTRACE, 0, 0, 0)


def forbid_ptrace():
    """A seccomp filter that answers ptrace with EPERM, as container runtimes' default ones do."""
    filters = (ctypes.c_uint64 * 4)()
    for i, (code, jt, jf, k) in enumerate(((0x20, 0, 0, 0), (0x15, 0, 1, SYS_PTRACE), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000))):
        filters[i] = code | jt << 16 | jf << 24 | k << 32

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    program = Program(4, ctypes.addressof(filters))
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(PR_SET_SECCOMP, 2, ctypes.byref(program), 0, 0) != 0:
        os._exit(99)


class Doctor(harness.TestCase):
    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o755)
        self.tool = self.path("uprobe-run")
        shutil.copy(tool(), self.tool)
        os.chmod(self.tool, 0o755)
        shutil.copy(os.path.join(os.path.dirname(tool()), "libuprobe.so"), self.folder)

    def ask(self, *options, before=None):
        done = subprocess.run([self.tool, "--doctor", *options], capture_output=True, timeout=harness.TIMEOUT, check=False,
                              preexec_fn=before, env={**os.environ, "PATH": "/usr/bin:/bin"})
        self.assertEqual(done.stderr, b"")
        return done.returncode, done.stdout.decode()

    def sleeper(self, before=None):
        process = subprocess.Popen(["sleep", "1000"], preexec_fn=before)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        harness.wait_until(lambda: os.path.basename(os.readlink(f"/proc/{process.pid}/exe")) == "sleep", "execve")
        return process.pid

    @unittest.skipIf(os.geteuid() != 0, "not root")
    def test_root(self):
        code, text = self.ask("-P", str(self.sleeper()))
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"(?m)^ok       starting programs: ")
        self.assertRegex(text, r"(?m)^ok       attaching: to processes of all users")
        self.assertRegex(text, r"(?m)^ok       process \d+ \(sleep\): can be attached to$")

    @unittest.skipIf(os.geteuid() != 0, "not root")
    def test_an_unprivileged_user(self):
        code, text = self.ask("-P", str(self.sleeper(become_unprivileged)), before=become_unprivileged)
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"(?m)^(ok       attaching: to this user's own processes|limited  attaching: .*ptrace_scope is 1)")

    @unittest.skipIf(os.geteuid() != 0, "not root")
    def test_another_users_process(self):
        code, text = self.ask("-P", str(self.sleeper()), before=become_unprivileged)
        self.assertEqual(code, 125)
        self.assertRegex(text, r"(?m)^no       process \d+ \(sleep\): cannot be attached to: belongs to another user.*\n +-> use sudo$")

    @unittest.skipIf(os.geteuid() != 0, "not root")
    def test_a_container_without_ptrace(self):
        code, text = self.ask(before=drop_ptrace)
        self.assertRegex(text, r"(?m)^(limited|no)  +attaching: .*CAP_SYS_PTRACE.*\n +-> ")
        self.assertEqual(code, 0 if "limited  attaching" in text else 125)

    @unittest.skipIf(os.geteuid() != 0, "not root")
    def test_processes_in_a_container_without_ptrace(self):
        """Root there has no power over other users, nor over processes with more capabilities."""
        other, stronger, equal = self.sleeper(become_unprivileged), self.sleeper(), self.sleeper(drop_ptrace)
        for pid, said in ((other, rf"belongs to user {UNPRIVILEGED}, and uprobe-run has no CAP_SYS_PTRACE\n +-> "
                                  rf"run uprobe-run as that user \(docker exec -u {UNPRIVILEGED}\), or allow it \(docker: "),
                          (stronger, r"has more capabilities than uprobe-run, which has no CAP_SYS_PTRACE\n +-> run uprobe-run with the same")):
            code, text = self.ask("-P", str(pid), before=drop_ptrace)
            self.assertEqual(code, 125, text)
            self.assertRegex(text, rf"(?m)^no       process {pid} \(sleep\): cannot be attached to: {said}")
        if "limited  attaching" in text:
            code, text = self.ask("-P", str(equal), before=drop_ptrace)
            self.assertRegex(text, rf"(?m)^ok       process {equal} \(sleep\): can be attached to$")

    def test_a_filter_against_ptrace(self):
        code, text = self.ask(before=forbid_ptrace)
        self.assertEqual(code, 125)
        self.assertRegex(text, r"(?m)^no       starting programs: a child cannot be traced \(ptrace: Operation not permitted\)\n +-> use LD_PRELOAD="
                               + re.escape(os.path.join(os.path.realpath(self.folder), "libuprobe.so")) + " UPROBE_PROBES='")
        self.assertRegex(text, r"(?m)^no       attaching: needs ptrace, which is forbidden here\n +-> attach from outside")
        self.assertRegex(text, r"(?m)^limited  seccomp: ")

    def test_a_process_with_a_filter(self):
        """As attaching says it: root reads the filter; without root it takes the user's word, or the same filter."""
        def sleeper():
            if os.geteuid() == 0:
                become_unprivileged()
            forbid_ptrace()

        process, unprivileged = str(self.sleeper(sleeper)), become_unprivileged if os.geteuid() == 0 else None
        code, text = self.ask("-P", process, before=unprivileged)
        self.assertEqual(code, 125)
        self.assertRegex(text, r"(?m)^no       process \d+ \(sleep\): cannot be attached to: has a seccomp filter.*\n +-> .*--seccomp=trust$")
        code, text = self.ask("--seccomp=trust", "-P", process, before=unprivileged)
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"(?m)^limited  process \d+ \(sleep\): has a seccomp filter, which is taken to allow")
        if unprivileged is None:
            return
        code, text = self.ask("-P", process)
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"(?m)^limited  process \d+ \(sleep\): has a seccomp filter, which attaching reads")

    def test_a_program_that_was_replaced(self):
        copy = self.path("copy")
        shutil.copy(shutil.which("sleep"), copy)
        process = subprocess.Popen([copy, "1000"])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        harness.wait_until(lambda: os.readlink(f"/proc/{process.pid}/exe") == copy, "execve")
        os.unlink(copy)
        code, text = self.ask("-P", str(process.pid))
        self.assertEqual(code, 0, text)
        self.assertIn(f"its program was replaced or removed after it started: {copy}\n", text)

    def test_no_process_and_no_program(self):
        code, text = self.ask("-P", "2")
        self.assertEqual(code, 125)
        self.assertRegex(text, r"(?m)^no       process 2.*: cannot be attached to: is a kernel thread|^no       process 2: cannot be attached to: no process 2")
        done = harness.run([tool(), "--doctor", "--", "true"])
        self.assertEqual((done.returncode, done.stdout), (125, b""))
        self.assertIn(b"it traces nothing", done.stderr)


if __name__ == "__main__":
    harness.main()
