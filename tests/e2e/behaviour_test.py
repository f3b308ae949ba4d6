# SPDX-License-Identifier: MIT
"""The tool's behaviour around a program: exit codes, streams, signals, limits, and leftovers.

The first rule is tested throughout: the program does the same as without the tool.
"""
import os
import re
import shutil
import signal
import subprocess

import harness



class Behaviour(harness.TestCase):
    def setUp(self):
        super().setUp()
        harness.tool()
        self.subject = self.copy_of(harness.fixture("subject"))
        self.numbers = f"p:numbers {self.subject}:take_numbers %di:u64"

    def start(self, options, command, **more):
        """Starts the tool in a group of its own and leaves it running; the whole group is killed at the end."""
        process = subprocess.Popen([harness.tool(), *options, "--", *command], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, **more)
        self.addCleanup(harness.stop_group, process)
        return process

    def start_rounds(self, *options):
        process = self.start([*options, "-o", self.path("trace"), "-p", self.numbers], [self.subject, "rounds"])
        self.assertEqual(process.stdout.readline(), b"ready\n")
        return process

    def target_of(self, process):
        """The process of the subject under a started tool."""
        mine = [pid for pid in harness.descendants(process.pid) if exe_of(pid) == os.path.realpath(self.subject)]
        self.assertEqual(len(mine), 1, "processes of the subject")
        return mine[0]

    def round(self, process):
        process.stdin.write(b"\n")
        process.stdin.flush()
        self.assertEqual(process.stdout.readline(), b"done\n")

    def recorded(self, name="trace"):
        with open(self.path(name), encoding="latin-1", newline="") as file:
            return file.read()


