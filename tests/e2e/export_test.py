# SPDX-License-Identifier: MIT
"""trace.dat and CTF, each read by its own readers: event for event the names, times and values of the text, from one recording."""
import os
import re
import stat
import subprocess
import sys

import harness

SCRIPT = r"""
import os, sys, threading
cpus = sorted(os.sched_getaffinity(0))
def work(number):
    os.sched_setaffinity(threading.get_native_id(), {cpus[number % len(cpus)]})
    for name in ("/", "/etc/hostname", "/none", "/x\x1b[31m\ny", "/\udcff\u00e9", "/" + 300 * "l"):
        os.access(name, os.R_OK)
        os.getenv(name)
        try:
            os.stat(name)
            os.close(os.open(name, os.O_RDONLY))
        except OSError:
            pass
threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
for thread in threads:
    thread.start()
    thread.join()
"""
SIZES = " ".join(f"{letter}{bits}=%di:{letter}{bits} n{letter}{bits}=%si:{letter}{bits}" for letter in "usx" for bits in (8, 16, 32, 64))
PROBES = [
    "p:access libc:access path=+0(%di):string mode=%si:s32",
    "r:access_ret libc:access ret=$retval:s32 took=$latency path=entry(+0(%di)):string",
    "p:sizes libc:access " + SIZES,
    "p:arrays libc:access u8=+0(%di):u8[3] x16=+0(%di):x16[2] s32=+0(%sp):s32[2] x64=+0(%sp):x64[4]",
    "p:strings libc:access bad=+0(%si):string both=+0(%di):string[2] text=+0(%di):char[4] c=+0(%di):char",
    "p:names libc:access int=%di class=%si:s32 event=%dx struct=%di",
    "p:from libc:access caller=+0(%sp):symbol",
    "r:closed libc:close ret=$retval:s32 fd=entry(%di):s32",
    "p:close libc:close fd=%di:u32",
    "p:close8 libc:close fd=%di:u8",
    "p:closes libc:close fd=%di:s64",
    "p:float libc:access f=%xmm0:f64 g=%xmm0:f32",
    "p:open libc:open64 path=+0(%di):string flags=%si:x32",
    "p:open_hex libc:open64 path=%di:x64",
    "r:opened libc:open64 ret=$retval:s32",
    "r:opened_u libc:open64 ret=$retval:u32",
    "p:stat libc:stat64 path=+0(%di):string",
    "r:stated libc:stat64 ret=$retval:s32",
    "p:wide libc:access u=+0(%di):u128 s=+0(%sp):s128 x=+0(%di):x128",
    "p:strlen8 libc:close b=%di:b4@2/8",
    "p:empty libc:close",
]
BARE = re.compile(r"[\"']|\.\.\.|0x")


class Export(harness.TestCase):
    def setUp(self):
        super().setUp()
        harness.tool()
        self.recording = self.path("recording")
        self.program = [os.path.realpath(sys.executable), "-S", "-E", self.write("script.py", SCRIPT)]

    def options(self):
        """Every probe, the last one with stacks."""
        words = [word for probe in PROBES for word in ("-p", probe)]
        return [*words, "--trigger=stacktrace"]

    def record(self):
        seen = harness.run(harness.tracer("-q", f"--record={self.recording}", *self.options(), "--", *self.program))
        self.assertEqual((seen.returncode, seen.stderr), (0, b""))

    def replay(self, *options, expected=0):
        seen = harness.run([harness.tool(), f"--replay={self.recording}", *options])
        self.assertEqual(seen.returncode, expected, seen.stderr)
        return seen.stdout.decode(errors="surrogateescape")

    def expected(self, *options):
        """(the line of the text, the object of the JSON lines) of each hit."""
        hits = harness.parse_trace(self.replay(*options))
        objects = harness.json_hits(self.replay("--format=json", *options))
        hits = [hit for hit in hits if hit.event != "<user stack trace>"]
        self.assertEqual([hit.event for hit in hits], [one["event"] for one in objects])
        self.assertGreater(len({one["event"] for one in objects}), 15)
        self.assertGreater(len({one["tid"] for one in objects}), 2)
        return list(zip(hits, objects))


def nanoseconds(one):
    return round(one["time"] * 1e9)


