# SPDX-License-Identifier: MIT
"""A container's likeness without a runtime: namespaces of users, processes, mounts and networks, an overlay as the root, and a seccomp
filter. The program in it has a loader and a libc that only the container has. The tool attaches from outside, from beside (in the
process namespace of the container, with files of its own) and from inside; no target dies, and none prints anything else."""
import os
import re
import shutil
import signal
import subprocess
import unittest

import harness
from contained import Contained, SurroundedCase, built
from harness import UNPRIVILEGED, tool
from process_state import read

NAMESPACES = ("user-namespace", "namespaces", "mounts", "processes")
FILTERS = ("runtime", "runtime-kill", "log")  # answers an error to what it does not list, kills for it, logs each call
WORK = "p:w /bin/app:work number=%di:s32 text=+0(%si):string"
BESIDE = 'mount -t proc proc /proc && exec "$@"'
INSIDE = """
/bin/app </tmp/in >/tmp/out & app=$!
exec 9>/tmp/in
while [ ! -s /tmp/out ]; do sleep 0.05; done
"$@" -P $app; code=$?
echo end >&9
wait $app
echo "tool $code app $?" >&2
"""


class ContainersCase(SurroundedCase):
    def setUp(self):
        super().setUp()
        self.containers = 0
        self.fill_root()

    def fill_root(self):
        root = self.path("root")
        libraries = re.findall(r"(/\S+)", subprocess.check_output(["ldd", tool()], text=True))
        files = {built("contained_apart"): "bin/app", harness.need("sh"): "bin/sh", harness.need("sleep"): "bin/sleep",
                 tool(): "tool/uprobe-run", os.path.join(os.path.dirname(tool()), "libuprobe.so"): "tool/libuprobe.so",
                 **{path: path[1:] for path in libraries}}
        for source, place in (*files.items(), ("/lib64/ld-linux-x86-64.so.2", "inner/ld.so"),
                              (harness.libc_of(harness.need("sleep")), "inner/libc.so.6")):
            os.makedirs(os.path.dirname(os.path.join(root, place)), exist_ok=True)
            shutil.copy(source, os.path.join(root, place))
        for folder in ("proc", "dev", "tmp"):
            os.mkdir(os.path.join(root, folder))
        os.mkfifo(os.path.join(root, "tmp/in"))

    def folder_of_next(self, owner=0):
        self.containers += 1
        folder = self.path(f"container.{self.containers}")
        os.mkdir(folder)
        os.symlink(self.path("root"), os.path.join(folder, "lower"))
        os.chown(folder, owner, owner)
        return folder

    def contained(self, *words, before=(), owner=0):
        target = Contained(self, [*before, *NAMESPACES, f"pivot={self.folder_of_next(owner)}", *words], path="/bin/app")
        target.pid = int(read(f"/proc/{target.process.pid}/task/{target.process.pid}/children"))
        return target

    def outside(self, target, *options):
        return [tool(), *options, "-P", str(target.pid)]

    def beside(self, target, *options, entered=("-p",)):
        """The program is process 1 of its namespace."""
        return [harness.need("nsenter"), "-t", str(target.pid), *entered, harness.need("unshare"), "-m", harness.need("sh"), "-c",
                BESIDE, "sh", tool(), *options, "-P", "1"]

    def check_hits(self, hits, count):
        self.assertEqual(len(hits), count)
        for hit in hits:
            self.assertRegex(hit.arguments, r'^number=[0-6] text="inside"$')

    def attach(self, way, target, *options, **more):
        """By the container's path."""
        seen = harness.run(way(target, *options, "-n", "20", "-p", WORK, **more))
        self.assertEqual(seen.returncode, 0, seen.stderr)
        self.check_hits(harness.parse_trace(seen.stdout.decode()), 20)
        return seen

    def refused(self, way, target, text, **more):
        seen = harness.run(way(target, "-n", "20", "-p", WORK, **more))
        self.assertEqual((seen.returncode, harness.parse_trace(seen.stdout.decode())), (125, []), seen.stderr)
        self.assertIn(text, seen.stderr.decode())

    def attach_to_libc(self, way, target, *definition):
        """A function that the program calls when it is told to; the tool ends at its hit."""
        session = subprocess.Popen(way(target, "-v", "-n", "1", *definition), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   start_new_session=True)
        self.addCleanup(harness.stop_group, session)
        said = []
        for line in session.stderr:
            said.append(line)
            if line == b"uprobe-run: attached\n":
                break
        self.assertEqual(said[-1:], [b"uprobe-run: attached\n"], said)
        self.assertEqual(target.tell("where"), "/")
        out, _ = session.communicate(timeout=harness.TIMEOUT)
        self.assertEqual(len(harness.parse_trace(out.decode())), 1)


