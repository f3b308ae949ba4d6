# SPDX-License-Identifier: MIT
"""A session changes while its programs run: probes are added, removed and switched through `uprobe-run --control`."""
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile

import harness


class Live(harness.TestCase):
    def setUp(self):
        super().setUp()
        harness.tool()
        self.program = self.copy_of(harness.fixture("live"))
        self.runtime = tempfile.TemporaryDirectory(prefix="uprobe-run.")
        self.addCleanup(self.runtime.cleanup)
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": self.runtime.name}

    def start(self, mode, *definitions, options=()):
        words = harness.tracer("--session", "it", "-o", self.path("trace"), "--profile", *options)
        for definition in definitions:
            words += ["-p", definition.format(self.program)]
        self.process = subprocess.Popen([*words, "--", self.program, mode], stdin=subprocess.PIPE, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                                        env=self.environment)
        self.addCleanup(harness.stop_group, self.process)
        self.assertEqual(self.process.stdout.readline(), "ready\n", "the program has begun")

    def ask(self, *words, session="it"):
        words = [word.format(self.program) if word.startswith(("p:", "r:")) else word for word in words]
        return harness.run([harness.tool(), "--control", session, *words], env=self.environment, cwd=self.folder)

    def told(self, *words):
        seen = self.ask(*words)
        self.assertEqual((seen.returncode, seen.stderr), (0, b""), words)
        return seen.stdout.decode()

    def round(self, line=""):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        self.assertEqual(self.process.stdout.readline(), "done\n")

    def finish(self, line=""):
        out, err = self.process.communicate(line, timeout=harness.TIMEOUT)
        self.assertEqual(self.process.returncode, 0, err)
        hits = {}
        for name, number in re.findall(r"^  \S+ +(\S+) +(\d+) +\d+$", err, re.M):
            hits[name] = hits.get(name, 0) + int(number)
        return out, hits, err

    def sockets(self):
        folder = os.path.join(self.runtime.name, "uprobe-run")
        return sorted(name for name in os.listdir(folder) if name[0] != ".") if os.path.exists(folder) else []