class TraceDat(Export):
    def report(self, *options):
        """(task, tid, cpu, nanoseconds, event, text) of each event."""
        words = [harness.need("trace-cmd"), "report", "-t", *options, self.path("trace.dat")]
        seen = subprocess.run(words, capture_output=True, check=True)
        self.assertEqual(seen.stderr, b"")
        line = re.compile(r" *(.*)-(\d+) +\[(\d+)\] +(\d+)\.(\d{9}): (\w+): +(.*)")
        events = []
        for text in seen.stdout.decode(errors="surrogateescape").split("\n"):
            if match := line.fullmatch(text):
                task, tid, cpu, seconds, rest, event, values = match.groups()
                events.append((task, int(tid), int(cpu), int(seconds) * 10 ** 9 + int(rest), event, values))
            elif text.startswith(" => "):
                events[-1] = (*events[-1][:-1], events[-1][-1] + "\n" + text)
        return events

    def text_of(self, hit, one):
        """What stands in the line after the event's name, as trace-cmd prints it."""
        values = hit.rest.split("\n")[0].split(") ", 1)[1] if ") " in hit.rest else ""
        place = one["address"][2:] + (f" <- {one['return_address'][2:]}" if "return_address" in one else "")
        return BARE.sub("", f"({place}) {values}").rstrip()

    def test_event_for_event_the_text(self):
        self.record()
        self.replay("--format=trace.dat", "-o", self.path("trace.dat"))
        self.assertEqual(os.stat(self.path("trace.dat")).st_mode & 0o777, 0o600)
        expected, events = self.expected(), self.report()
        stacks = [event for event in events if event[4] == "user_stack"]
        hits = [event for event in events if event[4] != "user_stack"]
        self.assertEqual(len(hits), len(expected))
        # Events of one nanosecond on two processors have no order.
        key = lambda event: (event[3], event[2])  # pylint: disable=unnecessary-lambda-assignment
        expected.sort(key=lambda pair: (nanoseconds(pair[1]), pair[1]["cpu"]))
        for (hit, one), event in zip(expected, sorted(hits, key=key), strict=True):
            self.assertEqual(event[:3], (one["comm"], one["tid"], one["cpu"]))
            self.assertLess(abs(event[3] - nanoseconds(one)), 300)
            self.assertEqual((event[4], BARE.sub("", event[5]).rstrip()), (hit.event, self.text_of(hit, one)))
        with_stack = [one for _, one in expected if "stack" in one]
        self.assertEqual(len(stacks), len(with_stack))
        for event, one in zip(sorted(stacks, key=key), with_stack):
            self.assertEqual(event[5].split("\n => ")[1:], one["stack"])

    def test_filters_of_libtraceevent(self):
        self.record()
        self.replay("--format=trace.dat", "-o", self.path("trace.dat"))
        expected = [one for _, one in self.expected()]
        modes = [one for one in expected if one["event"] == "access" and one["args"]["mode"] == 4]
        self.assertGreater(len(modes), 0)
        self.assertEqual(len(self.report("-F", "access: mode == 4")), len(modes))
        self.assertEqual(len(self.report("-F", 'access: path == "/none"')), sum(one["args"]["path"] == "/none" for one in modes))

    def test_live(self):
        words = harness.tracer("-q", "--format=trace.dat", "-o", self.path("trace.dat"), *self.options(), "--", *self.program)
        seen = harness.run(words)
        self.assertEqual((seen.returncode, seen.stderr), (0, b""))
        events = self.report()
        self.assertGreater(len({event[4] for event in events}), 15)
        self.assertEqual([event[3] for event in events], sorted(event[3] for event in events))

    def test_lost_events_are_told(self):
        """Rings that are too small for a loop."""
        source = self.write("many.c", "__attribute__((noinline, used)) void f(void) { __asm__(\"\"); }\n"
                                      "int main(void) { for (int i = 0; i < 300000; ++i) f(); }\n")
        program = harness.compiled([harness.need("cc"), "-O1", source], self.path("many"))
        probe = f"p:many {program}:f a=+0(%sp):x64[64]"
        seen = harness.run(harness.tracer("-b", "64K", "--format=trace.dat", "-o", self.path("trace.dat"), "-p", probe, "--", program))
        self.assertEqual(seen.returncode, 0)
        lost = re.search(rb"hits, lost ([\d,]+)", seen.stderr)
        report = subprocess.run([harness.need("trace-cmd"), "report", self.path("trace.dat")], capture_output=True, check=True)
        if lost is None:
            return  # the reader was fast enough
        number = int(lost[1].replace(b",", b""))
        self.assertRegex(report.stdout.decode(), rf"\[{number} EVENTS DROPPED\]")
        self.assertRegex(report.stdout.decode(), rf"lost: +event=uprobes/many hits={number} returns=0")

    def test_what_cannot_seek_is_refused_before_the_start(self):
        started = self.path("started")
        for output in (["-o", "-"], [], ["-o", "/dev/null"]):
            seen = harness.run(harness.tracer("--format=trace.dat", *output, "-p", "libc:close", "--", "touch", started))
            self.assertEqual(seen.returncode, 125, output)
            self.assertIn(b"file", seen.stderr)
        os.mkfifo(self.path("pipe"))
        seen = harness.run(harness.tracer("--format=trace.dat", "-o", self.path("pipe"), "-p", "libc:close", "--", "touch", started))
        self.assertEqual(seen.returncode, 125)
        self.assertFalse(os.path.exists(started))


