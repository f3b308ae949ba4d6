# SPDX-License-Identifier: MIT
"""The preloaded library without the command line: it finds its helper, the output is complete when the command returns, and
the program sees neither the helper nor its starter. If that is impossible, the program runs unprobed.
"""
import contextlib
import os
import resource
import shutil
import signal
import subprocess
import unittest

import harness

ENVIRONMENT = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C"}


def library():
    path = os.path.join(os.path.dirname(harness.tool()), "libuprobe.so")
    if not os.path.exists(path):
        raise unittest.SkipTest("libuprobe.so is not built")
    return path


def need_root():
    if os.geteuid() != 0:
        raise unittest.SkipTest("needs root")


def limits(**values):
    """A function for the child: `ulimit` for each RLIMIT_name, soft and hard or a pair of them."""
    def lower():
        for name, value in values.items():
            number = getattr(resource, f"RLIMIT_{name}")
            resource.setrlimit(number, value if isinstance(value, tuple) else (value, value))
    return lower


class Preload(harness.TestCase):
    fixture = "preloaded_program"

    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o777)
        self.program = self.copy_of(harness.fixture(self.fixture))
        self.numbers = f"p:numbers {self.program}:take_number %di:u64"
        self.trace = self.path("trace")

    def variables(self, **more):
        found = {**ENVIRONMENT, "UPROBE_PROBES": self.numbers, "UPROBE_OUTPUT": self.trace, **more}
        return {name: value for name, value in found.items() if value is not None}

    def preloaded(self, command, before_exec=None, cwd=None, **more):
        """Runs a command with the library loaded into it, and reads the trace at the moment of its end."""
        seen = harness.run(command, env=self.variables(**{"LD_PRELOAD": library(), **more}), before_exec=before_exec, cwd=cwd)
        return self.read_trace(seen)

    def inside(self, preparation, *mode, wrapper=(), **more):
        """The same in an environment that the program makes, or a wrapper that must run without the library."""
        command = [*wrapper, self.program, preparation, library(), self.program, *mode]
        return self.read_trace(harness.run(command, env=self.variables(**more)))

    def read_trace(self, seen):
        if os.path.exists(self.trace):
            with open(self.trace, encoding="latin-1", newline="") as file:
                seen.text = file.read()
        return seen

    def numbers_of(self, seen):
        """Every printed summary stands after the last record."""
        return [int(hit.arguments.split("=")[1].split("\n# ")[0]) for hit in seen.hits]

    def assert_traced(self, seen, numbers=(1, 2), code=7):
        self.assertEqual((seen.returncode, self.numbers_of(seen)), (code, list(numbers)), seen.stderr)

    def assert_unprobed(self, seen, reason, code=7):
        """One line of the tool on stderr, nothing else changed."""
        self.assertEqual((seen.returncode, seen.hits), (code, []), seen.stderr)
        lines = seen.stderr.decode().splitlines()
        ours = [line for line in lines if line.startswith("uprobe")]
        self.assertEqual(len(ours), 1, lines)
        self.assertIn(reason, ours[0])


