# SPDX-License-Identifier: MIT
"""Data in text, and restartable sequences: a place that may be either is refused, and the program runs on with probes only on
certain code.
"""
import subprocess
import unittest

import harness

# A function that jumps over a pointer, which it then calls.
LITERAL = r"""
#include <stdio.h>
int called;
void callee(void) { ++called; }
void (*volatile pointer)(void) = callee;
void literal(void);
__asm__(".text\n.type literal, @function\n.globl literal\nliteral:\n"
        "  .cfi_startproc\n  sub $8, %%rsp\n  .cfi_adjust_cfa_offset 8\n  jmp 1f\n"
        "%(symbol)s data: .quad callee\n"
        "1: %(call)s\n  add $8, %%rsp\n  .cfi_adjust_cfa_offset -8\n  ret\n"
        "  .cfi_endproc\n.size literal, . - literal\n");
int main(void) {
  for (int i = 0; i < 3; ++i) literal();
  printf("%%d\n", called);
  return 0;
}
"""
AN_OBJECT = ".globl data\\n.type data, @object\\n.size data, 8\\n"
CALLS = {  # where its instructions start
    "call *data(%rip)": [0, 4, 14, 20, 24],
    "lea data(%rip), %rax\\n call *(%rax)": [0, 4, 14, 21, 23, 27],
    "mov $data, %eax\\n call *(%rax)": [0, 4, 14, 19, 21, 25],
    "mov $3, %eax\\n call *data-24(,%rax,8)": [0, 4, 14, 19, 26, 30],
}

# A sequence that adds to a counter; its descriptor lies in SECTION.
SEQUENCE = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/rseq.h>
#include <string.h>
struct descriptor { unsigned version, flags; unsigned long start, length, abort; } __attribute__((aligned(32)));
extern char sequence_start[], sequence_end[], sequence_abort[];
#ifndef ON_STACK
static %(qualifier)s struct descriptor kept __attribute__((section("%(section)s"), used)) = {
    0, 0, (unsigned long)sequence_start, 10, (unsigned long)sequence_abort};
#endif
void count(void *descriptor, unsigned long *slot, unsigned long *counter);
__asm__(".text\n.globl count\n.type count, @function\ncount:\n  .cfi_startproc\n"
        "1: mov %%rdi, (%%rsi)\n"
        ".globl sequence_start\nsequence_start:\n"
        "  mov (%%rdx), %%rax\n  add $1, %%rax\n  mov %%rax, (%%rdx)\n"
        ".globl sequence_end\nsequence_end:\n"
        "  movq $0, (%%rsi)\n  ret\n"
        "  .byte 0x0f, 0xb9, 0x3d\n  .long 0x53053053\n"
        ".globl sequence_abort\nsequence_abort:\n  jmp 1b\n"
        "  .cfi_endproc\n.size count, . - count\n");
int main(void) {
#ifdef ON_STACK
  struct descriptor made = {0, 0, (unsigned long)sequence_start, 10, (unsigned long)sequence_abort};
  void *descriptor = &made;
#else
  void *descriptor = (void *)&kept;
#endif
  unsigned long counter = 0;
  char *area = (char *)__builtin_thread_pointer() + __rseq_offset;
  for (int i = 0; i < 1000; ++i) count(descriptor, (unsigned long *)(area + 8), &counter);
  printf("%%lu\n", counter);
  return 0;
}
"""


class Places(harness.TestCase):
    def compiled(self, name, source, *flags):
        compiler = harness.need("gcc")
        code = self.write(name + ".c", source)
        program = self.path(name)
        made = harness.run([compiler, "-O1", "-o", program, code, *flags])
        if made.returncode != 0:
            raise unittest.SkipTest(made.stderr.decode(errors="replace")[-300:])
        return program

    def offsets(self, program, function):
        """file offsets of the function's bytes"""
        from elf_reader import Elf
        size = next(int(line.split()[1], 16)
                    for line in subprocess.run(["nm", "-S", program], capture_output=True, text=True).stdout.splitlines()
                    if line.split()[-1] == function and len(line.split()) == 4)
        start = Elf(program).offset_of(function)
        return range(start, start + size)

    def check(self, program, offset, expected):
        """The effect of a probe there: True if it is accepted; the program's output is always the same."""
        seen = harness.run(harness.tracer("-o", self.path("trace"), "-p", f"p:e {program}:{offset:#x}", "--", program))
        if seen.returncode == 125:
            return False
        self.assertEqual((seen.returncode, seen.stdout), (0, expected), (hex(offset), seen.stderr))
        return True

    def accepted(self, name, symbol, call, *flags):
        program = self.compiled(name, LITERAL % {"symbol": symbol, "call": call}, *flags)
        offsets = self.offsets(program, "literal")
        if "-DSTRIP" in flags:
            subprocess.run(["strip", program], check=True)
        return [offset - offsets.start for offset in offsets if self.check(program, offset, b"3\n")]

    def test_data_in_text(self):
        for number, (call, expected) in enumerate(CALLS.items()):
            with self.subTest(call=call):
                self.assertEqual(self.accepted(f"literal{number}", "", call, "-no-pie"), expected)

    def test_data_in_text_of_stripped_programs(self):
        for number, (call, expected) in enumerate(CALLS.items()):
            with self.subTest(call=call):
                name = f"stripped{number}"
                self.assertEqual(self.accepted(name, "", call, "-no-pie", "-DSTRIP"), expected)

    def test_the_refusal_says_why(self):
        call = next(iter(CALLS))
        for symbol, reason in (("", "and it uses bytes of the function as data"), (AN_OBJECT, "a symbol says that it is data")):
            program = self.compiled("refused", LITERAL % {"symbol": symbol, "call": call}, "-no-pie")
            definition = f"p:e {program}:{self.offsets(program, 'literal').start + 6:#x}"
            seen = harness.run(harness.tracer("-o", self.path("trace"), "-p", definition, "--", program))
            self.assertEqual(seen.returncode, 125)
            text = seen.stderr.decode()
            self.assertIn("cannot show that an instruction starts at 0x", text)
            self.assertIn(reason + "; --force insists", text)
            self.assertIn("^", text)

    def sequences(self, name, *flags, qualifier="", section=""):
        program = self.compiled(name, SEQUENCE % {"qualifier": qualifier, "section": section}, *flags)
        offsets = self.offsets(program, "count")
        return [offset - offsets.start for offset in offsets if self.check(program, offset, b"1000\n")]

    def test_descriptors_in_data(self):
        # mov; movq, ret; jmp
        outside = [0, 13, 20, 28]
        for pie in ("-pie", "-no-pie"):
            flags = ["-fPIE" if pie == "-pie" else "-fno-pie", pie]
            self.assertEqual(self.sequences("data", *flags, section=".data"), outside)
            self.assertEqual(self.sequences("relro", *flags, section=".data.rel.ro"), outside)
        self.assertEqual(self.sequences("constant", "-fno-pie", "-no-pie", qualifier="const", section=".rodata"), outside)

    def test_descriptors_made_at_run_time(self):
        self.assertEqual(self.sequences("stack", "-DON_STACK"), [])


if __name__ == "__main__":
    harness.main()
