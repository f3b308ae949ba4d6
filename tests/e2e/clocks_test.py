# SPDX-License-Identifier: MIT
"""--clock: the times of hits between two readings of that clock by the program itself, and by the kernel's trace."""
import json
import os
import re

import harness

SOURCE = r"""
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#define KEPT __attribute__((noinline, used))
static unsigned long now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000UL + t.tv_nsec;
}
KEPT void mark(unsigned long mono, unsigned long mono_raw, unsigned long boot, unsigned long tai, unsigned long wall) {
  asm volatile("" :: "r"(mono), "r"(mono_raw), "r"(boot), "r"(tai), "r"(wall) : "memory");
}
int main(int argc, char **argv) {
  int marker = argc > 1 ? open(argv[1], O_WRONLY) : -1;
  for (int i = 0; i < 20; ++i) {
    mark(now(CLOCK_MONOTONIC), now(CLOCK_MONOTONIC_RAW), now(CLOCK_BOOTTIME), now(CLOCK_TAI), now(CLOCK_REALTIME));
    if (marker >= 0 && write(marker, "between", 7) < 0) perror("write");
    usleep(5000);
  }
}
"""
CLOCKS = ["mono", "mono_raw", "boot", "tai", "wall"]
PROBE = "p:mark {0}:mark " + " ".join(f"{clock}={register}:u64" for clock, register in zip(CLOCKS, ("%di", "%si", "%dx", "%cx", "%r8")))
# Far more than the readings differ by, and far less than two clocks do that are not the same.
EXACT = 200_000


class Marks(harness.TestCase):
    def setUp(self):
        super().setUp()
        harness.tool()
        self.program = harness.compiled([harness.need("cc"), "-O1", self.write("marks.c", SOURCE)], self.path("marks"))
        self.probe = PROBE.format(self.program)

    def run_tool(self, *words):
        seen = harness.run([harness.tool(), "-q", *words])
        self.assertEqual((seen.returncode, seen.stderr), (0, b""))
        return seen.stdout.decode()


class Clocks(Marks):
    def check_hits(self, text, clock):
        """Each time is after the program's reading before it, and before the next one."""
        hits = harness.json_hits(text)
        self.assertEqual(len(hits), 20)
        times = [int(hit["time"]) if clock == "wall" else round(hit["time"] * 1e9) for hit in hits]
        start = json.loads(text.splitlines()[0])
        self.assertEqual(start["type"], "start")
        self.assertLess(int(start["time"]) if clock == "wall" else round(start["time"] * 1e9), times[0], clock)
        self.assertIsInstance(hits[0]["time"], str if clock == "wall" else float)
        readings = [int(hit["args"][clock]) for hit in hits]
        self.assertEqual(times, sorted(times))
        for time, before, after in zip(times, readings, [*readings[1:], readings[-1] + 10 ** 9]):
            self.assertGreater(time, before - EXACT, clock)
            self.assertLess(time, after + EXACT, clock)

    def test_live(self):
        for clock in CLOCKS:
            self.check_hits(self.run_tool("--format=json", "-o", "-", f"--clock={clock}", "-p", self.probe, "--", self.program), clock)

    def test_a_recording_has_all_of_them(self):
        recording = self.path("recording")
        self.run_tool(f"--record={recording}", "-p", self.probe, "--", self.program)
        for clock in CLOCKS:
            text = self.run_tool(f"--replay={recording}", "--format=json", f"--clock={clock}")
            self.check_hits(text, clock)
            first = harness.parse_trace(self.run_tool(f"--replay={recording}", f"--clock={clock}"))[0]
            time = harness.json_hits(text)[0]["time"]
            self.assertAlmostEqual(first.time, int(time) / 1e9 if clock == "wall" else time, delta=2e-6)
            parts = self.run_tool(f"--replay={recording}", f"--clock={clock}", f"--to={first.time:.6f}")
            self.assertEqual(len(harness.parse_trace(parts)), 1, clock)

    def test_the_kernels_clock(self):
        """Marks that the program writes into the kernel's trace stand between its hits."""
        instance = f"/sys/kernel/tracing/instances/uprobe_clocks_{os.getpid()}"
        try:
            os.mkdir(instance)
        except OSError:
            self.skipTest(f"{os.path.dirname(instance)} is not writable")
        self.addCleanup(os.rmdir, instance)
        for clock in ("global", "mono", "mono_raw", "boot"):
            with open(f"{instance}/trace_clock", "w", encoding="ascii") as file:
                file.write(clock)
            text = self.run_tool("-o", "-", f"--clock={clock}", "-p", self.probe, "--", self.program, f"{instance}/trace_marker")
            hits = [hit.time for hit in harness.parse_trace(text)]
            with open(f"{instance}/trace", encoding="utf-8") as file:
                marks = [float(time) for time in re.findall(r" (\d+\.\d{6}): tracing_mark_write: between", file.read())]
            with open(f"{instance}/trace", "w", encoding="ascii"):
                pass
            self.assertEqual(len(marks), len(hits), clock)
            for hit, mark, after in zip(hits, marks, [*hits[1:], hits[-1] + 1]):
                self.assertGreater(mark, hit - EXACT / 1e9, clock)
                self.assertLess(mark, after + EXACT / 1e9, clock)

    def test_unknown_clocks_and_recordings(self):
        for words, answer in ((["--clock=utc", "-p", "libc:close"], b"mono, mono_raw, boot, tai, global, wall"),
                              (["--clock=wall", f"--record={self.path('r')}", "-p", "libc:close"], b"--replay=FILE --clock=wall")):
            seen = harness.run([harness.tool(), *words, "--", "true"])
            self.assertEqual(seen.returncode, 125)
            self.assertIn(answer, seen.stderr)


