# SPDX-License-Identifier: MIT
"""The formats for other tools, each read by such a tool: the same hits with the same values as in the text."""
import csv
import json
import os
import re
import signal
import subprocess

import harness

SOURCE = r"""
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#define KEPT __attribute__((noinline, used))
KEPT long say(const char *text, long k, unsigned long big, double d) {
  asm volatile("" :: "r"(text), "r"(k), "r"(big), "x"(d) : "memory");
  return k;
}
KEPT void other(int *list) { asm volatile("" :: "r"(list) : "memory"); }
void *thread(void *none) { say("thread", 9, 1, 1); return none; }
int main(int argc, char **argv) {
  int list[3] = {1, -2, 3};
  for (int i = 1; i < argc; ++i) say(argv[i], -i, 0xffffffffffffffffUL - i, 0.5 * i);
  say((const char *)8, 0, 1UL << 53, 1e300);
  other(list);
  pthread_t one;
  pthread_create(&one, 0, thread, 0);
  pthread_join(one, 0);
  if (fork() == 0) {
    say("child", 4, 1, 0);
    _exit(0);
  }
  wait(0);
}
"""
STRINGS = ["plain", "a,b \"c\"\\", "x\ny\x1b[31m", b"\xff\xc3\xa9\\x41", "\u2028\u00e9\U0001f600"]
SAYS = 'p:say {0}:say text=+0(%di):string k=%si:s64 big=%dx:u64 h=%si first=+0(%di):x8[3]'
OTHERS = "p:other {0}:other list=+0(%di):s32[3] c=+0(%di):char"
RETURNS = "r:back {0}:say ret=$retval:s64"


class Formats(harness.TestCase):
    def setUp(self):
        super().setUp()
        harness.tool()
        self.program = harness.compiled([harness.need("cc"), "-O1", "-g", self.write("say.c", SOURCE), "-lpthread"], self.path("say"))
        self.definitions = [text.format(self.program) for text in (SAYS, OTHERS, RETURNS)]

    def trace(self, *options):
        """The bytes of a trace."""
        words = harness.tracer("-q", "-o", self.path("trace"), *options)
        for definition in self.definitions:
            words += ["-p", definition]
        seen = harness.run([*words, "--", self.program, *STRINGS])
        self.assertEqual((seen.returncode, seen.stderr), (0, b""))
        with open(self.path("trace"), "rb") as file:
            return file.read()

    def text(self, *options):
        return harness.parse_trace(self.trace(*options).decode())

    def values_of_text(self, hit):
        """(event, {name: text of the value})"""
        return hit.event, dict(re.findall(r' (\w+)=("(?:.*)"(?= k=)|\{[^}]*\}|\S+)', " " + hit.arguments))

    def json(self, *options):
        """The hits."""
        return harness.json_hits(self.trace("--format=json", *options).decode())


