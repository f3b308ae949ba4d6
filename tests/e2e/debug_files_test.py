# SPDX-License-Identifier: MIT
"""Debug information wherever it lies: in folders by build id and by name, shared by dwz, packed names; files that are not the right
ones, and files that are made to be wrong."""
import os
import re
import shutil
import subprocess
import unittest

import harness

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
struct item { int n; const char *name; };
static __attribute__((noinline, noclone)) int weigh(struct item *it, int scale) {
  asm volatile("" ::: "memory");
  return it->n * scale;  // here
}
int main(void) {
  struct item one = {3, "plum"};
  printf("%d\n", weigh(&one, atoi("4")));
  return 0;
}
"""
LINE = 7
DEBUG = "/usr/lib/debug"


class Files(harness.TestCase):
    def setUp(self):
        super().setUp()
        harness.tool()
        self.gcc = harness.need("gcc")
        os.mkdir(self.path("bin"))
        self.program = self.path("bin/prog")
        self.build()

    def build(self, *flags, program=None, source=SOURCE):
        text = self.write("prog.c", source)
        subprocess.run([self.gcc, "-g", "-O2", *flags, "-o", program or self.program, text], check=True, cwd=self.folder)

    def separate(self, to, program=None, link=True):
        """Moves the debug information and the names of local functions into a file."""
        program = program or self.program
        os.makedirs(os.path.dirname(to), exist_ok=True)
        subprocess.run(["objcopy", "--only-keep-debug", program, to], check=True)
        subprocess.run(["strip", program], check=True)
        if link:
            self.link(to, program)

    def link(self, to, program):
        subprocess.run(["objcopy", "--add-gnu-debuglink=" + to, program], check=True)

    def build_id(self):
        notes = subprocess.check_output(["readelf", "-n", self.program], text=True)
        return re.search(r"Build ID: ([0-9a-f]+)", notes)[1]

    def installed(self, path):
        """A file below the folder of the distribution's debug files, for the time of the test."""
        if os.geteuid() != 0:
            raise unittest.SkipTest("only root can install debug files")
        made = path
        while not os.path.exists(os.path.dirname(made)):
            made = os.path.dirname(made)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self.addCleanup(lambda: shutil.rmtree(made) if os.path.isdir(made) else os.path.exists(made) and os.unlink(made))
        return path

    def trace(self, *words, program=None):
        output = self.path("trace")
        done = harness.run([*harness.tracer("-o", output), *words, "--", program or self.program])
        done.hits = []
        if os.path.exists(output):
            with open(output, encoding="latin-1") as file:
                done.hits = harness.parse_trace(file.read())
            os.unlink(output)
        return done

    def check(self, program=None):
        """By name, by line, and in the list; values by their names."""
        program = program or self.program
        for place in (f"{program}:weigh", f"{program}:prog.c:{LINE}"):
            seen = self.trace("-p", f"p:f {place} it->n it->name scale", program=program)
            self.assertEqual(seen.returncode, 0, seen.stderr)
            self.assertEqual([hit.arguments for hit in seen.hits], ['n=3 name="plum" scale=4'], seen.stderr)
        self.assertIn("p:weigh " + program + ":weigh", self.listing(program))

    def listing(self, program=None):
        return subprocess.check_output([harness.tool(), "-x", program or self.program, "-l"], text=True).splitlines()

    def check_unknown(self, *reasons):
        """The names are unknown, and the place by its line says why."""
        seen = self.trace("-p", f"p:f {self.program}:weigh")
        self.assertEqual(seen.returncode, 125, seen.stderr)
        self.assertIn(b"no function 'weigh'", seen.stderr)
        for reason in reasons:
            self.assertIn(reason, seen.stderr.decode())
        seen = self.trace("-p", f"p:f {self.program}:prog.c:{LINE} scale")
        self.assertEqual(seen.returncode, 125, seen.stderr)
        self.assertIn(b"has no debug information", seen.stderr)
        for reason in reasons:
            self.assertIn(reason, seen.stderr.decode())