class Ctf(Export):
    def events(self, folder):
        """(nanoseconds, cpu, context, event, fields) of each event, as babeltrace2 reads them."""
        seen = subprocess.run([harness.need("babeltrace2"), "--clock-cycles", "--no-delta", folder], capture_output=True, check=True)
        self.assertEqual(seen.stderr, b"")
        line = re.compile(r"\[(\d+)\] (?:\S+ )?(\w+:\w+): \{ cpu_id = (\d+) \}, (\{.*?\}), (\{.*\})")
        events = []
        for text in seen.stdout.decode(errors="surrogateescape").splitlines():
            match = line.fullmatch(text)
            self.assertIsNotNone(match, text)
            events.append((int(match[1]), int(match[3]), parsed(match[4]), match[2], parsed(match[5])))
        return events

    def compare(self, pair, event):
        hit, one = pair
        self.assertEqual((event[1], event[3]), (one["cpu"], f"{one['group']}:{one['event']}"))
        self.assertEqual(event[2], {"vpid": one["pid"], "vtid": one["tid"], "procname": one["comm"]})
        self.assertLess(abs(event[0] - nanoseconds(one)), 300)
        fields = dict(event[4])
        self.assertEqual(fields.pop("__probe_func" if "return_address" in one else "__probe_ip"), int(one["address"], 16))
        self.assertEqual(fields.pop("__probe_ret_ip", None), int(one["return_address"], 16) if "return_address" in one else None)
        self.assertEqual(list(fields), list(one["args"]), hit.event)
        for name, value in one["args"].items():
            self.check(fields[name], value, name in one.get("cut", []))

    def check(self, seen, value, is_cut):
        if isinstance(value, list):
            for a, b in zip(seen, value, strict=True):
                self.check(a, b, is_cut)
        elif isinstance(seen, float) or isinstance(value, float):
            self.assertAlmostEqual(seen, float(value), delta=abs(float(value)) * 1e-5)
        elif isinstance(seen, int):
            self.assertEqual(seen, int(value))
        elif re.fullmatch(r"-?(0x[0-9a-f]+|\d+)", seen):  # of 16 bytes
            self.assertEqual(int(seen, 0), int(value))
        elif value is None:
            self.assertEqual(seen, "(fault)")
        elif value.isprintable() and "\\" not in value:
            self.assertEqual(seen, value + ("..." if is_cut else ""))

    def test_event_for_event_the_text(self):
        self.record()
        folder = self.path("ctf")
        self.replay("--format=ctf", "-o", folder)
        self.assertEqual(stat.S_IMODE(os.stat(folder).st_mode), 0o700)
        for name in os.listdir(folder):
            self.assertEqual(stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode), 0o600)
        expected, events = self.expected(), self.events(folder)
        stacks = [event for event in events if event[3] == "uprobe_run:user_stack"]
        hits = [event for event in events if event[3] != "uprobe_run:user_stack"]
        self.assertEqual(len(hits), len(expected))
        expected.sort(key=lambda pair: (nanoseconds(pair[1]), pair[1]["cpu"]))
        for pair, event in zip(expected, sorted(hits, key=lambda event: event[:2]), strict=True):
            self.compare(pair, event)
        with_stack = [one for _, one in expected if "stack" in one]
        for event, one in zip(sorted(stacks, key=lambda event: event[:2]), with_stack, strict=True):
            self.assertEqual(event[4], {"depth": len(one["stack"]), "frames": one["stack"]})

    def test_live_and_twice(self):
        folder = self.path("ctf")
        words = harness.tracer("-q", "--format=ctf", "-o", folder, *self.options(), "--", *self.program)
        seen = harness.run(words)
        self.assertEqual((seen.returncode, seen.stderr), (0, b""))
        events = self.events(folder)
        self.assertGreater(len({event[3] for event in events}), 15)
        again = harness.run(words)
        self.assertEqual(again.returncode, 125)
        self.assertIn(b"not empty", again.stderr)
        self.assertEqual(len(self.events(folder)), len(events))

    def test_folders_that_are_refused(self):
        os.mkdir(self.path("open"))
        os.chmod(self.path("open"), 0o777)
        self.write("file", "kept")
        for output, word in ((self.path("open"), b"others"), (self.path("file"), b"no folder"), ("-", b"-o FOLDER"), ("x-%p", b"%p"),
                             (self.path("none/ctf"), b"folder")):
            seen = harness.run(harness.tracer("--format=ctf", "-o", output, "-p", "libc:close", "--", "true"))
            self.assertEqual(seen.returncode, 125, output)
            self.assertIn(word, seen.stderr)


def parsed(text):
    """A value of babeltrace2's text: {"name": value}, [value], a number or a string."""
    value, rest = _value(text)
    assert rest == "", rest
    return value


def _value(text):
    if text[0] in "{[":
        is_list, text, items = text[0] == "[", text[1:].lstrip(), {}
        while text[0] not in "}]":
            name, text = text.split(" = ", 1)
            items[name.strip("[]")], text = _value(text)
            text = text.lstrip(" ,")
        return (list(items.values()) if is_list else items), text[1:]
    if text[0] == '"':
        match = re.match(r'"((?:[^"\\]|\\.)*)"', text)
        return re.sub(r"\\(.)", r"\1", match[1]), text[match.end():]
    match = re.match(r"[^ ,}\]]+", text)
    word = match[0]
    return (float(word) if re.search(r"[.]|inf|nan|\de", word) and not word.startswith("0x") else int(word, 0)), text[match.end():]


if __name__ == "__main__":
    harness.main()