class Merge(Marks):
    """Events of a trace.dat between the hits of a recording. The file is one that the tool has made of a part of the same hits."""
    def setUp(self):
        super().setUp()
        harness.need("trace-cmd")
        self.recording, self.kernels = self.path("recording"), self.path("kernels.dat")
        again = self.probe.replace("p:mark ", "p:kernels/again ").split(" mono=", 1)[0]
        self.run_tool(f"--record={self.recording}", "-p", self.probe, "-p", again, "--", self.program)

    def make(self, clock):
        os.path.exists(self.kernels) and os.unlink(self.kernels)
        self.run_tool(f"--replay={self.recording}", "--events=again", "--format=trace.dat", f"--clock={clock}", "-o", self.kernels)

    def events(self, *options):
        text = self.run_tool(f"--replay={self.recording}", "--events=mark", f"--merge={self.kernels}", *options)
        return re.findall(r"^(?!#).*\] *(?:\.{5} )?[ ]*[\d.]+: (mark|again):", text, re.M)

    def test_events_are_sorted_between_the_hits(self):
        for clock in ("mono", "global", "boot", "wall"):
            self.make(clock)
            seen = self.events()
            self.assertEqual((seen.count("mark"), seen.count("again")), (20, 20), clock)
            whole = [hit.event for hit in harness.parse_trace(self.run_tool(f"--replay={self.recording}"))]
            # Both probes are of one hit, at one time, and have no order.
            pairs = lambda events: [sorted(events[i:i + 2]) for i in range(0, len(events), 2)]  # pylint: disable=unnecessary-lambda-assignment
            self.assertEqual(pairs(seen), pairs(whole), clock)

    def test_into_a_trace_dat(self):
        """One file, which trace-cmd prints in order of time: the same events, tasks, processors and values as of both apart."""
        report = lambda path: harness.run([harness.need("trace-cmd"), "report", "-t", "-N", "-i", path]).stdout.decode()
        line = re.compile(r"^ *(\S+)-(\d+) +\[(\d+)\] +(\d+\.\d{9}): (mark|again): +(.*)$", re.M)
        for clock in ("mono", "global"):
            self.make(clock)
            merged, ours = self.path(f"merged.{clock}"), self.path(f"ours.{clock}")
            common = (f"--replay={self.recording}", "--events=mark", f"--clock={clock}", "--format=trace.dat", "-o")
            self.run_tool(*common, ours)
            self.run_tool(*common, merged, f"--merge={self.kernels}")
            seen = line.findall(report(merged))
            self.assertEqual(len(seen), 40)
            self.assertEqual([hit[3] for hit in seen], sorted(hit[3] for hit in seen))
            self.assertEqual(sorted(seen), sorted(line.findall(report(ours)) + line.findall(report(self.kernels))))

    def test_parts(self):
        self.make("mono")
        tenth = [hit for hit in harness.parse_trace(self.run_tool(f"--replay={self.recording}", "--events=mark"))][9]
        seen = self.events(f"--from={tenth.time:.6f}")
        self.assertEqual(seen.count("mark"), 11)
        self.assertIn(seen.count("again"), (10, 11))  # that of the same hit may be just before it
        self.assertEqual(self.events("-n", "3").count("mark"), 3)
        self.assertLessEqual(self.events("-n", "3").count("again"), 4)

    def test_what_is_refused(self):
        self.make("boot")
        nothing = self.write("nothing", "no trace")
        for options, answer in ((["--clock=mono"], "--clock=boot"), (["--format=json"], "text and trace.dat alone")):
            seen = harness.run([harness.tool(), f"--replay={self.recording}", f"--merge={self.kernels}", *options])
            self.assertEqual((seen.returncode, seen.stdout), (125, b""))
            self.assertIn(answer, seen.stderr.decode())
        for path, answer in ((nothing, "trace-cmd cannot read it"), (self.path("none"), "/none: No such file or directory")):
            seen = harness.run([harness.tool(), f"--replay={self.recording}", f"--merge={path}"])
            self.assertNotEqual(seen.returncode, 0)
            self.assertIn(answer, seen.stderr.decode())
        seen = harness.run([harness.tool(), f"--merge={self.kernels}", "-p", "libc:close", "--", "true"])
        self.assertEqual(seen.returncode, 125)
        self.assertIn("--replay=FILE --merge=", seen.stderr.decode())

    def test_names_of_the_file_cannot_write_to_the_terminal(self):
        self.make("mono")
        with open(self.kernels, "rb") as file:
            content = file.read()
        with open(self.kernels, "wb") as file:
            file.write(content.replace(b" marks\n", b" m\x1b[1m\n"))
        text = self.run_tool(f"--replay={self.recording}", "--events=mark", f"--merge={self.kernels}")
        self.assertIn("m\\x1b[1m-", text)
        self.assertNotIn("\x1b", text)


if __name__ == "__main__":
    harness.main()
