# SPDX-License-Identifier: MIT
"""The processes of a session in JSON lines: each one starts before its first hit and ends after its last one, live and from a
recording; what an event loses is told while it loses it; and a recording has what the processes have mapped."""
import json
import os
import re
import signal
import struct
import subprocess
import unittest

import harness

SOURCE = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) void turn(int n) { __asm__ volatile("" : : "r"(n)); }
int main(int argc, char** argv) {
  const char* what = argv[1];
  turn(0);
  if (strcmp(what, "fork") == 0) {
    for (int i = 1; i <= atoi(argv[2]); ++i) {
      if (fork() == 0) {
        turn(i);
        _exit(3);
      }
    }
    while (wait(NULL) > 0) {}
    turn(100);
    return 0;
  }
  if (strcmp(what, "exec") == 0) {
    char* words[] = {argv[0], "exit", "7", NULL};
    execv(argv[2], words);
    return 1;
  }
  if (strcmp(what, "exit") == 0) return atoi(argv[2]);
  if (strcmp(what, "abort") == 0) abort();
  if (strcmp(what, "until") == 0) while (access(argv[2], F_OK) != 0) turn(1), usleep(1000);
  if (strcmp(what, "many") == 0) for (int i = 0; i < atoi(argv[2]); ++i) turn(i);
  return 0;
}
"""


class Processes(harness.TestCase):
    def setUp(self):
        super().setUp()
        harness.tool()
        self.program = harness.compiled([harness.need("cc"), "-O1", self.write("turn.c", SOURCE)], self.path("turn"))
        self.probe = f"p:turn {self.program}:turn n=%di:s32"
        self.recording = self.path("recording")

    def lines(self, text):
        return [json.loads(line) for line in text.decode().splitlines()]

    def live(self, *words, options=(), code=0):
        seen = harness.run([*harness.tracer("-q", "-o", "-", "--format=json", *options), "-p", self.probe, "--", self.program, *words])
        self.assertEqual((seen.returncode, seen.stderr), (code, b""))
        return self.lines(seen.stdout)

    def recorded(self, *words, code=0):
        seen = harness.run([*harness.tracer("-q", f"--record={self.recording}"), "-p", self.probe, "--", self.program, *words])
        self.assertEqual((seen.returncode, seen.stderr), (code, b""))
        return self.replayed()

    def replayed(self, *options):
        seen = harness.run([harness.tool(), f"--replay={self.recording}", "--format=json", *options])
        self.assertEqual((seen.returncode, seen.stderr), (0, b""))
        return self.lines(seen.stdout)

    def check_lives(self, lines):
        """Each process is there before its first hit, and gone after its last one; returns the starts and ends by pid."""
        starts, ends = {}, {}
        for line in lines:
            pid, kind = line["pid"], line.get("type")
            if kind == "start":
                self.assertNotIn(pid, starts)
                starts[pid] = line
                continue
            self.assertIn(pid, starts, line)
            self.assertNotIn(pid, ends, line)
            self.assertGreaterEqual(line["time"], starts[pid]["time"])
            if kind == "end":
                ends[pid] = line
        for pid, end in ends.items():
            self.assertGreaterEqual(end["time"], max(line["time"] for line in lines if line["pid"] == pid))
        return starts, ends


class Lives(Processes):
    def both(self, *words, code=0):
        yield self.live(*words, code=code)
        yield self.recorded(*words, code=code)

    def test_a_program_starts_and_ends(self):
        for lines in self.both("exit", "5", code=5):
            self.assertEqual([line.get("type") for line in lines], ["start", None, "end"])
            start, hit, end = lines
            self.assertEqual((start["pid"], start["comm"]), (hit["pid"], "turn"))
            self.assertNotIn("parent", start)
            self.assertEqual({key: end[key] for key in ("pid", "comm", "exit")}, {"pid": hit["pid"], "comm": "turn", "exit": 5})
            self.assertNotIn("signal", end)
            self.check_lives(lines)

    def test_a_signal_ends_it(self):
        for lines in self.both("abort", code=-signal.SIGABRT):
            self.assertEqual((lines[-1]["type"], lines[-1]["signal"]), ("end", signal.SIGABRT))
            self.assertNotIn("exit", lines[-1])

    def test_children_have_a_parent(self):
        for lines in self.both("fork", "20"):
            starts, ends = self.check_lives(lines)
            hits = [line for line in lines if "type" not in line]
            self.assertEqual(set(starts), {hit["pid"] for hit in hits})
            self.assertEqual(set(ends), set(starts))
            self.assertEqual(len(starts), 21)
            first = hits[0]["pid"]
            self.assertLessEqual({start.get("parent", first) for start in starts.values()}, {first})
            self.assertTrue(all("exit" not in end for pid, end in ends.items() if pid != first))

    def test_a_child_that_lives_has_a_parent(self):
        end = self.path("end")
        words = ["/bin/sh", "-c", f"'{self.program}' until '{end}' & '{self.program}' exit 0; echo > '{end}'; wait"]
        seen = harness.run([*harness.tracer("-q", "-o", self.path("out"), "--format=json"), "-p", self.probe, "--", *words])
        self.assertEqual((seen.returncode, seen.stderr), (0, b""))
        with open(self.path("out"), "rb") as file:
            lines = self.lines(file.read())
        starts, ends = self.check_lives(lines)
        self.assertEqual(set(starts), set(ends))
        shell = lines[0]["pid"]
        execs = [line for line in lines if line.get("type") == "exec"]
        self.assertEqual([(line["comm"], line["exe"]) for line in execs], [("turn", self.program)] * 2)
        self.assertEqual({starts[line["pid"]].get("parent", shell) for line in execs}, {shell})

    def test_execve(self):
        other = self.path("other")
        os.link(self.program, other)
        for lines in self.both("exec", other, code=7):
            self.assertEqual([line.get("type") for line in lines if "group" not in line], ["start", "exec", "end"])
            told = next(line for line in lines if line.get("type") == "exec")
            self.assertEqual((told["comm"], told["exe"], told["pid"]), ("other", other, lines[0]["pid"]))
            self.assertEqual((lines[-1]["comm"], lines[-1]["exit"]), ("other", 7))

    def test_a_running_process(self):
        end = self.path("end")
        target = subprocess.Popen([self.program, "until", end])
        self.addCleanup(target.wait)
        self.addCleanup(self.write, "end", "")
        for stays in (True, False):
            tool = subprocess.Popen([*harness.tracer("-q", "-o", "-", "--format=json"), "-p", self.probe, "-P", str(target.pid)],
                                    stdout=subprocess.PIPE, start_new_session=True)
            self.addCleanup(harness.stop_group, tool)
            lines = [json.loads(tool.stdout.readline()) for _ in range(5)]
            self.assertEqual([line.get("type") for line in lines], ["start"] + [None] * 4)
            self.assertEqual((lines[0]["pid"], lines[0]["comm"]), (target.pid, "turn"))
            if stays:
                tool.send_signal(signal.SIGINT)
            else:
                self.write("end", "")
                target.wait()
            rest = self.lines(tool.communicate()[0])
            told = [line for line in rest if "type" in line]
            self.assertEqual([line["type"] for line in told], [] if stays else ["end"])
            self.assertTrue(stays or (rest[-1] == told[0] and "exit" not in told[0]))

    def test_no_other_format_has_them(self):
        self.recorded("fork", "3")
        for name in ("text", "csv", "chrome", "perf"):
            seen = harness.run([harness.tool(), f"--replay={self.recording}", f"--format={name}"])
            self.assertEqual((seen.returncode, seen.stderr), (0, b""))
            self.assertNotIn(b'"start"', seen.stdout)
        self.assertEqual(len(harness.parse_trace(harness.run([harness.tool(), f"--replay={self.recording}"]).stdout.decode())), 5)


class Parts(Processes):
    def test_of_a_recording(self):
        lines = self.recorded("fork", "3")
        child = next(line["pid"] for line in lines if line.get("type") == "start" and line["pid"] != lines[0]["pid"])
        self.assertEqual([line for line in lines if line["pid"] == child], self.replayed(f"--task={child}"))
        self.assertEqual(self.replayed("--task=other"), [])
        last = lines[-1]["time"]
        self.assertEqual([line["type"] for line in self.replayed(f"--from={last:.6f}") if "type" in line][-1], "end")
        self.assertEqual([line["type"] for line in self.replayed("-n", "1") if "type" in line], ["start"])


MAPPINGS = 10


def entries(data):
    """(kind, bytes) of each entry of lane 65535, as docs/recording.md describes the file."""
    at = 32
    while at < len(data):
        mark, size, _, lane, _ = struct.unpack_from("<IIQII", data, at)
        assert mark == 0x4b4c4255
        at += 24
        end = at + size
        while lane == 65535 and at < end:
            kind, length = struct.unpack_from("<II", data, at)
            yield kind, data[at + 8:at + 8 + length]
            at += 8 + length
        at = end


def take_text(data, at):
    length, = struct.unpack_from("<I", data, at)
    return data[at + 4:at + 4 + length].decode(), at + 4 + length


def mappings(data):
    """(pid, nanoseconds, whether they are all, [(begin, end, offset, path, build id)])"""
    for kind, entry in entries(data):
        if kind != MAPPINGS:
            continue
        ns, pid, flags = struct.unpack_from("<QII", entry)
        at, files = 16, []
        while at < len(entry):
            place = struct.unpack_from("<QQQ", entry, at)
            path, at = take_text(entry, at + 24)
            build_id, at = take_text(entry, at)
            files.append((*place, path, build_id))
        yield pid, ns, flags == 1, files


class Mappings(Processes):
    """Another tool's reader finds the file and the place in it of each address."""
    def record(self, *words, options=()):
        seen = harness.run([*harness.tracer("-q", f"--record={self.recording}", *options), "-p", self.probe, "--", *words])
        self.assertEqual((seen.returncode, seen.stderr), (0, b""))
        with open(self.recording, "rb") as file:
            return list(mappings(file.read()))

    def build_id(self, path):
        text = subprocess.check_output([harness.need("readelf"), "-n", path], text=True, stderr=subprocess.DEVNULL)
        return re.search(r"Build ID: ([0-9a-f]+)", text)[1]

    def test_the_addresses_of_hits(self):
        told = self.record(self.program, "fork", "5")
        hits = [line for line in self.replayed() if "type" not in line]
        symbols = subprocess.check_output([harness.need("nm"), self.program], text=True)
        turn = int(re.search(r"^([0-9a-f]+) T turn$", symbols, re.M)[1], 16)
        self.assertEqual(len(hits), 7)
        first = hits[0]["pid"]
        for hit in hits:
            address, time = int(hit["address"], 16), round(hit["time"] * 1e9)
            pid = hit["pid"] if any(one[0] == hit["pid"] for one in told) else first  # a child that was gone when it was first seen
            found = [one for process, ns, _, files in told if process == pid and (ns < time or pid != first) for one in files
                     if one[0] <= address < one[1]]
            begin, _, offset, path, build_id = found[-1]
            self.assertEqual((address - begin + offset, path, build_id), (turn, self.program, self.build_id(self.program)))
        self.assertIn("libc.so.6", "".join(one[3] for _, _, _, files in told for one in files))

    def test_each_is_told_when_it_comes(self):
        """A library that is loaded later, and all again for another program."""
        library = self.path("late.so")
        harness.compiled([harness.need("cc"), "-shared", "-fPIC", "-Wl,--build-id", "-xc", self.write("late.c", "int late;int f(){return late;}")], library)
        loads = harness.compiled([harness.need("cc"), "-O1", self.write("loads.c", """
          #include <dlfcn.h>
          #include <unistd.h>
          int main(int argc, char** argv) {
            if (dlopen(argv[1], RTLD_NOW) == NULL) return 1;
            execl(argv[2], argv[2], "exit", "0", NULL);
            return 1;
          }"""), "-ldl"], self.path("loads"))
        told = self.record(loads, library, self.program)
        self.assertEqual(len({pid for pid, *_ in told}), 1)
        times = [ns for _, ns, _, _ in told]
        self.assertEqual(times, sorted(times))
        late = [(is_all, [one[4] for one in files if one[3] == library]) for _, _, is_all, files in told
                if any(one[3] == library for one in files)]
        self.assertEqual(late, [(False, [self.build_id(library)])])
        # From the last entry with all on, the address space is that of the other program.
        last = max(i for i, (_, _, is_all, _) in enumerate(told) if is_all)
        after = [one[3] for _, _, _, files in told[last:] for one in files]
        self.assertIn(self.program, after)
        self.assertNotIn(library, after)
        self.assertNotIn(loads, after)


