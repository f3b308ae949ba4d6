# SPDX-License-Identifier: MIT
"""Only arch/ knows the machine: this reads the sources of everything else, comments too, and refuses what belongs to one machine.

What is allowed all the same has its reason; a line of the list that nothing needs any more is refused too.
"""
import os
import re

import harness

ROOTS = ("engine", "preload", "cli", "library")
ENDINGS = (".h", ".cpp", ".c", ".S")

# Registers by the names that only this machine has. The kernel's names (ax, di) are words of the language of definitions.
REGISTER = r"\b(?:[re](?:ax|bx|cx|dx|si|di|bp|sp|ip|flags)|r(?:8|9|1[0-5])[dwb]?|[xyz]mm\d*)\b|\bREG_R|\bReg::(?!sp\b|ip\b|flags\b)\w"
FIELD = r"[.>](?:ax|bx|cx|dx|si|di|bp|r8|r9|r1[0-5]|cs|ss)\b"
RULES = {
    "machine": re.compile(r"x86|amd64", re.I),
    "decoder": re.compile(r"zydis", re.I),
    "register": re.compile(REGISTER + "|" + FIELD),
    "registers of a thread": re.compile(r"\buser_regs_struct\b"),
    # An empty one is a barrier for the compiler.
    "assembly": re.compile(r"\b(?:asm|__asm|__asm__)\b(?: volatile)?\s*\((?!\"\")|\b_mm_\w+|\b__rdtsc\b|intrin\.h|cpuid"),
    # A byte that is written as a number: an instruction's, unless the file is of the list.
    "byte": re.compile(r"\b0x[0-9a-f]{2}\b(?!')", re.I),
}

NAMES = "names that users write in definitions, in a message or in what explains them"
FORMAT = "bytes of a format that all machines share (DWARF)"
TEXT = "characters"
STATUS = "the kernel's way to say how a process has stopped"
FLAGS = "flags of the kernel or of the project, or shifts"
MARKER = "a place of a marker is an instruction, and on other machines nothing"
# (a file, or a folder with all that is in it, a rule) -> why it may break the rule
ALLOWED = {
    ("cli/", "byte"): TEXT,
    ("engine/output/", "byte"): TEXT,
    ("engine/flow/proven_code.cpp", "byte"): TEXT,
    ("engine/program/", "byte"): TEXT,
    ("engine/resolve/programs.cpp", "byte"): TEXT,
    ("engine/resolve/sources.cpp", "byte"): TEXT,
    ("engine/spec/", "byte"): TEXT,
    ("engine/lex/", "byte"): TEXT,
    ("engine/elf/bytes_view.h", "byte"): FORMAT,
    ("engine/symbolize/call_frames.cpp", "byte"): FORMAT,
    ("preload/unwind_rules.cpp", "byte"): FORMAT,
    ("engine/elf/eh_frame.cpp", "byte"): FORMAT,
    ("engine/elf/frame_table.cpp", "byte"): FORMAT,
    ("engine/elf/frame_table.h", "byte"): FORMAT,
    ("engine/symbolize/frame_walk.cpp", "byte"): FORMAT,
    ("engine/service/exec_follower.cpp", "byte"): STATUS,
    ("engine/target/stopped_calls.cpp", "byte"): STATUS,
    ("engine/target/thread_change.cpp", "byte"): STATUS,
    ("engine/target/thread_change.h", "byte"): STATUS,
    ("engine/shared/event_program.h", "byte"): FLAGS,
    ("engine/shared/task_number.h", "byte"): FLAGS,
    ("engine/shared/trampoline.h", "byte"): FLAGS,
    ("preload/helper.cpp", "byte"): FLAGS,
    ("preload/mappings.cpp", "byte"): FLAGS,
    ("engine/elf/image.cpp", "machine"): "a message names another machine",
    ("engine/resolve/probe_builder.cpp", "register"): NAMES,
    ("engine/spec/argument.cpp", "register"): NAMES,
    ("engine/spec/fetch.cpp", "register"): NAMES,
    ("engine/spec/parse.h", "register"): NAMES,
    ("engine/lex/registers.cpp", "register"): NAMES,
    ("engine/lex/registers.h", "register"): NAMES,
    ("library/uprobe/ring.h", "machine"): "the header that users read says what its memory orders hold for",
    ("library/uprobe/marker.h", "machine"): MARKER,
    ("library/uprobe/marker.h", "register"): MARKER,
    ("library/uprobe/marker.h", "byte"): MARKER,
    ("library/uprobe/session.h", "machine"): "the header that users read says what the library runs on, with an example",
}


def sources():
    for root in ROOTS:
        for folder, _, names in os.walk(os.path.join(harness.Options.source, root)):
            for name in sorted(names):
                if name.endswith(ENDINGS):
                    path = os.path.join(folder, name)
                    with open(path, encoding="utf-8") as file:
                        yield os.path.relpath(path, harness.Options.source), file.read()


class ArchRules(harness.TestCase):
    def found(self):
        """(path, rule) -> the lines"""
        found = {}
        for path, text in sources():
            for number, line in enumerate(text.splitlines(), 1):
                for rule, pattern in RULES.items():
                    if pattern.search(line):
                        found.setdefault((path, rule), []).append(f"{path}:{number}: {rule}: {line.strip()}")
        return found

    def test_only_arch_knows_the_machine(self):
        allowed = self.allowed()
        lines = [line for key, lines in self.found().items() if key not in allowed for line in lines]
        self.assertEqual(lines, [])

    def allowed(self):
        """Those of found() that the list allows."""
        return {key: allowed for key in self.found() for allowed in ALLOWED
                if key[1] == allowed[1] and (key[0] == allowed[0] or allowed[0][-1] == "/" and key[0].startswith(allowed[0]))}

    def test_the_list_of_exceptions_only_shrinks(self):
        self.assertEqual(set(ALLOWED) - set(self.allowed().values()), set())

    def test_the_sources_are_read(self):
        self.assertGreater(len(list(sources())), 400)

    def test_what_is_refused(self):
        for rule, line in (("machine", "#include \"arch/x86/code/scan.h\""), ("decoder", "#include <Zydis/Zydis.h>"),
                           ("register", "r.rax = 0;"), ("register", "// lea -128(%rsp), %rsp"), ("register", "REG_RIP"),
                           ("register", "shared::Reg::ax"), ("register", "frame.di"),
                           ("registers of a thread", "user_regs_struct r{};"),
                           ("assembly", "asm volatile(\"syscall\""), ("assembly", "__rdtsc()"),
                           ("byte", "constexpr std::uint8_t kInt3 = 0xcc;"), ("byte", "{0xe9, 0xeb}")):
            self.assertRegex(line, RULES[rule])
        for line in ("asm(\"\" : \"+r\"(address));", "registers[shared::Reg::sp]", "%di", "0x100", "0x1000'0000"):
            for rule, pattern in RULES.items():
                self.assertNotRegex(line, pattern)


if __name__ == "__main__":
    harness.main()