class Json(Formats):
    def test_hit_for_hit_the_text(self):
        text, objects = self.text(), self.json()
        self.assertEqual([one["event"] for one in objects], [hit.event for hit in text])
        for hit, one in zip(text, objects):
            event, values = self.values_of_text(hit)
            self.assertEqual(list(one["args"]), list(values), event)
            for name, value in values.items():
                self.check_value(value, one["args"][name])

    def check_value(self, text, value):
        if text == "(fault)":
            self.assertIsNone(value)
        elif text.startswith("{"):
            self.assertEqual([int(one, 0) for one in text[1:-1].split(",")], value)
        elif text.startswith(("'", '"')):
            self.assertIsInstance(value, str)
        else:
            unsigned = int(value) % 2 ** 64 if text.startswith("0x") else int(value)
            self.assertEqual(int(text, 0), unsigned)
            self.assertEqual(isinstance(value, str), abs(int(value)) > 2 ** 53)

    def test_strings_are_those_of_the_program(self):
        said = [one for one in self.json() if one["event"] == "say"]
        for given, one in zip(STRINGS, said):
            text = one["args"]["text"]
            if "escaped" in one:
                self.assertEqual(one["escaped"], ["text"])
                text = re.sub(rb"\\(?:\\|x([0-9a-f]{2}))", lambda m: bytes.fromhex(m[1].decode()) if m[1] else b"\\", text.encode())
            self.assertEqual(text, given)

    def test_no_byte_forges_a_line(self):
        trace = self.trace("--format=json")
        self.assertNotRegex(trace, rb"[\x00-\x09\x0b-\x1f\x7f]")
        self.assertEqual(len(trace.decode().splitlines()), trace.count(b"\n"))

    def test_threads_and_processes(self):
        objects = self.json("--until=last")
        main, thread, child = objects[0], *(one for one in objects if one["args"].get("text") in ("thread", "child"))
        self.assertEqual(main["pid"], main["tid"])
        self.assertEqual(thread["pid"], main["pid"])
        self.assertNotEqual(thread["tid"], main["tid"])
        self.assertEqual(child["pid"], child["tid"])
        self.assertNotEqual(child["pid"], main["pid"])
        times = [one["time"] for one in objects]
        self.assertEqual(times, sorted(times))

    def test_stacks_and_cut_strings(self):
        objects = self.json("-s", "3")
        self.assertEqual((objects[0]["args"]["text"], objects[0]["cut"]), ("pla", ["text"]))
        self.definitions = [self.definitions[0]]
        words = harness.tracer("-q", "-o", "-", "--format=json", "-p", self.definitions[0], "--trigger=stacktrace", "--", self.program, "x")
        frames = harness.json_hits(harness.run(words).stdout.decode())[0]["stack"]
        self.assertRegex(frames[0], r"^say\+0x0/0x")
        self.assertRegex(frames[1], r"^main\+0x")

    def test_the_schema(self):
        try:
            import jsonschema  # pylint: disable=import-outside-toplevel
        except ImportError:
            self.skipTest("jsonschema is not installed")
        with open(os.path.join(harness.Options.source, "docs/output.schema.json"), encoding="utf-8") as file:
            schema = json.load(file)
        lines = [json.loads(line) for line in self.trace("--format=json").decode().splitlines()]
        self.assertEqual({line.get("type") for line in lines}, {"start", None, "end"})
        lines += [{"type": "lost", "name": "uprobes/f", "hits": 1, "returns": 0},
                  {"type": "lost", "time": 1.5, "name": "uprobes/f", "hits_so_far": 1, "returns_so_far": 0},
                  {"type": "exec", "time": 1.5, "pid": 2, "comm": "ls", "exe": "/bin/ls"}]
        for line in lines:
            jsonschema.validate(line, schema)
        for bad in ({**self.json()[0], "cpu": "x"}, {**lines[-1], "exit": 1}, {"type": "lost", "name": "f", "hits_so_far": 1}):
            with self.assertRaises(jsonschema.ValidationError):
                jsonschema.validate(bad, schema)

    def test_jq_reads_it(self):
        self.trace("--format=json")
        jq = harness.need("jq")
        names = subprocess.check_output([jq, "-r", 'select(.event == "say") | .args.text', self.path("trace")], text=True)
        self.assertEqual(names.split("\n")[:1], ["plain"])
        count = subprocess.check_output([jq, "-s", "map(select(.type == null)) | length", self.path("trace")], text=True)
        self.assertEqual(int(count), len(self.text()))


