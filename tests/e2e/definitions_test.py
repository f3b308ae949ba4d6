# SPDX-License-Identifier: MIT
"""Definitions beyond the kernel's: patterns of functions, data by symbol, parts of registers, deletions in a
file of definitions. Each in a run, by the values that it prints, and in the output of --check.
"""
import os
import re
import subprocess

import harness

SHAPES = ("subject", "subject_non_pie", "subject_static", "subject_static_pie", "subject_musl")


def ask(*words, stdin=b""):
    """Exit code, standard output and standard error of the tool."""
    done = subprocess.run([harness.tool(), *words], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=harness.TIMEOUT, check=False)
    return done.returncode, done.stdout.decode("latin-1"), done.stderr.decode("latin-1")


class Definitions(harness.TestCase):
    def setUp(self):
        super().setUp()
        harness.tool()
        self.subject = self.copy_of(harness.fixture("subject"))

    def trace(self, *definitions, options=(), subject=None):
        """The records of one round of calls."""
        seen = harness.run_tool(definitions, [subject or self.subject, "calls", "1"], options)
        self.assertEqual(seen.returncode, 0, seen.stderr)
        return seen

    def listing(self, *words, stdin=b""):
        code, out, err = ask("--list-events", *words, stdin=stdin)
        self.assertEqual(code, 0, err)
        return out.splitlines()

    def refusal(self, definition):
        """The message, and the part of the definition from the caret on."""
        code, out, err = ask("--check", "-p", definition)
        self.assertEqual((code, out), (125, ""))
        lines = err.splitlines()
        column = lines[2].index("^")
        return lines[0].removeprefix("uprobe-run: -p: "), lines[1][column:]


class Patterns(Definitions):
    def test_every_function_that_matches(self):
        seen = self.trace(f"p:calls/* {self.subject}:take_*")
        self.assertEqual(set(seen.counts()), {"take_numbers", "take_text", "take_node"})
        self.assertEqual(set(seen.counts().values()), {1})

    def test_names(self):
        def names(definition):
            return sorted(line.split(" ")[0] for line in self.listing("-p", definition))
        self.assertEqual(names(f"p:g/* {self.subject}:take_n*"), ["p:g/take_node", "p:g/take_numbers"])
        self.assertEqual(names(f"p {self.subject}:take_n[ou]*"),
                         ["p:uprobes/p_subject_take_node", "p:uprobes/p_subject_take_numbers"])
        self.assertEqual(names(f"p:g/ {self.subject}:take_tex?"), ["p:g/p_subject_take_text"])
        self.assertEqual(names(f"p:g/one {self.subject}:take_n*"), ["p:g/one", "p:g/one"])
        self.assertEqual(names(f"p:g/* {self.subject}:take_node"), ["p:g/take_node"])
        self.assertEqual(names(f"p:g/* {self.subject}:take_node+0x4"), ["p:g/take_node_0x4"])
        self.assertEqual(names(f"r:g/* {self.subject}:take_n*"), ["r:g/take_node", "r:g/take_numbers"])

    def test_cplusplus_names(self):
        """A pattern with "::" is compared with C++ names; a part that was split off is not a function."""
        throwing = harness.fixture("throwing")
        lines = self.listing("-p", f"p:cpp/* {throwing}:*::catch_all(*")
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], r"^p:cpp/_ZN\w*9catch_all\w* ")
        self.assertEqual(self.refusal(f"p:cpp/* {throwing}:nowhere::*")[1], "nowhere::*")

    def test_one_event_of_several_probes(self):
        seen = self.trace(f"p:g/all {self.subject}:take_* first=%di")
        self.assertEqual(seen.counts(), {"all": 3})

    def test_a_function_with_several_names_is_probed_once(self):
        libc = harness.libc_of(self.subject)
        lines = self.listing("-p", f"p:libc/* {libc}:*malloc")
        places = [line.split(" ")[1] for line in lines]
        self.assertEqual(len(places), len(set(places)))
        self.assertIn("p:libc/malloc", [line.split(" ")[0] for line in lines])

    def test_refusals(self):
        self.assertEqual(self.refusal(f"p:g/* {self.subject}:nothing*"),
                         (f"no function matches 'nothing*' in {self.subject}", "nothing*"))
        self.assertEqual(self.refusal(f"p:g/* {self.subject}:take_*+4")[1], "take_*+4")


