# SPDX-License-Identifier: MIT
"""Vector registers: a probe shows the values that the instruction would read, however the hit comes, also while signals
interrupt, and the program's registers are unchanged. And floating point numbers that are passed in them."""
import re

import harness

ALL = " ".join(f"%{bank}mm{n}:u8[{size}]" for bank, size in (("x", 16), ("y", 32)) for n in range(16))
SOME = "%ymm3:u8[32] %ymm14:u8[32]"


def pattern(seed, number, size):
    """The value that the fixture puts into the register."""
    return "{" + ",".join(str((seed * 7 + number * 32 + i) & 0xff) for i in range(size)) + "}"


class Vectors(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.program = harness.fixture("vectors")

    def hits(self, definitions, argument, options=()):
        plain = harness.run([self.program, argument])
        seen = harness.run_tool(definitions, [self.program, argument], options)
        self.assertEqual((seen.returncode, seen.stdout), (plain.returncode, plain.stdout), seen.stderr)
        return seen.hits

    def values(self, *words, argument="floats"):
        return [hit.arguments for hit in self.hits([" ".join(words)], argument)]

    def test_every_register(self):
        hits = self.hits([f"p:m {self.program}:marked %di {ALL}"], "3")
        self.assertEqual(len(hits), 3)
        for seed, hit in enumerate(hits):
            expected = [pattern(seed, n, size) for size in (16, 32) for n in range(16)]
            self.assertEqual(re.findall(r"\{.*?\}", hit.arguments), expected)

    def test_at_the_return(self):
        for mode in ("exits", "stub"):
            hits = self.hits([f"r:m {self.program}:marked $retval:u64 {SOME}"], "2", [f"--return={mode}"])
            self.assertEqual([re.findall(r"\{.*?\}|arg1=\d+", hit.arguments) for hit in hits],
                             [[f"arg1={seed + 1}", pattern(seed, 3, 32), pattern(seed, 14, 32)] for seed in range(2)])

    def test_signals_in_between(self):
        """Handlers that change every vector register, and hit the same probes, interrupt any instruction of a hit."""
        definitions = [f"p:m {self.program}:marked %di:u64 {SOME}", f"p:b {self.program}:marked+4 %di:u64 $comm {SOME}",
                       f"r:r {self.program}:marked $retval:u64 {SOME}"]
        hits = self.hits(definitions, "20000", ["--return=stub", "-b", "64M"])
        nested = 0
        for hit in hits:
            number = int(re.match(r"arg1=(\d+) ", hit.arguments)[1]) - (hit.event == "r")
            nested += number >= 1000000
            self.assertEqual(re.findall(r"\{.*?\}", hit.arguments), [pattern(number, 3, 32), pattern(number, 14, 32)],
                             hit.rest)
        self.assertEqual(len(hits) - nested, 60000)
        self.assertGreater(nested, 10)

    def test_registers_in_their_first_state(self):
        """The kernel saves nothing of them then."""
        self.assertEqual(self.values(f"p:m {self.program}:unfilled %xmm0 %ymm9 %xmm1:f64", argument="first"),
                         ["arg1={0x0,0x0} arg2={0x0,0x0,0x0,0x0} arg3=0"])

    def test_types(self):
        self.assertEqual(self.values(f"p:m {self.program}:marked %xmm1 %xmm1:x8 %xmm1:s16[3] %xmm1:b4@4/8[2] %xmm1:x32[4]",
                                     argument="1"),
                         ["arg1={0x2726252423222120,0x2f2e2d2c2b2a2928} arg2=0x20 arg3={8480,8994,9508} arg4={2,2} "
                          "arg5={0x23222120,0x27262524,0x2b2a2928,0x2f2e2d2c}"])

    def test_floating_point_arguments(self):
        seen = harness.run([*harness.tracer("-q"), "-F",
                            f"{self.program}:mixed(double a, int i, float b, string t | char first[0], double c)", "-F",
                            f"{self.program}:tenth(double a, NULL, double b, double c, double d, double e, double f, "
                            "double g, double h, double i, float j)", "--", self.program, "floats"])
        self.assertEqual(seen.returncode, 0, seen.stderr)
        lines = [line.split(": ", 1)[1] for line in seen.stderr.decode().splitlines() if not line.startswith("#")]
        self.assertEqual(lines, ["main->mixed(a=1.5, i=7, b=-0.25, t=text, first=t, c=1e+100)",
                                 "main->tenth(a=1, b=2, c=3, d=4, e=5, f=6, g=7, h=8, i=9.5, j=11.75)"])

    def test_floating_point_results(self):
        """`$retval` of these types is a function's return value of that type: xmm0. And the arguments."""
        self.assertEqual(self.values(f"r:m {self.program}:mixed $retval:f64 %xmm0:f64 entry(%xmm1):f32 entry(%di):s32"),
                         ["arg1=1e+100 arg2=1e+100 arg3=-0.25 arg4=7"])
        self.assertEqual(self.values(f"r:m {self.program}:tenth $retval:f32"), ["arg1=67.25"])

    def test_filters_on_them(self):
        """Floating point numbers are compared only by their bits, not as numbers."""
        hits = self.hits([], "50", ["-p", f"p:m {self.program}:marked seed=%di:u64 low=%xmm1:u8", "--filter", "low == 46"])
        self.assertEqual([hit.arguments for hit in hits], ["seed=2 low=46"])
        probe = ["-p", f"p:m {self.program}:mixed a=%xmm0:f64 bits=%xmm0:x64", "--filter"]
        self.assertEqual(len(self.hits([], "floats", [*probe, "bits == 0x3ff8000000000000"])), 1)
        seen = harness.run([harness.tool(), "--check", *probe, "a == 1"])
        self.assertEqual(seen.returncode, 125)
        self.assertIn(b"Illegal operation for field type", seen.stderr)

    def test_strict_has_none(self):
        seen = harness.run([harness.tool(), "--check", "--strict", "-p", f"p:m {self.program}:0x1000 %xmm0"])
        self.assertEqual(seen.returncode, 125)
        self.assertIn(b"Invalid register name", seen.stderr)
        self.assertIn(b"uprobe events have no vector registers", seen.stderr)


if __name__ == "__main__":
    harness.main()
