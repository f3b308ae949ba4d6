# SPDX-License-Identifier: MIT
"""Markers (USDT): operands of every form, several places of one event, lists; semaphores at every way to begin and to end."""
import os
import re
import signal
import struct
import subprocess

import harness
import oracle
from elf_reader import Elf
from harness import fixture, tracer

# What tests/e2e/fixtures/markers/forms.S puts where the operands say.
WHOLE = 0x1122334455667788
FORMS = {
    "registers": f"arg1={WHOLE} arg2={0x55667788} arg3={0x55667788} arg4={0x7788} arg5={0x88} arg6={0x77} arg7={0x77} "
                 "arg8=-5 arg9=-5 arg10=-5 arg11=-5",
    "numbered": "arg1=-6 arg2=-7 arg3=-8 arg4=-9 arg5=65530 arg6=2",
    "memory": "arg1=-9 arg2=-7 arg3=-3 arg4=-2 arg5=10 arg6=11 arg7=12 arg8=11 arg9=11 arg10=77 arg11=0",
    "constants": "arg1=-1 arg2=7 arg3=16 arg4=-2 arg5=4294967295",
    "floats": "arg1=2.5 arg2=-1.25 arg3=2.5",
    "unusable": "arg3=2",
    "empty": "",
}
TABLES = r"""
long table[] = {10, 11, 12, 13};
int small[] = {-20, -19, -18};
struct { long a; unsigned char rows[4][2]; } both = {0, {{0}, {0, 2}, {0, 0}, {0, 0}}};
#define NOTE(operands) \
  ".pushsection .note.stapsdt,\"\",\"note\"\n.balign 4\n.4byte 992f-991f,994f-993f,3\n991: .asciz \"stapsdt\"\n992: .balign 4\n" \
  "993: .8byte 990b,0,0\n.asciz \"tables\"\n.asciz \"rows\"\n.asciz \"" operands "\"\n994: .balign 4\n.popsection\n"
__attribute__((noinline)) void show(long i) {
  both.rows[i][1] = 2 * i;
  asm volatile("mov %0, %%rcx\n mov %0, %%rdx\n shl $3, %%rdx\n990: nop\n"
               NOTE("8@table(,%%rcx,8) -4@small(,%%rcx,4) 8@table+8(%%rdx) 1@both+9(%%rcx,%%rcx)") :: "r"(i) : "rcx", "rdx", "memory");
}
int main(void) {
  for (long i = 0; i < 3; ++i) show(i);
  return 0;
}
"""
# Those whose every fetch is one of the kernel's language.
KERNELS = ("numbered", "constants", "empty")


