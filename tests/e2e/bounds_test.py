# SPDX-License-Identifier: MIT
"""Hostile files, debug information and messages take little memory and time of the tool, and no command hangs."""
import os
import subprocess
import sys
import tempfile
import time

import harness
from harness import UNPRIVILEGED

MOST_MEMORY = 300 << 20
CALL = b"\xb8\x0d\x00\x00\x00\x0f\x05"  # rt_sigaction: a file with this in its code is read as a whole
PROBE = "/lib/x86_64-linux-gnu/libc.so.6:getppid"
# Maps a file as code; goes on only when that has been looked at. Then a hit.
MAPS = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
def map_code(path, size, offset=0):
    fd = os.open(path, os.O_RDONLY)
    at = libc.mmap(None, size, 5, 2, fd, offset)
    os.close(fd)
    assert at != ctypes.c_void_p(-1).value, os.strerror(ctypes.get_errno())
    return at
"""


def run_and_measure(command, **options):
    """The exit code, standard error and the peak memory of the command and its children."""
    with tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=err, start_new_session=True, **options)
        deadline = time.monotonic() + harness.TIMEOUT
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                harness.stop_group(process)
                raise AssertionError(f"no end: {command}")
            time.sleep(0.01)
        process.returncode = os.waitstatus_to_exitcode(status)
        err.seek(0)
        return process.returncode, err.read().decode(errors="replace"), usage.ru_maxrss * 1024


class Files(harness.TestCase):
    def trace(self, script, *options):
        path = self.write("target.py", MAPS + script)
        return run_and_measure([*harness.tracer("-o", self.path("trace"), "-p", f"p:f {PROBE}", *options), "--",
                                sys.executable, path])

    def sparse(self, size):
        """An ELF file of the tool's machine with a system call in its code, and nothing after it."""
        path = self.path("sparse.so")
        with open(harness.libc_of(sys.executable), "rb") as libc, open(path, "wb") as file:
            file.write(libc.read(64))
            file.seek(4096)
            file.write(CALL * 4)
            file.truncate(size)
        return path

    def test_sparse_files_take_neither_memory_nor_time(self):
        for size in (2000 << 20, 100 << 30):
            for options in ((), ("--return=stub", "-p", f"r:g {PROBE}")):
                with self.subTest(size=size, options=options):
                    path = self.sparse(size)
                    begin = time.monotonic()
                    code, err, memory = self.trace(f"map_code({path!r}, {size})\nos.getppid()\n", *options)
                    self.assertEqual(code, 0, err)
                    self.assertRegex(err, r"uprobes/f .*: [1-9]\d* hit")
                    self.assertLess(memory, MOST_MEMORY)
                    self.assertLess(time.monotonic() - begin, 40)

    def test_a_file_that_is_cut_off_while_it_is_read(self):
        """If the tool mapped the file it would get SIGBUS."""
        libc = harness.libc_of(sys.executable)
        script = f"""
import shutil, threading
path, over = {self.path("cut.so")!r}, False
def cut():
    while not over:
        shutil.copyfile({libc!r}, path)
        os.truncate(path, 4096)
thread = threading.Thread(target=cut)
thread.start()
for i in range(60):
    try: map_code(path, 1 << 20)
    except (OSError, AssertionError): pass
over = True
thread.join()
os.getppid()
os._exit(7)
"""
        for options in ((), ("--return=stub", "-p", f"r:g {PROBE}")):
            code, err, memory = self.trace(script, *options)
            self.assertEqual(code, 7, err)
            self.assertLess(memory, MOST_MEMORY)

    def test_messages_are_as_few_as_can_be_read(self):
        """A file that cannot be read gets a line, but not each of any number of files."""
        path = self.sparse(1 << 13)
        script = f"""
import shutil
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
for i in range(150):
    name = {self.folder!r} + "/" + str(i)
    shutil.copyfile({path!r}, name)
    libc.munmap(map_code(name, 1 << 13), 1 << 13)
    os.unlink(name)
os.getppid()
"""
        code, err, memory = self.trace(script)
        self.assertEqual(code, 0, err)
        self.assertIn("further messages are not shown", err)
        self.assertLess(len(err.splitlines()), 130)
        self.assertLess(memory, MOST_MEMORY)


