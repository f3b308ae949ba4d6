# SPDX-License-Identifier: MIT
"""The tool for any Linux: it needs no file but its own and its agent's, and traces programs of either C library in a root that has
nothing else."""
import glob
import os
import shutil
import subprocess

import harness

PROGRAM = r"""
#include <stdio.h>
#include <string.h>
#include <unistd.h>
__attribute__((noinline)) int work(int n, const char *s) { return n * 2 + (int)strlen(s); }
int main(int argc, char **argv) {
  int sum = 0;
  for (int i = 0; i < 3 || argc > 1; ++i) {
    sum += work(i, "text");
    if (argc > 1) usleep(10000);
  }
  printf("sum %d\n", sum);
  return 5;
}
"""
MOST_BYTES = 8_600_000
WORK = "work n=%di:s32 s=%si:string"
# name -> compiler, its options, further files of the root
PROGRAMS = {
    "glibc_static": ("cc", ["-static"], {}),
    "musl_static": ("musl-gcc", ["-static"], {}),
    "musl": ("musl-gcc", [], {"/usr/lib/x86_64-linux-musl/libc.so": "lib/ld-musl-x86_64.so.1"}),
    "glibc": ("cc", [], {"/lib64/ld-linux-x86-64.so.2": "lib64/ld-linux-x86-64.so.2",
                         "/lib/x86_64-linux-gnu/libc.so.6": "lib/x86_64-linux-gnu/libc.so.6"}),
}


class Portable(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.build = os.path.dirname(harness.tool())
        if not os.path.exists(os.path.join(self.build, "packaging/bin/uprobe-run")):
            self.skipTest("the portable tool is not built")
        self.root = self.path("root")
        for folder in ("proc", "lib64", "lib/x86_64-linux-gnu"):
            os.makedirs(os.path.join(self.root, folder))
        # from any folder
        self.home = os.path.join(self.root, "some where")
        subprocess.run([harness.need("cmake"), "--install", self.build, "--component", "portable", "--strip", "--prefix", self.home],
                       check=True, capture_output=True)
        self.tool = os.path.join(self.home, "bin/uprobe-run")
        self.agent = os.path.join(self.home, "lib/uprobe/libuprobe.so")

    def program(self, name):
        compiler, options, files = PROGRAMS[name]
        source = self.write("program.c", PROGRAM)
        harness.compiled([harness.need(compiler), "-O1", *options, source], os.path.join(self.root, name))
        for path, place in files.items():
            if not os.path.exists(path):
                self.skipTest(f"{path} is not here")
            shutil.copy(path, os.path.join(self.root, place))
        return f"/{name}"

    def inside(self, script, *words):
        """The result of a shell's script for which `run` runs a command in the root, where nothing but /proc is mounted."""
        namespaces = [harness.need("unshare"), "-m", "-p", "-f", *([] if os.getuid() == 0 else ["-r"])]
        if subprocess.run([*namespaces, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no user namespaces here")
        shell = 'root=$0; tool="/some where/bin/uprobe-run"; run() { exec chroot "$root" "$@"; }\n' \
                'mount -t proc proc "$root/proc" || exit 99\n' + script
        return harness.run([*namespaces, "sh", "-c", shell, self.root, *words])

    def lines(self, text):
        return [(hit.task, hit.arguments) for hit in harness.parse_trace(text.decode())]

    def test_it_is_small_and_needs_no_other_file(self):
        for path in (self.tool, self.agent):
            seen = harness.run(["readelf", "-lVd", path]).stdout.decode()
            self.assertNotIn("NEEDED", seen)
            self.assertNotIn("program interpreter", seen)
            self.assertNotIn("GLIBC", seen)
        everything = [os.path.join(folder, name) for folder, _, names in os.walk(self.home) for name in names]
        self.assertLess(sum(os.path.getsize(path) for path in everything), MOST_BYTES)

    def test_the_licences_of_its_libraries_are_with_it(self):
        documents = os.path.join(self.home, "share/doc/uprobe-run")
        found = {os.path.basename(path) for path in glob.glob(os.path.join(documents, "licenses/*"))}
        with open(os.path.join(documents, "NOTICE"), encoding="utf-8") as file:
            notice = file.read()
        for name, files in (("Zydis", {"libzydis-dev.txt", "libzycore-dev.txt"}), ("libelf, libdw", {"libelf-dev.txt", "LGPL-3.txt"}),
                            ("zlib", {"zlib1g-dev.txt"}), ("liblzma", {"liblzma-dev.txt"}), ("bzip2", {"libbz2-dev.txt"}),
                            ("glibc", {"libc6-dev.txt", "LGPL-2.1.txt"}), ("libstdc++", {"GPL-3.txt"})):
            self.assertIn(name, notice)
            self.assertLessEqual(files, found)

    def test_it_starts_programs_in_a_root_with_nothing_else(self):
        for name in PROGRAMS:
            with self.subTest(name):
                program = self.program(name)
                seen = self.inside('run "$tool" "$@"', "-q", "-p", WORK, "--", program)
                self.assertEqual((seen.returncode, seen.stdout), (5, b"sum 18\n"), seen.stderr.decode())
                self.assertEqual(self.lines(seen.stderr), [(name, f'n={n} s="text"') for n in range(3)], seen.stderr.decode())

    def test_it_attaches_there(self):
        for name in PROGRAMS:
            with self.subTest(name):
                program = self.program(name)
                seen = self.inside('(run "$1" for ever) & program=$!\n'
                                   'until [ "$(readlink "$root/proc/$program/exe")" = "$root$1" ]; do sleep 0.1; done\n'
                                   '(run "$tool" -q -n 3 -p "$2" -P $program)\n'
                                   'result=$?\nkill -0 $program || exit 98\nkill $program\nexit $result', program, WORK)
                self.assertEqual(seen.returncode, 0, seen.stderr.decode())
                self.assertEqual([task for task, _ in self.lines(seen.stdout)], [name] * 3, seen.stdout.decode())

    def test_the_preloaded_agent_finds_it(self):
        os.symlink("some where", os.path.join(self.root, "portable"))  # a blank ends a name in LD_PRELOAD
        for name in ("musl", "glibc"):
            with self.subTest(name):
                program = self.program(name)
                seen = self.inside('export LD_PRELOAD=/portable/lib/uprobe/libuprobe.so UPROBE_PROBES="$2"\nrun "$1"', program,
                                   f"p:work {program}:work n=%di:s32")
                self.assertEqual((seen.returncode, seen.stdout), (5, b"sum 18\n"), seen.stderr.decode())
                self.assertEqual(self.lines(seen.stderr), [(name, f"n={n}") for n in range(3)], seen.stderr.decode())

    def test_without_proc_it_says_so(self):
        program = self.program("glibc_static")
        seen = self.inside('umount "$root/proc"\nrun "$tool" "$@"', "-p", WORK, "--", program)
        self.assertEqual((seen.returncode, seen.stdout), (125, b""))
        self.assertIn(b"/proc is missing", seen.stderr)


if __name__ == "__main__":
    harness.main()
