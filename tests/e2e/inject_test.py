# SPDX-License-Identifier: MIT
"""Triggers that change the program: what it then does, what is recorded of it, and who is left alone."""
import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import unittest

import harness

ALLOW = "--allow-change"


class Changing(harness.TestCase):
    def setUp(self):
        super().setUp()
        source = os.path.join(harness.Options.source, "tests/e2e/fixtures/changed.cpp")
        compiler = harness.need("g++")
        self.program = harness.compiled([compiler, "-O2", "-pthread", os.path.abspath(source)], self.path("changed"))

    def words(self, *triggers, probe="x=%di:s64", kind="p", place="twice"):
        words = ["-p", f"{kind}:t/e {self.program}:{place} {probe}"]
        return words + [f"--trigger={trigger}" for trigger in triggers]

    def run_words(self, words, *arguments, allow=True, options=()):
        done = harness.run([*harness.tracer("-o", self.path("trace"), *options), *words, *([ALLOW] if allow else []), "--",
                            self.program, *arguments])
        with open(self.path("trace"), encoding="latin-1") as file:
            done.text = file.read()
        return done

    def expect(self, printed, summary, arguments, *triggers, **how):
        """The program's line, as "got errno ran kept signals", and what the summary says of the event."""
        done = self.run_words(self.words(*triggers, **how), *arguments.split())
        numbers = re.findall(r"-?\d+", done.stdout.decode().replace("got", ""))
        self.assertEqual(" ".join(numbers), printed, done.stderr.decode())
        self.assertRegex(done.stderr.decode(), rf"t/e \S+: {summary}\n")
        return done


