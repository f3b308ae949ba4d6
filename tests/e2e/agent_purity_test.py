# SPDX-License-Identifier: MIT
"""The built agent keeps the promises that let it live in any program: it needs nothing, brings nothing and touches no
state that a hit does not save. Read from the linked file with binutils, because flags of the compiler promise less.
"""
import os
import re
import subprocess
import unittest

import harness

# An instruction that names one of these would change state that a hit does not save.
VECTOR_STATE = re.compile(r"%(?:xmm|ymm|zmm|mm|k|tmm|bnd)[0-9]|%st\b|"
                          r"\b(?:emms|ldmxcsr|fninit|fxrstor|xrstor|vzero\w+)\b")
# These obey the direction flag, which belongs to the application.
STRING_INSTRUCTIONS = re.compile(r"\b(?:movs|stos|lods|scas|cmps|ins|outs)[bwlq]?\s.*%(?:es|ds):\(|"
                                 r"^rep\b|^repn?z (?!ret)")


class Purity(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.agent = os.path.join(os.path.dirname(harness.Options.tool or ""), "libuprobe.so")
        if not os.path.exists(cls.agent):
            raise unittest.SkipTest("libuprobe.so is not built")
        for program in ("readelf", "objdump"):
            harness.need(program)

    def readelf(self, *options):
        return subprocess.check_output(["readelf", "-W", *options, self.agent], text=True)

    def instructions(self):
        text = subprocess.check_output(["objdump", "-d", "--no-show-raw-insn", self.agent], text=True)
        found = [match[1].strip() for match in re.finditer(r"^\s*[0-9a-f]+:\t(.*)$", text, re.M)]
        self.assertGreater(len(found), 100, "the disassembly cannot be read")
        return found

    def test_needs_no_library(self):
        text = self.readelf("-d")
        self.assertIn("Dynamic section", text)
        self.assertNotRegex(text, r"\((?:NEEDED|RPATH|RUNPATH|TEXTREL)\)")

    def test_nothing_undefined(self):
        undefined = [line for line in self.readelf("--dyn-syms").splitlines()
                     if re.match(r"\s*[1-9]\d*:", line) and " UND " in line]
        self.assertEqual(undefined, [])

    def test_no_relocations(self):
        self.assertIn("There are no relocations", self.readelf("-r"))
        self.assertNotRegex(self.readelf("-d"), r"\((?:RELA|REL|RELR|JMPREL|PLTGOT)\)")

    def test_segments(self):
        text = self.readelf("-l")
        self.assertNotRegex(text, r"^\s*(?:TLS|INTERP)\s", "thread-local storage or an interpreter")
        stack = re.search(r"^\s*GNU_STACK\s.*?\s(R?W?E?)\s+0x\w+$", text, re.M)
        self.assertIsNotNone(stack, "without PT_GNU_STACK the loader makes every stack executable")
        self.assertNotIn("E", stack[1])
        for flags in re.findall(r"^\s*LOAD\s(?:\s*0x\w+){5}\s+([RWE ]+?)\s+0x", text, re.M):
            self.assertFalse("W" in flags and "E" in flags, f"a segment is {flags}")

    def test_no_dynamic_initialisers(self):
        sections = self.readelf("-S")
        self.assertNotRegex(sections, r"\.(?:ctors|dtors|tdata|tbss|got\.plt|plt)\b")

    def test_no_vector_state(self):
        """Only stores of the application's vector registers."""
        stores = {f"movups %xmm{n},(%rsi)" for n in range(16)} | {f"vmovups %ymm{n},(%rsi)" for n in range(16)}
        found = [" ".join(line.split()) for line in self.instructions() if VECTOR_STATE.search(line)]
        self.assertEqual(sorted(found), sorted(stores))

    def test_no_string_instructions(self):
        self.assertEqual([line for line in self.instructions() if STRING_INSTRUCTIONS.search(line)], [])

    def test_the_patterns_find_what_they_look_for(self):
        for line in ("movaps %xmm0,%xmm1", "vmovdqu (%rsi),%ymm3", "fld    %st(1)", "kmovq  %k1,%rax", "fldz   %st"):
            self.assertTrue(VECTOR_STATE.search(line), line)
        for line in ("rep stos %al,%es:(%rdi)", "movsb  %ds:(%rsi),%es:(%rdi)", "repz cmpsb %es:(%rdi),%ds:(%rsi)",
                     "lods   %ds:(%rsi),%al", "stos   %rax,%es:(%rdi)"):
            self.assertTrue(STRING_INSTRUCTIONS.search(line), line)
        for line in ("movslq %edi,%rax", "movsbl (%rdi),%eax", "mov    %fs:0x0,%rax", "ret", "repz ret"):
            self.assertFalse(STRING_INSTRUCTIONS.search(line) or VECTOR_STATE.search(line), line)


if __name__ == "__main__":
    harness.main()
