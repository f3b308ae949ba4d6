# SPDX-License-Identifier: MIT
"""PID namespaces: the names and numbers in a trace are those of the tool's own namespace, as in the kernel's trace. Each hit has
its thread's numbers there; the fixture reads them from a /proc of the tool's namespace, which it keeps as descriptor 9."""
import os
import re
import subprocess

import harness
import oracle
from elf_reader import Elf

SAYS = re.compile(r'name="(?P<name>.*?)" process=(?P<process>\d+) thread=(?P<thread>\d+) own=(?P<own>\d+)(?: n=(?P<n>\d+))?')


class Said:
    """The identity of a hit's thread."""
    def __init__(self, hit):
        found = SAYS.search(hit.rest)
        self.name = found["name"]
        self.process, self.thread, self.own = (int(found[word]) for word in ("process", "thread", "own"))
        self.n = found["n"] and int(found["n"])


class Spaces(harness.TestCase):
    IN = ["--pid", "--fork", "--mount-proc"]

    def setUp(self):
        super().setUp()
        self.program = self.copy_of(harness.fixture("spaces"))
        unshare = harness.need("unshare")
        if subprocess.run([unshare, *self.IN, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("no PID namespaces here")

    def definition(self, fetched="", program=None):
        return f"p:s/e {program or self.program}:hit name=+0(%di):string process=%si:s64 thread=%dx:s64 own=%cx:s64 {fetched}"

    def command(self, *words, spaces=1, flags=None):
        unshare = [harness.need("unshare"), *(flags or self.IN)]
        return ["sh", "-c", 'exec 9</proc; exec "$@"', "sh", *(unshare * spaces), self.program, *words]

    def hits(self, name="trace"):
        with open(self.path(name), encoding="latin-1") as file:
            return harness.parse_trace(file.read())

    def trace(self, *command, options=()):
        done = harness.run([*harness.tracer("-o", self.path("trace"), *options), "-p", self.definition("n=$nspid"), "--",
                            *command])
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.hits()

    def check(self, hits, count):
        """The number of the thread; if it had ended too early, that of its process, and never another one's."""
        self.assertEqual(len(hits), count)
        wrong = []
        for hit in hits:
            said = Said(hit)
            numbers = (said.thread, said.process)
            if hit.task != said.name or hit.tid not in numbers or said.n not in (None, said.own):
                wrong.append((hit.task, hit.tid, hit.rest))
        self.assertEqual(wrong, [])


class Shown(Spaces):
    def test_forks(self):
        hits = self.trace(*self.command("forks", "20"))
        self.check(hits, 30)
        self.assertTrue(all(Said(hit).own < 100 for hit in hits))

    def test_threads(self):
        self.check(self.trace(*self.command("threads", "50")), 50)

    def test_execs(self):
        os.symlink(self.program, self.path("leaf"))
        self.check(self.trace(*self.command("execs", "10", self.path("leaf"))), 10)

    def test_a_proc_of_the_tools(self):
        self.check(self.trace(*self.command("forks", "6", flags=["--pid", "--fork"])), 9)

    def test_a_user_namespace(self):
        flags = ["--user", "--map-root-user", *self.IN]
        if subprocess.run([harness.need("unshare"), *flags, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("no user namespaces here")
        self.check(self.trace(*self.command("forks", "6", flags=flags)), 9)

    def test_nested(self):
        self.check(self.trace(*self.command("forks", "6", spaces=3)), 9)

    def test_the_program_makes_them(self):
        self.check(self.trace(*self.command("space", "forks", "6", spaces=0)), 1 + 9)
        self.check(self.trace(*self.command("space", "space", "threads", "4")), 2 + 4)

    def test_two_at_once(self):
        space = " ".join(self.command("forks", "10")[4:])
        hits = self.trace("sh", "-c", f"exec 9</proc; {space} & {space} & wait; exec {self.program} forks 4")
        self.check(hits, 15 + 15 + 6)

    def test_in_a_filter(self):
        """Without requests to the tool: children are found in /proc while they live, and never taken for others."""
        inside = self.command("filtered", "child", "stay", "2")
        self.write("trace", "")
        process = subprocess.Popen([*harness.tracer("-o", self.path("trace")), "-p", self.definition("n=$nspid"), "--", *inside],
                                   stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            harness.wait_until(lambda: len([hit for hit in self.hits() if hit.tid != 0]) > 100, "numbers of a child under a filter")
        finally:
            process.communicate(b"", 20)
        hits = self.hits()
        known = [hit for hit in hits if hit.tid != 0]
        self.check(known, len(known))
        self.assertTrue(all(hit.tid == Said(hit).thread for hit in known))
        self.assertEqual({hit.task for hit in hits if hit.tid == 0} - {"<...>"}, set())

    def test_a_tool_inside(self):
        """The tool's namespace counts, whatever namespace that is in."""
        outer = [harness.need("unshare"), *self.IN]
        done = harness.run([*outer, *harness.tracer("-o", self.path("trace")), "-p", self.definition("n=$nspid"), "--",
                            *self.command("forks", "6")])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check(self.hits(), 9)
        self.assertTrue(all(hit.tid < 300 for hit in self.hits()))

    def test_here_nothing_is_another(self):
        hits = self.trace(*self.command("forks", "4", spaces=0))
        self.check(hits, 6)
        self.assertTrue(all(hit.tid == Said(hit).thread == Said(hit).own for hit in hits))

    def test_as_the_kernel(self):
        """Of processes the same; of short-lived threads it knows their own numbers."""
        oracle.require()
        place = f"{self.program}:{Elf(self.program).offset_of('hit'):#x}"
        fetched = self.definition().split(" ", 2)[2]
        kernel = oracle.run_kernel([f"p:e {place} {fetched}"], self.command("forks", "6")).hits
        self.check(kernel, 9)
        self.assertTrue(all(hit.tid == Said(hit).thread for hit in kernel))
        ours = self.trace(*self.command("forks", "6"))
        self.assertTrue(all(hit.tid == Said(hit).thread for hit in ours if Said(hit).process == Said(hit).thread))

    def test_preloaded(self):
        """There the tool is in the namespace of the program, and so are its numbers."""
        flags = " ".join(f"{name}='{value}'" for name, value in
                         harness.preloaded(UPROBE_PROBES=self.definition(), UPROBE_OUTPUT=self.path("trace.%p")).items())
        done = harness.run(self.command()[:-1] + ["sh", "-c", f"{flags} {self.program} forks 4; exit $?"])
        self.assertEqual(done.returncode, 0, done.stderr)
        traces = [name for name in os.listdir(self.path("")) if name.startswith("trace.")]
        self.assertEqual(len(traces), 1)
        hits = self.hits(traces[0])
        self.assertEqual(len(hits), 6)
        self.assertTrue(all(hit.tid == Said(hit).own for hit in hits))
        self.assertTrue(2 <= int(traces[0].removeprefix("trace.")) < 50)


class Stranger(Spaces):
    """A thread of the tool's namespace whose number is that of a traced process in its own; it is traced as well."""
    def setUp(self):
        super().setUp()
        self.other = self.path("stranger")
        os.link(self.program, self.other)
        self.running = []
        self.stranger = self.start([self.other, "stay", "0"])
        inside = self.command("own", str(self.stranger), "stay", "2")
        self.start(inside)
        harness.wait_until(self.inner, "the process inside")
        self.process = self.inner()

    def tearDown(self):
        for process in self.running:
            process.stdin.close()
            process.wait()
        super().tearDown()

    def start(self, command):
        process = subprocess.Popen(command, stdin=subprocess.PIPE)
        self.running.append(process)
        return process.pid

    def inner(self):
        for pid in harness.descendants(self.running[1].pid):
            if self.numbers(f"/proc/{pid}")[-1:] == [self.stranger]:
                return pid
        return None

    def numbers(self, folder):
        try:
            with open(folder + "/status", encoding="latin-1") as status:
                return [int(word) for word in re.search(r"^NSpid:(.*)$", status.read(), re.M)[1].split()]
        except OSError:
            return []

    def threads(self):
        harness.wait_until(lambda: len(os.listdir(f"/proc/{self.process}/task")) == 3, "its threads")
        return sorted(int(tid) for tid in os.listdir(f"/proc/{self.process}/task"))

    def attach(self, *options):
        whom = ["-P", str(self.process), "-P", str(self.stranger)]
        done = harness.run([*harness.tracer("-o", self.path("trace"), "-d", "1"), "-p", self.definition("n=$nspid"), *options, *whom])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.summary = done.stderr
        return self.hits()

    def test_both(self):
        threads = self.threads()
        hits = self.attach()
        self.check(hits, len(hits))
        self.assertEqual({hit.tid for hit in hits}, {*threads, self.stranger})
        self.assertTrue(all(hit.tid == Said(hit).thread for hit in hits))
        self.assertEqual({hit.task for hit in hits if hit.tid == self.stranger}, {"stranger"})

    def test_filters(self):
        first, other = self.threads()[:2]
        for filter_text, wanted in ((f"common_pid == {other}", {other}), (f"common_pid == {first}", {first}),
                                    (f"common_pid == {self.stranger}", {self.stranger}),
                                    (f"common_pid != {self.stranger} && own != 0", set(self.threads())),
                                    (f"n == {self.stranger}", {first, self.stranger}),
                                    (f"common_pid == {other} && comm == \"stayer\"", {other}),
                                    ("common_pid == 1", set())):
            hits = self.attach("--filter", filter_text)
            self.assertEqual({hit.tid for hit in hits}, wanted, filter_text)
            self.check(hits, len(hits))

    def test_histograms(self):
        threads = self.threads()
        text = self.histogram("hist:keys=common_pid")
        self.assertEqual({int(key) for key in re.findall(r"common_pid: +(\d+)", text)}, {*threads, self.stranger})
        text = self.histogram("hist:keys=common_pid.execname")
        rows = {int(tid): name for name, tid in re.findall(r"common_pid: (\S+) +\[ *(\d+)\]", text)}
        self.assertEqual(rows, {self.process: "spaces", **{tid: "stayer" for tid in threads[1:]}, self.stranger: "stranger"})
        text = self.histogram("hist:keys=common_pid.log2")
        self.assertEqual({int(key) for key in re.findall(r"~ 2\^(\d+)", text)},
                         {(tid - 1).bit_length() for tid in (*threads, self.stranger)})
        text = self.histogram("hist:keys=common_comm:vals=common_pid")
        self.assertEqual(re.findall(r"common_comm: (\S+)", text), ["stranger"], "of the others the number is not known there")
        self.assertGreater(int(re.search(r"Dropped: (\d+)", text)[1]), 0)

    def histogram(self, trigger):
        self.attach("--trigger", trigger, "--hist-file", self.path("hist"))
        with open(self.path("hist"), encoding="latin-1") as file:
            return file.read()

    def test_triggers(self):
        """A trigger acts at the hit: the number of a process's first thread is known there."""
        hits = self.attach("--trigger", f"traceoff if common_pid == {self.process}")
        self.assertLessEqual(len([hit for hit in hits if hit.tid == self.process]), 1)
        hits = self.attach("--trigger", "traceoff if common_pid == 1")
        self.assertGreater(len([hit for hit in hits if hit.tid == self.process]), 1)
        self.assertIn(b"could not read comm (seccomp filter) or common_pid (PID namespace)", self.summary)

    def test_children_of_a_process_attached_to(self):
        """Forked later, and executing another program."""
        shell = self.command()[:-1] + ["sh", "-c", f"while [ ! -e {self.path('go')} ]; do sleep 0.1; done; {self.program} forks 6; true"]
        self.start(shell)
        harness.wait_until(lambda: len(harness.descendants(self.running[2].pid)) > 0, "the shell")
        inside = harness.descendants(self.running[2].pid)[0]
        tracer = subprocess.Popen([*harness.tracer("-o", self.path("trace")), "-p", self.definition("n=$nspid"), "-P", str(inside)],
                                  stderr=subprocess.PIPE)
        harness.wait_until(lambda: self.maps_session(inside), "the session in the shell")
        self.write("go", "")
        _, err = tracer.communicate(timeout=60)
        self.assertEqual(tracer.returncode, 0, err)
        self.check(self.hits(), 9)

    def maps_session(self, pid):
        with open(f"/proc/{pid}/maps", encoding="latin-1") as maps:
            return "uprobe-session" in maps.read()

    def test_name_of_the_output(self):
        done = harness.run([*harness.tracer("-o", self.path("trace.%p"), "-n", "1"), "-p", self.definition(), "-P", str(self.process)])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(os.path.exists(self.path(f"trace.{self.process}")))


class Refusals(harness.TestCase):
    def test_strict(self):
        done = harness.run([*harness.tracer("--strict"), "-p", f"p {harness.fixture('spaces')}:0x1000 $nspid", "--", "true"])
        self.assertNotEqual(done.returncode, 0)


harness.main()
