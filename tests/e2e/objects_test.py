# SPDX-License-Identifier: MIT
"""@OBJECT:SYMBOL: data of a mapped file other than the probed one, compared with the program's own values: if it is loaded,
unloaded, loaded elsewhere, if another file takes its place, in forked children, if the program has a copy of it."""
import os
import re
import subprocess

import harness
from tracers_test import TracersCase

HOSTS = ("objects_host", "objects_host_copy")


class Objects(TracersCase):
    def setUp(self):
        super().setUp()
        harness.tool()
        self.take("objects_host")

    def take(self, host):
        """The program and its objects in the test's folder, where its definitions name them."""
        for name in (host, "objects_plugin.so", "objects_library.so"):
            self.copy_of(harness.fixture(name))
        self.host, self.plugin, self.library = (self.path(name) for name in (host, "objects_plugin.so", "objects_library.so"))
        self.definition = (f"p:m {self.host}:mark count=@{self.plugin}:plugin_count:s32 hidden=@{self.plugin}:hidden:s32 "
                           f"text=+0(@{self.plugin}:plugin_text):string zeros=@{self.plugin}:plugin_zeros+16380:s32 "
                           f"library=@{self.library}:library_count:s32 private=@{self.library}:private_count:s32 "
                           f"host=@{self.host}:host_count:s32")

    def arguments(self):
        with open(self.path("trace"), encoding="latin-1") as file:
            return [hit.arguments for hit in harness.parse_trace(file.read()) if hit.event == "m"]

    def trace(self, *words):
        """The program's output, and the trace."""
        seen = harness.run([*harness.tracer("-q", "-o", self.path("trace"), *words), "--", self.host, self.plugin])
        self.assertEqual((seen.returncode, seen.stderr), (0, b""))
        return seen.stdout.decode().splitlines(), self.arguments()

    def refusal(self, fetch):
        seen = harness.run([*harness.tracer("--check", "-p", f"p:m {self.host}:mark {fetch}"), self.host])
        self.assertEqual((seen.returncode, seen.stdout), (125, b""))
        lines = seen.stderr.decode().splitlines()
        return lines[0].split(": ", 2)[2], lines[1][lines[2].index("^"):]


class Values(Objects):
    def test_what_the_program_says(self):
        for host in HOSTS:
            with self.subTest(host):
                self.take(host)
                said, seen = self.trace("-p", self.definition)
                self.assertEqual(seen, said)
                self.assertEqual(len([line for line in said if "count=0 " in line]), 4, said)

    def test_preloaded(self):
        environment = {**os.environ, **harness.preloaded(UPROBE_PROBES=self.definition, UPROBE_OUTPUT=self.path("trace"))}
        seen = harness.run([self.host, self.plugin], env=environment)
        self.assertEqual(seen.returncode, 0, seen.stderr)
        self.assertEqual(self.arguments(), seen.stdout.decode().splitlines())

    def test_another_file_is_not_the_same(self):
        """A copy that no process maps, though it has the contents and the name of the mapped file."""
        os.mkdir(self.path("other"))
        other = harness.copied(self.plugin, self.path("other/objects_plugin.so"))
        _, seen = self.trace("-p", f"p:m {self.host}:mark a=@{other}:plugin_count:s32 b=+0(@{other}:plugin_text):string")
        self.assertEqual(set(seen), {"a=0 b=(fault)"})

    def test_what_the_program_has_instead(self):
        """If the program has a variable of that name, the library's is not used."""
        self.take("objects_host_own")
        _, seen = self.trace("-p", f"p:m {self.host}:mark a=@{self.library}:library_count:s32 "
                                   f"b=@{self.library}:private_count:s32 c=@{self.host}:library_count:s32")
        self.assertEqual(seen[0], "a=0 b=200 c=7")
        told = harness.run_tool([f"p:m {self.host}:mark a=@{self.library}:library_count:s32"], [self.host, self.plugin])
        self.assertIn(f"{self.library}: the program has one of its own: the library's 'library_count' is not shown",
                      told.stderr.decode())

    def test_libc(self):
        code = "import ctypes; print(hex(ctypes.c_void_p.in_dll(ctypes.CDLL(None), 'environ').value))"
        python = harness.need("python3")
        seen = harness.run_tool([f"p:m {harness.libc_of(python)}:getpid e=@libc.so.6:environ f=+2(@libc.so.6:stdout):x16"],
                                [python, "-c", code + "; import os; os.getpid()"])
        self.assertIn(f"e={seen.stdout.decode().strip()} f=0xfbad", [hit.arguments for hit in seen.hits][-1])

    def test_a_static_program_is_its_own_object(self):
        for shape in ("subject_static", "subject_static_pie", "subject_non_pie"):
            with self.subTest(shape):
                subject = self.copy_of(harness.fixture(shape))
                seen = harness.run_tool([f"p:e {subject}:take_node a=@{subject}:head:s32 b=+0(@{subject}:head+8):string"],
                                        [subject, "calls", "1"])
                self.assertEqual({hit.arguments for hit in seen.hits}, {'a=-3 b="head of the list"'}, seen.stderr)

    def test_filters_and_tables(self):
        said, seen = self.trace("-p", self.definition, "--filter", "count > 11 && text == \"second\"")
        self.assertEqual(seen, [line for line in said if 'text="second"' in line])
        self.trace("-p", self.definition, "--trigger=hist:keys=count")
        with open(self.path("trace"), encoding="ascii") as file:
            counts = re.findall(r"\{ count: +(\d+) \} hitcount: +(\d+)", file.read())
        self.assertEqual(sorted(counts), [("0", "4"), ("12", "2"), ("18", "1"), ("42", "1")])

    def test_a_listing_can_be_fed_back(self):
        words = harness.tracer("--list-events", "-p")
        listed = harness.run([*words, self.definition, self.host]).stdout.decode().strip()
        self.assertIn(f"text=+0(@{self.plugin}:plugin_text):string", listed)
        self.assertEqual(harness.run([*words, listed, self.host]).stdout.decode().strip(), listed)

    def test_refusals(self):
        self.assertEqual(self.refusal(f"a=+0(@{self.plugin}:none):u8"), (f"no symbol 'none' in {self.plugin}", "none):u8"))
        self.assertEqual(self.refusal("@./none.so:x"), ("./none.so: No such file or directory", "./none.so:x"))
        self.assertEqual(self.refusal("@none.so.6:x")[1], "none.so.6:x")
        self.assertEqual(self.refusal(f"@{self.plugin}:plugin_of_thread")[1], "plugin_of_thread")
        self.assertEqual(self.refusal("@libc.so.6:strlen"),
                         ("'strlen' is chosen at run time (IFUNC): it is not data", "strlen"))
        self.assertEqual(self.refusal(f"@{self.plugin}:plugin_count+4")[0],
                         "'plugin_count' has 4 bytes, and the program may have a copy of only these")
        strict = harness.run([*harness.tracer("--check", "--strict", "-p", f"p:m {self.host}:0x10 @./sub:data"), self.host])
        self.assertIn(b"Unknown type is specified", strict.stderr)


