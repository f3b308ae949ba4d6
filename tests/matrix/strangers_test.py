# SPDX-License-Identifier: MIT
"""Programs that cannot or must not be traced, and foreign tracers: the program runs as without the tool, and one line says
why it is unprobed.
"""
import os
import re
import shutil
import struct
import tempfile

import harness

EXIT_7 = bytes.fromhex("b801000000bb07000000cd80")  # mov $1,%eax; mov $7,%ebx; int $0x80


def small_32_bit_program(path):
    base, headers = 0x8048000, 84
    header = b"\x7fELF\x01\x01\x01" + bytes(9)
    header += struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, base + headers, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    size = headers + len(EXIT_7)
    segment = struct.pack("<IIIIIIII", 1, 0, base, base, size, size, 5, 4096)
    with open(path, "wb") as file:
        file.write(header + segment + EXIT_7)
    os.chmod(path, 0o755)
    return path


class Strangers(harness.TestCase):
    symbol = "take_number"

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="uprobe-strangers.", dir="/var/tmp")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.chmod(self.folder, 0o777)
        self.cell = self.copy_of(harness.fixture("cell"))
        self.tool = self.copy_of(harness.tool())
        self.library = self.copy_of(os.path.join(os.path.dirname(harness.tool()), "libuprobe.so"))
        self.trace = self.path("trace")
        self.variables = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}

    def under_tool(self, *command, surrounding=(), program=None):
        probe = f"p:hit {program or self.cell}:{self.symbol} %di:u64"
        return self.read(harness.run([*surrounding, self.tool, "-o", self.trace, "-p", probe, "--", *command],
                                     env=self.variables))

    def preloaded(self, *command, program=None):
        more = {"LD_PRELOAD": self.library, "UPROBE_OUTPUT": self.trace,
                "UPROBE_PROBES": f"p:hit {program or self.cell}:{self.symbol} %di:u64"}
        return self.read(harness.run(command, env={**self.variables, **more}))

    def read(self, seen):
        if os.path.exists(self.trace):
            with open(self.trace, encoding="latin-1", newline="") as file:
                seen.hits = harness.parse_trace(file.read())
        return seen

    def check(self, seen, hits, said="", code=7):
        self.assertEqual((seen.returncode, len(seen.hits)), (code, hits), seen.stderr)
        self.assertIn(said, seen.stderr.decode())

    def test_32_bit_program(self):
        program = small_32_bit_program(self.path("small"))
        if harness.run(["sh", "-c", program]).returncode != 7:
            self.skipTest("this kernel runs no 32-bit programs")
        self.check(self.under_tool(program), 0, "32-bit", code=125)
        self.check(self.under_tool("sh", "-c", f"{program}; test $? = 7 && {self.cell} work"), 18, "32-bit")

    def test_a_program_that_another_tracer_has(self):
        strace = harness.need("strace")
        self.check(self.under_tool(strace, "-f", "-o", "/dev/null", self.cell, "work"), 0, "from then on it runs untraced")
        refused = self.under_tool(self.cell, "work", surrounding=[strace, "-f", "-o", "/dev/null"])
        self.check(refused, 0, "forbid ptrace", code=125)

    def test_preloaded_into_a_traced_program(self):
        strace = harness.need("strace")
        words = [f"-E{name}={value}" for name, value in (
            ("LD_PRELOAD", self.library), ("UPROBE_OUTPUT", self.trace),
            ("UPROBE_PROBES", f"p:hit {self.cell}:take_number"))]
        seen = self.read(harness.run([strace, "-f", "-o", self.path("log"), *words, self.cell, "work"]))
        self.check(seen, 18)
        with open(self.path("log"), encoding="latin-1") as file:
            self.assertNotIn("--preload-helper", file.read(), "no process traces the helper")

    def same_under_both(self, *command, said):
        def shown(seen):
            return seen.returncode, re.sub(rb"process \d+|_id=\d+", b"process N", seen.stdout)
        plain = harness.run(command, env=self.variables)
        probed, preloaded = self.under_tool(*command, program=self.libc), self.preloaded(*command, program=self.libc)
        self.assertEqual(shown(probed), shown(plain), probed.stderr)
        self.assertEqual(shown(preloaded), shown(plain), preloaded.stderr)
        self.assertIn(said, probed.stderr.decode())
        self.assertTrue(probed.hits and preloaded.hits, "the debugger itself is probed")
        return plain, preloaded

    def test_a_debugger_that_is_probed(self):
        gdb = harness.need("gdb")
        self.libc, self.symbol = harness.libc_of(gdb), "getpid"
        batch, script = [gdb, "-nx", "-batch"], self.write("script", "/bin/true; exit 7\n")
        for shell in "on", "off":
            words = [*batch, "-ex", f"set startup-with-shell {shell}", "-ex", "run", "--args", "sh", script]
            plain, preloaded = self.same_under_both(*words, said="started for a debugger")
            self.assertIn(b"exited with code 07", plain.stdout)
            self.assertIn(b"a debugger traces this program; the program runs unprobed", preloaded.stderr)
        attach = """sleep 100 & sleeper=$!
until grep -q -e '^230 ' -e '^35 ' /proc/$sleeper/syscall; do :; done  # clock_nanosleep, nanosleep: it is past its beginning
"$@" -p $sleeper -ex 'print 6*7' -ex 'call (int)raise(10)' -ex detach 2>&1 | grep -c -e '= 42' -e SIGUSR1
wait $sleeper; echo $?"""
        plain, _ = self.same_under_both("sh", "-c", attach, "sh", *batch, said="process named sleep is traced")
        self.assertEqual(plain.stdout, b"2\n138\n")

    def test_on_a_terminal(self):
        script = harness.need("script")
        command = f"'{self.tool}' -q -o '{self.trace}' -p 'p:hit {self.cell}:take_number' -- '{self.cell}' work"
        plain = harness.run([script, "-qec", f"{self.cell} work", "/dev/null"], env=self.variables)
        seen = self.read(harness.run([script, "-qec", command, "/dev/null"], env=self.variables))
        self.check(seen, 18)
        self.assertEqual(seen.stdout, plain.stdout)
        os.remove(self.trace)
        self.check(self.preloaded(script, "-qec", f"{self.cell} work", "/dev/null"), 18)

    def test_program_with_capabilities(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        unprivileged = [self.copy_of(harness.fixture("surround")), "user=65534", "--"]
        program = shutil.copy(self.cell, self.path("capable"))
        net_raw = 1 << 13
        try:
            os.setxattr(program, "security.capability", struct.pack("<IIIII", 0x02000001, net_raw, 0, 0, 0))
        except OSError as error:
            self.skipTest(f"no capabilities of files here: {error}")
        refused = self.under_tool(program, "work", surrounding=unprivileged, program=program)
        self.check(refused, 0, "capabilities", code=125)
        os.remove(self.trace)
        followed = self.under_tool("/usr/bin/env", program, "work", surrounding=unprivileged, program=program)
        self.check(followed, 0, "runs untraced")

    def test_set_id_program(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        surround = self.copy_of(harness.fixture("surround"))
        program = shutil.copy(self.cell, self.path("set_id"))
        os.chmod(program, 0o4755)
        unprivileged = [surround, "user=65534", "--"]
        plain = harness.run([*unprivileged, program], env=self.variables)
        if b"user 65534 0 " not in plain.stdout:
            self.skipTest("set-id bits count for nothing here")
        refused = self.under_tool(program, surrounding=unprivileged, program=program)
        self.check(refused, 0, "set-id", code=125)
        os.remove(self.trace)
        for run, said in (
                (lambda: self.under_tool("/usr/bin/env", program, surrounding=unprivileged, program=program), "runs untraced"),
                (lambda: self.preloaded(*unprivileged, program, program=program), ""),
                (lambda: self.under_tool(*unprivileged, program, program=program), "runs untraced")):
            seen = run()
            self.check(seen, 0, said)
            self.assertEqual(seen.stdout, plain.stdout)
            if os.path.exists(self.trace):
                os.remove(self.trace)  # the next tool may be another user's


if __name__ == "__main__":
    harness.main()