class FromOutside(ContainersCase):
    def test_filters(self):
        for name in FILTERS:
            for way in (self.outside, self.beside):
                with self.subTest(name, way=way.__name__):
                    target = self.contained(f"filter={name}")
                    self.attach(way, target)
                    self.attach_to_libc(way, target, "-p", "p:cwd /inner/libc.so.6:getcwd")
                    self.attach_to_libc(way, target, "-r", "libc:getcwd")
                    target.end_well()

    def test_names(self):
        target = self.contained()
        for way in (self.outside, self.beside):
            for definition, event in ((("-p", "work"), "work"), (("-r", "work"), "work"), (("-p", "p:a /bin/app:work $vars"), "a"),
                                      (("-p", "app:work"), "work")):
                seen = harness.run(way(target, "-n", "3", *definition))
                hits = harness.parse_trace(seen.stdout.decode())
                self.assertEqual([hit.event for hit in hits], [event] * 3, seen.stderr)
                if event == "a":
                    self.assertRegex(hits[0].arguments, r'^number=[0-6] text="inside"$')
        target.end_well()

    def test_lists(self):
        target = self.contained()
        root = f"/proc/{target.pid}/root"
        for words, line in ((["-lwork"], f"p:work {root}/bin/app:work"), (["-lgetcwd", "/inner/libc.so.6"], f"p:getcwd {root}/inner/libc.so.6:getcwd"),
                            (["-l", "-x", "/bin/app", "work"], f"p:work {root}/bin/app:work"),
                            (["--vars=work", "/bin/app"], f"p:work {root}/bin/app:work number text")):
            seen = harness.run([tool(), "-P", str(target.pid), *words])
            self.assertEqual((seen.returncode, seen.stderr), (0, b""))
            self.assertEqual(seen.stdout.decode().split("\n")[0], line)
        target.end_well()

    def test_paths_that_the_container_does_not_have(self):
        target = self.contained()
        seen = harness.run(self.outside(target, "-p", f"p {self.path('nothing')}:work"))
        self.assertEqual((seen.returncode, seen.stdout), (125, b""))
        self.assertIn(b"Failed to find the given file", seen.stderr)
        target.end_well()

    def test_without_privileges_outside(self):
        """Beside it, as root of its user namespace: the filter cannot be read."""
        entered = ("-U", "-p", "--preserve-credentials")
        for name in FILTERS:
            with self.subTest(name):
                target = self.contained(f"filter={name}")
                self.refused(self.beside, target, "--seccomp=trust", entered=entered)
                self.attach(self.beside, target, "--seccomp=trust", entered=entered)
                target.end_well()

    def test_of_another_user(self):
        target = self.contained("filter=runtime-kill", before=[f"user={UNPRIVILEGED}"], owner=UNPRIVILEGED)
        self.attach(self.outside, target)
        self.attach_to_libc(self.outside, target, "-r", "getcwd")
        target.end_well()


class FromInside(ContainersCase):
    def run_inside(self, *words):
        """The first process is the shell; it, the program and the tool are under the same filter."""
        folder = self.folder_of_next()
        seen = harness.run([built("surround"), *NAMESPACES, f"pivot={folder}", *words, "--", "/bin/sh", "-c", INSIDE, "sh",
                            "/tool/uprobe-run", "-n", "20", "-p", WORK])
        if seen.returncode == 77:
            self.skipTest(f"no surroundings here: {seen.stderr.decode().strip()}")
        self.assertEqual(read(os.path.join(folder, "u/tmp/out")), "ready\nfine\n")
        return seen

    def test_filters(self):
        for name in (None, *FILTERS):
            with self.subTest(name):
                seen = self.run_inside(*([f"filter={name}"] if name else []))
                self.check_hits(harness.parse_trace(seen.stdout.decode()), 20)
                self.assertIn(b"tool 0 app 3\n", seen.stderr)

    def test_filters_against_the_tool(self):
        for name, code in (("tracing", 125), ("tracing-kill", 128 + signal.SIGSYS)):
            with self.subTest(name):
                seen = self.run_inside(f"filter={name}")
                self.assertIn(f"tool {code} app 3\n".encode(), seen.stderr)


if __name__ == "__main__":
    harness.main()