class Data(Definitions):
    def test_values(self):
        """In every shape of the program; the fixture's own values are the expected ones."""
        arguments = ("number=@head:s32 small=@head+4:s16 name=+0(@head+8):string next=+0(@head+16):s32 "
                     "same=@tail:s32 before=@tail-0:s32")
        for shape in SHAPES:
            with self.subTest(shape):
                subject = self.copy_of(harness.fixture(shape))
                # inside the function too: the distance is the probe's own
                for place in ("take_node", "take_numbers", "fixed_code", "middle_of_fixed"):
                    seen = self.trace(f"p:e {subject}:{place} {arguments}", subject=subject)
                    self.assertGreater(len(seen.hits), 0, place)
                    self.assertEqual({hit.arguments for hit in seen.hits},
                                     {'number=-3 small=3 name="head of the list" next=7 same=7 before=7'}, place)

    def test_what_changes_is_read_at_the_hit(self):
        """The word that fixed_code stores: at its second instruction the old one, at the last the sum."""
        seen = self.trace(f"p:before {self.subject}:middle_of_fixed ax=%rax was=@sink_of_fixed:u64",
                          f"p:after {self.subject}:branch_of_fixed ax=%rax is=@sink_of_fixed:u64")
        after = [re.fullmatch(r"ax=(\w+) is=(\d+)", hit.arguments) for hit in seen.hits if hit.event == "after"]
        self.assertTrue(after)
        for match in after:
            self.assertEqual(int(match[1], 16), int(match[2]))

    def test_refusals(self):
        self.assertEqual(self.refusal(f"p:e {self.subject}:take_node a=+0(@headd):u8"),
                         (f"no symbol 'headd' in {self.subject}", "headd):u8"))
        stripped = harness.fixture("subject_stripped")
        self.assertEqual(self.refusal(f"p:e {stripped}:0x1000 @head"), (f"no symbol 'head' in {stripped}", "head"))
        libc = harness.libc_of(self.subject)
        said, where = self.refusal(f"p:e {libc}:malloc a=@environ")
        self.assertEqual((said, where), ("'environ' is exported by a library: the program may use a copy of its own",
                                         "environ"))
        self.assertEqual(ask("--check", "--strict", "-p", f"p:e {self.subject}:0x10 @head")[0], 125)

    def test_the_programs_copy_of_a_librarys_data(self):
        """stdout in a program that is not position-independent is the program's own."""
        subject = self.copy_of(harness.fixture("subject_non_pie"))
        symbols = subprocess.run(["nm", "-D", subject], stdout=subprocess.PIPE, text=True, check=True).stdout
        if not re.search(r" B stdout", symbols):
            self.skipTest("the fixture has no copy of stdout")
        hits = self.trace(f"p:e {subject}:take_node f=@stdout magic=+0(@stdout):x32", subject=subject).hits
        self.assertRegex(hits[0].arguments, r"f=0x7\w+ magic=0xfbad\w+")


class Registers(Definitions):
    def test_parts_are_the_low_bytes(self):
        """take_numbers(i, -2, 250, -4, 0x123456789abcdef, ~i)"""
        seen = self.trace(f"p:e {self.subject}:take_numbers a=%esi:s32 b=%esi c=%dl:u8 d=%dl e=%r8d f=%r8w g=%r8b "
                          "h=%r8:u64 i=%cl:s8 j=%edi k=%rdi l=%sil m=%r9d:s16")
        self.assertEqual({hit.arguments for hit in seen.hits},
                         {"a=-2 b=0xfffffffe c=250 d=0xfa e=0x89abcdef f=0xcdef g=0xef h=81985529216486895 i=-4 j=0x0 "
                          "k=0x0 l=0xfe m=-1"})

    def test_refusals(self):
        self.assertEqual(self.refusal(f"p:e {self.subject}:take_node a=%edi:x64"),
                         ("The type is wider than the part of the register", "x64"))
        self.assertEqual(self.refusal(f"p:e {self.subject}:take_node a=+8(%edi)"),
                         ("A part of a register is no address", "%edi)"))