def exe_of(pid):
    try:
        return os.path.realpath(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return None


class ExitCodes(Behaviour):
    def test_the_childs_code(self):
        for code in (0, 1, 7, 125, 255):
            seen = harness.run_tool([self.numbers], [self.subject, "exit", str(code)])
            self.assertEqual((seen.returncode, seen.counts()), (code, {"numbers": 1}), seen.stderr)

    def test_the_childs_signal(self):
        for number in (signal.SIGSEGV, signal.SIGTERM, signal.SIGKILL, signal.SIGABRT, signal.SIGTRAP, signal.SIGBUS,
                       signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            with self.subTest(signal=number):
                seen = harness.run_tool([self.numbers], [self.subject, "raise", str(int(number))])
                self.assertEqual(seen.returncode, -number, seen.stderr)
                self.assertEqual(seen.counts(), {"numbers": 1}, seen.stderr)

    def test_no_core_of_the_tool_itself(self):
        seen = harness.run([harness.tool(), "-p", self.numbers, "--", self.subject, "raise", "11"], cwd=self.folder)
        self.assertEqual(seen.returncode, -signal.SIGSEGV)
        self.assertNotIn("uprobe-run", " ".join(name for name in os.listdir(self.folder) if "core" in name))

    def test_program_not_found(self):
        for name in ("/no/such/program", "no-such-program-anywhere", self.path("missing")):
            seen = harness.run_tool([self.numbers], [name])
            self.assertEqual(seen.returncode, 127, seen.stderr)
            self.assertIn(b"uprobe-run: ", seen.stderr)

    def test_program_not_executable(self):
        for name in (self.write("plain", "echo hello\n", 0o644), self.folder):
            seen = harness.run_tool([self.numbers], [name])
            self.assertEqual(seen.returncode, 126, seen.stderr)
            self.assertIn(b"uprobe-run: ", seen.stderr)

    def test_a_script_runs_its_interpreter(self):
        script = self.write("script", f"#!{self.subject} calls\n", 0o755)
        seen = harness.run_tool([self.numbers], [script])
        plain = harness.run([script])
        self.assertEqual((seen.returncode, seen.stdout), (plain.returncode, plain.stdout), seen.stderr)


class Streams(Behaviour):
    def test_trace_goes_to_standard_error(self):
        plain = harness.run([self.subject, "calls", "5"])
        seen = harness.run([harness.tool(), "-p", self.numbers, "--", self.subject, "calls", "5"])
        self.assertEqual(seen.stdout, plain.stdout)
        self.assertEqual(len(harness.parse_trace(seen.stderr.decode("latin-1"))), 5)

    def test_trace_goes_to_a_file(self):
        seen = harness.run_tool([self.numbers], [self.subject, "calls", "5"])
        self.assertEqual(len(seen.hits), 5)
        self.assertEqual(harness.parse_trace(seen.stderr.decode("latin-1")), [])

    def test_trace_goes_to_standard_output(self):
        seen = harness.run([harness.tool(), "-o", "-", "-p", self.numbers, "--", self.subject, "calls", "5"])
        self.assertIn(b"end calls\n", seen.stdout)
        without = b"".join(line for line in seen.stdout.splitlines(True) if line != b"end calls\n")
        self.assertEqual(len(harness.parse_trace(without.decode("latin-1"))), 5)

    def test_bytes_pass_through_unchanged(self):
        everything = bytes(range(256)) * 2000
        seen = harness.run_tool([self.numbers], [harness.need("cat")], stdin=everything)
        self.assertEqual((seen.returncode, seen.stdout), (0, everything), seen.stderr)

    def test_a_reader_that_goes_away_does_not_harm_the_program(self):
        reader, writer = os.pipe()
        os.close(reader)
        marker = self.path("marker")
        job = f"'{self.subject}' calls 3 >/dev/null; touch '{marker}'; exit 5"
        process = subprocess.Popen([harness.tool(), "-o", "-", "-p", self.numbers, "--", "sh", "-c", job],
                                   stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.DEVNULL,
                                   start_new_session=True)
        os.close(writer)
        self.addCleanup(harness.stop_group, process)
        self.assertEqual(process.wait(harness.TIMEOUT), 5)
        self.assertTrue(os.path.exists(marker))

    def test_closed_standard_streams(self):
        def close_all():
            for descriptor in (0, 1, 2):
                os.close(descriptor)
        words = [harness.tool(), "-o", self.path("trace"), "-p", self.numbers, "--", self.subject, "exit", "6"]
        process = subprocess.Popen(words, preexec_fn=close_all, start_new_session=True)
        self.addCleanup(harness.stop_group, process)
        self.assertEqual(process.wait(harness.TIMEOUT), 6)
        self.assertEqual(len(harness.parse_trace(self.recorded())), 1)

    def test_a_probe_never_hit_is_mentioned(self):
        seen = harness.run_tool([self.numbers], ["true"])
        self.assertEqual((seen.returncode, seen.hits), (0, []))
        self.assertRegex(seen.stderr, rb"uprobe-run: .*numbers|numbers.*\b0\b", "silence about a probe without hits")


class Unchanged(Behaviour):
    """The state of the tool that a program could see."""

    def compare(self, command, pick=lambda text: text, env=None):
        plain = harness.run(command, env=env)
        seen = harness.run_tool([self.numbers], command, env=env)
        self.assertEqual(pick(seen.stdout), pick(plain.stdout), seen.stderr)

    def test_environment(self):
        self.compare([harness.need("env"), "-0"])
        self.compare([harness.need("env"), "-0"], env={"ONLY": "one", "EMPTY": "", "UPROBE_X": "y", "LD_BIND_NOW": "1"})
        self.compare([harness.need("env"), "-0"], env={})

    def test_arguments(self):
        self.compare([harness.need("cat"), "/proc/self/cmdline"])
        self.compare([harness.need("printf"), "%s\\n", "", "a b", "-p", "--", "\xff\n"])

    def test_open_descriptors(self):
        self.compare(["ls", "/proc/self/fd"])

    def test_signal_state(self):
        def pick(text):
            return [line for line in text.splitlines() if line.split(b":")[0] in (b"SigBlk", b"SigIgn", b"SigPnd")]
        self.compare([harness.need("cat"), "/proc/self/status"], pick)

    def test_limits_umask_and_folder(self):
        self.compare([harness.need("cat"), "/proc/self/limits"])
        self.compare(["sh", "-c", "umask; pwd; ulimit -c"])

    def test_personality_and_seccomp(self):
        def pick(text):
            kept = (b"Seccomp", b"NoNewPrivs", b"Groups", b"Uid")
            return [line for line in text.splitlines() if line.split(b":")[0] in kept]
        self.compare([harness.need("cat"), "/proc/self/status"], pick)

    def test_the_program_has_no_tracer(self):
        process = self.start(["-o", self.path("trace"), "-p", self.numbers], [self.subject, "wait"])
        self.assertEqual(process.stdout.readline(), b"ready\n")
        target = self.target_of(process)
        with open(f"/proc/{target}/status", encoding="ascii") as file:
            self.assertIn("TracerPid:\t0\n", file.read())
        memfds = [os.readlink(f"/proc/{target}/fd/{number}") for number in os.listdir(f"/proc/{target}/fd")]
        self.assertEqual([name for name in memfds if "memfd" in name], [])
        process.communicate(timeout=harness.TIMEOUT)
        self.assertEqual(process.returncode, 0)

    def test_nothing_is_left_behind(self):
        places = [self.path("tmp"), self.path("run")]
        for place in places:
            os.mkdir(place)
        environment = {**os.environ, "TMPDIR": places[0], "XDG_RUNTIME_DIR": places[1]}
        shared_memory = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
        seen = harness.run_tool([self.numbers], [self.subject, "forks", "3", "2"], env=environment)
        self.assertEqual(seen.returncode, 0, seen.stderr)
        self.assertEqual([os.listdir(place) for place in places], [[], []])
        left = {name for name in set(os.listdir("/dev/shm")) - shared_memory if "uprobe" in name}
        self.assertEqual(left, set())

    def test_no_zombie_while_it_runs(self):
        process = self.start_rounds()
        for _ in range(5):
            self.round(process)
        states = []
        for pid in harness.descendants(process.pid):
            with open(f"/proc/{pid}/stat", encoding="latin-1") as file:
                states.append(file.read().rpartition(")")[2].split()[0])
        self.assertNotIn("Z", states)
        process.communicate(timeout=harness.TIMEOUT)
        self.assertEqual(process.returncode, 0)


class Endings(Behaviour):
    """Kills, limits and stops in the middle."""

    def test_every_record_of_a_killed_program_is_printed(self):
        process = self.start_rounds()
        for _ in range(300):
            self.round(process)
        os.kill(self.target_of(process), signal.SIGKILL)
        self.assertEqual(process.wait(harness.TIMEOUT), -signal.SIGKILL)
        text = self.recorded()
        self.assertTrue(text.endswith("\n"))
        self.assertEqual([hit.arguments for hit in harness.parse_trace(text)], [f"arg1={n}" for n in range(300)])

    def test_a_kill_in_full_flight_leaves_whole_lines(self):
        options = ["-b", "64M", "-o", self.path("trace"), "-p", self.numbers]
        process = self.start(options, [self.subject, "endless"])
        self.assertEqual(process.stdout.readline(), b"ready\n")
        harness.wait_until(lambda: os.path.getsize(self.path("trace")) > 1 << 20, "a megabyte of trace")
        os.kill(self.target_of(process), signal.SIGKILL)
        process.communicate(timeout=harness.TIMEOUT)
        self.assertEqual(process.returncode, -signal.SIGKILL)
        text = self.recorded()
        self.assertTrue(text.endswith("\n"))
        body = [line for line in text.split("\n")[:-1] if not line.startswith("#")]
        self.assertEqual([line for line in body if not harness.RECORD.fullmatch(line)], [])
        numbers = [int(hit.arguments.removeprefix("arg1=")) for hit in harness.parse_trace(text)]
        self.assertEqual(numbers, sorted(set(numbers)), "records doubled or out of order")

    def test_the_program_survives_the_death_of_the_tool(self):
        process = self.start_rounds()
        self.round(process)
        target = self.target_of(process)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(harness.TIMEOUT)
        for _ in range(100):
            self.round(process)
        with open(f"/proc/{target}/status", encoding="ascii") as file:
            self.assertIn("TracerPid:\t0\n", file.read())
        process.stdin.close()
        self.assertEqual(process.stdout.read(), b"end rounds\n")

    def test_interrupt_from_the_terminal_ends_both(self):
        process = self.start_rounds()
        for _ in range(20):
            self.round(process)
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=harness.TIMEOUT)
        self.assertEqual(process.returncode, -signal.SIGINT)
        self.assertEqual(len(harness.parse_trace(self.recorded())), 20)

    def test_event_limit(self):
        for limit in (1, 5, 99):
            seen = harness.run_tool([self.numbers], [self.subject, "calls", "100"], ["-n", str(limit)])
            self.assertEqual((seen.returncode, seen.stdout, len(seen.hits)), (0, b"end calls\n", limit), seen.stderr)

    def test_event_limit_lets_the_program_go_on(self):
        seen = harness.run_tool([self.numbers], [self.subject, "calls", "200000"], ["-n", "3"])
        self.assertEqual((seen.returncode, seen.stdout, len(seen.hits)), (0, b"end calls\n", 3), seen.stderr)
        self.assertRegex(seen.stderr, rb": 3 hits(, lost .*)?\n", "later ones are not the user's")

    def test_duration_lets_the_program_go_on(self):
        process = self.start_rounds("-d", "50ms")
        rounds = 0

        def untraced():
            nonlocal rounds
            self.round(process)
            rounds += 1
            return rounds > len(harness.parse_trace(self.recorded())) + 50
        harness.wait_until(untraced, "the end of the duration")
        out, complaints = process.communicate(timeout=harness.TIMEOUT)
        self.assertEqual((process.returncode, out), (0, b"end rounds\n"), complaints)

    def test_a_full_ring_is_counted_and_harmless(self):
        seen = harness.run_tool([f"p:text {self.subject}:take_text +0(%di):string"], [self.subject, "calls", "100000"],
                                ["-b", "8K"])
        self.assertEqual((seen.returncode, seen.stdout), (0, b"end calls\n"))
        if len(seen.hits) < 100000:
            self.assertRegex(seen.stderr, rb"\d lost|lost \d|\d \w+ (?:were )?lost")
        texts = [hit.arguments for hit in seen.hits]
        self.assertEqual([text for text in texts if not re.fullmatch(r'arg1="round \d+ of the test"', text)], [])

    def test_standard_input_is_the_programs(self):
        seen = harness.run_tool([self.numbers], [self.subject, "rounds"], stdin=b"\n\n\n")
        self.assertEqual((seen.stdout, len(seen.hits)), (b"ready\ndone\ndone\ndone\nend rounds\n", 3))

    def test_as_an_ordinary_user(self):
        if os.geteuid() != 0:
            self.skipTest("this is an ordinary user already")
        os.chmod(self.folder, 0o777)
        try:
            seen = harness.run([harness.tool(), "-o", self.path("trace"), "-p", self.numbers, "--",
                                self.subject, "exit", "4"], before_exec=harness.become)
        except (PermissionError, subprocess.SubprocessError) as error:
            self.skipTest(f"the build folder is not open to others: {error}")
        self.assertEqual(seen.returncode, 4, seen.stderr)
        self.assertEqual(len(harness.parse_trace(self.recorded())), 1)


class BadInput(Behaviour):
    """Nothing starts if a word is wrong: one error, its place, and advice."""

    def setUp(self):
        super().setUp()
        self.marker = self.path("started")
        self.command = ["sh", "-c", f"touch '{self.marker}'"]

    def refused(self, options, *patterns, code=125, command=None, caret_under=None):
        if os.path.exists(self.marker):
            os.unlink(self.marker)
        seen = harness.run([harness.tool(), *options, "--", *(command or self.command)])
        text = seen.stderr.decode("utf-8", "replace")
        with self.subTest(options=[option[:200] for option in options]):
            self.assertEqual(seen.returncode, code, text)
            self.assertFalse(os.path.exists(self.marker), "the program was started")
            self.assertEqual(seen.stdout, b"")
            self.assertEqual(len(re.findall(r"^uprobe-run: ", text, re.M)), 1, text)
            for pattern in patterns:
                self.assertRegex(text, pattern)
            self.assertLess(max(map(len, text.splitlines())), 400, "a line of endless length")
            self.assertNotRegex(text, r"[\x00-\x08\x0b-\x1f\x7f]", "control bytes on the terminal")
            if caret_under is not None:
                self.check_caret(text, caret_under)
        return text

    def check_caret(self, text, word):
        lines = text.splitlines()
        carets = [index for index, line in enumerate(lines) if re.fullmatch(r" *\^", line)]
        self.assertEqual(len(carets), 1, text)
        quoted, caret = lines[carets[0] - 1], lines[carets[0]].index("^")
        self.assertTrue(quoted[caret:].startswith(word), f"caret under {quoted[caret:]!r}, not {word!r}\n{text}")

    def place(self, rest):
        return ["-p", f"p:e {self.subject}{rest}"]

    def test_files(self):
        self.refused(["-p", "p:e /no/such/file:0x10"], "/no/such/file", caret_under="/no/such/file")
        self.refused(["-p", "p:e /no/such/file:main"], "/no/such/file", caret_under="/no/such/file")
        self.refused(["-p", f"p:e {self.folder}:0x10"])
        text = self.write("text", "no program\n")
        self.refused(["-p", f"p:e {text}:0x1"])
        self.refused(["-p", f"p:e {self.write('empty', '')}:0x0"])
        self.refused(["-p", "p:e /dev/null:0x0"])

    def test_damaged_files(self):
        with open(self.subject, "rb") as file:
            whole = file.read()
        for name, content in {"short": whole[:70], "header": whole[:64], "cut": whole[:len(whole) // 2],
                              "wild": whole[:32] + b"\xff" * 32 + whole[64:],
                              "zeros": whole[:64] + bytes(len(whole) - 64)}.items():
            with open(self.path(name), "wb") as file:
                file.write(content)
            seen = harness.run([harness.tool(), "--dry-run", "-p", f"p:e {self.path(name)}:take_numbers"])
            self.assertIn(seen.returncode, (0, 125), (name, seen.returncode, seen.stderr))
            if name != "cut":
                self.assertEqual(seen.returncode, 125, (name, seen.stdout))

    def test_symbols(self):
        self.refused(self.place(":take_numbrs"), "take_numbrs", "take_numbers", caret_under="take_numbrs")
        self.refused(self.place(":no_such_function_at_all"), "no_such_function_at_all", caret_under="no_such")
        self.refused(self.place(":take_numbers+99999999"))
        self.refused(self.place(":"))
        self.refused(self.place(""))

    def test_offsets(self):
        self.refused(self.place(":0x99999999"), caret_under="0x99999999")
        self.refused(self.place(":0x0"))  # a file header is no code
        self.refused(self.place(":12zz"))
        self.refused(self.place(":0x10000000000000000"))
        self.refused(self.place(":-1"))

    def test_offset_inside_an_instruction(self):
        from elf_reader import Elf
        start = Elf(self.subject).offset_of("fixed_code")  # mov %rdi,%rax: 3 bytes
        for place in (":fixed_code+1", ":fixed_code+2", f":{start + 1:#x}"):
            self.refused(self.place(place), f"{start:#x}|fixed_code", f"{start + 3:#x}|fixed_code\\+0x3", r"--force")
        for place in (":fixed_code", ":fixed_code+3", f":{start + 3:#x}"):
            seen = harness.run([harness.tool(), "--dry-run", *self.place(place)])
            self.assertEqual(seen.returncode, 0, (place, seen.stderr))
        forced = harness.run([harness.tool(), "--dry-run", "--force", *self.place(":fixed_code+1")])
        self.assertEqual(forced.returncode, 0, forced.stderr)

    def test_fetch_arguments(self):
        good = ":take_numbers "
        self.refused(self.place(good + "%zz"), caret_under="%zz")
        self.refused(self.place(good + "%rdx0"), caret_under="%rdx0")
        self.refused(self.place(good + "%di:strnig"), caret_under="strnig")
        self.refused(self.place(good + "%edi:string"), caret_under="%edi:string")
        self.refused(self.place(good + "+0(%di"))
        self.refused(self.place(good + "+0(%di):u8[65]"))
        self.refused(self.place(good + "%di:b9@0/8"), caret_under="b9@0/8")
        self.refused(self.place(good + "$arg7"), caret_under="$arg7")
        self.refused(self.place(good + "$retval"), caret_under="$retval")
        self.refused(self.place(good + "foo"), caret_under="foo")
        self.refused(self.place(good + "a=%di a=%si"), caret_under="a=%si")
        self.refused(self.place(good + "1a=%di"))
        self.refused(self.place(good + "common_pid=%di"))

    def test_syntax(self):
        for definition in ("", " ", "p", "p:", "x:e /bin/true:0x1000", "p:/e /bin/true:0x1000", "P:e /bin/true:0x1000",
                           "hello", "1234", "-:e", "p:a-b /bin/true:0x1000", "p:e", "\x1b[31mred", "p:e \x01:\x02"):
            self.refused(["-p", definition])

    def test_returns_belong_to_the_beginning_of_a_function(self):
        self.refused(["-p", f"r:e {self.subject}:take_numbers+0x4"])
        self.refused(["--return=elsewhere", "-p", f"r:e {self.subject}:take_numbers"])

    def test_absurd_lengths(self):
        good = ":take_numbers "
        self.refused(self.place(good + " ".join(["%di"] * 129)))
        self.refused(self.place(good + "a" * 33 + "=%di"))
        self.refused(self.place(good + "+0(" * 40 + "%di" + ")" * 40))
        self.refused(self.place(good + "%di" + "x" * 100000))
        self.refused(["-p", "p:" + "e" * 64 + f" {self.subject}:take_numbers"])
        self.refused(["-p", "p:e /" + "x" * 100000 + ":0x10"])
        self.refused(["-p", "A" * 120000])
        self.refused(self.place(good + " ".join([f"a{n}=+0(%di):x64[64]" for n in range(8)])))  # over 3072 bytes fixed

    def test_as_many_arguments_as_the_kernel_takes(self):
        words = " ".join(["%di:u8"] * 128)
        seen = harness.run_tool([f"p:e {self.subject}:take_numbers {words}"], [self.subject, "calls", "1"])
        self.assertEqual(len(seen.hits), 1, seen.stderr)
        self.assertTrue(seen.hits[0].rest.endswith("arg128=0"))

    def test_more_names_than_the_kernel_has(self):
        words = "%rdi $arg1 %rsi:s32 $arg2:s32 %rip %ip"
        seen = harness.run_tool([f"p:e {self.subject}:take_numbers {words}"], [self.subject, "calls", "3"])
        self.assertEqual(len(seen.hits), 3, seen.stderr)
        for number, hit in enumerate(seen.hits):
            values = [value.partition("=")[2] for value in hit.arguments.split()]
            self.assertEqual(values, [hex(number)] * 2 + ["-2"] * 2 + [hex(hit.address)] * 2)

    def test_options(self):
        ring = ["-p", self.numbers]
        for options in (["--no-such-option"], ["-b", "1", *ring], ["-b", "99999G", *ring], ["-b", "x", *ring],
                        ["-b", "", *ring], ["-b", "-4K", *ring], ["-n", "0", *ring], ["-n", "-1", *ring],
                        ["-n", "abc", *ring],
                        ["-n", "99999999999999999999999", *ring], ["-d", "soon", *ring], ["-d", "-1", *ring],
                        ["-d", "", *ring], ["-i", "/no/such/list"], ["--color=sometimes", *ring]):
            self.refused(options)

    def test_outputs(self):
        for output in ("/no/such/folder/trace", self.folder, "/proc/version/x", ""):
            seen = harness.run([harness.tool(), "-o", output, "-p", self.numbers, "--", *self.command])
            self.assertEqual(seen.returncode, 125, (output, seen.stderr))
            self.assertFalse(os.path.exists(self.marker))

    def test_one_bad_definition_among_good_ones(self):
        bad = f"p:bad {self.subject}:take_numbrs"
        self.refused(["-p", self.numbers, "-p", bad, "-p", f"p:t {self.subject}:take_text"], "take_numbrs")
        listed = self.write("list", f"# comment\n\n{self.numbers}\n{bad}\n")
        self.refused(["-i", listed], "list:4")

    def test_no_program(self):
        seen = harness.run([harness.tool(), "-p", self.numbers])
        self.assertEqual(seen.returncode, 125)
        seen = harness.run([harness.tool()])
        self.assertEqual(seen.returncode, 125)


class Listings(Behaviour):
    def test_dry_run_starts_nothing_and_says_where(self):
        marker = self.path("started")
        seen = harness.run([harness.tool(), "--dry-run", "-p", self.numbers, "--", "sh", "-c", f"touch '{marker}'"])
        self.assertEqual(seen.returncode, 0, seen.stderr)
        self.assertFalse(os.path.exists(marker))
        self.assertRegex(seen.stdout.decode(), "int3|jump")
        self.assertIn("take_numbers", seen.stdout.decode())

    def test_dry_run_of_a_refused_place(self):
        seen = harness.run([harness.tool(), "--dry-run", "-p", f"p:e {self.subject}:take_numbrs"])
        self.assertEqual(seen.returncode, 125)

    def test_listed_lines_can_be_pasted_back(self):
        seen = harness.run([harness.tool(), "-x", self.subject, "-ltake_*"])
        self.assertEqual(seen.returncode, 0, seen.stderr)
        lines = seen.stdout.decode().splitlines()
        self.assertEqual(len(lines), 3, lines)
        for line in lines:
            again = harness.run_tool([line], [self.subject, "calls", "2"])
            self.assertEqual((again.returncode, len(again.hits)), (0, 2), (line, again.stderr))

    def check_listing(self, path):
        """All lines together are a list of definitions: each is good, none is there twice."""
        seen = harness.run([harness.tool(), "-x", path, "-l"])
        self.assertEqual(seen.returncode, 0, seen.stderr)
        self.assertGreater(seen.stdout.count(b"\n"), 500)
        checked = harness.run([harness.tool(), "--dry-run", "-i", self.write("list", seen.stdout.decode())])
        self.assertEqual(checked.returncode, 0, checked.stderr[:2000])

    def test_every_line_of_a_large_program_is_a_definition(self):
        self.check_listing(harness.need("zsh"))

    def test_every_line_of_a_library_with_symbol_versions_is_a_definition(self):
        listing = harness.run(["ldd", harness.need("zsh")]).stdout.decode()
        libc = re.search(r"(/\S*/libc\.so\.6)", listing)
        if not libc:
            self.skipTest("zsh has no glibc here")
        self.check_listing(libc[1])

    def test_default_object(self):
        definition = "p:numbers take_numbers %di:u64"
        seen = harness.run_tool([definition], [self.subject, "calls", "2"], ["-x", self.subject])
        self.assertEqual((seen.returncode, len(seen.hits)), (0, 2), seen.stderr)

    def test_agent_of_another_version(self):
        folder = os.path.dirname(harness.tool())
        for name in ("uprobe-run", "libuprobe.so"):
            shutil.copy(os.path.join(folder, name), self.path(name))
        said = harness.change_abi(self.path("libuprobe.so"))
        seen = harness.run([self.path("uprobe-run"), "-p", f"p {self.subject}:take_numbers", self.subject, "calls", "2"])
        self.assertEqual((seen.returncode, seen.stdout), (125, b""))
        self.assertEqual(seen.stderr.decode(), f"uprobe-run: {self.path('libuprobe.so')}: {said}\n")

    def test_help_and_version(self):
        for option in ("-h", "--help", "-V", "--version"):
            seen = harness.run([harness.tool(), option])
            self.assertEqual((seen.returncode, seen.stderr), (0, b""))
            self.assertIn(b"uprobe-run", seen.stdout)


if __name__ == "__main__":
    harness.main()
