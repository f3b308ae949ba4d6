# SPDX-License-Identifier: MIT
"""All functions of the C library, libcrypto, libpython, bash and SQLite probed at once while each of them works: the output
equals that of the run without probes, and a sample of the functions is hit as often as the kernel's own uprobes count.
"""
import os
import re
import shutil
import subprocess

import harness
import oracle
from elf_reader import Elf

MAIN = "int Py_BytesMain(int, char**);\nint main(int count, char** words) { return Py_BytesMain(count, words); }\n"
PYTHON = """
import re, json, functools
d = {str(i): [i, i * i, "x" * (i % 17)] for i in range(60)}
s = json.dumps(d, sort_keys=True)
print(len(s), len(re.findall("x+", s)), functools.reduce(lambda a, b: a * 31 + len(b) & 0xffff, s.split(","), 7))
try:
    raise ValueError("caught")
except ValueError as e:
    print(e, "{:>8.3f}".format(2 ** .5), sorted(d)[:3])
"""
SHELL = r"""
f() { local n=$1; if ((n < 2)); then result=$n; else f $((n - 1)); local a=$result; f $((n - 2)); ((result += a)); fi; }
f 7; echo $result; declare -A t; for i in {1..30}; do t[$i]=x$i; done; echo ${#t[@]} ${t[7]^^} "$(echo in)"
printf '%s\n' {a..e} | while read l; do echo "<$l>"; done; trap 'echo usr' USR1; kill -USR1 $$; (exit 4); echo $?
seq 1 300 > data; openssl dgst -sha256 data; openssl enc -aes-256-cbc -pbkdf2 -k pass -S 0102030405060708 -in data | openssl dgst -md5
openssl prime 1000003
sqlite3 :memory: "create table t(a integer, b text); with recursive c(n) as (select 1 union all select n+1 from c where n < 60)
insert into t select n, 'row' || n from c; create index i on t(b); select count(*), sum(a), max(b) from t where a % 7;"
./python program.py; exit 7
"""
SAMPLE = 20  # functions of each file
AT_ONCE = 25  # events of the kernel's: to switch them off takes it long
MOST = 2000  # hits of a function of the sample
# The kernel does not probe what begins with one of these prefixes, and does not say so (arch/x86/kernel/uprobes.c, is_prefix_bad).
REFUSED_BY_THE_KERNEL = (0x26, 0x2e, 0x36, 0x3e, 0xf0)


class Work(harness.TestCase):
    def setUp(self):
        super().setUp()
        harness.tool()
        os.mkdir(self.path("lib"))
        self.libraries = [self.library(*names) for names in
                          (("sh", "libc.so.6"), ("openssl", "libcrypto"), ("sqlite3", "libsqlite3"))]
        self.bash = self.copy_of(harness.need("bash"))
        self.files = [self.bash, *self.libraries, self.python()]
        self.write("program.py", PYTHON)
        self.command = [self.bash, "-c", SHELL]
        self.environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "HOME": self.folder, "PYTHONHASHSEED": "0",
                            "PYTHONHOME": "/usr", "PYTHONDONTWRITEBYTECODE": "1", "LD_LIBRARY_PATH": self.path("lib"),
                            "OPENSSL_CONF": "/dev/null"}

    def library(self, program, name):
        """A copy of a program's library, found before the original by LD_LIBRARY_PATH."""
        listing = subprocess.check_output(["ldd", harness.need(program)], text=True)
        found = re.search(rf"(/\S*/({re.escape(name)}\S*))", listing)
        if not found:
            self.skipTest(f"{program} does not need {name}")
        return shutil.copy(os.path.realpath(found[1]), self.path(f"lib/{found[2]}"))

    def python(self):
        """A library with the interpreter in it, and a program that only calls it."""
        listing = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False,
                                 env={"PATH": "/usr/sbin:/sbin"}).stdout
        found = re.search(r"=> (/\S*/(libpython3\.\d+\.so\S*))$", listing, re.M)
        if not found:
            self.skipTest("no libpython")
        library = shutil.copy(os.path.realpath(found[1]), self.path(f"lib/{found[2]}"))
        subprocess.run([harness.need("gcc"), "-o", self.path("python"), self.write("main.c", MAIN), library], check=True)
        return library

    def all_functions(self):
        """event -> definition; the events have the file's number in them."""
        found = {}
        for number, path in enumerate(self.files):
            listing = harness.run([harness.tool(), "-x", path, "-l"])
            self.assertEqual(listing.returncode, 0, listing.stderr)
            for line in listing.stdout.decode().splitlines():
                place = line.partition(" ")[2]
                found[f"f{number}_{len(found)}"] = place
        return found

    def run_probed(self, functions, tier):
        listed = self.write("list", "".join(f"p:{event} {place}\n" for event, place in functions.items()))
        seen = harness.run([harness.tool(), f"--tier={tier}", "-v", "-b", "256M", "-o", "/dev/null", "-i", listed, "--", *self.command],
                           env=self.environment, cwd=self.folder, timeout=120)
        self.assertEqual((seen.returncode, seen.stdout), (self.plain.returncode, self.plain.stdout), seen.stderr[-3000:])
        self.assertEqual([line for line in seen.stderr.splitlines() if b" lost" in line][:3], [])
        return {event.decode(): int(hits.replace(b",", b"")) for event, hits in
                re.findall(rb"^uprobe-run: uprobes/(\S+) \S+: ([\d,]+) hits?$", seen.stderr, re.M)}

    def sample(self, functions, *runs):
        """For each file some functions that are hit, moderately often, and equally often in every run."""
        chosen = {}
        for number, path in enumerate(self.files):
            names = self.names_for_the_kernel(path)
            events = [event for event, place in functions.items()
                      if event.startswith(f"f{number}_") and place.rpartition(":")[2] in names
                      and 0 < runs[0].get(event, 0) <= MOST and len({run.get(event) for run in runs}) == 1]
            self.assertGreaterEqual(len(events), SAMPLE, path)
            for event in events[::len(events) // SAMPLE][:SAMPLE]:
                chosen[event] = functions[event]
        return chosen

    def names_for_the_kernel(self, path):
        """Functions, not resolvers, that it can probe."""
        file = Elf(path)
        names = re.findall(r" [TW] (\w+)", subprocess.check_output(["nm", "-D", path], text=True))
        return {name for name in names if file.data[file.offset_of(name)] not in REFUSED_BY_THE_KERNEL}

    def test_everything_at_once(self):
        self.plain = harness.run(self.command, env=self.environment, cwd=self.folder)
        self.assertEqual((self.plain.returncode, self.plain.stderr), (7, b""))
        functions = self.all_functions()
        self.assertGreater(len(functions), 8000)
        jumps, again = (self.run_probed(functions, "auto") for _ in range(2))
        traps = self.run_probed(functions, "int3")
        self.assertGreater(len([hits for hits in jumps.values() if hits]), 1500)
        chosen = self.sample(functions, jumps, again, traps)
        oracle.require()
        events = list(chosen)
        for begin in range(0, len(events), AT_ONCE):
            some = events[begin:begin + AT_ONCE]
            seen = oracle.run_kernel([f"p:{event} {chosen[event]}" for event in some], self.command, env=self.environment,
                                     cwd=self.folder)
            self.assertEqual(seen.stdout, self.plain.stdout)
            self.assertEqual(seen.counts(), {event: jumps[event] for event in some})


if __name__ == "__main__":
    harness.main()