class Strings(Definitions):
    def test_constant_strings_print(self):
        seen = self.trace(f'p:e {self.subject}:take_node s=\\"here" n=\\42:u8 c=$comm')
        self.assertEqual(seen.hits[0].arguments, 's="here" n=42 c="subject"')

    def test_values_point_to_them(self):
        """take_text("round 0 of the test", 19)"""
        text = '"round 0 of the test"'
        for tier in ("--tier=auto", "--tier=int3"):
            with self.subTest(tier=tier):
                seen = self.trace(f"p:e {self.subject}:take_text $arg1:string b=%rdi:ustring c=$arg2:string d=+0(%di):string",
                                  f"r:back {self.subject}:take_text $entry_arg1:string n=$retval:string", options=[tier])
                self.assertEqual([hit.arguments for hit in seen.hits],
                                 [f"arg1={text} b={text} c=(fault) d={text}", f"arg1={text} n=(fault)"])
        libc = harness.libc_of("/bin/pwd")
        seen = harness.run_tool([f"r:cwd {libc}:getcwd $retval:string"], ["/bin/pwd", "-P"])
        self.assertEqual([hit.arguments for hit in seen.hits], [f'arg1="{os.getcwd()}"'])

    def test_a_string_of_a_value_is_listed_as_kernels_take_it(self):
        self.assertEqual(self.listing("-p", f"p:g/e {self.subject}:0x1000 %di:string"),
                         [f"p:g/e {self.subject}:0x0000000000001000 arg1=+0(%di):string"])
        code, out, err = ask("--check", "--strict", "-p", f"p:g/e {self.subject}:0x1000 name=%di:string")
        lines = err.splitlines()
        self.assertEqual((code, out, lines[0]), (125, "", "uprobe-run: -p: String accepts only memory argument"))
        self.assertEqual(lines[1][lines[2].index("^"):], "string")
        self.assertEqual(lines[3].strip(), "'+0(%di):string' is the string that it points to")

    def test_numbers_point_to_none(self):
        self.assertEqual(self.refusal(f"p:e {self.subject}:take_text %edi:string"),
                         ("A part of a register is no address", "%edi:string"))
        self.assertEqual(self.refusal(f"r:e {self.subject}:take_text $latency:string"),
                         ("String accepts only memory argument", "string"))


class Files(Definitions):
    def test_deletions_and_several_probes(self):
        text = (f"p:g/both {self.subject}:take_node a=%di\n"
                f"p:g/both {self.subject}:take_text a=%si\n"
                f"p:g/not {self.subject}:take_numbers\n"
                "# not that one\n"
                "-:g/not\n"
                f"p: {self.subject}:take_numbers\n"
                "-:subject_take_numbers # as Linux 3.10 had it\r\n"
                f"p:g/both {self.subject}:take_numbers a=%di\n")
        first = self.listing("-i", "-", stdin=text.encode())[0]
        text += f"-:g/both {first.split(' ')[1]} a=%di\n"
        file = self.write("probes", text)
        seen = self.trace(options=["-i", file])
        self.assertEqual(seen.counts(), {"both": 2})
        self.assertEqual(len(self.listing("-i", file)), 2)

    def test_nothing_left_is_refused(self):
        file = self.write("probes", f"p:g/a {self.subject}:take_node\n-:g/\n")
        code, _, err = ask("-i", file, "--", self.subject, "calls", "1")
        self.assertEqual((code, err), (125, "uprobe-run: no probe is defined\n"))

    def test_a_deletion_of_nothing_is_named_alone(self):
        file = self.write("probes", f"p:g/a {self.subject}:take_node\n-:g/a\n-:g/b\n")
        code, _, err = ask("-i", file, "--", self.subject, "calls", "1")
        self.assertEqual((code, err), (125, f"uprobe-run: {file}:3: No event matches\n  -:g/b\n    ^\n"))

    def test_strict_runs_take_the_kernels_definitions_alone(self):
        offset = self.listing("-p", f"p:e {self.subject}:take_node")[0].split(":")[-1]
        seen = self.trace(f"p:e {self.subject}:{offset}", options=["--strict"])
        self.assertEqual(seen.counts(), {"e": 1})
        code, _, err = ask("--strict", "-p", f"p:e {self.subject}:take_node", "--", self.subject, "calls", "1")
        self.assertEqual(code, 125)
        self.assertIn("The place needs an offset: PATH:OFFSET", err)