class Output(Preload):
    def test_complete_when_the_command_returns(self):
        for mode, numbers in (("plain", [1, 2]), ("quick", [1]), ("exec", [1, 1, 2])):
            with self.subTest(mode=mode):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(self.trace)
                self.assert_traced(self.preloaded([self.program, mode]), numbers)

    def test_forked_children(self):
        seen = self.preloaded([self.program, "forks"])
        self.assertEqual(sorted(self.numbers_of(seen)), [1, 2, 100, 101, 102, 103, 104], seen.stderr)
        self.assertEqual(len({hit.tid for hit in seen.hits}), 6)

    def test_as_under_the_tool(self):
        program = harness.need("ls")
        libc = next((line.split()[2] for line in subprocess.run(["ldd", program], capture_output=True, text=True)
                     .stdout.splitlines() if "libc.so.6" in line), None)
        if not libc:
            raise unittest.SkipTest("ls has no libc of its own")
        definition = f"p:m {os.path.realpath(libc)}:malloc %di:u64"
        under_tool = harness.run_tool([definition], [program, "/"], env=ENVIRONMENT)
        alone = self.preloaded([program, "/"], UPROBE_PROBES=definition)
        self.assertEqual(alone.stdout, under_tool.stdout)
        self.assertEqual([hit.arguments for hit in alone.hits], [hit.arguments for hit in under_tool.hits])
        self.assertNotEqual(alone.hits, [])

    def test_exec_in_children_appends_to_one_file(self):
        shell = harness.need("sh")
        seen = self.preloaded([shell, "-c", '"$0" plain; "$0" plain; exit 3', self.program])
        self.assert_traced(seen, [1, 2, 1, 2], 3)
        self.assertEqual(seen.text.count("# tracer:"), 1, "the header stands once, at the top")

    def test_pid_in_the_name(self):
        seen = self.preloaded([self.program], UPROBE_OUTPUT=self.path("of.%p"))
        names = [name for name in os.listdir(self.folder) if name.startswith("of.")]
        self.assertEqual(len(names), 1, seen.stderr)
        with open(self.path(names[0]), encoding="latin-1") as file:
            hits = harness.parse_trace(file.read())
        self.assertEqual({f"of.{hit.tid}" for hit in hits}, set(names))

    def test_a_recording(self):
        recording = self.path("recording")
        self.preloaded([self.program, "forks"], UPROBE_OUTPUT=None, UPROBE_RECORD=recording)
        def replayed():
            return harness.run([harness.tool(), "--replay", recording])
        harness.wait_until(lambda: b"has no end" not in replayed().stderr, "the recording's last entry")
        again = replayed()
        self.assertEqual(again.returncode, 0, again.stderr)
        hits = harness.parse_trace(again.stdout.decode("latin-1"))
        self.assertEqual(sorted(hit.arguments for hit in hits), sorted(f"arg1={n}" for n in (1, 2, 100, 101, 102, 103, 104)))
        with open(recording, "rb") as file:
            whole = file.read()
        self.assert_unprobed(self.preloaded([self.program], UPROBE_OUTPUT=None, UPROBE_RECORD=recording), "is not an empty file")
        self.assert_unprobed(self.preloaded([self.program], UPROBE_OUTPUT=None, UPROBE_RECORD="/dev/null"), "is not an empty file")
        self.assert_unprobed(self.preloaded([self.program], UPROBE_RECORD=self.path("other")), "does not go with UPROBE_OUTPUT")
        with open(recording, "rb") as file:
            self.assertEqual(file.read(), whole)

    def test_standard_error_by_default(self):
        seen = self.preloaded([self.program], UPROBE_OUTPUT=None)
        self.assertEqual(seen.stdout, b"")
        self.assertEqual(len(harness.parse_trace(seen.stderr.decode("latin-1"))), 2, seen.stderr)

    def test_definitions_by_semicolon_line_and_file(self):
        more = self.write("probes", f"# a comment\n\np:third {self.program}:take_number\n")
        seen = self.preloaded([self.program], UPROBE_PROBES=f"{self.numbers};p:second {self.program}:take_number\n;\n",
                              UPROBE_PROBES_FILE=more)
        self.assertEqual(seen.counts(), {"numbers": 2, "second": 2, "third": 2}, seen.stderr)

    def test_relative_names(self):
        seen = self.preloaded(["./preloaded_program"], cwd=self.folder, UPROBE_OUTPUT="trace",
                              UPROBE_PROBES="p:numbers ./preloaded_program:take_number %di:u64")
        self.assert_traced(seen)

    def test_pid_twice_in_the_name(self):
        seen = self.preloaded([self.program], UPROBE_OUTPUT=self.path("of.%p.%p"))
        names = [name for name in os.listdir(self.folder) if name.startswith("of.")]
        self.assertRegex(" ".join(names), r"^of\.(\d+)\.\1$", seen.stderr)

    def test_size_of_a_ring(self):
        for size in ("8K", "8192", "1M"):
            self.trace = self.path("trace." + size)
            self.assert_traced(self.preloaded([self.program], UPROBE_BUFFER_SIZE=size))

    def test_words_of_the_helper(self):
        for verbosity, comments in (("0", 0), ("1", 1), ("2", 1)):
            self.trace = self.path("trace." + verbosity)
            seen = self.preloaded([self.program], UPROBE_VERBOSE=verbosity)
            self.assert_traced(seen)
            self.assertEqual(seen.stderr.count(b"uprobe-run: "), comments, seen.stderr)
            harness.wait_until(lambda: self.read_trace(seen).text.count("numbers") == 2 + comments, "the summary")

    def test_many_at_once(self):
        shell = harness.need("sh")
        seen = self.preloaded([shell, "-c", 'for i in 1 2 3 4 5 6 7 8; do "$0" plain & done; wait; exit 3', self.program])
        self.assertEqual((seen.returncode, sorted(self.numbers_of(seen))), (3, [1] * 8 + [2] * 8), seen.stderr)
        self.assertEqual(len({hit.tid for hit in seen.hits}), 8)
        self.assertEqual(seen.text.count("# tracer:"), 1)

    def test_read_only_folder(self):
        seen = self.preloaded([self.program], cwd="/proc")
        self.assert_traced(seen)