# A child maps parts of a large file. Prints how many calls of the parent's, which map a small one, returned during a call of the child's.
NEIGHBOURS = """
import mmap
large, size, small = {large!r}, {size}, {small!r}
shared = mmap.mmap(-1, 4096)
CALLING, OVER = 0, 1
child = os.fork()
if child == 0:
    for i in range(4):
        shared[CALLING] += 1
        map_code(large, size - 4096 * i, 4096 * i)
        shared[CALLING] += 1
    shared[OVER] = 1
    os._exit(0)
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
between = 0
while not shared[OVER]:
    before = shared[CALLING]
    libc.munmap(map_code(small, 8192), 8192)
    between += before % 2 == 1 and shared[CALLING] == before
os.waitpid(child, 0)
os.getppid()
print(between)
"""


class LargeFiles(harness.TestCase):
    """A file that takes long to look into delays its own process alone."""

    def test_other_processes_go_on(self):
        large, small, size = self.path("large.so"), self.path("small.so"), 128 << 20
        with open(harness.libc_of(sys.executable), "rb") as libc:
            head = libc.read(64).ljust(4096, b"\0")
        with open(large, "wb") as file:
            file.write(head)
            for _ in range(size >> 20):
                file.write(b"\xb8\xff\xff\x00\x00\x0f\x05\x90" * (1 << 17))  # no call that is followed
        with open(small, "wb") as file:
            file.write(head.ljust(8192, b"\x90"))
        path = self.write("target.py", MAPS + NEIGHBOURS.format(large=large, size=size, small=small))
        seen = harness.run([*harness.tracer("-o", self.path("trace"), "-p", f"p:f {PROBE}"), "--", sys.executable, path])
        self.assertEqual(seen.returncode, 0, seen.stderr)
        self.assertRegex(seen.stderr.decode(), r"uprobes/f .*: [1-9]\d* hit")
        self.assertGreater(int(seen.stdout), 20)

    def test_a_large_program_is_followed(self):
        source = self.write("large.c", """
#include <stdlib.h>
__asm__(".text; .fill 8388608, 8, 0x90050f0000ffffb8");  // 64 MiB
__attribute__((noinline)) void work(long n) { __asm__ volatile("nop;nop;nop;nop;nop" :: "r"(n)); }
int main(int argc, char** argv) { work(argc); return argc > 1 ? system(argv[1]) : 0; }
""")
        program = self.path("large")
        subprocess.run(["gcc", "-O1", source, "-o", program], check=True)
        seen = harness.run_tool([f"p:work {program}:work n=%di:s64"], ["sh", "-c", f"{program} {program}; exit 7"])
        self.assertEqual(seen.returncode, 7, seen.stderr)
        self.assertEqual([hit.arguments for hit in seen.hits], ["n=2", "n=1"], seen.stderr)


# Each child has a map with as many functions of long names as the tool keeps of one process. Ends when all maps have been read.
MAPS_OF_CODE = """
import ctypes, os, signal
CHILDREN, ACCESS = 30, 1
libc = ctypes.CDLL(None, use_errno=True)
watch, read_in = libc.inotify_init(), set()
children = []
for i in range(CHILDREN):
    pid = os.fork()
    if pid == 0:
        while True: signal.pause()
    children.append(pid)
try:
    for pid in children:
        with open(f"/tmp/perf-{pid}.map", "x", encoding="ascii") as file:
            file.writelines(f"{(i + 1) << 12:x} 10 f{i:04} {'f' * 4000}\\n" for i in range(4096))
        assert libc.inotify_add_watch(watch, os.fsencode(f"/tmp/perf-{pid}.map"), ACCESS) > 0
    while len(read_in) < CHILDREN:
        events = os.read(watch, 65536)
        read_in |= {events[at:at + 4] for at in range(0, len(events), 16)}
finally:
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.unlink(f"/tmp/perf-{pid}.map")
"""


