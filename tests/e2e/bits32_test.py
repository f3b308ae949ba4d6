# SPDX-License-Identifier: MIT
"""32-bit programs: refused, said so, and unharmed. One is assembled here, without any C library."""
import os

import attach_test
import harness

# Each byte that it reads it writes back, one higher; at the end it exits with 7.
SOURCE = """
.globl _start, step
_start:
  mov $3, %eax  # read
  xor %ebx, %ebx
  mov $byte, %ecx
  mov $1, %edx
  int $0x80
  test %eax, %eax
  jle over
  call step
  mov %eax, %edx
  mov $4, %eax  # write
  mov $1, %ebx
  mov $byte, %ecx
  int $0x80
  jmp _start
over:
  mov $1, %eax  # exit
  mov $7, %ebx
  int $0x80
.type step, @function
step:
  incb byte
  mov $1, %eax
  ret
.size step, .-step
.data
byte: .byte 0
"""


class Bits32(attach_test.AttachCase):
    def setUp(self):
        super().setUp()
        assembler, linker = harness.need("as"), harness.need("ld")
        source, self.program = self.write("small.s", SOURCE), self.path("small")
        made = harness.run([assembler, "--32", source, "-o", self.path("small.o")])
        if made.returncode == 0:
            made = harness.run([linker, "-m", "elf_i386", self.path("small.o"), "-o", self.program])
        if made.returncode != 0:
            self.skipTest("the assembler and linker know no 32-bit programs")
        try:
            alone = harness.run([self.program], stdin=b"HAL")
        except OSError as error:
            self.skipTest(f"this kernel runs no 32-bit programs: {error.strerror}")
        if alone.returncode < 0:
            self.skipTest("this kernel runs no 32-bit programs")
        self.assertEqual((alone.stdout, alone.returncode), (b"IBM", 7))

    def echo(self, process, byte):
        process.stdin.write(byte)
        process.stdin.flush()
        return process.stdout.read(1)

    def check_attach(self, definition, words, after):
        process = self.start(self.program, bufsize=0)
        self.assertEqual(self.echo(process, b"a"), b"b")
        text, signals = attach_test.checksum_of_text(process.pid), attach_test.signals_of(process.pid)
        size = attach_test.footprint(process.pid)
        seen = self.attach(process.pid, [definition])
        self.assertEqual((seen.returncode, seen.hits), (125, []))
        self.assertEqual(seen.stderr.decode(), f"uprobe-run: {words.format(pid=process.pid)}\n{after}")
        self.assertEqual(attach_test.checksum_of_text(process.pid), text)
        self.assertEqual(attach_test.signals_of(process.pid), signals)
        self.assertEqual(attach_test.footprint(process.pid), size)
        self.assertEqual(self.echo(process, b"b"), b"c")
        self.assertEqual(process.communicate()[0], b"")
        self.assertEqual(process.returncode, 7)

    def test_attach(self):
        definition = f"p:m {harness.libc_of('/bin/sh')}:getpid"
        self.check_attach(definition, "process {pid} (small): is a 32-bit program", "")

    def test_its_own_functions(self):
        definition = f"p:s {self.program}:step"
        caret = f"  {definition}\n  {' ' * definition.index('/')}^\n"
        self.check_attach(definition, f"-p: {self.program}: is a 32-bit program", caret)

    def test_launch(self):
        seen = harness.run_tool([f"p:m {harness.libc_of('/bin/sh')}:getpid"], [self.program], stdin=b"HAL")
        self.assertEqual((seen.returncode, seen.stdout), (125, b""), "nothing of it has run")
        self.assertEqual(seen.stderr, b"uprobe-run: is a 32-bit program\n")

    def test_one_that_a_traced_program_starts(self):
        libc = harness.libc_of("/bin/sh")
        seen = harness.run_tool([f"p:w {libc}:write fd=%di:s32 size=%dx"], ["/bin/sh", "-c", f"{self.program}; echo rc=$?"],
                                stdin=b"HAL")
        self.assertEqual((seen.stdout, seen.returncode), (b"IBMrc=7\n", 0))
        self.assertIn(b"a program runs untraced after execve: is a 32-bit program", seen.stderr)
        self.assertEqual(len(seen.hits), 1, "the shell's own")

    def test_preload(self):
        probes = harness.preloaded(UPROBE_PROBES=f"p:m {harness.libc_of('/bin/sh')}:getpid", UPROBE_OUTPUT=self.path("out"))
        seen = harness.run([self.program], stdin=b"HAL", env={**os.environ, **probes})
        self.assertEqual((seen.stdout, seen.returncode, seen.stderr), (b"IBM", 7, b""))


if __name__ == "__main__":
    harness.main()