class MuslOutput(Output):
    """A C library that passes an initialiser neither arguments nor environment."""
    fixture = "preloaded_program_musl"

    def setUp(self):
        super().setUp()
        os.rename(self.program, self.path("preloaded_program"))
        self.program = self.path("preloaded_program")
        self.numbers = f"p:numbers {self.program}:take_number %di:u64"

    def test_exec_in_children_appends_to_one_file(self):
        raise unittest.SkipTest("the shell here has another C library")

    def test_as_under_the_tool(self):
        raise unittest.SkipTest("a test of glibc's programs")

    def test_many_at_once(self):
        raise unittest.SkipTest("the shell here has another C library")


class Invisible(Preload):
    def test_no_child_and_no_signal(self):
        seen = self.preloaded([self.program, "family"])
        self.assert_traced(seen)
        self.assertEqual(seen.stdout, b"wait -1 ECHILD\nclone -1 ECHILD\nall -1 ECHILD\nsignals 0 pending 0\n")

    def test_environment_descriptors_signals(self):
        without = harness.run([self.program, "surroundings"], env=self.variables(LD_PRELOAD=library(), UPROBE_DISABLE="1"))
        seen = self.preloaded([self.program, "surroundings"], UPROBE_DISABLE="0")
        self.assert_traced(seen)
        self.assertEqual(seen.stdout.replace(b"UPROBE_DISABLE=0", b"UPROBE_DISABLE=1"), without.stdout)

    def test_blocked_and_ignored_signals(self):
        seen = self.inside("with-blocked", "surroundings")
        self.assert_traced(seen)
        shown = seen.stdout.decode().splitlines()
        self.assertEqual([line for line in shown if line.startswith(("blocked", "disposition"))],
                         ["blocked 5", "blocked 10", "disposition 11", "disposition 12"])

    def test_subreaper(self):
        for mode in ("family", "surroundings"):
            with self.subTest(mode=mode):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(self.trace)
                seen = self.inside("as-reaper", mode)
                self.assert_traced(seen)
                self.assertIn(b"ECHILD" if mode == "family" else b"reaper 1", seen.stdout)

    def test_closed_streams(self):
        self.assert_traced(self.inside("without-streams", "plain"))

    def test_first_process_of_a_namespace(self):
        need_root()
        wrapper = [harness.need("unshare"), "-p", "-f", "--mount-proc"]
        if harness.run([*wrapper, "true"]).returncode != 0:
            raise unittest.SkipTest("no PID namespaces here")
        seen = self.inside("as-is", "family", wrapper=wrapper)
        self.assert_traced(seen)
        self.assertEqual(seen.stdout, b"wait -1 ECHILD\nsignals 0 pending 0\n")

    def test_disabled(self):
        seen = self.preloaded([self.program, "family"], UPROBE_DISABLE="1")
        self.assertEqual((seen.returncode, seen.stderr, os.path.exists(self.trace)), (7, b"", False))

    def test_nothing_to_do(self):
        seen = self.preloaded([self.program, "family"], UPROBE_PROBES=None)
        self.assertEqual((seen.returncode, seen.stderr, os.path.exists(self.trace)), (7, b"", False))