class Changes(Live):
    def test_hits_begin_and_end(self):
        self.start("rounds", "p:g {}:g n=%di")
        self.round()
        self.assertEqual(self.told("-p", "p:f {}:f n=%di:s64"), "added uprobes/f\n")
        self.round()
        self.assertEqual(self.told("--disable=f"), "disabled 1 probe\n")
        self.round()
        self.assertEqual(self.told("--enable", "uprobes/f"), "enabled 1 probe\n")
        self.round()
        self.assertEqual(self.told("--remove", "f"), "removed uprobes/f\n")
        self.round()
        _, hits, _ = self.finish()
        self.assertEqual(hits, {"g": 1000, "f": 400})
        with open(self.path("trace"), encoding="ascii") as file:
            trace = harness.parse_trace(file.read())
        arguments = [hit.arguments for hit in trace if hit.event == "f"]
        self.assertEqual(sorted(arguments), sorted(4 * [f"n={i}" for i in range(100)]))
        self.assertEqual(len({hit.tid for hit in trace if hit.event == "f"}), 2, "both processes")

    def test_a_filter_comes_with_its_probe(self):
        self.start("rounds", "p:g {}:g n=%di")
        self.assertEqual(self.told("-p", "p:f {}:f n=%di:s64", "--filter=n < 10 || n == 77"), "added uprobes/f\n")
        self.round()
        self.assertEqual(self.told("-p", "p:f3 {}:f n=%di:s64 if n == 5"), "added uprobes/f3\n")
        self.round()
        for words in (["p:f2 {}:f n=%di", "--filter=m < 10"], ["p:f2 {}:f n=%di if m < 10"]):
            refused = self.ask("-p", *words)
            self.assertEqual(refused.returncode, 125)
            self.assertIn(b"m < 10", refused.stderr)
        _, hits, _ = self.finish()
        self.assertEqual(hits, {"g": 400, "f": 400, "f3": 200}, "a hit that is filtered out is a hit")
        with open(self.path("trace"), encoding="ascii") as file:
            hits = harness.parse_trace(file.read())
        self.assertEqual(sorted(hit.arguments for hit in hits if hit.event == "f"),
                         sorted(4 * [f"n={i}" for i in [*range(10), 77]]))
        self.assertEqual([hit.arguments for hit in hits if hit.event == "f3"], 2 * ["n=5"])

    def test_what_comes_back_with_another_filter_is_another_one(self):
        self.start("rounds", "p:g {}:g n=%di")
        for limit in (10, 20):
            self.told("-p", "p:f {}:f n=%di:s64", f"--filter=n < {limit}")
            self.round()
            self.told("--remove", "f")
        self.finish()
        with open(self.path("trace"), encoding="ascii") as file:
            numbers = [hit.arguments for hit in harness.parse_trace(file.read()) if hit.event == "f"]
        self.assertEqual(sorted(numbers), sorted(2 * [f"n={i}" for limit in (10, 20) for i in range(limit)]))

    def test_the_text_is_as_before_without_consumers(self):
        self.start("rounds", "p:g {}:g", "p:h {}:h")
        pids = harness.descendants(self.process.pid)
        before = [self.text_of(pid) for pid in pids]
        self.told("-p", "p:f {}:f", "-p", "r:fr {}:f", "-p", "p:h2 {}:h")
        self.assertNotEqual([self.text_of(pid) for pid in pids], before)
        self.told("--remove", "f", "--remove", "fr", "--remove", "h2")
        self.assertEqual([self.text_of(pid) for pid in pids], before)
        self.told("--clear")
        with open(self.program, "rb") as file:
            whole = file.read()
        for pid in pids:
            self.assertIn(self.text_of(pid), whole, "the file's")
        self.finish()

    def text_of(self, pid):
        with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
            line = next(line for line in file if line.rstrip().endswith(self.program) and " r-xp " in line)
        begin, end = (int(word, 16) for word in line.split()[0].split("-"))
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(begin)
            return memory.read(end - begin)

    def test_second_consumer_of_a_point(self):
        self.start("rounds", "p:g {}:g n=%di")
        self.told("-p", "p:also {}:g text=+0(%si):string")
        self.round()
        self.told("--remove", "also")
        self.round()
        self.told("-p", "p:again {}:g")
        self.told("--remove", "g")
        self.round()
        _, hits, _ = self.finish()
        self.assertEqual(hits, {"g": 400, "also": 200, "again": 200})

    def test_returns(self):
        self.start("rounds", "p:g {}:g")
        self.told("-p", "r:fr {}:f value=$retval")
        self.round()
        _, hits, _ = self.finish()
        self.assertEqual(hits, {"g": 200, "fr": 200})
        with open(self.path("trace"), encoding="ascii") as file:
            values = [hit.arguments for hit in harness.parse_trace(file.read()) if hit.event == "fr"]
        self.assertEqual(sorted(values), sorted(2 * [f"value={3 * i + 1:#x}" for i in range(100)]))

    def test_a_file_without_probes_before(self):
        self.start("rounds", "p:w " + harness.libc_of(self.program) + ":fork")
        self.told("-p", "p:f {}:f", "-p", "r:gr {}:g $retval")
        self.round()
        _, hits, _ = self.finish()
        self.assertEqual((hits["f"], hits["gr"]), (200, 200))

    def test_inside_of_what_a_jump_has_displaced(self):
        self.start("rounds", "p:f {}:f", "p:h {}:h")
        inside = next(offset for offset in range(1, 5) if self.ask("-p", f"p:in {{}}:h+{offset}").returncode == 0)
        self.round()
        self.told("--remove", "in", "--remove", "h")
        self.round()
        self.told("-p", "p:h {}:h", "-p", f"p:in {{}}:h+{inside}")
        self.round()
        self.told("--remove", "h")
        self.round()
        _, hits, _ = self.finish()
        self.assertEqual(hits, {"h": 400, "in": 600, "f": 800})

    def test_new_code_has_what_was_added(self):
        self.start("rounds", "p:g {}:g")
        libm = os.path.join(os.path.dirname(harness.libc_of(self.program)), "libm.so.6")
        self.told("-p", f"p:cbrt {libm}:cbrt", "-p", "p:f {}:f")
        self.round("load")
        self.told("--disable")
        self.process.stdin.write("exec\n")
        self.process.stdin.flush()
        self.assertEqual(self.process.stdout.readline(), "ready\n")
        self.round()
        self.told("--enable=f", "--remove", "g")
        self.round()
        _, hits, _ = self.finish()
        self.assertEqual(hits, {"g": 0, "cbrt": 200, "f": 200})

    def test_what_comes_back_takes_no_further_room(self):
        self.start("rounds", "p:g {}:g")
        libc = harness.libc_of(self.program)
        for _ in range(9):  # 1,024 events can be added
            self.assertRegex(self.told("-p", f"p:many/* {libc}:f*"), r"added 1\d\d probes")
            self.assertRegex(self.told("--remove", "many/"), r"removed 1\d\d probes")
        self.round()
        _, hits, _ = self.finish()
        self.assertEqual(hits["g"], 200)

    def test_a_session_that_is_full(self):
        self.start("rounds", "p:g {}:g")
        seen = self.ask("-p", f"p:many/* {harness.libc_of(self.program)}:*")
        self.assertEqual((seen.returncode, seen.stdout), (125, b""))
        self.assertIn(b"no room for further events", seen.stderr)
        self.assertEqual(self.told("--list").count("\n"), 1)
        self.told("-p", "p:f {}:f")  # nothing of it has been taken
        self.round()
        _, hits, _ = self.finish()
        self.assertEqual(hits, {"g": 200, "f": 200})

    def test_many_at_one_point(self):
        self.start("rounds", "p:g {}:g")
        words = []
        for i in range(200):
            words += ["-p", f"p:e{i} {{}}:g"]
        self.told(*words)
        self.round()
        self.told("--remove", "uprobes/")
        self.round()
        _, hits, _ = self.finish()
        self.assertEqual(hits, {"g": 200, **{f"e{i}": 200 for i in range(200)}})

    def test_list_and_stats(self):
        self.start("rounds", "p:g {}:g n=%di")
        self.told("-p", "p:mine/f {}:f", "--disable", "mine/")
        self.assertEqual(re.sub(r"0x0\w+", "OFFSET", self.told("--list")),
                         f"p:uprobes/g {self.program}:OFFSET n=%di # on\np:mine/f {self.program}:OFFSET # off\n")
        self.round()
        harness.wait_until(lambda: self.told("--stats") == "uprobes/g 200 hits, 0 lost\nmine/f 0 hits, 0 lost\n",
                           "the hits of one round")
        self.assertEqual(self.told("--clear"), "removed 2 probes\n")
        self.assertEqual(self.told("--list"), "")
        self.finish()

    def test_a_pattern_adds_all_or_nothing(self):
        self.start("rounds", "p:g {}:g")
        self.assertRegex(self.told("-p", "p:all/* {}:[fh]"), r"added 2 probes")
        self.round()
        self.assertEqual(self.told("--remove", "all/"), "removed 2 probes\n")
        _, hits, _ = self.finish()
        self.assertEqual(hits, {"g": 200, "f": 200, "h": 200})