class Packages(Files):
    def package(self, tool, *options):
        """Builds the program, and puts its split debug information into a package beside it."""
        made = harness.need(tool)
        self.build("-gsplit-dwarf", *options)
        subprocess.run([made, "-e", self.program, "-o", self.program + ".dwp"], check=True, cwd=self.folder, timeout=60)
        self.remove_units()

    def remove_units(self):
        units = [os.path.join(folder, name) for folder, _, names in os.walk(self.folder) for name in names
                 if name.endswith(".dwo")]
        self.assertTrue(units)
        for unit in units:
            os.unlink(unit)

    def check_package(self, program=None):
        program = program or self.program
        seen = self.trace("-p", f"p:f {program}:weigh scale", "-p", f"p:line {program}:prog.c:{LINE} n=it->n")
        self.assertEqual(seen.returncode, 0, seen.stderr)
        self.assertEqual({hit.arguments for hit in seen.hits}, {"scale=4", "n=3"}, seen.stderr)

    def test_of_the_fourth_version(self):
        self.package("dwp", "-gdwarf-4")  # dwp of binutils ends by a signal at what is newer
        self.check_package()

    def test_of_the_fifth_version(self):
        """Without optimisation: llvm-dwp 14 does not end at gcc's lists of ranges."""
        self.package("llvm-dwp", "-gdwarf-5", "-O0")
        self.check_package()

    def test_of_clang(self):
        self.gcc = harness.need("clang")
        for version in ("-gdwarf-4", "-gdwarf-5"):
            with self.subTest(version=version):
                self.package("llvm-dwp", version, "-Wno-unknown-attributes")
                self.check_package()

    def test_compressed(self):
        """The skeleton's strings are then in memory of libdw's."""
        self.package("llvm-dwp", "-gdwarf-5", "-O0")
        for file in (self.program, self.program + ".dwp"):
            subprocess.run([harness.need("objcopy"), "--compress-debug-sections", file], check=True)
        self.check_package()

    def test_by_a_symbolic_link(self):
        self.package("llvm-dwp", "-gdwarf-5", "-O0")
        os.symlink(self.program, self.path("linked"))
        self.check_package(self.path("linked"))

    def test_what_is_not_in_it(self):
        """A package of another build, or one that is cut off: the refusal names it."""
        self.package("llvm-dwp", "-gdwarf-5", "-O0")
        with open(self.program + ".dwp", "rb") as file:
            whole = file.read()
        subprocess.run([self.gcc, "-gsplit-dwarf", "-gdwarf-5", "-DOTHER=1", "-g3", "-o", self.program, self.path("prog.c")],
                       check=True, cwd=self.folder)
        self.remove_units()
        seen = self.trace("-p", f"p:f {self.program}:weigh scale")
        self.assertEqual(seen.returncode, 125, seen.stderr)
        self.assertIn(b"prog.dwp has not this part of the program", seen.stderr)
        for size in (0, 64, len(whole) // 2, len(whole) - 64):
            with self.subTest(size=size):
                with open(self.program + ".dwp", "wb") as file:
                    file.write(whole[:size])
                seen = self.trace("-p", f"p:f {self.program}:weigh scale")
                self.assertEqual(seen.returncode, 125, seen.stderr)
                self.assertIn(b"no variables are known here", seen.stderr)
        os.unlink(self.program + ".dwp")
        seen = self.trace("-p", f"p:f {self.program}:weigh scale")
        self.assertIn(b"in a .dwo file or a package (.dwp) that is not there", seen.stderr)
        self.assertEqual(len(self.trace("-p", f"p:f {self.program}:weigh").hits), 1)


class Places(Files):
    def test_beside_the_program(self):
        self.separate(self.path("bin/prog.debug"))
        self.check()

    def test_in_a_folder_beside_it(self):
        self.separate(self.path("bin/.debug/prog.debug"))
        self.check()

    def test_by_a_symbolic_link(self):
        """The folder is the one of the file itself, too."""
        self.separate(self.path("bin/.debug/prog.debug"))
        os.symlink(self.program, self.path("linked"))
        self.check(self.path("linked"))

    def test_in_the_folder_of_the_distribution(self):
        self.separate(self.installed(f"{DEBUG}{self.folder}/bin/prog.debug"))
        self.check()

    def test_by_build_id(self):
        number = self.build_id()
        self.separate(self.installed(f"{DEBUG}/.build-id/{number[:2]}/{number[2:]}.debug"), link=False)
        self.check()

    def test_versions_and_compilers(self):
        compilers = [self.gcc] + [path for path in (shutil.which("clang"),) if path]
        for compiler in compilers:
            for version in ("-gdwarf-4", "-gdwarf-5"):
                with self.subTest(compiler=compiler, version=version):
                    self.gcc = compiler
                    self.build(version, "-Wno-unknown-attributes")
                    self.separate(self.path("bin/prog.debug"))
                    self.check()

    def test_compressed(self):
        self.build("-gz")
        self.separate(self.path("bin/prog.debug"))
        self.check()

    def test_names_of_addresses(self):
        self.build(source=SOURCE.replace("int main(void) {", "static __attribute__((noinline, noclone)) int outer(struct item *it) {"
                                         " int n = weigh(it, 4); asm volatile(\"\"); return n; }\nint main(void) {")
                   .replace('weigh(&one, atoi("4"))', "outer(&one)"))
        self.separate(self.path("bin/prog.debug"))
        seen = self.trace("-p", f"p:f {self.program}:weigh caller=+0(%sp):symbol")
        self.assertRegex(seen.hits[0].arguments, r"^caller=outer\+0x[0-9a-f]+$", seen.stderr)

    def test_a_pattern_leaves_out_what_cannot_be_shown(self):
        """Only the debug file says that code begins there: no way of the program leads to it."""
        asm = 'asm(".text; .type unreached,@function; unreached: nop; ret; .size unreached,.-unreached");\n'
        self.build(source=asm + SOURCE.replace("weigh", "unloaded"))
        self.separate(self.path("bin/prog.debug"))
        seen = self.trace("-p", f"{self.program}:un*ed")
        self.assertEqual(seen.counts(), {"unloaded": 1}, seen.stderr)
        self.assertRegex(seen.stderr, rb"1 of 2 functions of 'un\*ed' in \S+ cannot be probed: cannot show that an instruction starts")
        seen = self.trace("-p", f"{self.program}:unreached")
        self.assertEqual(seen.returncode, 125, seen.stderr)
        self.assertIn(b"cannot show that an instruction starts", seen.stderr)
        listed = "".join(self.listing())
        self.assertIn("unloaded", listed)
        self.assertNotIn("unreached", listed)

    def test_a_shared_part(self):
        """dwz moves what two debug files have in common into a third one."""
        dwz = harness.need("dwz")
        further = "".join(f"struct part{i} {{ int a{i}; struct part{i} *next{i}; }} part{i}; " for i in range(60))
        other = self.path("bin/other")
        self.build(source=further + SOURCE)
        self.build("-DOTHER", program=other, source=further + SOURCE + "int more;\n")
        self.separate(self.path("bin/prog.debug"), link=False)
        self.separate(self.path("bin/other.debug"), other, link=False)
        os.mkdir(self.path("bin/.dwz"))
        subprocess.run([dwz, "-m", ".dwz/both", "-M", ".dwz/both", "prog.debug", "other.debug"], check=True, cwd=self.path("bin"))
        self.assertIn("gnu_debugaltlink", subprocess.check_output(["readelf", "-SW", self.path("bin/prog.debug")], text=True))
        self.link(self.path("bin/prog.debug"), self.program)
        self.check()

    def test_packed_names(self):
        """As Fedora packs them: the local functions alone."""
        xz = harness.need("xz")
        mini = self.path("mini")
        names = self.write("names", "weigh\n")
        subprocess.run(["objcopy", "--only-keep-debug", self.program, self.path("whole")], check=True)
        subprocess.run(["objcopy", "-S", "--keep-symbols=" + names, self.path("whole"), mini], check=True)
        subprocess.run([xz, mini], check=True)
        subprocess.run(["strip", self.program], check=True)
        self.assertNotIn("weigh", "".join(self.listing()))
        subprocess.run(["objcopy", "--add-section", ".gnu_debugdata=" + mini + ".xz", self.program], check=True)
        self.assertIn(f"p:weigh {self.program}:weigh", self.listing())
        seen = self.trace("-p", f"{self.program}:weigh scale=%si:s32")
        self.assertEqual([hit.arguments for hit in seen.hits], ["scale=4"], seen.stderr)


class Wrong(Files):
    def test_another_check_sum(self):
        self.separate(self.path("bin/prog.debug"))
        with open(self.path("bin/prog.debug"), "ab") as file:
            file.write(b"x")
        self.check_unknown("prog.debug has another check sum")

    def test_one_that_is_too_large_to_be_summed(self):
        """A program may name any file: the tool computes the check sum of 64 MiB at most."""
        self.build("-Wl,--build-id=none")
        self.separate(self.path("bin/prog.debug"))
        self.check()
        os.truncate(self.path("bin/prog.debug"), 2 << 30)
        self.check_unknown("prog.debug has no build id, and is larger than the 64 MiB of which a check sum is computed")

    def test_a_large_one_by_its_build_id(self):
        self.separate(self.path("bin/prog.debug"))
        os.truncate(self.path("bin/prog.debug"), 65 << 20)
        self.check()

    def test_another_build_id(self):
        """The check sum is right, and yet it is the debug file of another program."""
        other = self.path("bin/other")
        self.build("-DOTHER", program=other, source=SOURCE + "int more;\n")
        self.separate(self.path("bin/other.debug"), other)
        subprocess.run(["strip", self.program], check=True)
        self.link(self.path("bin/other.debug"), self.program)
        self.check_unknown("other.debug has the build id of another file")

    def test_a_wrong_one_does_not_hide_the_right_one(self):
        self.separate(self.path("bin/.debug/prog.debug"))
        self.write("bin/prog.debug", "text")
        self.check()

    def test_no_file_is_waited_for(self):
        self.separate(self.path("bin/prog.debug"))
        os.unlink(self.path("bin/prog.debug"))
        os.mkfifo(self.path("bin/prog.debug"))
        self.check_unknown("prog.debug is a fifo")

    def test_names_with_folders_are_none(self):
        """A link's name is one of a file: it leads into no other folder."""
        self.separate(self.path("elsewhere/prog.debug"))
        with open(self.program, "r+b") as file:
            data = file.read().replace(b"prog.debug\0", b"../e/p.dbg\0")
            file.seek(0)
            file.write(data)
        os.mkdir(self.path("e"))
        shutil.copy(self.path("elsewhere/prog.debug"), self.path("e/p.dbg"))
        self.check_unknown()

    def test_packed_names_that_are_damaged_or_endless(self):
        xz = harness.need("xz")
        packed = subprocess.run([xz, "-9"], input=bytes(200 << 20), stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["strip", self.program], check=True)
        for name, data in (("endless", packed), ("damaged", packed[:100]), ("none", b"text"), ("empty", b"")):
            with self.subTest(name=name):
                program = self.path(name)
                with open(self.path("data"), "wb") as file:
                    file.write(data)
                subprocess.run(["objcopy", "--add-section", ".gnu_debugdata=" + self.path("data"), self.program, program], check=True)
                seen = self.trace("-p", f"p:f {program}:weigh", program=program)
                self.assertEqual(seen.returncode, 125)
                self.assertIn(b"no function 'weigh'", seen.stderr)
                self.assertEqual(self.trace("-p", f"p:f {program}:main", program=program).returncode, 125)
                self.assertEqual(self.trace("-p", "p:f libc:printf", program=program).counts(), {"f": 1})


if __name__ == "__main__":
    harness.main()