class Streams(Preload):
    """A reader of the program's output does not wait for the helper, nor for processes that outlive the program."""

    def check_daemon(self, command):
        seen = self.preloaded(command)
        daemon = int(seen.stdout)
        try:
            with open(f"/proc/{daemon}/maps", encoding="ascii") as file:
                self.assertIn("uprobe-session", file.read(), "the daemon has the session, so the helper lives")
        finally:
            os.kill(daemon, signal.SIGKILL)
        self.assertIn(1, self.numbers_of(seen))

    def test_a_daemon_is_left_behind(self):
        self.check_daemon([self.program, "daemon"])

    def test_command_substitution(self):
        self.check_daemon([harness.need("sh"), "-c", 'echo $("$0" daemon 2>&1)', self.program])

    def test_a_reader_that_goes_away(self):
        seen = self.preloaded([harness.need("sh"), "-c", '"$0" surroundings 2>&1 | head -n 1; true', self.program])
        self.assertEqual(seen.returncode, 0, seen.stderr)
        self.assertEqual(seen.stdout.count(b"\n"), 1)


class Surroundings(Preload):
    def test_filter_that_forbids_tracing(self):
        self.assert_traced(self.inside("under-filter", "plain"))

    def test_filter_that_kills(self):
        self.assert_unprobed(self.inside("under-deadly-filter", "plain"), "seccomp")

    def test_another_pid_namespace_for_children(self):
        need_root()
        wrapper = [harness.need("unshare"), "-p"]
        if harness.run([*wrapper, "true"]).returncode != 0:
            raise unittest.SkipTest("no PID namespaces here")
        # without --mount-proc, /proc shows other processes under the same numbers
        for options in ([], ["-f"]):
            seen = self.inside("as-is", "forks" if not options else "plain", wrapper=[*wrapper, *options])
            self.assert_unprobed(seen, "/proc")

    def test_an_ordinary_user(self):
        need_root()
        folder = os.path.dirname(library())
        for path in (folder, self.folder):
            while path != "/":
                if os.stat(path).st_mode & 0o001 == 0:
                    raise unittest.SkipTest(f"{path} is closed to others")
                path = os.path.dirname(path)
        seen = self.inside("as-is", "plain", wrapper=[harness.need("setpriv"), "--reuid", "65534", "--clear-groups"])
        self.assert_traced(seen)

    def test_small_limits(self):
        for values in ({"NOFILE": (6, 64)}, {"FSIZE": (512, resource.RLIM_INFINITY)}, {"CORE": 0}):
            with self.subTest(limits=values):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(self.trace)
                self.assert_traced(self.preloaded([self.program], before_exec=limits(**values)))

    def test_limits_that_leave_no_room(self):
        for values in ({"FSIZE": 0}, {"FSIZE": 65536}, {"NOFILE": 5}):
            with self.subTest(limits=values):
                self.assert_unprobed(self.preloaded([self.program], before_exec=limits(**values)), "")

    def test_no_further_process(self):
        need_root()

        def become_unprivileged():
            os.setgroups([])
            os.setresuid(65533, 65533, 65533)
            resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
        if not os.access(library(), os.R_OK) or os.stat(os.path.dirname(library())).st_mode & 0o001 == 0:
            raise unittest.SkipTest("the build tree is closed to others")
        seen = self.preloaded([self.program], before_exec=become_unprivileged)
        self.assert_unprobed(seen, "cannot start uprobe-run")