class Storm(Live):
    def test_two_hundred_changes_under_hot_threads(self):
        """Unchanged events lose nothing, changes break nothing: the program checks each of its results."""
        self.start("hot", "p:g {}:g n=%di", "p:h {}:h", options=["-b", "64K"])
        pick = random.Random(7)
        # What begins as a jump over several instructions of h becomes a breakpoint, goes and comes back.
        inside = next(offset for offset in range(1, 5) if self.ask("-p", f"p:in {{}}:h+{offset}").returncode == 0)
        definitions = {"f": "p:f {}:f n=%di", "h": "p:h {}:h", "fr": "r:fr {}:f $retval", "g2": "p:g2 {}:g %si",
                       "hr": "r:hr {}:h", "f2": "p:f2 {}:f", "in": f"p:in {{}}:h+{inside}"}
        there = {"h", "in"}
        for _ in range(200):
            name = pick.choice(sorted(definitions))
            if name not in there:
                self.told("-p", definitions[name])
                there.add(name)
            elif pick.random() < 0.5:
                self.told("--remove", name)
                there.discard(name)
            else:
                self.told(pick.choice(["--disable=", "--enable="]) + name)
        out, hits, err = self.finish("\n")
        self.assertEqual(hits["g"], int(out), err)
        for name in definitions:
            self.assertGreater(hits[name], 0, name)


class Mistakes(Live):
    def test_the_kernels_words_and_nothing_has_changed(self):
        self.start("rounds", "p:g {}:g")
        for words, message in ((["-p", "p:f {}:f +0(%di:string"], b"brace"), (["-p", "p:g {}:g"], b"exact same"),
                               (["--remove", "nix"], b"No event matches"), (["--disable", "nix"], b"no such event"),
                               (["-p", "p:x {}:nothing"], b"no function 'nothing'"),
                               (["-p", "p:x /nix:f"], b"/nix")):
            seen = self.ask(*words)
            self.assertEqual(seen.returncode, 125, words)
            self.assertIn(message, seen.stderr)
        self.assertEqual(self.told("--list").count("\n"), 1)
        self.finish()

    def test_orders_before_the_mistake_stay(self):
        self.start("rounds", "p:g {}:g")
        seen = self.ask("-p", "p:f {}:f", "-p", "p:x {}:nothing", "-p", "p:h {}:h")
        self.assertEqual((seen.returncode, seen.stdout), (125, b"added uprobes/f\n"))
        self.assertIn(b"^", seen.stderr)
        self.assertEqual(self.told("--list").count("\n"), 2)
        self.finish()

    def test_no_such_session(self):
        for session in ("it", "12", "a/b"):
            seen = self.ask("--list", session=session)
            self.assertEqual(seen.returncode, 125, session)

    def test_words(self):
        for words in (["--control", "it"], ["--control", "it", "--list", "program"], ["--remove", "x", "program"],
                      ["--control", "it", "--dry-run", "-p", "p:f /bin/sh:0"], ["--control", "it", "--session", "x"]):
            seen = harness.run([harness.tool(), *words], env=self.environment)
            self.assertEqual(seen.returncode, 125, words)