class Overridden(Changing):
    def test_the_function_does_not_run(self):
        done = self.expect("77 0 0 0 0", "1 hit, 1 overridden", "twice 3", "return=77")
        self.assertEqual(done.returncode, 9)  # as the program ends when it gets 77
        self.expect("-1 5 0 0 0", "1 hit, 1 overridden", "twice 3", "return=-1,errno=EIO")
        self.expect("-1 28 0 0 0", "1 hit, 1 overridden", "twice 3", "return=0xffffffffffffffff,errno=ENOSPC if x == 3")

    def test_a_condition_that_does_not_hold_changes_nothing(self):
        done = self.expect("6 0 1 0 0", "1 hit", "twice 3", "return=-1,errno=EIO if x == 4")
        self.assertNotIn("(changed)", done.text)

    def test_counts(self):
        # 1 and 3 of 0..9 return 100
        self.expect("282 0 8 0 0", "10 hits, 2 overridden", "loop 10", "return=100:2 if x & 1")
        self.expect("90 0 10 0 0", "10 hits", "loop 10", "return=100:0")

    def test_each_change_is_recorded(self):
        done = self.expect("282 0 8 0 0", "10 hits, 2 overridden", "loop 10", "return=100:2 if x & 1")
        changed = re.findall(r"x=(\d+)( \(changed\))?\n", done.text)
        self.assertEqual([x for x, mark in changed if mark], ["1", "3"])
        self.assertEqual(len(changed), 10)

    def replayed(self, output_format, *reader):
        """What a reader of the format says of a replay in it."""
        output = self.path("as-" + output_format)
        seen = harness.run([harness.tool(), "-q", "--replay", self.path("recorded"), f"--format={output_format}", "-o", output])
        self.assertEqual(seen.returncode, 0, seen.stderr)
        return harness.run([*reader, output]).stdout.decode()

    def test_files_of_other_tools_say_so(self):
        """Also of a return that has values of the entry."""
        words = [*self.words("return=100 if x == 2"), "-p", f"r:t/r {self.program}:twice v=$retval:s64 x=entry(%di):s64",
                 "--trigger=set $retval=5 if x == 1", ALLOW, "--", self.program, "loop", "4"]
        recorded = harness.run([*harness.tracer("-q", "--record", self.path("recorded")), *words])
        self.assertEqual(recorded.returncode, 0, recorded.stderr)
        seen = harness.run([*harness.tracer("-q", "--format=csv", "-o", self.path("live")), *words])
        self.assertEqual(seen.returncode, 0, seen.stderr)
        expected = [("e", "0", False), ("r", "0", False), ("e", "1", False), ("r", "1", True), ("e", "2", True), ("e", "3", False),
                    ("r", "3", False)]
        with open(self.path("live"), encoding="latin-1") as file:
            live = file.read()
        for text in (live, self.replayed("csv", "cat")):
            rows = list(csv.DictReader(io.StringIO(text)))
            self.assertEqual([(row["event"], row["x"], row["changed"] == "true") for row in rows], expected)
        report = self.replayed("trace.dat", harness.need("trace-cmd"), "report", "-i")
        self.assertEqual([(event, x, bool(mark)) for event, x, mark in re.findall(r" ([er]): .*x=(\d+)( \(changed\))?\n", report)],
                         expected)
        ctf = self.replayed("ctf", harness.need("babeltrace2"))
        self.assertEqual([(event, x, mark == "1") for event, mark, x in
                          re.findall(r" t:([er]): .*, changed = (\d) \}, .*\bx = (\d+) \}", ctf)], expected)

    def test_json_and_a_recording_say_so(self):
        done = self.run_words(self.words("return=100 if x == 2"), "loop", "4", options=["--format=json"])
        lines = [json.loads(line) for line in done.text.splitlines()]
        self.assertEqual([line.get("changed") for line in lines if "args" in line], [None, None, True, None])
        words = [*harness.tracer("--record", self.path("recorded")), *self.words("return=100 if x == 2"), ALLOW, "--", self.program,
                 "loop", "4"]
        self.assertEqual(harness.run(words).returncode, 0)
        replayed = harness.run([harness.tool(), "--replay", self.path("recorded"), "-o", self.path("again")])
        self.assertEqual(replayed.returncode, 0, replayed.stderr)
        with open(self.path("again"), encoding="latin-1") as file:
            self.assertEqual(re.findall(r"x=(\d)( \(changed\))?\n", file.read()),
                             [("0", ""), ("1", ""), ("2", " (changed)"), ("3", "")])

    def test_an_event_that_is_off_still_acts(self):
        done = self.run_words([*self.words("return=-1"), "--disabled"], "twice", "3")
        self.assertIn(b"got -1 errno 0 ran 0", done.stdout)
        self.assertRegex(done.stderr.decode(), r"1 hit, 1 while off, 1 overridden\n")
        done = self.run_words([*self.words("return=-1"), "--filter=x == 4"], "twice", "3")
        self.assertIn(b"got -1 errno 0 ran 0", done.stdout)
        self.assertRegex(done.stderr.decode(), r"1 hit, 1 filtered, 1 overridden\n")

    def test_a_full_ring_changes_as_much(self):
        done = self.run_words(self.words("return=1 if x < 1500000"), "loop", "20000", options=["-b", "8K", "--no-header"])
        self.assertIn(b"got 20000 errno 0 ran 0", done.stdout)
        self.assertIn(b"20,000 overridden", done.stderr)

    def test_conditions_on_strings(self):
        trigger = 'return=-1,errno=EACCES if s ~ "/etc/*"'
        self.expect("-1 13 0 0 0", "1 hit, 1 overridden", "length /etc/passwd", trigger, probe="s=+0(%di):string", place="length")
        self.expect("8 0 1 0 0", "1 hit", "length /usr/etc", trigger, probe="s=+0(%di):string", place="length")

    def test_the_errno_of_each_libc(self):
        source = self.write("own.c", """#include <errno.h>
#include <stdio.h>
__attribute__((noinline, noclone)) long twice(long x) { __asm__ volatile("" : "+r"(x) : : "memory"); return 2 * x; }
int main(void) { errno = 0; const long got = twice(3); printf("%ld %d\\n", got, errno); return 0; }
""")
        ways = [["gcc"], ["gcc", "-static"], ["musl-gcc"], ["musl-gcc", "-static"]]
        for number, (compiler, *options) in enumerate(way for way in ways if shutil.which(way[0])):
            program = harness.compiled([compiler, *options, "-O1", source], self.path(f"own{number}"))
            done = harness.run([*harness.tracer("-o", self.path("trace")), "-p", f"p:t/e {program}:twice",
                                "--trigger=return=-1,errno=EDQUOT", ALLOW, "--", program])
            self.assertEqual(done.stdout, b"-1 122\n", (compiler, options, done.stderr))

    def test_registers_stack_and_frames_are_kept(self):
        self.expect("-1 28 0 0 0", "1 hit, 1 overridden", "kept 3", "return=-1,errno=ENOSPC")
        self.expect("999 28 0 0 0", "1 hit, 1 overridden", "outer 3", "return=-1,errno=ENOSPC")
        self.expect("-1 28 0 0 0", "1 hit, 1 overridden", "tail 3", "return=-1,errno=ENOSPC")
        self.expect("-7 0 0 0 0", "1 hit, 1 overridden", "throw 3", "return=-1")
        self.expect("1 0 0 0 0", "1 hit, 1 overridden", "backtrace 3", "return=-1")

    def test_threads_and_signals(self):
        self.expect("7992000 0 4000 0 0", "8,000 hits, 4,000 overridden", "threads", "return=0 if x & 1")
        done = self.run_words(self.words("return=-1"), "interrupted")
        self.assertRegex(done.stdout.decode(), r"got -3000 errno 0 ran 0 kept 0 signals \d+")
        self.assertIn(b"3,000 overridden", done.stderr)

    def test_no_return_is_left_behind(self):
        """Neither a return nor a latency of a call that did not run, by exits and by a stub; and those of others are right."""
        for mode in ("exits", "stub"):
            words = [*self.words("return=1 if x & 1"), "-p", f"r:t/back {self.program}:twice r=$retval:s64 t=$latency"]
            done = self.run_words(words, "loop", "10", options=[f"--return={mode}"])
            self.assertIn(b"got 45 errno 0 ran 5", done.stdout, mode)
            self.assertRegex(done.stderr.decode(), r"t/e \S+: 10 hits, 5 overridden\n", mode)
            self.assertRegex(done.stderr.decode(), r"t/back \S+: 5 hits\n", mode)
            self.assertEqual(re.findall(r"r=(\d+)", done.text), ["0", "4", "8", "12", "16"], mode)
            self.assertNotIn("missing", done.text)

    def test_the_caller_s_return_is_seen(self):
        words = [*self.words("return=1"), "-p", f"r:t/back {self.program}:outer r=$retval:s64 t=$latency"]
        for mode in ("exits", "stub"):
            done = self.run_words(words, "outer", "4", options=[f"--return={mode}"])
            self.assertRegex(done.text, r"back: .* r=1001 t=", mode)

    def test_the_first_one_given_has_the_last_word(self):
        self.expect("-1 0 0 0 0", "1 hit, 2 overridden", "twice 3", "return=-1", "return=-2")
        self.expect("-1 0 0 0 0", "1 hit, 1 overridden", "twice 3", "return=-2 if x == 4", "return=-1 if x == 3")


