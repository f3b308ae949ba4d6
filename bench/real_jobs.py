# SPDX-License-Identifier: MIT
"""The jobs of bench/real_work.py: their commands, probed functions, own measures of speed, and the expected number of hits,
if they know it.

A job gets a folder of its own for each way of tracing, with copies of the files that are probed: the kernel's uprobes belong to
a file and hit in every process that runs it; with a copy, only the job's own processes are hit.
"""
import os
import re
import shutil
import socket
import statistics
import time

LIBC = "/lib/x86_64-linux-gnu/libc.so.6"
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "real_input.cpp")
LOAD = "/usr/share/dbench/client.txt"


class Failure(Exception):
    """The error, in one line."""


def with_own_libc(folder):
    """The environment of programs that use the folder's copy of libc."""
    return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "LD_LIBRARY_PATH": folder}


def definitions(path, functions, arguments):
    return [f"p:{name} {path}:{name} {arguments}" for name in functions]


class Job:
    """One row of the table for each way of tracing. `start(command, environment)` of run() is the harness's: it puts the tool
    before the command if there is one, and returns a Run, whose finish() waits for it."""
    name = programs = packages = aim = ""
    more_is_better = True
    aim_ratio = 0.98
    is_fixed_work = False  # else as much as it can in a given time
    probed_file = LIBC

    def prepare(self, folder):
        shutil.copy(os.path.realpath(self.probed_file), self.copy_in(folder))

    def copy_in(self, folder):
        return os.path.join(folder, os.path.basename(self.probed_file))

    def run(self, folder, start, seconds):
        """(score, Run) of a finished run. Its `expected` are the hits that the job itself can count, by event."""
        raise NotImplementedError


class Redis(Job):
    """By TCP, the default of redis-benchmark. The client is not traced and takes the remaining CPU time of the
    machine; which of the two waits for the other changes from run to run, so that many short runs are better than a long one."""
    name = "redis, SET, 16 in a pipeline"
    # Debian has stripped redis-server but kept its dynamic symbols: modules link against them.
    programs, packages = "redis-benchmark redis-cli redis-check-rdb", "redis-tools"
    is_fixed_work = True
    probed_file = "/usr/bin/redis-check-rdb"  # the same program as redis-server, whose package would start a service
    requests, port = 200_000, 7004

    def copy_in(self, folder):
        return os.path.join(folder, "redis-server")  # it runs under the name that it is called by

    def definitions(self, folder):
        return definitions(self.copy_in(folder), ["processCommand"], "%di %si %dx")

    def run(self, folder, start, seconds):
        wait_for_port(self.port, "redis-server")
        run = start([self.copy_in(folder), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                     "--daemonize", "no", "--dir", folder], {"PATH": "/usr/bin:/bin"})
        run.wait_for(lambda: answers(self.port), "redis-server to answer")
        self.throughput(run)  # touches memory for the first time
        scores = [self.throughput(run) for _ in range(5 * seconds)]
        # it counts a command when it is done: this one is not in the number yet, and counts as a hit
        told = run.ask(["redis-cli", "-p", str(self.port), "info", "stats"])
        run.expected = {"processCommand": int(re.search(r"total_commands_processed:(\d+)", told)[1]) + 1}
        run.terminate()
        run.finish()
        return statistics.median(scores), run

    def throughput(self, run):
        done = run.ask(["redis-benchmark", "-p", str(self.port), "-t", "set", "-P", "16", "-n", str(self.requests), "--csv"])
        return float(re.search(r'"SET","([\d.]+)"', done)[1])