class Door(Live):
    def test_only_the_owners(self):
        self.start("rounds", "p:g {}:g")
        folder = os.path.join(self.runtime.name, "uprobe-run")
        self.assertEqual(os.stat(folder).st_mode & 0o777, 0o700)
        self.assertEqual(self.sockets(), sorted([str(self.process.pid), "it"]))
        self.assertEqual(os.stat(os.path.join(folder, "it")).st_mode & 0o777, 0o600)
        if os.geteuid() != 0:
            return
        # Whatever the modes allow, the tool checks the credentials of the peer.
        for path in (self.runtime.name, folder, os.path.join(folder, "it"), self.folder):
            os.chmod(path, 0o777)
        stranger = ("import socket,sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n"
                    "try: s.sendall(bytes([1,0,0,0, 6,0,0,0, 0,0,0,0, 0,0,0,0])), s.shutdown(1)\n"
                    "except OSError: pass\nsys.stdout.buffer.write(s.recv(4096))")
        seen = harness.run(["python3", "-c", stranger, os.path.join(folder, "it")],
                           before_exec=harness.become)
        self.assertIn(b"another user's", seen.stdout, seen.stderr)
        for path in (folder, self.runtime.name):
            os.chmod(path, 0o700)
        self.round()
        _, hits, _ = self.finish()
        self.assertEqual(hits, {"g": 200}, "no command has cleared it")

    def test_gone_at_the_end(self):
        self.start("rounds", "p:g {}:g")
        self.finish()
        self.assertEqual(self.sockets(), [])

    def test_gone_when_the_session_ends_before_the_program(self):
        self.start("rounds", "p:g {}:g", options=["-n", "50"])
        self.round()
        harness.wait_until(lambda: self.sockets() == [], "the session's end")
        self.assertEqual(self.ask("--list").returncode, 125)
        self.finish()

    def test_a_name_that_is_taken_and_one_that_is_left_over(self):
        self.start("rounds", "p:g {}:g")
        again = harness.run([harness.tool(), "--session", "it", "-p", f"p:g {self.program}:g", "true"],
                            env=self.environment)
        self.assertEqual(again.returncode, 125)
        self.assertIn(b"is running", again.stderr)
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.assertEqual(self.ask("--list").returncode, 125)
        self.assertEqual(len(self.sockets()), 2, "no tool was left to remove them")
        true = shutil.which("true")
        seen = harness.run([harness.tool(), "--session", "it", "-p", f"p:g {self.program}:g", true],
                           env=self.environment)
        self.assertEqual(seen.returncode, 0, seen.stderr)
        self.assertEqual(self.sockets(), [])

    def test_a_stopped_tool_holds_no_process_up(self):
        self.start("rounds", "p:g {}:g")
        harness.stop(self.process.pid)
        true = shutil.which("true")
        for _ in range(25):  # more than wait in its queue
            seen = harness.run([harness.tool(), "-p", f"p:g {self.program}:g", true], env=self.environment)
            self.assertEqual(seen.returncode, 0, seen.stderr)
        os.kill(self.process.pid, signal.SIGCONT)
        harness.wait_until(lambda: self.ask("--list").returncode == 0, "room in its queue")
        self.assertEqual(self.told("--list").count("\n"), 1)
        self.finish()

    def test_a_folder_of_another_user_is_not_used(self):
        os.mkdir(os.path.join(self.runtime.name, "uprobe-run"), 0o777)
        os.chmod(os.path.join(self.runtime.name, "uprobe-run"), 0o777)
        seen = harness.run([harness.tool(), "--session", "it", "-p", f"p:g {self.program}:g", self.program, "hot"],
                           env=self.environment, stdin=b"\n")
        self.assertEqual((seen.returncode, seen.stdout), (125, b""))
        seen = harness.run([harness.tool(), "-p", f"p:g {self.program}:g", self.program, "hot"], env=self.environment,
                           stdin=b"\n")
        self.assertEqual(seen.returncode, 0, "without a name it goes without a door")


if __name__ == "__main__":
    harness.main()
