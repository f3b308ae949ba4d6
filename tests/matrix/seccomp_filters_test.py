# SPDX-License-Identifier: MIT
"""Attaching to processes under seccomp filters: no process dies, none prints anything else, and the agent makes only calls that the
filters allow. The filters are those of surround.c."""
import os
import shutil
import signal
import subprocess
import unittest

import harness
from contained import Contained, SurroundedCase, built
from harness import tool, wait_until
from process_state import read

ALL_ALLOWED = ("container", "runtime", "runtime-kill", "log")
QUIET = {"others": "socketpair", "others-kill": "socketpair", "executable": "mmap of executable memory",
         "executable-kill": "mmap of executable memory", "memfd": "memfd_create"}


class FiltersCase(SurroundedCase):
    def setUp(self):
        super().setUp()
        for name in ("contained", "late", "late.so"):
            shutil.copy(built(name), self.folder)
        self.tool = self.path("uprobe-run")
        shutil.copy(tool(), self.tool)
        shutil.copy(os.path.join(os.path.dirname(tool()), "libuprobe.so"), self.folder)

    def contained(self, *words, **more):
        return Contained(self, words, **more)

    def definition(self):
        return f"p:w {self.path('contained')}:work number=%di:s32 text=+0(%si):string"

    def words(self, pid, *options, duration="100ms"):
        return [self.tool, *options, *(["-d", duration] if duration else []), "-p", self.definition(), "-P", str(pid)]

    def attach(self, pid, *options, before=None, around=()):
        seen = harness.run([*around, *self.words(pid, *options)], before_exec=before)
        seen.hits = harness.parse_trace(seen.stdout.decode())
        return seen

    def attach_well(self, pid, *options, **more):
        seen = self.attach(pid, *options, **more)
        self.assertEqual(seen.returncode, 0, seen.stderr)
        self.assertGreater(len(seen.hits), 0)
        for hit in seen.hits:
            self.assertRegex(hit.arguments, r'^number=[0-6] text="inside"$')
        return seen

    def in_background(self, pid, *definitions, before=None):
        words = [*self.words(pid, "-v", "-o", self.path("trace"), duration=None)]
        for definition in definitions:
            words += ["-p", definition]
        process = subprocess.Popen(words, stderr=subprocess.PIPE, start_new_session=True, preexec_fn=before)
        self.addCleanup(harness.stop_group, process)
        for line in process.stderr:
            if line == b"uprobe-run: attached\n":
                return process
        raise AssertionError(process.stderr.read())

    def finish(self, process):
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=harness.TIMEOUT)
        return said.decode()

    def counts(self):
        hits = harness.parse_trace(read(self.path("trace")))
        return {name: sum(hit.event == name for hit in hits) for name in {hit.event for hit in hits}}


class Read(FiltersCase):
    """Root outside of them reads the filters."""

    def test_filters_that_allow_all_that_is_needed(self):
        for name in ALL_ALLOWED:
            with self.subTest(name):
                target = self.contained(f"filter={name}")
                for _ in range(3):
                    seen = self.attach_well(target.pid)
                    self.assertEqual(b"logs system calls" in seen.stderr, name == "log", seen.stderr)
                    self.assertNotIn(b"does not allow", seen.stderr)
                target.end_well()

    def test_filters_that_forbid_a_part(self):
        for name, call in QUIET.items():
            with self.subTest(name):
                target = self.contained(f"filter={name}")
                for _ in range(3):
                    seen = self.attach_well(target.pid)
                    self.assertIn(f"does not allow {call}: libraries that it loads later".encode(), seen.stderr)
                target.end_well()

    def test_several_filters(self):
        target = self.contained("filter=log", "filter=others-kill", "filter=container", "filter=runtime-kill")
        self.assertIn(b"does not allow socketpair", self.attach_well(target.pid).stderr)
        target.end_well()

    def later(self, name):
        """Hits in a library and a program that come while the tool is there."""
        target = self.contained(f"filter={name}")
        late, library = self.path("late"), self.path("late.so")
        session = self.in_background(target.pid, f"p:lib {library}:called_later", f"p:run {late}:called_later")
        answers = [target.tell(f"load {library}"), target.tell(f"run {late}")]
        self.assertEqual(answers, ["loaded 7", "run 0"])
        self.finish(session)
        target.end_well()
        return self.counts()

    def test_what_comes_later(self):
        for name in ("container", "runtime-kill", "log"):
            with self.subTest(name):
                counts = self.later(name)
                self.assertEqual((counts.get("lib"), counts.get("run")), (1, 1), counts)

    def test_what_comes_later_where_the_agent_is_quiet(self):
        for name in ("others-kill", "executable-kill"):
            with self.subTest(name):
                counts = self.later(name)
                self.assertEqual((counts.get("lib"), counts.get("run")), (None, None), counts)
                self.assertGreater(counts["w"], 0)

    def test_a_tool_that_is_killed(self):
        for name in ("runtime-kill", "others-kill", "log"):
            with self.subTest(name):
                target = self.contained(f"filter={name}")
                for _ in range(3):
                    session = self.in_background(target.pid)
                    os.killpg(session.pid, signal.SIGKILL)
                    session.wait()
                    wait_until(lambda: "TracerPid:\t0" in read(f"/proc/{target.pid}/status"), "no tracer")
                self.assertEqual(target.tell("where"), os.getcwd())
                self.attach_well(target.pid)
                target.end_well()

    def test_a_filter_that_comes_later(self):
        target = self.contained()
        session = self.in_background(target.pid)
        self.assertEqual(target.tell("seal"), "sealed 0")
        self.finish(session)
        self.assertEqual(session.returncode, 0)

    def test_the_strict_minimum(self):
        """Without rt_sigprocmask and the like no breakpoint can be handled."""
        target = self.contained("filter=no-signals")
        seen = self.attach(target.pid)
        self.assertEqual(seen.returncode, 125)
        self.assertRegex(seen.stderr.decode(), r"has a seccomp filter that does not allow rt_sigaction, which the agent needs")
        target.end_well()


