# SPDX-License-Identifier: MIT
"""Everything probed at once: all functions of real programs and of their C library are armed and a job runs; its
output and its end must be the same as without probes.
"""
import os
import re
import shutil
import subprocess
import unittest

import harness

BATCH = 400  # definitions of one run: several runs cover a large file


class Endure(harness.TestCase):
    def setUp(self):
        super().setUp()
        harness.tool()
        self.environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": self.folder, "PYTHONHASHSEED": "0",
                            "LD_LIBRARY_PATH": self.path("lib")}
        os.mkdir(self.path("lib"))

    def functions_of(self, path):
        """Definitions of all functions that can be probed."""
        seen = harness.run([harness.tool(), "-x", path, "-l"])
        self.assertEqual(seen.returncode, 0, seen.stderr)
        return seen.stdout.decode().splitlines()

    def libc_of(self, program):
        listing = subprocess.check_output(["ldd", program], text=True)
        path = re.search(r"(/\S*/libc\.so\.6)", listing)
        if not path:
            raise unittest.SkipTest(f"{program} has no glibc")
        return shutil.copy(path[1], self.path("lib"))

    def check(self, definitions, command, stdin=b""):
        plain = harness.run(command, stdin, self.environment)
        hits = 0
        for begin in range(0, len(definitions), BATCH):
            listed = self.write("list", "\n".join(definitions[begin:begin + BATCH]) + "\n")
            seen = harness.run_tool([], command, ["-b", "16M", "-i", listed], stdin, self.environment, timeout=120)
            where = f"definitions {begin}..: {definitions[begin]}"
            self.assertEqual((seen.returncode, seen.stdout), (plain.returncode, plain.stdout),
                             (where, seen.stderr[:4000]))
            hits += len(seen.hits)
        self.assertGreater(hits, 0)

    def test_zsh(self):
        zsh = self.copy_of(harness.need("zsh"))
        job = ("autoload -U colors; typeset -A t; for i in {1..50}; do t[$i]=x$i; a=${(U)t[$i]}; unset a; done; "
               "print -l ${(o)t} | while read l; do echo $l; done; (exit 4); echo $?; f() { local x=$(echo in); "
               "print $x }; f; [[ abc == a* ]] && print match; trap 'print usr' USR1; kill -USR1 $$; exit 7")
        self.check(self.functions_of(zsh), [zsh, "-fc", job])

    def test_bash(self):
        bash = self.copy_of(harness.need("bash"))
        job = ("declare -A t; for i in {1..50}; do t[$i]=x$i; done; echo ${#t[@]} ${t[7]^^}; f() { local a=$(echo in); "
               "echo $a; }; f; printf '%s\\n' {a..e} | while read l; do echo $l; done; (exit 4); echo $?; "
               "trap 'echo usr' USR1; kill -USR1 $$; exit 7")
        self.check(self.functions_of(bash), [bash, "-c", job])

    def test_libc_under_zsh(self):
        zsh = self.copy_of(harness.need("zsh"))
        libc = self.libc_of(zsh)
        job = "for i in {1..20}; do a=$(echo $i); print -n $a; done; print; f=(/usr/*(N)); (( $#f > 2 )); exit 7"
        self.check(self.functions_of(libc), [zsh, "-fc", job])

    def test_libc_under_threads(self):
        program = self.copy_of(harness.fixture("subject"))
        self.check(self.functions_of(self.libc_of(program)), [program, "threads", "8", "50"])

    def test_sqlite(self):
        sqlite = self.copy_of(harness.need("sqlite3"))
        listing = subprocess.check_output(["ldd", sqlite], text=True)
        path = re.search(r"(/\S*libsqlite3\S*)", listing)
        library = shutil.copy(path[1], self.path("lib")) if path else sqlite
        job = b"create table t(a,b);\n" + b"".join(b"insert into t values(%d,'x%d');\n" % (n, n) for n in range(50))
        job += b"select sum(a),max(b) from t group by a%7;\n"
        self.check(self.functions_of(library), [sqlite, ":memory:"], job)


if __name__ == "__main__":
    harness.main()