class Markers(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.host = self.copy_of(fixture("markers_host"))
        self.library = self.copy_of(fixture("markers.so"))

    def trace(self, *words, stdin=b"rq", program=None, code=0):
        command = program or [self.host, self.library]
        seen = harness.run([*tracer("-o", self.path("trace"), *words), "--", *command], stdin=stdin)
        self.assertEqual(seen.returncode, code, seen.stderr)
        with open(self.path("trace"), encoding="latin-1") as file:
            seen.hits = harness.parse_trace(file.read())
        return seen

    def refusal(self, *words):
        mode = [] if "--dry-run" in words else ["--check"]
        seen = harness.run([*tracer(*mode, *words), "--", self.host, self.library])
        self.assertEqual((seen.returncode, seen.stdout), (125, b""), seen.stderr)
        return seen.stderr.decode()

    def listing(self, definition):
        """The definitions of the event's places, in the kernel's words as far as it has some."""
        seen = harness.run([*tracer("--dry-run", "-p", definition), "--", self.host, self.library])
        self.assertEqual(seen.returncode, 0, seen.stderr)
        return re.findall(r"^p:\S+ .*$", seen.stdout.decode(), re.MULTILINE)


class Operands(Markers):
    def check_forms(self, place, program=None):
        seen = self.trace("-p", f"{place}sdt:markers:*", program=program)
        self.assertEqual({hit.event: hit.arguments for hit in seen.hits if hit.event in FORMS}, FORMS)
        return seen

    def test_of_a_library(self):
        seen = self.check_forms(f"{self.library}:")
        by_event = {}
        for hit in seen.hits:
            by_event.setdefault(hit.event, []).append(hit.arguments)
        table = int(by_event["strings"][0].rpartition("=")[2])
        self.assertEqual(by_event["names"], [f"arg1=10 arg2=11 arg3=12 arg4={table}"])
        self.assertEqual(by_event["mixed"], [
            f"arg1=-5 arg2=3 arg3={2**64 - 1:#x} arg4={2**32 - 7} arg5=119",
            f"arg1=-5 arg2={WHOLE} arg3={table:#x} arg4=-7 arg5=-6"])
        self.assertEqual(by_event["unlike"], ["arg2=2", "arg2=2"])
        self.assertIn(b"markers/unlike is recorded without its argument 1: $arg1 is f64 at one place of the marker and u64 at "
                      b"another", seen.stderr)
        self.assertIn(b"markers/unusable is recorded without its argument 1: $arg1 cannot be fetched: it is in a segment",
                      seen.stderr)

    def test_of_programs(self):
        self.check_forms("", [self.copy_of(fixture("markers_alone"))])
        self.check_forms("", [self.copy_of(fixture("markers_static"))])

    def test_without_symbols(self):
        """What needs a name is not recorded; all else is."""
        self.library = self.copy_of(fixture("markers_stripped.so"))
        seen = self.check_forms(f"{self.library}:")
        self.assertEqual([hit.arguments for hit in seen.hits if hit.event == "names"], [""])
        self.assertIn(b"markers/names is recorded without its argument 1: no symbol 'table' in", seen.stderr)

    def test_notes_in_a_debug_file(self):
        """Also of a library that a prelinker has moved after that: the notes have the old addresses."""
        debug = self.path("markers.debug")
        subprocess.run(["objcopy", "--only-keep-debug", self.library, debug], check=True)
        for moved in (0, 0x800):
            with self.subTest(moved):
                self.move_notes(debug, moved)
                library = self.copy_of(fixture("markers.so"))
                subprocess.run(["objcopy", "--remove-section=.note.stapsdt", library], check=True)
                self.assertIn("no marker 'markers:*' in", self.refusal("-p", f"{library}:sdt:markers:*"))
                subprocess.run(["objcopy", f"--add-gnu-debuglink={debug}", library], check=True)
                self.library = library
                seen = self.trace("-p", f"{library}:sdt:markers:*")
                by_event = {hit.event: hit.arguments for hit in seen.hits}
                self.assertEqual({name: by_event.get(name) for name in FORMS}, FORMS)
                self.assertRegex(by_event["names"], "arg1=10 arg2=11 arg3=12")
                self.assertIn("with a semaphore", harness.run([harness.tool(), "-lsdt:*:switched", "-x", library]).stdout.decode())

    def move_notes(self, path, distance):
        """Three words after each note's name: place, base and semaphore."""
        with open(path, "rb") as file:
            data = bytearray(file.read())
        at = data.find(b"stapsdt\0")
        while at >= 0:
            words = struct.unpack_from("<3Q", data, at + 8)
            if words[0] != 0:
                struct.pack_into("<3Q", data, at + 8, *(word - distance if word else 0 for word in words))
            at = data.find(b"stapsdt\0", at + 8)
        with open(path, "wb") as file:
            file.write(data)

    def test_tables_at_fixed_addresses(self):
        """As compilers write them where addresses have 32 bits: a name and an index."""
        source = self.write("tables.c", TABLES)
        program = harness.compiled([harness.need("cc"), "-O2", "-no-pie", "-fno-pie", source], self.path("tables"))
        seen = self.trace("-p", f"{program}:sdt:tables:*", program=[program])
        self.assertEqual(seen.stderr.count(b"without"), 0, seen.stderr)
        self.assertEqual([hit.arguments for hit in seen.hits],
                         [f"arg1={10 + i} arg2={i - 20} arg3={11 + i} arg4={2 * i}" for i in range(3)])

    def test_as_the_user_wants_them(self):
        seen = self.trace("-p", f"p:my/strings {self.library}:sdt:markers:strings text=$arg1:string part=+4($arg1):string "
                                "first=+0($arg2):u8 $arg2:x8 here=$comm",
                          "-p", f"{self.library}:sdt:markers:mixed $arg1:x64 low=$arg1:x16 if arg1 > 1",
                          "-p", f"p:f {self.library}:sdt:markers:floats d=$arg1 raw=$arg1:x64 $arg2:f32")
        by_event = {hit.event: hit.arguments for hit in seen.hits}
        self.assertRegex(by_event["strings"],
                         r'^text="one marker" part="marker" first=10 arg2=0x[0-9a-f]{1,2} here="markers_host"$')
        self.assertEqual(by_event["mixed"], f"arg1={2**64 - 5:#x} low={2**16 - 5:#x}")
        self.assertEqual(seen.counts()["mixed"], 2)
        self.assertEqual(by_event["f"], "d=2.5 raw=0x4004000000000000 arg2=-1.25")

    def test_a_filter_takes_the_markers_arguments(self):
        for value, hits in ((2, [FORMS["numbered"]]), (3, [])):
            seen = self.trace("-p", f"{self.library}:sdt:markers:numbered if arg6 == {value}")
            self.assertEqual([hit.arguments for hit in seen.hits], hits)

    def test_what_is_refused(self):
        def last(words):
            return self.refusal("-p", f"{self.library}:sdt:markers:{words}")
        self.assertIn("the marker has 6 arguments", last("numbered $arg7"))
        self.assertIn("$arg1 cannot be fetched: it is in a segment of the thread", last("unusable $arg1"))
        self.assertIn("$arg1 is f64 at one place of the marker and u64 at another", last("unlike $arg1"))
        self.assertIn("it is no address: it has 4 bytes", last("constants $arg1:string"))
        self.assertIn("no marker 'markers:strngs' in", last("strngs"))
        self.assertIn("close: strings", last("strngs"))
        self.assertIn("it has no return", last("strings%return"))
        self.assertIn("it has no return", self.refusal("-p", f"r:x {self.library}:sdt:markers:strings"))

    def test_notes_that_lie(self):
        """The first note leads out of the code, then into an instruction: the others are as they were."""
        with open(self.library, "rb") as file:
            good = file.read()
        at = good.index(b"stapsdt\0") + 8
        inside = Elf(self.library).offset_of("forms") + 2
        for place, said in ((2**64 - 1, b"has a marker that is not known: note at 0x0: its place is not in code of the file"),
                            (inside, b"markers/registers is left out: ")):
            with self.subTest(hex(place)):
                with open(self.library, "wb") as file:
                    file.write(good[:at] + struct.pack("<Q", place) + good[at + 8:])
                seen = self.trace("-p", f"{self.library}:sdt:markers:*")
                self.assertIn(said, seen.stderr)
                self.assertEqual({hit.event: hit.arguments for hit in seen.hits if hit.event in FORMS},
                                 {name: words for name, words in FORMS.items() if name != "registers"})
                self.assertIn("markers:registers", self.refusal("--dry-run", "-p", f"{self.library}:sdt:markers:registers"))

    def test_lists(self):
        seen = harness.run([harness.tool(), "-lsdt:*", "-x", self.library])
        lines = seen.stdout.decode().splitlines()
        self.assertEqual(len(lines), 13)
        self.assertIn(f"p {self.library}:sdt:markers:mixed # 2 places: s64 u64 x64 s64 s64", lines)
        self.assertIn(f"p {self.library}:sdt:markers:switched # 1 place: s32, with a semaphore", lines)
        self.write("definitions", "".join(line + "\n" for line in lines))
        self.assertEqual(len(self.trace("-i", self.path("definitions")).hits), 13)

    def test_words_of_other_tools(self):
        for words in (f"usdt:{self.library}:markers:numbered", f"usdt:{self.library}:numbered", "sdt_markers:numbered",
                      "%sdt_markers:numbered"):
            with self.subTest(words):
                named = ["-x", self.library] if "sdt_" in words else []
                self.assertEqual([hit.arguments for hit in self.trace(*named, "-p", words).hits], [FORMS["numbered"]])


class Kernel(Markers):
    def test_the_kernel_sees_the_same(self):
        """With its reference counters; a second run of the same, by the tool, from the kernel's own definitions."""
        for name in (*KERNELS, "switched"):
            with self.subTest(name):
                lines = self.listing(f"p:{name} {self.library}:sdt:markers:{name}")
                self.assertEqual(len(lines), 1)
                mine = [re.sub(r"^p:\w+/", "p:", line) for line in lines]
                kernel = oracle.run_kernel(mine, [self.host, self.library], stdin=b"rvhhvq")
                seen = self.trace(*(word for line in mine for word in ("-p", line)), stdin=b"rvhhvq")
                self.assertEqual([hit.arguments for hit in seen.hits], [hit.arguments for hit in kernel.hits])
                self.assertNotEqual(seen.hits, [])
                self.assertEqual(seen.stdout, kernel.stdout)


class Talk:
    """A program that does what it is told, in letters."""

    def __init__(self, test, *words, program=None, environment=None):
        self.test = test
        command = program or [test.host, test.library]
        self.process = subprocess.Popen([*words, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        start_new_session=True, env=environment)
        test.addCleanup(harness.stop_group, self.process)

    def say(self, letters):
        """The answers."""
        self.process.stdin.write(letters.encode())
        self.process.stdin.flush()
        return [int(self.process.stdout.readline()) for _ in letters]

    def end(self):
        out, error = self.process.communicate(b"q", timeout=harness.TIMEOUT)
        self.test.assertEqual((self.process.returncode, out), (0, b""), error)
        return error.decode()


class Semaphores(Markers):
    def setUp(self):
        super().setUp()
        self.both = ["-p", f"{self.library}:sdt:markers:switched", "-p", f"{self.library}:sdt:markers:other"]

    def traced(self, *words, **named):
        return Talk(self, *tracer("-q", "-o", self.path("trace"), *words), "--", **named)

    def hits(self):
        with open(self.path("trace"), encoding="latin-1") as file:
            return [hit.arguments for hit in harness.parse_trace(file.read()) if hit.event == "switched"]

    def test_are_up_while_the_marker_is_wanted(self):
        talk = self.traced(*self.both)
        self.assertEqual(talk.say("vhhv"), [1001, 1, 1, 1001])
        talk.end()
        self.assertEqual(self.hits(), ["arg1=1", "arg1=2"])

    def test_of_one_event_only(self):
        talk = self.traced(*self.both[:2])
        self.assertEqual(talk.say("vh"), [1, 1])
        talk.end()

    def test_two_events_count_once(self):
        talk = self.traced("-p", f"p:a {self.library}:sdt:markers:switched", "-p", f"p:b {self.library}:sdt:markers:switched")
        self.assertEqual(talk.say("vh"), [1, 1])
        talk.end()

    def test_of_programs_from_their_beginning(self):
        for name in ("markers_alone", "markers_static"):
            with self.subTest(name):
                talk = self.traced("-p", "sdt:markers:switched", program=[self.copy_of(fixture(name))])
                self.assertEqual(talk.say("hv"), [1, 1])
                talk.end()

    def test_forks_programs_and_libraries_loaded_again(self):
        talk = self.traced(*self.both)
        self.assertEqual(talk.say("vfvh"), [1001, 0, 1001, 1])
        talk.process.stdin.write(b"x")  # the new program answers
        self.assertEqual(talk.say("vhlvh"), [1001, 1, 0, 1001, 1])
        talk.end()

    def test_a_copy_that_the_program_edits_is_left_alone(self):
        talk = self.traced(*self.both)
        self.assertEqual(talk.say("vmlvfvc"), [1001, 0, 0, 1001, 0, 1001, 1])
        talk.end()

    def test_tracing_ends_before_the_program(self):
        talk = self.traced("-n", "2", *self.both)
        self.assertEqual(talk.say("vhh"), [1001, 1, 1])
        harness.wait_until(lambda: talk.say("v") == [0], "the semaphores to be down")
        self.assertEqual(talk.say("h"), [0])
        talk.end()

    def test_attached(self):
        talk = Talk(self)
        self.assertEqual(talk.say("vh"), [0, 0])
        tool = self.attach(talk, *self.both)
        harness.wait_until(lambda: talk.say("v") == [1001], "the semaphores to be up")
        self.assertEqual(talk.say("hf"), [1, 0])
        self.assertEqual(talk.say("vh"), [1001, 1])
        tool.send_signal(signal.SIGINT)
        tool.wait(harness.TIMEOUT)
        self.assertEqual(talk.say("vh"), [0, 0])
        talk.end()

    def attach(self, talk, *words):
        tool = subprocess.Popen([*tracer("-q", "-o", self.path("trace"), *words, "-P", str(talk.process.pid))],
                                stderr=subprocess.PIPE, start_new_session=True)
        self.addCleanup(harness.stop_group, tool)
        return tool

    def test_attached_and_killed(self):
        talk = Talk(self)
        tool = self.attach(talk, *self.both)
        harness.wait_until(lambda: talk.say("v") == [1001], "the semaphores to be up")
        os.kill(tool.pid, signal.SIGKILL)
        harness.wait_until(lambda: talk.say("v") == [0], "the semaphores to be down")
        talk.end()

    def test_two_tools(self):
        talk = Talk(self)
        first = self.attach(talk, *self.both[:2])
        harness.wait_until(lambda: talk.say("v") == [1], "the first semaphore to be up")
        second = self.attach(talk, *self.both)
        harness.wait_until(lambda: talk.say("v") == [1001], "both semaphores to be up")
        second.send_signal(signal.SIGINT)
        second.wait(harness.TIMEOUT)
        harness.wait_until(lambda: talk.say("v") == [1], "the second semaphore to be down")
        self.assertEqual(talk.say("h"), [1])
        first.send_signal(signal.SIGINT)
        first.wait(harness.TIMEOUT)
        self.assertEqual(talk.say("vh"), [0, 0])
        talk.end()

    def test_control(self):
        environment = {**os.environ, "XDG_RUNTIME_DIR": self.path("run")}
        os.mkdir(self.path("run"), 0o700)
        talk = self.traced("--session", f"m{os.getpid()}", *self.both, environment=environment)

        def control(*words):
            seen = harness.run([harness.tool(), "--control", f"m{os.getpid()}", *words], env=environment)
            self.assertEqual(seen.returncode, 0, seen.stderr)
        self.assertEqual(talk.say("v"), [1001])
        control("--disable", "markers/switched")
        self.assertEqual(talk.say("vh"), [1000, 0])
        control("--enable", "markers/switched")
        self.assertEqual(talk.say("vh"), [1001, 1])
        control("--remove", "markers/other")
        self.assertEqual(talk.say("v"), [1])
        control("-p", f"p:more {self.library}:sdt:markers:other")
        self.assertEqual(talk.say("v"), [1001])
        talk.end()

    def test_what_is_no_counter(self):
        """Nothing is written where the file has no writable data."""
        definition = self.listing(f"{self.library}:sdt:markers:switched")[0]
        counter = int(re.search(r"\((0x[0-9a-f]+)\)", definition)[1], 16)
        for wrong in (counter + 1, 0x40, 1 << 40):
            other = definition.replace(f"({counter:#x})", f"({wrong:#x})")
            seen = harness.run([*tracer("--dry-run", "-p", other), "--", self.host])
            self.assertEqual(seen.returncode, 125)
            self.assertIn(b"reference counter", seen.stderr)


class Debian(Markers):
    """Markers that others have built."""

    def test_exceptions(self):
        program = fixture("throwing")
        libraries = subprocess.check_output(["ldd", program], text=True)
        library = re.search(r"(/\S*libstdc\+\+\S*)", libraries)
        if library is None or b"libstdcxx" not in harness.run([harness.tool(), "-lsdt:*", "-x", library[1]]).stdout:
            self.skipTest("libstdc++ has no markers")
        definitions = [f"p:{name} {library[1]}:sdt:libstdcxx:{name}" for name in ("throw", "catch", "rethrow")]
        lines = []
        for definition in definitions:
            lines += [re.sub(r"^p:\w+/", "p:", line) for line in self.listing(definition)]
        kernel = oracle.run_kernel(lines, [program])
        seen = self.trace(*(word for definition in definitions for word in ("-p", definition)), program=[program], stdin=b"",
                          code=kernel.returncode)
        self.assertEqual(seen.counts(), kernel.counts())
        self.assertGreater(seen.counts().get("throw", 0), 0)

    def test_python(self):
        """Only a tracer counts its semaphores up, and there are no hits without."""
        python = os.path.realpath("/usr/bin/python3")
        if not os.path.exists(python) or b"gc__start" not in harness.run([harness.tool(), "-lsdt:python:*", "-x", python]).stdout:
            self.skipTest("this python3 has no markers")
        command = [python, "-S", "-c", "import gc\nfor i in range(3): gc.collect(i)"]
        definitions = [f"p:{name} {python}:sdt:python:{name} {words}" for name, words in (
            ("gc__start", "$arg1"), ("gc__done", "$arg1"), ("function__entry", "$arg1:string f=$arg2:string $arg3"))]
        lines = [re.sub(r"^p:\w+/", "p:", self.listing(definition)[0]) for definition in definitions]
        kernel = oracle.run_kernel(lines, command)
        seen = self.trace(*(word for definition in definitions for word in ("-p", definition)), program=command, stdin=b"")
        self.assertEqual([(hit.event, hit.arguments) for hit in seen.hits], [(hit.event, hit.arguments) for hit in kernel.hits])
        self.assertLessEqual({"arg1=0", "arg1=1", "arg1=2"}, {hit.arguments for hit in seen.hits if hit.event == "gc__start"})


if __name__ == "__main__":
    harness.main()
