# SPDX-License-Identifier: MIT
"""-c and -C: tables of calls, for programs that make a known number of them."""
import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import termios

import harness


class Summed(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.program = self.copy_of(harness.fixture("callers"))

    def sums(self, functions, *words, options=("-c",)):
        """The rows, by event."""
        probes = [word for function in functions for word in ("-p", f"{self.program}:{function}")]
        done = harness.run([*harness.tracer(*options, "--json", "--summary-file", self.path("sums")), *probes, "--",
                            self.program, *map(str, words)])
        self.assertEqual((done.returncode, done.stdout), (0, b"done\n"), done.stderr)
        self.done = done
        with open(self.path("sums"), encoding="utf-8") as file:
            return {row["event"]: row for row in json.load(file)}


class Counts(Summed):
    def test_calls_and_the_time_of_those_inside(self):
        rows = self.sums(["outer", "inner", "never_called"], "nest", 1000)
        outer, inner = rows["outer"], rows["inner"]
        self.assertEqual((outer["calls"], outer["returns"], outer["abandoned"]), (1000, 1000, 0))
        self.assertEqual((inner["calls"], inner["returns"]), (2000, 2000))
        self.assertEqual(rows["never_called"]["calls"], 0)
        self.assertEqual(inner["self_ns"], inner["total_ns"])
        self.assertEqual(outer["self_ns"] + inner["total_ns"], outer["total_ns"])
        for row in (outer, inner):
            self.assertEqual(row["mean_ns"], row["total_ns"] // row["calls"])
            self.assertTrue(0 < row["p50_ns"] <= row["p90_ns"] <= row["p99_ns"] <= row["max_ns"], row)

    def test_a_recursive_function(self):
        rows = self.sums(["top", "twice"], "recurse", 10)
        self.assertEqual(rows["twice"]["calls"], 2 ** 11 - 1)
        self.assertEqual(rows["top"]["self_ns"] + rows["twice"]["self_ns"], rows["top"]["total_ns"])

    def test_calls_that_longjmp_leaves(self):
        row = self.sums(["leaves"], "leave", 101)["leaves"]
        self.assertEqual((row["calls"], row["returns"], row["abandoned"]), (101, 51, 50))

    def test_calls_that_come_round_by_tail_calls_are_calls(self):
        source = """
#include <stdio.h>
#define KEPT __attribute__((noinline, noclone, used))
KEPT long odd(int n);
KEPT long even(int n) { __asm__ volatile("nop; nop; nop; nop; nop"); return n == 0 ? 1 : odd(n - 1); }
KEPT long odd(int n) { __asm__ volatile("nop; nop; nop; nop; nop"); return n == 0 ? 0 : even(n - 1); }
int main(void) { long sum = 0; for (int i = 0; i < 20; ++i) sum += even(101); return puts("done") == EOF || sum != 0; }
"""
        self.program = harness.compiled([harness.need("cc"), "-O2", self.write("round.c", source)], self.path("round"))
        row = self.sums(["even"])["even"]
        self.assertEqual((row["calls"], row["returns"] + row["unfollowed"], row["abandoned"]), (20 * 51, 20 * 51, 0))

    def test_fork_is_one_call_that_returns_twice(self):
        source = """
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) { for (int i = 0; i < 10; ++i) { if (fork() == 0) _exit(0); wait(NULL); } return puts("done") == EOF; }
"""
        self.program = harness.compiled([harness.need("cc"), "-O1", self.write("forks.c", source)], self.path("forks"))
        done = harness.run([*harness.tracer("-c", "--json", "--summary-file", self.path("sums")), "-p", "libc:fork", "--", self.program])
        self.assertEqual((done.returncode, done.stdout), (0, b"done\n"), done.stderr)
        with open(self.path("sums"), encoding="utf-8") as file:
            row, = json.load(file)
        self.assertEqual((row["calls"], row["returns"], row["abandoned"], row["untimed"]), (10, 20, 0, 0))

    def test_threads(self):
        rows = self.sums(["outer", "inner"], "nest", 500, 8)
        self.assertEqual((rows["outer"]["calls"], rows["inner"]["returns"]), (4000, 8000))
        self.assertEqual(rows["outer"]["self_ns"] + rows["inner"]["total_ns"], rows["outer"]["total_ns"])

    def test_children(self):
        rows = self.sums(["outer", "inner"], "fork", 300)
        self.assertEqual((rows["outer"]["returns"], rows["inner"]["calls"]), (600, 1200))
        self.assertEqual(rows["outer"]["self_ns"] + rows["inner"]["total_ns"], rows["outer"]["total_ns"])

    def test_latencies_are_those_of_the_records(self):
        """Of the same calls: -C has both."""
        rows = self.sums(["spins%return latency=$latency"], "spin", 200, options=("-C", "-o", self.path("trace")))
        with open(self.path("trace"), encoding="latin-1") as file:
            recorded = sorted(map(int, re.findall(r" latency=(\d+)$", file.read(), re.M)))
        row = rows["spins"]
        self.assertEqual((row["calls"], len(recorded)), (200, 200))
        # A processor that is taken away between the two moments of a call changes the places of some calls.
        for part, name in ((50, "p50_ns"), (90, "p90_ns")):
            rank = len(recorded) * part // 100 - 1
            least, most = recorded[rank - 5], recorded[rank + 5]
            self.assertTrue(0.96 * least - 2000 < row[name] < 1.04 * most + 2000, (name, row[name], least, most))

    def test_a_function_counts_once(self):
        rows = self.sums(["outer", "out*", "outer", "inner"], "nest", 10)
        self.assertEqual({name: row["calls"] for name, row in rows.items()}, {"outer": 10, "inner": 20})

    def test_all_functions_of_libc(self):
        """Among them those that the program leaves by exit."""
        libc = os.path.realpath(re.search(r"=> (\S*/libc\.so\.6)", subprocess.run(
            ["ldd", self.program], stdout=subprocess.PIPE, check=True, text=True).stdout)[1])
        done = harness.run([*harness.tracer("-c", "--json", "--skip-refused", "--summary-file", self.path("sums")), "-p",
                            f"{libc}:*", "--", self.program, "nest", "3"])
        self.assertEqual((done.returncode, done.stdout), (0, b"done\n"), done.stderr)
        with open(self.path("sums"), encoding="utf-8") as file:
            rows = {row["event"]: row for row in json.load(file)}
        self.assertGreater(len(rows), 1000)
        self.assertEqual(rows["puts"]["calls"], 1)
        self.assertTrue(all(row["calls"] == row["returns"] + row["abandoned"] + row["unfollowed"] for row in rows.values()))


class ByProcess(Summed):
    """--summary-by=process: a row for each process and function."""

    def rows(self, *command, options=()):
        probes = ["-p", f"{self.program}:outer", "-p", f"{self.program}:never_called"]
        done = harness.run([*harness.tracer("-c", "--summary-by=process", *options, "--json", "--summary-file",
                                            self.path("sums")), *probes, "--", *command])
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("sums"), encoding="utf-8") as file:
            return json.load(file)

    def test_parent_and_child(self):
        rows = self.rows(self.program, "fork", "30")
        mine = [row for row in rows if row["event"] == "outer"]
        self.assertEqual([row["calls"] for row in mine], [30, 30])
        self.assertEqual({row["process"] for row in mine}, {"callers"})
        self.assertEqual(len({row["pid"] for row in mine}), 2)
        for row in mine:
            self.assertEqual((row["returns"], row["abandoned"], row["untimed"]), (30, 0, 0))
            self.assertGreater(row["self_ns"], 0)
        never = [row for row in rows if row["event"] == "never_called"]
        self.assertEqual([(row["calls"], "pid" in row) for row in never], [(0, False)])

    def test_programs_that_a_shell_starts(self):
        """The numbers are those that the shell knows, and each has its own count."""
        script = "; ".join(f"{self.program} nest {n} & wait $!; echo $!" for n in (3, 5, 7))
        probes = ["-p", f"{self.program}:outer"]
        done = harness.run([*harness.tracer("-c", "--summary-by=process", "--json", "--summary-file", self.path("sums")),
                            *probes, "--", "/bin/sh", "-c", script])
        self.assertEqual(done.returncode, 0, done.stderr)
        pids = [int(word) for word in done.stdout.split() if word != b"done"]
        with open(self.path("sums"), encoding="utf-8") as file:
            counts = {row["pid"]: row["calls"] for row in json.load(file)}
        self.assertEqual(counts, dict(zip(pids, (3, 5, 7))))

    def test_threads_are_one_process(self):
        rows = [row for row in self.rows(self.program, "nest", "50", "6") if row["calls"] != 0]
        self.assertEqual([(row["event"], row["calls"]) for row in rows], [("outer", 300)])

    def test_the_table(self):
        done = harness.run([*harness.tracer("-c", "--summary-by=process"), "-p", f"{self.program}:outer", "--",
                            self.program, "fork", "4"])
        lines = done.stderr.decode().splitlines()
        self.assertEqual(lines[0].split()[-2:], ["process", "function"])
        for line in lines[1:3]:
            self.assertRegex(line, r"^ +4 .*  callers-\d+ +outer$")

    def test_what_asks_a_session_takes_its_rows(self):
        process = subprocess.Popen([self.program, "spin", "1000000000"], stdout=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        tool = subprocess.Popen([*harness.tracer("-c", "-v", "--summary-by=process"), "-P", str(process.pid), "-p",
                                 f"{self.program}:spins"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                start_new_session=True)
        self.addCleanup(harness.stop_group, tool)
        while b"attached" not in tool.stderr.readline():
            pass
        rows = []
        while not rows or "pid" not in rows[0]:
            done = harness.run([harness.tool(), "--control", str(tool.pid), "--summary", "--json"])
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            rows = json.loads(done.stdout)
        self.assertEqual([(row["pid"], row["process"]) for row in rows], [(process.pid, "callers")])
        process.kill()
        tool.communicate(timeout=harness.TIMEOUT)

    def test_refusals(self):
        for options, text in ((("--summary-by=process",), "-c, -C or --top"), (("-c", "--summary-by=thread"), "'process' alone"),
                              (("-c", "--control=1", "--summary-by=process"), "-c, -C or --top")):
            done = harness.run([*harness.tracer(*options), "-p", f"{self.program}:outer", "--", self.program, "nest", "1"])
            self.assertEqual((done.returncode, done.stdout), (125, b""))
            self.assertIn(text, done.stderr.decode())


class Tables(Summed):
    def table(self, *options, functions=("outer", "inner", "never_called"), words=("nest", "10")):
        probes = [word for function in functions for word in ("-p", f"{self.program}:{function}")]
        done = harness.run([*harness.tracer(*options), *probes, "--", self.program, *words])
        self.assertEqual((done.returncode, done.stdout), (0, b"done\n"), done.stderr)
        return done.stderr.decode()

    def test_a_row_for_each_function_that_was_called(self):
        lines = self.table("-c").splitlines()
        self.assertEqual(lines[0].split(), "calls returns total self mean p50 p90 p99 max function".split())
        self.assertEqual([(line.split()[0], line.split()[-1]) for line in lines[1:3]], [("10", "outer"), ("20", "inner")])
        self.assertEqual(lines[3], "1 function never called")
        self.assertFalse([line for line in lines if " hits" in line or "# tracer" in line], lines)

    def test_a_line_about_calls_that_did_not_return(self):
        text = self.table("-c", functions=["leaves"], words=("leave", "4"))
        self.assertIn("\n2 calls did not return: left by an exception or longjmp, or under way at the end", text)

    def test_records_and_table(self):
        text = self.table("-C", "-o", self.path("trace"))
        self.assertIn("  outer\n", text)
        self.assertIn("/outer ", text)  # the summary of its records
        with open(self.path("trace"), encoding="latin-1") as file:
            self.assertEqual(len(harness.parse_trace(file.read())), 30)

    def test_quiet_leaves_the_file_alone(self):
        self.assertEqual(self.table("-c", "-q"), "")
        self.assertEqual(self.table("-c", "-q", "--summary-file", self.path("table")), "")
        with open(self.path("table"), encoding="utf-8") as file:
            self.assertIn("  outer\n", file.read())
        self.assertEqual(os.stat(self.path("table")).st_mode & 0o777, 0o600)

    def test_definitions_lose_what_they_fetch(self):
        text = self.table("-c", functions=["outer n=%di", "inner%return $retval"])
        self.assertEqual(len(re.findall(r"^ +\d+ .* (?:outer|inner)$", text, re.M)), 2, text)

    def test_attached(self):
        process = subprocess.Popen([self.program, "spin", "1000000"], stdout=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        probes = ["-p", f"{self.program}:spins", "-p", f"{self.program}:outer"]
        done = harness.run([*harness.tracer("-c", "-d", "1s"), "-P", str(process.pid), *probes])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr.decode(), r"(?s)  spins\n1 function never called\n")
        self.assertIsNone(process.poll())


class Live(Summed):
    def test_top(self):
        """On a terminal: it draws, sorts by a key, ends by another one, and leaves terminal and process as they were."""
        process = subprocess.Popen([self.program, "spin", "1000000"], stdout=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        outer, inner = os.openpty()
        self.addCleanup(os.close, outer)
        before = termios.tcgetattr(inner)
        tool = subprocess.Popen([*harness.tracer("--top"), "-P", str(process.pid), "-p", f"{self.program}:spins"],
                                stdin=inner, stdout=inner, stderr=subprocess.PIPE)
        shown = self.read_until(tool, outer, b"  spins")
        self.assertIn(b"calls by total", shown)
        os.write(outer, b"x")
        self.read_until(tool, outer, b"calls by max")
        os.write(outer, b"q")
        self.read_until(tool, outer, b"\x1b[?1049l")
        stderr = tool.communicate(timeout=harness.TIMEOUT)[1]
        self.assertEqual(tool.returncode, 0, stderr)
        self.assertRegex(stderr, rb"(?s)  spins\n")
        self.assertEqual(termios.tcgetattr(inner), before)
        os.close(inner)
        self.assertIsNone(process.poll())

    def test_top_on_a_narrow_terminal(self):
        process = subprocess.Popen([self.program, "spin", "1000000"], stdout=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        outer, inner = os.openpty()
        self.addCleanup(os.close, outer)
        self.addCleanup(os.close, inner)
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 40, 0, 0))
        tool = subprocess.Popen([*harness.tracer("--top"), "-P", str(process.pid), "-p", f"{self.program}:spins"],
                                stdin=inner, stdout=inner, stderr=subprocess.PIPE)
        shown = self.read_until(tool, outer, b"  spins")
        for line in re.split(rb"\x1b\[[?\d]*[A-Za-z]|\r\n", shown):
            self.assertLessEqual(len(line), 40, shown)
        self.assertRegex(shown, rb"calls +total .* function")
        os.write(outer, b"q")
        self.read_until(tool, outer, b"\x1b[?1049l")
        tool.communicate(timeout=harness.TIMEOUT)
        self.assertEqual(tool.returncode, 0)

    def read_until(self, tool, terminal, text):
        seen = b""
        while text not in seen:
            is_over = tool.poll() is not None
            if select.select([terminal], [], [], 0.1)[0]:
                seen += os.read(terminal, 65536)
            elif is_over:
                self.fail((seen, tool.stderr.read()))
        return seen

    def spinning(self, *options, definition):
        """A traced program that goes on until it is killed, under a tool whose standard error is read."""
        process = subprocess.Popen([self.program, "spin", "1000000000"], stdout=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        tool = subprocess.Popen([*harness.tracer(*options), "-P", str(process.pid), *definition], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, start_new_session=True)
        self.addCleanup(harness.stop_group, tool)
        return process, tool

    def lines_until(self, stream, wanted, times):
        """The numbers that the pattern finds, one for each table."""
        found = []
        while len(found) < times:
            line = stream.readline().decode()
            self.assertNotEqual(line, "", found)
            match = re.search(wanted, line)
            if match:
                found.append(int((match[1] or "0").replace(",", "")))
        return found

    def end_of(self, process, tool):
        process.kill()
        tool.communicate(timeout=harness.TIMEOUT)
        self.assertEqual(tool.returncode, 0)

    def test_the_table_again_and_again(self):
        process, tool = self.spinning("-c", "--interval=50ms", definition=("-p", f"{self.program}:spins"))
        calls = self.lines_until(tool.stderr, r"^ *([\d,]+) .* spins$", 4)
        self.assertEqual(calls, sorted(calls))
        self.assertGreater(calls[-1], calls[0])
        self.end_of(process, tool)

    def test_the_table_at_a_signal(self):
        """The signal of the tool has no other effect, and does not reach the process."""
        process, tool = self.spinning("-c", "-v", definition=("-p", f"{self.program}:spins"))
        while b"attached" not in tool.stderr.readline():
            pass
        calls = []
        for _ in range(3):
            os.kill(tool.pid, signal.SIGUSR1)
            calls += self.lines_until(tool.stderr, r"^ *([\d,]+) .* spins$|^1 function never called", 1)
        self.assertEqual(calls, sorted(calls))
        self.assertIsNone(process.poll())
        self.end_of(process, tool)

    def test_the_table_of_a_running_session(self):
        """Asked for by another process; the counts go on."""
        process, tool = self.spinning("-c", "-v", definition=("-p", f"{self.program}:spins", "-p", f"{self.program}:outer"))
        while b"attached" not in tool.stderr.readline():
            pass
        asked = [harness.tool(), "--control", str(tool.pid), "--summary"]
        calls = []
        while len(calls) < 3:
            done = harness.run([*asked, "--json"])
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            rows = {row["event"]: row for row in json.loads(done.stdout)}
            self.assertEqual((set(rows), rows["outer"]["calls"]), ({"spins", "outer"}, 0))
            if rows["spins"]["returns"] != 0:
                calls.append(rows["spins"]["calls"])
        self.assertEqual(calls, sorted(calls))
        lines = harness.run(asked).stdout.decode().splitlines()
        self.assertEqual(lines[0].split()[:3], ["calls", "returns", "total"])
        self.assertGreaterEqual(int(lines[1].split()[0].replace(",", "")), calls[-1])
        self.assertEqual(lines[1].split()[-1], "spins")
        self.assertIn("1 function never called", lines)
        self.end_of(process, tool)

    def test_counts_begin_again(self):
        """--reset: in all columns. The program is stopped, so that no call is added."""
        process, tool = self.spinning("-c", "-v", definition=("-p", f"{self.program}:spins"))
        while b"attached" not in tool.stderr.readline():
            pass

        def row():
            done = harness.run([harness.tool(), "--control", str(tool.pid), "--summary", "--json"])
            return json.loads(done.stdout)[0]

        harness.wait_until(lambda: row()["returns"] > 1, "calls")
        os.kill(process.pid, signal.SIGSTOP)
        harness.wait_until(lambda: row() == row(), "the program to stop")
        self.assertEqual(harness.run([harness.tool(), "--control", str(tool.pid), "--reset"]).returncode, 0)
        now = row()
        os.kill(process.pid, signal.SIGCONT)
        self.assertEqual((now["calls"], now["returns"], now["total_ns"], now["max_ns"]), (0, 0, 0, 0))
        self.end_of(process, tool)

    def test_a_session_without_a_table(self):
        process, tool = self.spinning("-v", "-o", self.path("trace"), definition=("-p", f"{self.program}:spins"))
        while b"attached" not in tool.stderr.readline():
            pass
        done = harness.run([harness.tool(), "--control", str(tool.pid), "--summary"])
        self.assertEqual((done.returncode, done.stdout), (125, b""))
        self.assertIn(b"the session sums up no calls", done.stderr)
        self.end_of(process, tool)

    def test_histograms_again_and_again(self):
        definition = ("-p", f"p:spins {self.program}:spins n=$arg1:u64", "--disabled", "--trigger=hist:keys=common_pid")
        process, tool = self.spinning("--interval=50ms", definition=definition)
        hits = self.lines_until(tool.stdout, r"Hits: ([\d,]+)", 3)
        self.assertEqual(hits, sorted(hits))
        self.assertGreater(hits[-1], hits[0])
        self.end_of(process, tool)

    def test_no_terminal(self):
        done = harness.run([*harness.tracer("--top"), "-p", f"{self.program}:outer", "--", self.program, "nest", "1"])
        self.assertEqual((done.returncode, done.stdout), (125, b""))
        self.assertIn(b"--top: standard output is no terminal", done.stderr)


class Refusals(Summed):
    def refused(self, *options, definition="outer"):
        done = harness.run([*harness.tracer(*options), "-p", f"{self.program}:{definition}", "--", self.program, "nest", "1"])
        self.assertEqual((done.returncode, done.stdout), (125, b""))
        return done.stderr.decode().splitlines()[0]

    def test_what_does_not_go_with_it(self):
        for options, text in ((("-c", "--strict"), "--strict"), (("-c", "-n", "3"), "-n counts records"),
                              (("-c", "-o", self.path("trace")), "-o is for records"),
                              (("--summary-file", self.path("table")), "-c is missing"),
                              (("-c", "--record", self.path("trace")), "--record would be empty"), (("--json",), "all are missing"),
                              (("-c", "-D"), "needs"), (("-c", "--control=1"), "no other command goes with it"),
                              (("-C", "--control=1"), "-C sums up the calls of a program that runs"),
                              (("-c", "--control=1", "--summary-file", self.path("table")), "--summary-file is for a session")):
            self.assertIn(text, self.refused(*options))
            self.assertEqual(os.listdir(os.path.dirname(self.path("trace"))).count("trace"), 0)

    def test_no_filter_chooses(self):
        self.assertIn("no filter chooses", self.refused("-c", definition="outer if latency > 3"))

    def test_no_place_inside_of_a_function(self):
        self.assertIn("uprobe-run: ", self.refused("-c", definition="outer+4"))

    def test_a_probe_at_the_entry_has_no_own_time(self):
        self.assertIn("$self is not available on probe", self.refused(definition="outer $self"))


if __name__ == "__main__":
    harness.main()