class MapsOfCode(harness.TestCase):
    def test_many_processes_with_long_maps(self):
        path = self.write("target.py", MAPS_OF_CODE)
        code, err, memory = run_and_measure([*harness.tracer("-o", self.path("trace"), "-p", "p:work jit:f*"), "--", sys.executable, path])
        self.assertEqual(code, 0, err)
        self.assertLess(memory, MOST_MEMORY)
        self.assertRegex(err, r"generated code: \d+ functions not probed, because the maps name too many that match")


    def test_a_library_that_is_mapped_thousands_of_times(self):
        """The tool reads the list of mappings for none of them: it would take minutes."""
        script = """
libm = os.path.join(os.path.dirname(sys.argv[1]), "libm.so.6")
for i in range(12000):
    file = os.open(libm, os.O_RDONLY)
    at = libc.mmap(None, 4096, 5 if i % 2 else 1, 2, file, 0)
    assert at != ctypes.c_void_p(-1).value
    os.close(file)
ctypes.CDLL(libm)
for i in range(50):
    libc.getppid()
"""
        libc = harness.libc_of(sys.executable)
        path = self.write("target.py", MAPS + script)
        seen = harness.run_tool([f"p:f {libc}:getppid"], [sys.executable, path, libc])
        self.assertEqual((seen.returncode, seen.counts().get("f")), (0, 50), seen.stderr)


class DebugInformation(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.source = self.write("prog.c", "int twice(int n) { return 2 * n; }\nint main(void) { return twice(4); }\n")

    def build(self, *flags):
        subprocess.run(["gcc", "-g", *flags, "-o", "prog", "prog.c"], cwd=self.folder, check=True)
        return self.path("prog")

    def test_a_fifo_in_the_place_of_a_source(self):
        program = self.build()
        os.unlink(self.source)
        os.mkfifo(self.source)
        code, err, _ = run_and_measure(harness.tracer("-x", program, "--lines=twice"))
        self.assertEqual(code, 0, err)

    def test_a_fifo_in_the_place_of_split_debug_information(self):
        program = self.build("-gsplit-dwarf")
        parts = [name for name in os.listdir(self.folder) if name.endswith(".dwo")]
        self.assertEqual(len(parts), 1)
        os.unlink(self.path(parts[0]))
        os.mkfifo(self.path(parts[0]))
        os.chmod(self.path(parts[0]), 0o644)
        os.chmod(self.folder, 0o755)
        os.chown(program, UNPRIVILEGED, UNPRIVILEGED)  # another user's: the reader is less patient
        code, err, _ = run_and_measure(harness.tracer("-x", program, "--vars=twice"))
        self.assertEqual(code, 125, err)
        self.assertIn("reading it takes longer than", err)

    def test_damaged_debug_information_ends_no_tool(self):
        program = self.build()
        with open(program, "rb") as file:
            good = file.read()
        sections = sections_of(program)
        for name in (".debug_info", ".debug_abbrev", ".debug_line", ".debug_str", ".eh_frame"):
            offset, size = sections[name]
            for step in (1, 7, 64):
                with self.subTest(section=name, step=step):
                    bad = bytearray(good)
                    for at in range(offset, offset + size, step):
                        bad[at] = (bad[at] * 5 + 0x83) & 0xff
                    with open(program, "wb") as file:
                        file.write(bad)
                    for words in (["-x", program, "--lines=twice"], ["-x", program, "--vars=twice"],
                                  ["--dry-run", "-p", f"p {program}:prog.c:1 n"]):
                        code, err, memory = run_and_measure(harness.tracer(*words))
                        self.assertIn(code, (0, 125), err)
                        self.assertLess(memory, MOST_MEMORY)

    def test_no_reader_is_left_while_the_program_runs(self):
        program = self.build()
        process = subprocess.Popen(harness.tracer("-o", self.path("trace"), "-p", f"p:f {program}:twice n", "--",
                                                  sys.executable, "-c", "input()"),
                                   stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            harness.wait_until(lambda: "python3" in "".join(map(name_of, children_of(process.pid))), "the program")
            self.assertEqual(len(children_of(process.pid)), 1)
        finally:
            process.communicate(b"\n")
        self.assertEqual(process.returncode, 0)


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return file.read().split()


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def sections_of(path):
    """Name -> (offset, size)."""
    found = {}
    for line in subprocess.check_output(["readelf", "-SW", path], text=True).splitlines():
        words = line.replace("[ ", "[").split()
        if len(words) > 5 and words[0].startswith("[") and words[1].startswith("."):
            found[words[1]] = (int(words[4], 16), int(words[5], 16))
    return found


if __name__ == "__main__":
    harness.main()
