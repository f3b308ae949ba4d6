# SPDX-License-Identifier: MIT
"""Calls that change signals, mappings and files go by jump: without a trap, in files with probes and without, at launch and attach;
what they return, and what signals find, is what it is without a tool. quick_calls/ has the programs, compiled here.
"""
import os
import re
import subprocess

import harness

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "quick_calls")
TIMES = 200
KINDS = ("masks", "actions", "pages", "files")


class Calls(harness.TestCase):
    def compile(self, source, *options, compiler="gcc"):
        program = self.path(source + re.sub(r"\W", "_", "".join(options)) + compiler.replace("-", "_"))
        headers = ["-idirafter", "/usr/include", "-idirafter", "/usr/include/x86_64-linux-gnu"] if compiler == "musl-gcc" else []
        words = [harness.need(compiler), "-O1", "-g", "-fno-omit-frame-pointer", *options, os.path.join(SOURCES, source + ".c"),
                 "-pthread", *headers]
        return program if os.path.exists(program) else harness.compiled(words, program)

    def traced(self, tier, definition, *command):
        return [harness.tool(), "--tier=" + tier, "-o", "/dev/null", "-p", definition, "--", *command]

    def one_line(self, process):
        process.stdin.write(b"\n")
        process.stdin.flush()
        return process.stdout.readline()


class Traps(Calls):
    """strace sees each trap."""

    def traps(self, tier, kind, probed):
        program = self.compile("work")
        process = self.start([*self.traced(tier, probed.format(program), program, kind, str(TIMES))])
        self.assertEqual(process.stdout.readline(), b"ready\n")
        self.assertEqual(self.one_line(process), b"done, 0 wrong\n")  # the first time may look up a symbol
        pid = harness.descendants(process.pid)[0]
        log = self.path(f"{kind}.{tier}.log")
        strace = subprocess.Popen([harness.need("strace"), "-qq", "-e", "trace=none", "-o", log, "-p", str(pid)],
                                  stderr=subprocess.PIPE)
        harness.wait_until(lambda: self.is_traced(pid), "strace")
        self.assertEqual(self.one_line(process), b"done, 0 wrong\n")
        strace.terminate()
        strace.communicate()
        process.stdin.close()
        self.assertEqual(process.wait(harness.TIMEOUT), 7)
        with open(log, encoding="utf-8", errors="replace") as text:
            return text.read().count("SIGTRAP")

    @staticmethod
    def is_traced(pid):
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            return re.search(r"^TracerPid:\t[1-9]", status.read(), re.M)

    def start(self, command):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                   start_new_session=True)
        self.addCleanup(harness.stop_group, process)
        return process

    def test_none_by_jump(self):
        for kind in KINDS:
            for probed in ("p:w {}:work", "p:w libc:getpriority"):  # the calls are in libc: a file without probes, and one with
                with self.subTest(kind, probed=probed):
                    self.assertLess(self.traps("auto", kind, probed), TIMES / 10)

    def test_each_by_breakpoint(self):
        for kind in KINDS:
            with self.subTest(kind):
                self.assertGreaterEqual(self.traps("int3", kind, "p:w {}:work"), TIMES)


class Results(Calls):
    def check(self, *options, compiler="gcc", source="work", kinds=(*KINDS, "guards")):
        program = self.compile(source, *options, compiler=compiler)
        for kind in kinds:
            # a signal has not always room above the page of the guard
            for tier in ("auto", "int3") if kind != "guards" else ("auto",):
                with self.subTest(kind, tier=tier):
                    seen = harness.run(self.traced(tier, f"p:w {program}:work", program, kind, "50"), stdin=b"\n\n")
                    self.assertEqual((seen.returncode, seen.stdout), (7, b"ready\n" + 2 * b"done, 0 wrong\n"), seen.stderr)
                    self.assertIn(b": 2 hits", seen.stderr)

    def test_glibc(self):
        self.check(kinds=(*KINDS, "guards", "contexts"))

    def test_static(self):
        self.check("-static")

    def test_musl(self):
        self.check(compiler="musl-gcc")
        self.check("-static", compiler="musl-gcc")

    def test_sanitizers(self):
        self.check("-fsanitize=address")
        self.check("-fsanitize=undefined")
        # its own frames leave a signal less room than is above the page of the guard
        self.check("-fsanitize=thread", kinds=KINDS)

    def test_attached(self):
        program = self.compile("work")
        for kind in (*KINDS, "guards", "contexts"):
            process = subprocess.Popen([program, kind, "50"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.addCleanup(harness.stop_group, process)
            self.assertEqual(process.stdout.readline(), b"ready\n")
            for _ in range(2):
                tool = subprocess.Popen([harness.tool(), "-v", "-o", "/dev/null", "-P", str(process.pid), "-p", f"p:w {program}:work"],
                                        stderr=subprocess.PIPE)
                for line in tool.stderr:
                    if line == b"uprobe-run: attached\n":
                        break
                self.assertEqual(self.one_line(process), b"done, 0 wrong\n", kind)
                tool.terminate()
                tool.communicate(timeout=harness.TIMEOUT)
                self.assertEqual(self.one_line(process), b"done, 0 wrong\n", kind)
            process.stdin.close()
            self.assertEqual(process.wait(harness.TIMEOUT), 7)


class Storms(Calls):
    SIGNALS = 12_500 if harness.LONG else 1_000  # for each of eight threads

    def check(self, *options, compiler="gcc"):
        program = self.compile("storm", *options, compiler=compiler)
        command = [program, str(self.SIGNALS)]
        for probed in (f"p:w {program}:handle", f"p:w {program}:change"):
            seen = harness.run(self.traced("auto", probed, *command))
            self.assertEqual((seen.returncode, seen.stdout), (7, b"0 early, 0 bad, changed\n"), seen.stderr)

    def test_glibc(self):
        self.check()

    def test_static(self):
        self.check("-static")

    def test_musl(self):
        self.check(compiler="musl-gcc")

if __name__ == "__main__":
    harness.main()
