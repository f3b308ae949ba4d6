# SPDX-License-Identifier: MIT
"""What users of bpftrace, perf, strace, gdb and ltrace type first. Each line works, or one line says what to type instead; that line
is run as it is printed, and works."""
import os
import re
import shlex
import subprocess

import harness

PROGRAM = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((noinline)) int count(int n) { return n + (int)strlen(getenv("PATH")); }
__attribute__((noinline)) char *greet(const char *who, int n) {
  char *text = malloc(64);
  snprintf(text, 64, "hello %s %d", who, count(n));
  return text;
}
int main(int argc, char **argv) {
  do {
    char *text = greet("world", 3);
    int fd = open("/dev/null", O_WRONLY);
    if (write(fd, text, 5) != 5) return 1;
    close(fd);
    free(text);
    if (argc > 1) usleep(20000);
  } while (argc > 1);
  return 0;
}
"""
LINE = 7  # of count in the source, which begins with a blank line

# What is typed; events that are seen at least once. {demo} is the program, {pid} a process of it that runs.
WORKS = [
    # everybody
    ("-p greet -- {demo}", "greet"),
    ("-p malloc {demo}", "malloc"),
    ("-p 'malloc(size)' -- {demo}", "malloc"),
    ("-p {demo}:greet -- {demo}", "greet"),
    ("-p 'greet' -P {pid}", "greet"),
    ("--pid {pid} -p greet", "greet"),
    ("-P {pid} -p libc:write", "write"),
    # bpftrace
    ("-p uprobe:{demo}:greet -- {demo}", "greet"),
    ("-p uretprobe:{demo}:greet -- {demo}", "greet"),
    ("-p u:{demo}:greet -p ur:{demo}:greet -- {demo}", "greet greet__return"),
    ("-p uprobe:libc:malloc -- {demo}", "malloc"),
    ("-p 'uprobe:{demo}:g*' -- {demo}", "greet"),
    ("-p 'libc:strl*' -- {demo}", "strlen"),
    ("-p '*alloc*' -- {demo}", "malloc"),
    # perf
    ("-x {demo} -p greet -- {demo}", "greet"),
    ("-x {demo} -p 'greet%return' -- {demo}", "greet"),
    ("-x {demo} -p 'greet who n' -- {demo}", "greet"),
    ("-x {demo} -p 'mine=greet n=%si' -- {demo}", "mine"),
    ("-x {demo} -p 'grp:mine=greet' -- {demo}", "mine"),
    ("-x {demo} -p 'greet@demo.c' -- {demo}", "greet"),
    ("-x {demo} -p count:0 -- {demo}", "count_0"),
    ("-x {demo} -p 'demo.c:{line}' -- {demo}", "demo_c_{line}"),
    ("--probe greet {demo}", "greet"),
    # gdb
    ("-p 'break greet' -- {demo}", "greet"),
    ("-p 'b demo.c:{line}' -- {demo}", "demo_c_{line}"),
    ("-p 'tbreak count' -- {demo}", "count"),
    ("-p 'b *{address}' -- {demo}", "{address_event}"),
    ("-p 'count n if n == 3' -- {demo}", "count"),
    ("-r greet -- {demo}", "greet"),
    # strace, ltrace, bcc
    ("-f -o {trace} -p open -- {demo}", "open"),
    ("-p malloc@libc.so.6 -- {demo}", "malloc"),
    ("-p 'malloc@libc.so*' -- {demo}", "malloc"),
    ("-p malloc@libc -- {demo}", "malloc"),
    ("-p greet@MAIN -- {demo}", "greet"),
    ("-p p:libc.so.6:malloc -- {demo}", "malloc"),
    ("-p c:malloc -- {demo}", "malloc"),
    ("-p 'r:c:malloc' -- {demo}", "malloc"),
    ("-p libc.so.6:write -p libc:open -- {demo}", "write open"),
    ("-p 'libc:open path=+0(%di):string flags=%si' -- {demo}", "open"),
]

# What is typed; what has to be typed instead; the events of that.
SAYS = [
    # everybody
    ("malloc {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("{demo} -p greet", "uprobe-run -p greet {demo}", "greet"),
    ("{demo}:greet", "uprobe-run -p {demo}:greet --object={demo}", "greet"),
    ("-p r:greet -- {demo}", "-r greet", None),
    ("-p p:greet -- {demo}", "-p greet", None),
    ("-P {pid} greet", "uprobe-run -P {pid} -p greet", "greet"),
    # bpftrace
    ("-e 'uprobe:{demo}:greet'", "uprobe-run -p {demo}:greet --object={demo}", "greet"),
    ("uprobe:{demo}:greet", "uprobe-run -p {demo}:greet --object={demo}", "greet"),
    ("-e 'uretprobe:{demo}:greet {{ printf(\"%s\\n\", str(retval)); }}' -- {demo}",
     "uprobe-run -p '{demo}:greet%return $retval:string' {demo}", "greet"),
    ("-p 'uprobe:{demo}:greet {{ printf(\"%s\", str(arg0)); }}' -- {demo}", "uprobe-run -p '{demo}:greet $arg1:string' {demo}",
     "greet"),
    ("-l 'uprobe:{demo}:g*'", "uprobe-run -x {demo} '-lg*'", None),
    ("-p kprobe:vfs_open -- {demo}", "uprobe-run -p libc:open {demo}", "open"),
    ("-e tracepoint:syscalls:sys_enter_write -- {demo}", "uprobe-run -p libc:write {demo}", "write"),
    # perf
    ("-x {demo} greet", "uprobe-run -x {demo} -p greet --object={demo}", "greet"),
    ("probe -x {demo} greet", "uprobe-run -x {demo} -p greet --object={demo}", "greet"),
    ("probe -x {demo} --add 'greet%return' -- {demo}", "uprobe-run -x {demo} -p greet%return {demo}", "greet"),
    ("record -e probe_libc:malloc -- {demo}", "uprobe-run -p libc:malloc {demo}", "malloc"),
    ("trace -e open {demo}", "uprobe-run -p open {demo}", "open"),
    ("-a greet {demo}", "uprobe-run -p greet {demo}", "greet"),
    # strace
    ("-e trace=open,close {demo}", "uprobe-run -p libc:open -p libc:close {demo}", "open close"),
    ("-e open {demo}", "uprobe-run -p open {demo}", "open"),
    ("-f -tt -e trace=write {demo}", "uprobe-run -f -p libc:write {demo}", "write"),
    ("-c -e write -p {pid}", "uprobe-run -p write -P {pid}", "write"),
    ("-p {pid} -e trace=write", "uprobe-run -P {pid} -p libc:write", "write"),
    ("-p {pid}", "uprobe-run -P {pid} -p malloc", "malloc"),
    # gdb
    ("-ex 'break greet' --args {demo}", "uprobe-run -p greet {demo}", "greet"),
    ("-ex 'b demo.c:{line}' -ex run {demo}", "uprobe-run -p demo.c:{line} {demo}", "demo_c_{line}"),
    # ltrace
    ("-e malloc {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("-e malloc+free@libc.so.6 {demo}", "uprobe-run -p malloc -p libc.so.6:free {demo}", "malloc free"),
    ("-x greet {demo}", "uprobe-run -p greet {demo}", "greet"),
]


class FirstLines(harness.TestCase):
    def setUp(self):
        super().setUp()
        source = self.write("demo.c", PROGRAM)
        self.demo = self.path("demo")
        subprocess.run([harness.need("gcc"), "-O0", "-g", "-fPIE", "-pie", "-o", self.demo, source], check=True)
        symbols = subprocess.check_output(["nm", self.demo], text=True)
        address = "0x" + re.search(r"(?m)^0*([0-9a-f]+) T count$", symbols)[1]
        self.running = subprocess.Popen([self.demo, "on"])
        self.addCleanup(self.running.wait)
        self.addCleanup(self.running.kill)
        harness.wait_until(lambda: "libc.so" in self.maps(), "the program's libc")
        self.names = {"demo": self.demo, "pid": self.running.pid, "trace": self.path("its_trace"), "line": LINE,
                      "address": address, "address_event": f"demo_{address}"}

    def maps(self):
        with open(f"/proc/{self.running.pid}/maps", encoding="latin-1") as file:
            return file.read()

    def run_line(self, line, *options):
        done = harness.run([*harness.tracer(*options), *shlex.split(line)])
        text = (done.stdout + done.stderr).decode(errors="replace")
        if os.path.exists(self.names["trace"]):
            with open(self.names["trace"], encoding="latin-1") as file:
                text += file.read()
        return done.returncode, text

    def check_works(self, line, events):
        code, text = self.run_line(line, "-d", "3")  # an end for what would go on
        self.assertEqual(code, 0, text)
        seen = {hit.event for hit in harness.parse_trace(text)}
        for event in (events or "").format(**self.names).split():
            self.assertIn(event, seen, text)


class Works(FirstLines):
    def test_each(self):
        for line, events in WORKS:
            with self.subTest(line=line):
                self.check_works(line.format(**self.names), events)


class Says(FirstLines):
    def test_each(self):
        for line, better, events in SAYS:
            with self.subTest(line=line):
                code, text = self.run_line(line.format(**self.names))
                better = better.format(**self.names)
                self.assertEqual(code, 125, text)
                self.assertLessEqual(len(text.splitlines()), 4, text)
                self.assertIn(better, text)
                if events:
                    said = next(one for one in text.splitlines() if better in one)
                    self.assertEqual(said.strip(), better, "the line holds nothing else")
                    self.check_works(better.removeprefix("uprobe-run "), events)


class Enough(harness.TestCase):
    def test_there_are_forty(self):
        self.assertGreaterEqual(len(WORKS) + len(SAYS), 40)


if __name__ == "__main__":
    harness.main()