class Failures(Preload):
    def copy_library(self):
        return shutil.copy(library(), self.path("libuprobe.so"))

    def test_bad_definition(self):
        seen = self.preloaded([self.program], UPROBE_PROBES=f"p:x {self.program}:no_such_function")
        self.assert_unprobed(seen, "UPROBE_PROBES: ")
        self.assertIn(b"^", seen.stderr)

    def test_bad_variables(self):
        for name, value in (("UPROBE_BUFFER_SIZE", "much"), ("UPROBE_BUFFER_SIZE", "1"), ("UPROBE_BUFFER_SIZE", "-4K"),
                            ("UPROBE_BUFFER_SIZE", "99999G"), ("UPROBE_BUFFER_SIZE", "4 K"),
                            ("UPROBE_VERBOSE", "3"), ("UPROBE_VERBOSE", "-1"), ("UPROBE_VERBOSE", "yes"),
                            ("UPROBE_OUTPUT", "-"), ("UPROBE_OUTPUT", "/no/such/folder/file"),
                            ("UPROBE_OUTPUT", self.folder), ("UPROBE_PROBES_FILE", "/no/such/file"),
                            ("UPROBE_PROBES_FILE", self.folder), ("UPROBE_PROBES_FILE", "/dev/null")):
            with self.subTest(name=name, value=value):
                only = {"UPROBE_PROBES": None} if value == "/dev/null" else {}
                seen = self.preloaded([self.program], **{**only, name: value})
                self.assert_unprobed(seen, value if value.startswith("/") else name)
                self.assertNotRegex(seen.stderr, rb"(^|[ \n])-[a-z]\b", "no option of the command line's")

    def test_unknown_variables(self):
        seen = self.preloaded([self.program], UPROBE_PROBES=None, UPROBE_PROBE=self.numbers)
        self.assert_unprobed(seen, "unknown variable UPROBE_PROBE, and neither UPROBE_PROBES nor UPROBE_PROBES_FILE is set")
        seen = self.preloaded([self.program], UPROBE_PROBES=None, UPROBE_PROBE=self.numbers, UPROBE_DISABLE="1")
        self.assertEqual((seen.returncode, seen.stderr), (7, b""))
        seen = self.preloaded([self.program], UPROBE_TEIR="int3")
        self.assert_traced(seen)
        self.assertEqual(seen.stderr.decode().splitlines()[:1],
                         ["uprobe-run: unknown variable UPROBE_TEIR: did you mean UPROBE_TIER?"])

    def test_bad_line_of_a_file(self):
        listed = self.write("list", f"# comment\n\np:x {self.program}:no_such_function\n")
        seen = self.preloaded([self.program], UPROBE_PROBES=None, UPROBE_PROBES_FILE=listed)
        self.assert_unprobed(seen, "list:3")

    def test_no_helper(self):
        self.assert_unprobed(self.preloaded([self.program], LD_PRELOAD=self.copy_library()), "cannot start uprobe-run")

    def test_agent_of_another_version(self):
        path = self.copy_library()
        shutil.copy(harness.tool(), self.path("uprobe-run"))
        said = harness.change_abi(path)
        self.assert_unprobed(self.preloaded([self.program], LD_PRELOAD=path), said)

    def test_helper_that_fails(self):
        self.copy_library()
        for program in ("true", "false"):
            shutil.copy(harness.need(program), self.path(program))
            os.replace(self.path(program), self.path("uprobe-run"))
            seen = self.preloaded([self.program], LD_PRELOAD=self.path("libuprobe.so"))
            self.assert_unprobed(seen, "ended before")

    def test_helper_that_hangs(self):
        self.copy_library()
        self.write("uprobe-run", "#!/bin/sh\nexec sleep 5 2>/dev/null\n", 0o755)
        seen = self.preloaded([self.program], LD_PRELOAD=self.path("libuprobe.so"))
        self.assert_unprobed(seen, "did not answer")

    def test_installed(self):
        os.makedirs(self.path("bin"))
        shutil.copy(harness.tool(), self.path("bin/uprobe-run"))
        for place in ("lib/uprobe", "lib/x86_64-linux-gnu/uprobe"):
            with self.subTest(place=place):
                os.makedirs(self.path(place))
                shutil.copy(library(), self.path(place))
                with contextlib.suppress(FileNotFoundError):
                    os.remove(self.trace)
                self.assert_traced(self.preloaded([self.program], LD_PRELOAD=self.path(f"{place}/libuprobe.so")))

    def test_under_the_tool_as_well(self):
        output = self.path("of-the-tool")
        seen = harness.run([harness.tool(), "-q", "-o", output, "-p", self.numbers, "--", harness.need("env"),
                            f"LD_PRELOAD={library()}", self.program], env=self.variables())
        self.assertEqual(seen.returncode, 7, seen.stderr)
        with open(output, encoding="latin-1") as file:
            self.assertEqual(len(harness.parse_trace(file.read())), 2)


if __name__ == "__main__":
    harness.main()