class Others(Changing):
    def test_registers_are_set(self):
        self.expect("100 0 1 0 0", "1 hit, 1 changed", "twice 3", "set %di=50")
        self.expect("-10 0 1 0 0", "1 hit, 1 changed", "twice 3", "set %di=-5 if x == 3")
        done = self.expect("-5 0 1 0 0", "1 hit, 1 changed", "twice 3", "set $retval=-5", kind="r", probe="v=$retval:s64")
        self.assertIn(" v=6 (changed)", done.text)
        self.expect("6 0 1 0 0", "1 hit", "twice 3", "set $retval=-5 if v == 7", kind="r", probe="v=$retval:s64")
        self.expect("995 0 1 0 0", "1 hit, 1 changed", "outer 3", "set $retval=-5", kind="r", probe="v=$retval:s64")

    def test_a_delay_keeps_its_time_and_the_signals(self):
        self.expect("6 0 1 1 1", "1 hit, 1 delayed", "slept 3", "delay=120ms")
        self.expect("6 0 1 0 0", "1 hit", "twice 3", "delay=10s if x == 4")

    def test_signals(self):
        self.expect("6 0 1 0 1", "1 hit, 1 signalled", "handled 3", "signal=USR1")
        done = self.run_words(self.words("signal=KILL"), "handled", "3")
        self.assertEqual(done.returncode, -signal.SIGKILL)  # as the program ended
        self.assertIn("x=3 (changed)\n", done.text)
        done = self.run_words(self.words("signal=ABRT if x == 4"), "handled", "3")
        self.assertEqual(done.returncode, 0)

    def test_a_stopped_process_goes_on(self):
        tool = subprocess.Popen([*harness.tracer("-o", self.path("trace")), *self.words("signal=STOP:1"), ALLOW, "--", self.program,
                                 "loop", "3"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        self.addCleanup(harness.stop_group, tool)

        def stopped():
            return [pid for pid in harness.descendants(tool.pid) if state_of(pid) == "T"]
        harness.wait_until(stopped, "the stop")
        os.kill(stopped()[0], signal.SIGCONT)
        out, err = tool.communicate(timeout=harness.TIMEOUT)
        self.assertIn(b"got 6 errno 0 ran 3", out)
        self.assertIn(b"3 hits, 1 signalled", err)

    def test_a_seccomp_filter(self):
        """No system call is made under one: a delay and a signal are not, and are counted; a value is set."""
        done = self.run_words(self.words("delay=10s", "signal=KILL", "set %di=50"), "confined", "3")
        self.assertIn(b"got 100 errno 0 ran 1", done.stdout)
        self.assertRegex(done.stderr.decode(), r"1 hit, 1 changed, 2 changes not made \(")

    def test_several_at_once(self):
        self.expect("100 0 1 0 1", "1 hit, 1 changed, 1 delayed, 1 signalled", "handled 3", "set %di=50", "delay=1ms", "signal=USR1")
        self.expect("-1 5 0 0 1", "1 hit, 1 overridden, 1 signalled", "handled 3", "return=-1,errno=EIO", "signal=USR1")


def state_of(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="latin-1") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""


class Running(Changing):
    def start(self, user=None):
        program = subprocess.Popen([self.program, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   preexec_fn=user and (lambda: harness.become(user)), start_new_session=True)
        self.addCleanup(harness.stop_group, program)
        self.assertEqual(program.stdout.readline(), "ready\n")
        return program

    def ask(self, program, x):
        program.stdin.write(f"{x}\n")
        program.stdin.flush()
        return program.stdout.readline().strip()

    def has_text(self, text):
        try:
            with open(self.path("trace"), encoding="latin-1") as file:
                return text in file.read()
        except FileNotFoundError:
            return False

    def attached(self, program, *triggers):
        tool = subprocess.Popen([*harness.tracer("-o", self.path("trace"), "-P", str(program.pid)), *self.words(*triggers), ALLOW],
                                stderr=subprocess.PIPE, start_new_session=True)
        self.addCleanup(harness.stop_group, tool)
        return tool

    def test_a_running_process_is_changed_until_the_tool_leaves(self):
        program = self.start()
        self.assertEqual(self.ask(program, 4), "8 errno 0")
        tool = self.attached(program, "return=-1,errno=ENOMEM if x == 4")
        harness.wait_until(lambda: self.ask(program, 4) == "-1 errno 12", "the first change")
        self.assertEqual(self.ask(program, 5), "10 errno 0")
        tool.send_signal(signal.SIGINT)
        _, err = tool.communicate(timeout=harness.TIMEOUT)
        self.assertRegex(err.decode(), r"overridden")
        self.assertEqual(self.ask(program, 4), "8 errno 0")

    def test_a_delay_ends_when_the_tool_leaves(self):
        program = self.start()
        tool = self.attached(program, "delay=10s if x == 5")
        harness.wait_until(lambda: self.ask(program, 4) and self.has_text("x=4"), "the session")
        program.stdin.write("5\n")
        program.stdin.flush()
        harness.wait_until(lambda: self.has_text("x=5 (changed)"), "the hit")
        tool.send_signal(signal.SIGINT)
        _, err = tool.communicate(timeout=harness.TIMEOUT)
        self.assertIn(b"1 delayed", err)
        self.assertNotIn(b"does not leave", err)
        self.assertEqual(program.stdout.readline(), "10 errno 0\n")
        self.assertEqual(self.ask(program, 5), "10 errno 0")

    def test_other_probes_join(self):
        """A later probe of the same function, by --control and by a second tool, leaves the change as it is."""
        program = self.start()
        tool = self.attached(program, "return=-1,errno=ENOMEM if x == 4")
        harness.wait_until(lambda: self.ask(program, 4) == "-1 errno 12", "the first change")
        added = harness.run([harness.tool(), "--control", str(tool.pid), "-p", f"p:t/more {self.program}:twice x=%di:s64"])
        self.assertEqual(added.returncode, 0, added.stderr)
        self.assertEqual(self.ask(program, 4), "-1 errno 12")
        self.assertEqual(self.ask(program, 5), "10 errno 0")
        refused = harness.run([harness.tool(), "-P", str(program.pid), *self.words("return=1"), ALLOW])
        self.assertEqual(refused.returncode, 125, refused.stderr)
        self.assertIn(b"can only be given when a session starts", refused.stderr)
        tool.send_signal(signal.SIGINT)
        _, err = tool.communicate(timeout=harness.TIMEOUT)
        self.assertRegex(err.decode(), r"t/more \S+: 2 hits\n")
        self.assertEqual(self.ask(program, 4), "8 errno 0")

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_another_user_s_process_is_refused(self):
        os.chmod(self.folder, 0o755)
        program = self.start(harness.UNPRIVILEGED)
        tool = self.attached(program, "return=-1")
        _, err = tool.communicate(timeout=harness.TIMEOUT)
        self.assertEqual(tool.returncode, 125, err)
        self.assertIn("is another user's process, which --allow-change does not cover", err.decode())
        self.assertEqual(self.ask(program, 4), "8 errno 0")

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_a_process_that_becomes_another_user_is_left_alone(self):
        self.expect("7006 0 1 0 0", "2 hits, 1 overridden, 1 change not made .*", "child 3", "return=7,errno=EIO")


class Refused(Changing):
    def refusal(self, words, *options, allow=True):
        done = harness.run([*harness.tracer(*options), *words, *([ALLOW] if allow else []), "--", self.program, "twice", "3"])
        self.assertEqual(done.returncode, 125, done.stderr)
        self.assertEqual(done.stdout, b"")  # the program has not run
        return done.stderr.decode().splitlines()

    def test_without_permission(self):
        for trigger in ("return=1", "set %di=1", "delay=1ms", "signal=KILL"):
            self.assertEqual(self.refusal(self.words(trigger), allow=False)[:4], [
                "uprobe-run: --trigger: this trigger changes the program", f"  {trigger}", "  ^", "  --allow-change permits it"])

    def test_callbacks_are_those_of_the_library(self):
        self.assertIn("callbacks are for a program that attaches to itself", self.refusal(self.words("call=0,4096,1"))[0])

    def test_the_kernel_s_language_alone(self):
        self.assertIn("--allow-change does not go with --strict", self.refusal(self.words("return=1"), "--strict")[0])

    def test_mistakes_have_a_caret(self):
        self.assertEqual(self.refusal(self.words("return=1,errno=EIOO")), [
            "uprobe-run: --trigger: no errno is called 'EIOO'", "  return=1,errno=EIOO", "                 ^", "  did you mean 'EIO'?"])
        self.assertEqual(self.refusal(self.words("return=one"))[:3], [
            "uprobe-run: --trigger: the value 'one' is no number", "  return=one", "         ^"])

    def test_places_that_do_not_suit(self):
        lines = self.refusal(self.words("return=1", kind="r", probe="v=$retval"))
        self.assertIn("return= is for the entry of a function", lines[0])
        lines = self.refusal(self.words("return=1", place="tail+4", probe=""))
        self.assertIn("is not the first instruction of a function", lines[0])
        self.assertIn("it has no caller", self.refusal(self.words("return=1", place="_start", probe=""))[0])
        self.assertIn("with r: or -r", self.refusal(self.words("set $retval=1"))[0])
        self.assertIn("only $retval", self.refusal(self.words("set %di=1", kind="r", probe="v=$retval"))[0])
        self.assertIn("has to fetch $retval", self.refusal(self.words("set $retval=1", kind="r", probe=""))[0])
        # 'tail' ends in another function: there its value is not known
        self.assertTrue(self.refusal(self.words("set $retval=1", kind="r", probe="v=$retval", place="tail")))

    def test_generated_code(self):
        lines = self.refusal(["-p", "p:t/e jit:foo", "--trigger=return=1"])
        self.assertIn("a probe in generated code cannot change the program", lines[0])

    def test_a_jump_is_not_enough(self):
        lines = self.refusal(self.words("return=1"), "--tier=jump")
        self.assertIn("needs a breakpoint: it changes the program", " ".join(lines))
        shown = harness.run([harness.tool(), "--explain", f"p:t/e {self.program}:twice", "--trigger=return=1", ALLOW, "--", self.program])
        self.assertIn("because it changes the program", shown.stdout.decode() + shown.stderr.decode())

    def test_a_live_session(self):
        """--control has no triggers, and so none that change."""
        done = harness.run([harness.tool(), "--control", "1", *self.words("return=1"), ALLOW])
        self.assertNotEqual(done.returncode, 0)


if __name__ == "__main__":
    harness.main()