class Joining(Objects):
    """Loaded into a running program, step by step."""

    def begin(self, *tracer):
        self.process = subprocess.Popen([*tracer, self.host, self.plugin, "steps"], stdin=subprocess.PIPE, text=True,
                                        stdout=subprocess.PIPE, start_new_session=True,
                                        env={**os.environ, "XDG_RUNTIME_DIR": self.folder})
        self.addCleanup(harness.stop_group, self.process)
        self.said = self.until_next()

    def until_next(self):
        lines = []
        for line in self.process.stdout:
            if line == "next\n":
                return lines
            lines.append(line.strip())
        return lines

    def step(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.until_next()

    def test_attached(self):
        for before in (1, 4):  # the plugin comes later; it was there, has gone, comes again
            with self.subTest(before):
                self.begin()
                for _ in range(before - 1):
                    self.step()
                tracer = self.tracer(f"tool{before}", self.process.pid, self.definition).attached()
                said = [line for _ in range(6 - before) for line in self.step()]
                tracer.leave()
                self.assertEqual([hit.arguments for hit in tracer.hits], said)
                self.process.communicate("", harness.TIMEOUT)
                self.assertEqual(self.process.returncode, 0)

    def test_beside_another_tool(self):
        self.begin()
        first = self.tracer("first", self.process.pid, f"p:other {self.host}:mark").attached()
        said = self.step()
        guest = self.tracer("guest", self.process.pid, self.definition).attached()
        said = self.step() + self.step()
        guest.leave()
        self.assertEqual([hit.arguments for hit in guest.hits], said)
        first.leave()

    def test_live(self):
        self.begin(*harness.tracer("-q", "--session", "it", "-o", self.path("trace"), "-p", f"p:other {self.host}:mark", "--"))
        self.step()
        added = harness.run([harness.tool(), "--control", "it", "-p", self.definition],
                            env={**os.environ, "XDG_RUNTIME_DIR": self.folder})
        self.assertEqual(added.stdout, b"added uprobes/m\n", added.stderr)
        said = [line for _ in range(3) for line in self.step()]
        self.process.communicate("", harness.TIMEOUT)
        self.assertEqual(self.arguments()[:len(said)], said)

if __name__ == "__main__":
    harness.main()