class Answers(Definitions):
    def test_formats_are_the_fields_of_what_is_printed(self):
        code, out, err = ask("--format-file", "-p", f"p:g/a {self.subject}:take_node n=%di:s32 t=+0(%si):string",
                             "-p", f"p:g/b {self.subject}:take_node")
        self.assertEqual((code, err), (0, ""))
        first, second = out.split("\n\nname: ")
        self.assertEqual(first.splitlines()[:3], ["name: a", "ID: 1", "format:"])
        self.assertIn("\tfield:s32 n;\toffset:16;\tsize:4;\tsigned:1;\n"
                      "\tfield:__data_loc char[] t;\toffset:20;\tsize:4;\tsigned:1;\n", first)
        self.assertTrue(first.endswith('print fmt: "(%lx) n=%d t=\\"%s\\"", REC->__probe_ip, REC->n, __get_str(t)'))
        self.assertTrue(second.startswith("b\nID: 2\n"))

    def test_a_listing_can_be_fed_back(self):
        options = ["-p", f"p:g/* {self.subject}:take_* a=%di b=$comm", "-p", "r: sh:0x1234(0x10) $retval"]
        lines = self.listing(*options)
        self.assertEqual(len(lines), 4)
        self.assertEqual(self.listing("-i", "-", stdin="\n".join(lines).encode()), lines)
        self.assertEqual(ask("--check", "--strict", "-i", "-", stdin="\n".join(lines).encode())[0], 0)

    def test_a_library_is_listed_by_its_name(self):
        for name in ("libc", "libc.so.6"):
            code, out, err = ask("-x", name, "-lmalloc")
            self.assertEqual((code, err), (0, ""))
            self.assertRegex(out, r"^p:malloc /\S*/libc\.so\.6:malloc\n$")
        code, _, err = ask("-x", "libnone", "-lmalloc")
        self.assertEqual((code, err), (125, "uprobe-run: libnone: No such file or directory\n"))

    def test_the_profile_counts_hits(self):
        words = ["--profile", "-q", "-o", self.path("trace"), "-p", f"p:g/node {self.subject}:take_node"]
        code, _, err = ask(*words, "--", self.subject, "calls", "5")
        self.assertEqual((code, err.split()), (0, [self.subject, "node", "5", "0"]))


class Bad(Definitions):
    def refused(self, data):
        for strict in ([], ["--strict"]):
            code, out, err = ask("--check", *strict, "-i", "-", stdin=data)
            self.assertEqual((code, out), (125, ""))
            self.assertLess(len(err), 1000)
            self.assertTrue(err.isprintable() or all(line.isprintable() for line in err.splitlines()), err)

    def test_lines_without_sense(self):
        definition = f"p:g/e {self.subject}:0x10".encode()
        for data in (definition + b" " + b"+0(" * 350000, b"p" * (1 << 20), definition + b"\0", b"\0", b"\xff\xfe\xfd /\n",
                     definition + b" \xe9\x1b[31m=%di", definition + b" +0(" * 20 + b"%di" + b")" * 20, bytes(range(256)),
                     b"p:g/e /\x1b]0;title\x07:0x10", b"-:" + b"/" * 4000):
            self.refused(data)
            code, _, err = ask("-i", "-", "--", self.subject, "calls", "1", stdin=data)
            self.assertEqual(code, 125, err)

    def test_the_line_is_named_however_it_is_written(self):
        """Among more definitions than are compared one by one."""
        good = "".join(f"p:g/e{i} {self.subject}:take_node\n" for i in range(100))
        for line, what, caret in ((f" p:g/x\t{self.subject}:take_node   %dii  # no", "Invalid register name", "%dii"),
                                  (f"p:g/x  {self.subject}:take_node  %d\0i", "The line has a NUL byte", "\\x00i"),
                                  (f"{self.subject}:take_node ( x64 a,  nope b)", "Unknown type is specified", "nope b)"),
                                  (f"r:g/e5   {self.subject}:take_node", "Probe type is different from existing probe", "r:g/e5"),
                                  (f"p:g/x {self.subject}:take_node  %di if  nope == 1", "Field not found", "== 1")):
            file = self.write("probes", good + "\n" + line + "\n" + good.replace("g/e", "g/f"))
            runs = [harness.run([*harness.tracer(), "-i", file, "--", self.subject, "calls", "1"]),
                    harness.run([self.subject, "calls", "1"], env=harness.preloaded(UPROBE_PROBES_FILE=file))]
            for done in runs:
                said = done.stderr.decode("latin-1").splitlines()
                self.assertIn(f"uprobe-run: {file}:102: {what}", said[0])
                self.assertTrue(said[1][said[2].index("^"):].startswith(caret), said)

    def test_the_option_is_named(self):
        for words, place in ((["-F", "take_node(nope p)"], "-F"), (["-p", "p take_node nope"], "-p")):
            code, _, err = ask("--dry-run", *words, self.subject)
            self.assertEqual((code, err.split(": ")[:2]), (125, ["uprobe-run", place]))

    def test_ten_thousand_events(self):
        text = "".join(f"p:g/e{i} {self.subject}:{i} a=%di b=+0(%si):string\n" for i in range(10000))
        self.assertEqual(len(self.listing("-i", "-", stdin=text.encode())), 10000)
        text += "".join(f"-:g/e{i}\n" for i in range(10000))
        self.assertEqual(self.listing("-i", "-", stdin=text.encode()), [])


if __name__ == "__main__":
    harness.main()