class Unread(FiltersCase):
    """A tool without privileges, or under a filter itself."""

    def refused(self, target, text, **more):
        seen = self.attach(target.pid, **more)
        self.assertEqual((seen.returncode, seen.hits), (125, []), seen.stderr)
        self.assertIn(text, seen.stderr.decode())
        target.end_well()

    def test_another_filter(self):
        for name in ("container", "others-kill"):
            self.refused(self.contained(f"filter={name}", preexec_fn=harness.become), "--seccomp=trust", before=harness.become)

    def test_another_filter_of_as_many(self):
        surround = [built("surround"), "filter=container", "--"]
        self.refused(self.contained("filter=executable-kill"), "has a seccomp filter, which may kill it", around=surround)

    def test_the_users_word(self):
        for name in ("container", "runtime-kill"):
            target = self.contained(f"filter={name}", preexec_fn=harness.become)
            self.attach_well(target.pid, "--seccomp=trust", before=harness.become)
            target.end_well()

    def test_a_filter_that_comes_later(self):
        """It is not known: the program gets its text back, and makes no call for the tool."""
        target = self.contained(preexec_fn=harness.become)
        seen = subprocess.Popen(self.words(target.pid, "-v", duration=None), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                preexec_fn=harness.become, start_new_session=True)
        self.addCleanup(harness.stop_group, seen)
        while seen.stderr.readline() != b"uprobe-run: attached\n":
            self.assertIsNone(seen.poll())
        self.assertEqual(target.tell("seal"), "sealed 0")
        said = self.finish(seen)
        self.assertIn("has put a seccomp filter in force", said)
        self.assertEqual(target.tell("where"), os.getcwd())

    def same(self, filter_name):
        """Tool and target come from one process under the filter."""
        script = ('"$1" < "$2" > "$3" & target=$!; shift 3; exec 9> in; while [ ! -s out ]; do sleep 0.05; done; '
                  '"$@" -P $target; code=$?; echo end >&9; wait $target; exit $((code + $?))')
        os.mkfifo(self.path("in"))
        words = self.words(0)[:-2]
        seen = harness.run([built("surround"), f"filter={filter_name}", "--", shutil.which("sh"), "-c", script, "sh", self.path("contained"),
                            "in", "out", *words], cwd=self.folder)
        self.assertEqual(read(self.path("out")), "ready\nfine\n")
        return seen

    def test_the_same_filter(self):
        seen = self.same("container")
        self.assertEqual(seen.returncode, 3, seen.stderr)
        self.assertGreater(len(harness.parse_trace(seen.stdout.decode())), 0)

    def test_the_same_filter_that_forbids(self):
        seen = self.same("executable-kill")
        self.assertEqual(seen.returncode, 125 + 3, seen.stderr)
        self.assertIn(b"does not allow mmap of executable memory, which attaching needs", seen.stderr)


if __name__ == "__main__":
    harness.main()