def answers(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def wait_for_port(port, program):
    """Waits until the port is free."""
    for _ in range(50):
        if not answers(port):
            return
        time.sleep(0.1)
    raise Failure(f"{program} needs port {port}, which another process uses")


class Compile(Job):
    """The compiler proper and the assembler are children. How often they allocate depends on nothing but the source, as long as
    nothing is optimised (passes whose tables are ordered by address differ by one or two): the kernel's count is expected."""
    name = "g++ -O0 -c, malloc and free"
    programs, packages = "g++", "g++"
    more_is_better, aim_ratio, is_fixed_work = False, 1.12, True

    def definitions(self, folder):
        return definitions(self.copy_in(folder), ["malloc", "free"], "%di")

    def run(self, folder, start, seconds):
        run = start([shutil.which("g++"), "-std=c++20", "-O0", "-c", SOURCE, "-o", "output.o"], with_own_libc(folder))
        run.finish()
        return run.seconds, run


class Build(Job):
    """Many C files, as kernbench builds them: make, the compiler, the assembler and the linker with libc's calls for files and memory
    probed. How often make reads depends on which of its children ends first, so that the programs that gcc starts are what is
    counted: a compiler and an assembler for each file, and the linker's two."""
    name = "make -j2, 33 C files"
    programs, packages = "make gcc", "make gcc"
    more_is_better, aim_ratio, is_fixed_work = False, 1 / 0.975, True
    parts, steps = 32, 80

    def definitions(self, folder):
        return definitions(self.copy_in(folder), ["open64", "read", "write", "close", "malloc", "free", "execv", "execvp"], "%di %si")

    def prepare(self, folder):
        super().prepare(folder)
        sources = {"main.c": self.main(), "Makefile": self.rules()} | {f"part{n}.c": self.part(n) for n in range(self.parts)}
        for name, text in sources.items():
            with open(os.path.join(folder, name), "w", encoding="ascii") as file:
                file.write(text)

    def part(self, number):
        includes = "".join(f"#include <{name}.h>\n" for name in ("stdio", "stdlib", "string", "unistd", "sys/stat"))
        steps = "".join(f"static int step{k}(int a, char *text) {{\n"
                        "  struct stat facts;\n  int sum = 0;\n  for (int i = 0; i < a; ++i)\n"
                        f"    sum += stat(text, &facts) == 0 ? snprintf(text, 9, \"%d\", i + {k}) : (int)strlen(text) << (i & {k % 7});\n"
                        "  return sum;\n}\n" for k in range(self.steps))
        calls = "".join(f" + step{k}(a, text)" for k in range(self.steps))
        return f"{includes}{steps}int part{number}(int a, char *text) {{ return 0{calls}; }}\n"

    def main(self):
        declared = "".join(f"int part{n}(int, char *);\n" for n in range(self.parts))
        calls = "".join(f" + part{n}(1, text)" for n in range(self.parts))
        return f"{declared}int main(void) {{\n  char text[64] = \"\";\n  return (0{calls}) == 1;\n}}\n"

    def rules(self):
        objects = "main.o " + " ".join(f"part{n}.o" for n in range(self.parts))
        return f"program: {objects}\n\tgcc -o $@ $^\n%.o: %.c\n\tgcc -O0 -c -o $@ $<\n"

    def run(self, folder, start, seconds):
        for name in os.listdir(folder):
            if name.endswith(".o"):
                os.unlink(os.path.join(folder, name))
        run = start([shutil.which("make"), "-s", "-j2"], with_own_libc(folder))
        run.finish()
        started = self.parts + 2  # each file, main.c, and the program
        run.expected = {"execv": started, "execvp": started}
        return run.seconds, run


# dbench's own table: "Close          46564     0.002     4.084". Without a warm-up, which it has from 5 seconds on, it counts
# every operation.
LONGEST_EXACT = 4


def operations(text):
    found = {name: int(count) for name, count in re.findall(r"^ (\w+) +(\d+) +[\d.]+ +[\d.]+$", text, re.MULTILINE)}
    if "Close" not in found:
        raise Failure("dbench printed no table")
    return found


def throughput(text):
    return float(re.search(r"^Throughput ([\d.]+) MB/sec", text, re.MULTILINE)[1])


class Dbench(Job):
    """One client on a file system in memory. It reads and writes by pread64 and pwrite64."""
    name = "dbench, 1 client"
    programs, packages = "dbench", "dbench"

    def definitions(self, folder):
        return definitions(self.copy_in(folder), ["read", "write", "open64", "close", "lseek64", "unlink", "rename", "pread64",
                                                  "pwrite64"], "%di %si")

    def run(self, folder, start, seconds):
        run = start(["/usr/bin/dbench", "-t", str(min(seconds + 1, LONGEST_EXACT)), "-c", LOAD, "-D", folder, "1"],
                    with_own_libc(folder))
        text = run.finish()
        counted = operations(text)
        run.expected = {"pread64": counted["ReadX"], "pwrite64": counted["WriteX"], "close": counted["Close"],
                        "rename": counted["Rename"]}
        return throughput(text), run


class Tbench(Job):
    """The same over TCP, by send and recv; client and server are both probed."""
    name = "tbench, 1 client"
    programs, packages = "tbench tbench_srv", "dbench"
    port = 7003  # cannot be chosen

    def definitions(self, folder):
        return definitions(self.copy_in(folder), ["read", "write", "open64", "close", "lseek64", "unlink", "rename", "send",
                                                  "recv"], "%di %si")

    def run(self, folder, start, seconds):
        wait_for_port(self.port, "tbench_srv")
        script = ("tbench_srv > /dev/null & server=$!; sleep 0.3; "
                  f"tbench -t {min(seconds + 1, LONGEST_EXACT)} -c {LOAD} 1 127.0.0.1; kill $server")
        run = start(["/bin/sh", "-c", script], with_own_libc(folder))
        text = run.finish()
        run.expected = {"send": 2 * sum(operations(text).values())}
        return throughput(text), run


JOBS = [Redis(), Compile(), Build(), Dbench(), Tbench()]