class Losses(Processes):
    def test_are_told_once_at_the_end_and_before_that_as_they_grow(self):
        """Those of a second or more of losses: what is told grows, and never passes the sum at the end."""
        end = self.path("end")
        tool = subprocess.Popen([*harness.tracer("-q", "-o", "-", "--format=json", "-b", "8K"), "-p", self.probe, "--", "/bin/sh", "-c",
                                 f"while [ ! -e '{end}' ]; do '{self.program}' many 300000; done"],
                                stdout=subprocess.PIPE, start_new_session=True)
        self.addCleanup(harness.stop_group, tool)
        losses = []
        for line in tool.stdout:
            if line.startswith(b'{"type":"lost"'):
                losses.append(json.loads(line))
                if len(losses) == 2:
                    self.write("end", "")
        self.assertEqual(tool.wait(harness.TIMEOUT), 0)
        *growing, last = losses
        self.assertEqual(last, {"type": "lost", "name": "uprobes/turn", "hits": last["hits"], "returns": 0})
        counts = [one["hits_so_far"] for one in growing] + [last["hits"]]
        self.assertEqual(counts, sorted(counts))
        self.assertGreaterEqual(len(growing), 2)
        self.assertTrue(all(one["name"] == "uprobes/turn" for one in growing))


if __name__ == "__main__":
    harness.main()