class Csv(Formats):
    def test_hit_for_hit_the_text(self):
        text = self.text()
        rows = list(csv.DictReader(self.trace("--format=csv").decode().splitlines(keepends=True)))
        self.assertEqual([row["event"] for row in rows], [hit.event for hit in text])
        self.assertEqual(list(rows[0]), "time,cpu,pid,tid,comm,event,text,k,big,h,first,list,c,ret".split(","))
        for hit, row in zip(text, rows):
            event, values = self.values_of_text(hit)
            for name in list(row)[6:]:
                shown = values.get(name, "")
                self.assertEqual(row[name], shown[1:-1] if shown[:1] in ("'", '"') else shown, event)

    def test_one_line_a_hit(self):
        trace = self.trace("--format=csv", "--no-header")
        self.assertEqual(len(trace.decode().splitlines()), len(self.text()))
        self.assertNotRegex(trace, rb"[\x00-\x09\x0b-\x1f\x7f]")
        raw = self.trace("--format=csv", "--raw-strings").decode("latin-1")
        self.assertIn("x\ny\x1b[31m", [row["text"] for row in csv.DictReader(raw.splitlines(keepends=True))])

    def test_events_that_are_added_later_have_the_same_columns(self):
        loop = self.write("loop.c", "#include <unistd.h>\n__attribute__((noinline)) void turn(long k) { asm volatile(\"\" :: \"r\"(k)); }\n"
                          "int main(int c, char **v) { while (access(v[1], 0)) { turn(3); usleep(1000); } }\n")
        program = harness.compiled([harness.need("cc"), "-O1", loop], self.path("loop"))
        words = harness.tracer("--format=csv", "-o", self.path("trace"), "--session=columns", "-p", f"p:a {program}:turn k=%di")
        process = subprocess.Popen([*words, "--", program, self.path("end")], stderr=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(harness.stop_group, process)
        harness.wait_until(lambda: os.path.exists(self.path("trace")) and os.path.getsize(self.path("trace")) > 60, "a hit")
        control = [harness.tool(), f"--control={process.pid}"]
        seen = harness.run([*control, "-p", f"p:b {program}:turn other=%di"])
        self.assertEqual(seen.returncode, 125)
        self.assertIn(b"fixed set of columns, and none is named 'other'", seen.stderr)
        self.assertEqual(harness.run([*control, "-p", f"p:b {program}:turn k=%di"]).returncode, 0)
        size = os.path.getsize(self.path("trace"))
        harness.wait_until(lambda: os.path.getsize(self.path("trace")) > size + 200, "hits of both")
        self.write("end", "")
        process.wait(harness.TIMEOUT)
        with open(self.path("trace"), encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual({row["event"] for row in rows}, {"a", "b"})
        self.assertEqual({row["k"] for row in rows}, {"0x3"})


class Shapes(harness.TestCase):
    """Calls within calls: each level of a recursion has a slice within its caller's, and a stack that is one frame deeper."""
    SOURCE = r"""
#include <setjmp.h>
#include <unistd.h>
#define KEPT __attribute__((noinline, used))
static jmp_buf back;
KEPT int down(int n) {
  if (n == 0) longjmp(back, 1);
  int got = n == 1 ? 100 : down(n - 1);
  asm volatile("" : "+r"(got));
  return got + 1;
}
KEPT int leave(int n) { int got = down(n); asm volatile("" : "+r"(got)); return got; }
KEPT int top(void) {
  int got = down(3);
  if (setjmp(back) == 0) leave(0);
  asm volatile("" : "+r"(got));
  return got;
}
int main(void) { return top() != 103; }
"""

    def run_format(self, name, *options):
        program = harness.compiled([harness.need("cc"), "-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls",
                                    self.write("calls.c", self.SOURCE)], self.path("calls"))
        seen = harness.run([*harness.tracer("-q", "-o", self.path("out"), f"--format={name}"), *(word.format(program) for word in options),
                            "--", program])
        self.assertEqual((seen.returncode, seen.stderr), (0, b""))
        with open(self.path("out"), encoding="utf-8") as file:
            return file.read()

    def test_chrome_has_a_slice_for_each_call(self):
        words = [word for name in ("down", "leave", "top") for word in ("-p", f"p:{name} {{0}}:{name} n=%di:s32", "-p",
                                                                       f"r:{name}_back {{0}}:{name} n=$retval:s32")]
        objects = json.loads(self.run_format("chrome", *words))
        slices = [one for one in objects if one["ph"] == "X"]
        self.assertEqual(sorted((one["name"], one["args"]["return"]["n"]) for one in slices),
                         [("down", 101), ("down", 102), ("down", 103), ("top", 103)])
        by_size = sorted(slices, key=lambda one: -one["dur"])
        for outer, inner in zip(by_size, by_size[1:]):
            self.assertLessEqual(outer["ts"], inner["ts"])
            self.assertGreaterEqual(outer["ts"] + outer["dur"] + 0.001, inner["ts"] + inner["dur"])
        self.assertEqual([one["args"]["n"] for one in by_size[1:]], [3, 2, 1])
        self.assertEqual(sorted(one["name"] for one in objects if one["ph"] == "i"), ["down", "leave"], "left by longjmp")
        self.assertEqual({one["args"]["name"] for one in objects if one["ph"] == "M"}, {"calls"})
        self.assertEqual(len({(one["pid"], one["tid"]) for one in objects}), 1)

    def test_folded_stacks_count_all_that_waited_for_room(self):
        """The records of a python3 that starts are many times what the rings hold, and its libc has no frame pointers."""
        python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else harness.need("python3")
        seen = harness.run([*harness.tracer("-k", "--format=folded", "--overflow=wait:60s", "-b", "64K", "-o", self.path("stacks")),
                            "-p", "libc:malloc", "--", python, "-S", "-E", "-c", "pass"])
        self.assertEqual((seen.returncode, seen.stdout), (0, b""), seen.stderr)
        with open(self.path("stacks"), encoding="utf-8") as file:
            lines = [line.rsplit(" ", 1) for line in file.read().splitlines()]
        hits = int(re.search(rb"libc.*?: ([\d,]+) hits", seen.stderr)[1].replace(b",", b""))
        self.assertEqual(sum(int(count) for _, count in lines), hits, seen.stderr)
        self.assertNotIn(b"lost", seen.stderr)
        self.assertGreater(sum(int(count) for stack, count in lines if "main" in stack), hits // 2)

    def test_folded_counts_stacks(self):
        lines = self.run_format("folded", "-p", "p:down {0}:down", "--trigger=stacktrace").splitlines()
        counts = dict(line.rsplit(" ", 1) for line in lines)
        ends = {stack[stack.rindex(";main;") + 1:]: count for stack, count in counts.items()}
        self.assertEqual(ends, {"main;top;down": "1", "main;top;down;down": "1", "main;top;down;down;down": "1", "main;top;leave;down": "1"})
        self.assertEqual({stack.split(";")[0] for stack in counts}, {"calls"})
        self.assertEqual(self.run_format("folded", "-p", "p:down {0}:down"), "calls;down 4\n")

    def test_perf_has_events_and_frames(self):
        """Read as stackcollapse-perf.pl does: a head, frames from the innermost on, an empty line."""
        text = self.run_format("perf", "-p", "p:down {0}:down n=%di:s32", "--trigger=stacktrace")
        samples = text.split("\n\n")[:-1]
        self.assertEqual(len(samples), 4)
        for sample, n in zip(samples, (3, 2, 1, 0)):
            head, *frames = sample.split("\n")
            match = re.fullmatch(r"(\S.+?)\s+(\d+)/(\d+) \[\d{3}\] (\d+\.\d{9}): uprobes:down: \(([0-9a-f]+)\) n=(\d)", head)
            self.assertEqual((match[1], match[2], int(match[6])), ("calls", match[3], n), head)
            names = [re.fullmatch(r"\s*([0-9a-f]+) (.+) \((.*)\)", frame) for frame in frames]
            self.assertEqual((names[0][1], names[0][2], names[0][3]), (match[5], "down+0x0", self.path("calls")))
            self.assertEqual([name[2].split("+")[0] for name in names][-1], "_start")
        plain = self.run_format("perf", "-r", "{0}:top")
        self.assertRegex(plain, r"^calls \d+/\d+ \[\d+\] [\d.]+: uprobes:top: \([0-9a-f]+ <- [0-9a-f]+\)\n$")


class Words(harness.TestCase):
    def test_an_unknown_format_is_answered_by_the_list(self):
        seen = harness.run([harness.tool(), "--format=xml", "-p", "malloc", "true"])
        self.assertEqual(seen.returncode, 125)
        self.assertRegex(seen.stderr, rb"^uprobe-run: --format: 'xml' is not one of text, graph, json, csv, chrome, folded, perf, pprof, flamegraph, html")


class Recordings(Formats):
    """All formats from one run: the recording's hits are the same for each of them."""
    def setUp(self):
        super().setUp()
        self.recording = self.path("recording")

    def record(self, *options, expected=0):
        words = harness.tracer("-q", f"--record={self.recording}", *options)
        for definition in self.definitions:
            words += ["-p", definition]
        seen = harness.run([*words, "--", self.program, *STRINGS])
        self.assertEqual((seen.returncode, seen.stderr), (expected, b""))

    def replay(self, *options, expected=0):
        seen = harness.run([harness.tool(), f"--replay={self.recording}", *options])
        self.assertEqual(seen.returncode, expected, seen.stderr)
        self.error = seen.stderr.decode()
        return seen.stdout.decode()

    def test_the_formats_agree(self):
        self.record()
        self.assertEqual(os.stat(self.recording).st_mode & 0o777, 0o600)
        text = harness.parse_trace(self.replay())
        self.assertGreater(len(text), 10)
        objects = harness.json_hits(self.replay("--format=json"))
        rows = list(csv.DictReader(self.replay("--format=csv").splitlines(keepends=True)))
        self.assertEqual(len(text), len(objects))
        for hit, one, row in zip(text, objects, rows, strict=True):
            self.assertEqual((hit.task, hit.tid, hit.cpu, hit.event), (one["comm"], one["tid"], one["cpu"], one["event"]))
            self.assertEqual((hit.task, hit.tid, hit.cpu, hit.event), (row["comm"], int(row["tid"]), int(row["cpu"]), row["event"]))
            self.assertAlmostEqual(hit.time, one["time"], delta=0.6e-6)
            self.assertEqual(one["time"], float(row["time"]))
            self.assertEqual(one["pid"], int(row["pid"]))
            if hit.event == "back":
                self.assertIn(f"({one['return_address']} <- {one['address']})", hit.rest)
            else:
                self.assertIn(f"({one['address']})", hit.rest)

    def test_a_replay_is_the_trace(self):
        """The same definitions print the same columns; addresses and values are compared with the program's own."""
        self.record("--style=short", "-s", "3")
        self.assertRegex(self.replay().splitlines()[0], r'^ +say-\d+ +\[\d+\] +\d+\.\d{6}: say: \(0x[0-9a-f]+\) text="pla"\.\.\. k=-1 ')

    def test_stacks_and_names_need_no_files_later(self):
        self.definitions = [self.definitions[0] + " from=+0(%sp):symbol"]
        words = harness.tracer("-q", f"--record={self.recording}", "-p", self.definitions[0], "--trigger=stacktrace", "--", self.program, "x")
        self.assertEqual(harness.run(words).returncode, 0)
        os.unlink(self.program)
        lines = self.replay().splitlines()
        self.assertRegex(lines[0], r"from=main\+0x")
        self.assertRegex("\n".join(lines[1:4]), r"<user stack trace>\n => say\+0x0/0x[0-9a-f]+\n => main\+0x")

    def test_parts(self):
        self.record()
        text = harness.parse_trace(self.replay())
        self.assertEqual([hit.event for hit in harness.parse_trace(self.replay("--events=ot*"))], ["other"])
        negative = harness.parse_trace(self.replay("--events=say", "--filter=k < 0"))
        self.assertEqual(len(negative), len(STRINGS))
        middle = text[len(text) // 2].time
        early, late = (harness.parse_trace(self.replay(option)) for option in (f"--to={middle:.6f}", f"--from={middle:.6f}"))
        self.assertEqual([hit for hit in text if hit.time <= middle], early)
        self.assertEqual([hit for hit in text if hit.time >= middle], late)
        child = next(hit for hit in text if '"child"' in hit.rest).tid
        self.assertEqual([hit for hit in text if hit.tid == child], harness.parse_trace(self.replay(f"--task={child}")))
        self.assertEqual(len(harness.parse_trace(self.replay("-n", "3"))), 3)

    def test_a_killed_tool_leaves_what_it_had_written(self):
        source = self.write("loop.c", "#include <unistd.h>\n__attribute__((noinline)) void turn(long k) { asm volatile(\"\" :: \"r\"(k)); }\n"
                            "int main(int c, char **v) { for (long i = 0; access(v[1], 0); ++i) turn(i); }\n")
        program = harness.compiled([harness.need("cc"), "-O1", source], self.path("loop"))
        words = harness.tracer(f"--record={self.recording}", "-p", f"p:turn {program}:turn k=%di:u64", "--", program, self.path("end"))
        process = subprocess.Popen(words, stderr=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(harness.stop_group, process)
        harness.wait_until(lambda: os.path.exists(self.recording) and os.path.getsize(self.recording) > 1 << 20, "a megabyte")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        self.write("end", "")
        numbers = [hit["args"]["k"] for hit in harness.json_hits(self.replay("--format=json", expected=1))]
        self.assertEqual(numbers, list(range(len(numbers))))
        self.assertGreater(len(numbers), 1000)
        self.assertRegex(self.error, "^uprobe-run: .*: the recording (breaks off at byte|has no end)")
        self.assertEqual(self.error.count("\n"), 1)

    def test_a_full_disk_ends_the_recording_and_not_the_program(self):
        words = harness.tracer("--record=/dev/full", "-p", self.definitions[0], "--", self.program, "x")
        seen = harness.run(words)
        self.assertEqual(seen.returncode, 0)
        self.assertEqual(len(re.findall(rb"No space left on device; the trace ends here, the program goes on", seen.stderr)), 1)

    def test_files_that_are_no_recordings(self):
        for contents in ("", "text\n", "UPREC\r\n\0"):
            self.recording = self.write("other", contents)
            self.assertEqual(self.replay(expected=1), "")
            self.assertRegex(self.error, "^uprobe-run: .*other: is not a recording of uprobe-run\n$")

    def test_words_that_do_not_go_together(self):
        for words, answer in ((["--replay=f", "true"], "a recording is printed: no program, process or probe goes with it"),
                              (["--replay=f", "--record=g"], "a recording is printed, and --record makes one"),
                              (["--events=e", "-p", "malloc", "true"], "--events, --task, --from and --to choose from a recording"),
                              (["--record=f", "-o", "g", "-p", "malloc", "true"], "the recording takes the place of the trace"),
                              (["--record=f", "--format=json", "-p", "malloc", "true"], "can be printed in any format later"),
                              (["--limit=1M", "-p", "malloc", "true"], "--limit: it is for a recording"),
                              (["--replay=f", "--from=x"], "'x' is not a time of the trace")):
            seen = harness.run([harness.tool(), *words])
            self.assertEqual(seen.returncode, 125, words)
            self.assertIn(answer, seen.stderr.decode())


if __name__ == "__main__":
    harness.main()
