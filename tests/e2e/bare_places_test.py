# SPDX-License-Identifier: MIT
"""Places without a definition: functions by their names alone, looked for in the program and its libraries as the loader does; the
names of their events; processes that run, with a root of their own or a program that was replaced."""
import os
import re
import shutil
import signal
import subprocess
import unittest

import harness

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int first(int), second(int), both(int), local_call(void);
int both(int n) __attribute__((weak));
static __attribute__((noinline)) int greet(const char *who, int n) { return printf("hello %s %d\n", who, n); }
int main(int argc, char **argv) {
  greet("world", 3);
  int sum = first(1) + second(2) + local_call();
  printf("%d\n", sum);
  fflush(stdout);
  if (argc > 1) for (;;) { usleep(20000); sum = first(sum & 7); }
  return 0;
}
"""
# Both libraries have `both`, and static functions of one name.
LIBRARY = r"""
static __attribute__((noinline)) int hidden(int n) { return n + NUMBER; }
int both(int n) { return hidden(n); }
int FUNCTION(int n) { return both(n); }
"""
LOCAL = "int first(int); int local_call(void) { return first(4); }\n"


class Bare(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.gcc = harness.need("gcc")
        os.mkdir(self.path("one"))
        os.mkdir(self.path("two"))
        self.library("one/libfirst.so", LIBRARY, "-DFUNCTION=first", "-DNUMBER=10")
        self.library("two/libsecond.so.3", LIBRARY, "-DFUNCTION=second", "-DNUMBER=20")
        self.library("one/liblocal.so", LOCAL, "-Wl,--enable-new-dtags,-rpath,$ORIGIN/../one", self.path("one/libfirst.so"))
        self.program = self.path("prog")
        self.build(self.program, PROGRAM, self.path("one/liblocal.so"), self.path("two/libsecond.so.3"),
                   self.path("one/libfirst.so"), "-Wl,--enable-new-dtags,-rpath,$ORIGIN/one:$ORIGIN/two")

    def build(self, to, text, *flags):
        source = self.write(os.path.basename(to) + ".c", text)
        subprocess.run([self.gcc, "-O1", "-g", "-fno-inline", "-o", to, source, *flags], check=True, cwd=self.folder)

    def library(self, to, text, *flags):
        name = os.path.basename(to)
        self.build(self.path(to), text, "-shared", "-fPIC", "-Wl,-soname," + name, *flags)

    def trace(self, *words, command=None, env=None, status=0):
        done = harness.run([*harness.tracer("-o", self.path("trace")), *words, "--", *(command or [self.program])],
                           env=env and {**os.environ, **env})
        self.assertEqual(done.returncode, status, done.stderr)
        if status == 0:
            with open(self.path("trace"), encoding="latin-1") as file:
                done.hits = harness.parse_trace(file.read())
        return done

    def place_of(self, seen, event):
        """The file of an event's probe, by the summary."""
        return re.search(rb"uprobes/%s (\S+):0x" % event.encode(), seen.stderr)[1].decode()


class Names(Bare):
    def test_the_first_object_in_the_loaders_order(self):
        seen = self.trace("-p", "greet", "-p", "both", "-p", "hidden")
        self.assertEqual(seen.counts()["greet"], 1)
        # liblocal.so is the first that is needed, and it has none; libsecond.so.3 comes before what liblocal.so needs
        self.assertEqual(os.path.basename(self.place_of(seen, "both")), "libsecond.so.3")
        self.assertIn(b"there is also libfirst.so:both", seen.stderr)
        self.assertEqual(seen.counts()["both"], 3, "the loader has bound all calls to the first one")

    def test_the_loader_agrees(self):
        """LD_DEBUG says what the loader binds each name to."""
        bound = subprocess.run([self.program], env={**os.environ, "LD_DEBUG": "bindings", "LD_BIND_NOW": "1"},
                               capture_output=True, check=True).stderr.decode()
        for name in ("both", "first", "second", "malloc", "printf", "local_call"):
            found = re.search(rf"to (\S+) \[\d+\]: normal symbol `{name}'", bound)
            if found:
                done = harness.run([*harness.tracer("--dry-run", "-p", name), "--", self.program])
                self.assertIn(os.path.realpath(found[1]), os.path.realpath(re.search(r"at +(\S+):0x", done.stdout.decode())[1]))

    def test_arguments_and_returns(self):
        seen = self.trace("-p", "greet who=+0(%di):string n=%si:s32", "-r", "greet $retval:s32", "-r", "second $retval:s32")
        self.assertEqual([(hit.event, hit.arguments) for hit in seen.hits],
                         [("greet", 'who="world" n=3'), ("greet__return", "arg1=14"), ("second", "arg1=22")])

    def test_names_of_arguments(self):
        seen = self.trace("-p", "second(n:s32)", "-r", "first(n:u8) $retval:s32")
        self.assertEqual([hit.arguments for hit in seen.hits if hit.event == "second"], ["n=2"])
        self.assertEqual([hit.arguments for hit in seen.hits if hit.event == "first"], ["n=1 arg1=21", "n=4 arg1=24"])

    def test_variables(self):
        seen = self.trace("-p", "greet who n")
        self.assertEqual([hit.arguments for hit in seen.hits], ['who="world" n=3'])

    def test_objects_by_name(self):
        seen = self.trace("-p", "libfirst:both", "-p", "libsecond.so.3:both", "-p", "prog:greet", "-p", f"{self.program}:main",
                          "-p", "libc:exit")
        self.assertEqual(seen.counts(), {"both_1": 3, "greet": 1, "main": 1, "exit": 1})

    def test_typed_definitions_take_them_too(self):
        seen = self.trace("-p", "p:mine libsecond:second n=%di", "-p", "p:other second")
        self.assertEqual(seen.counts(), {"mine": 1, "other": 1})

    def test_patterns(self):
        seen = self.trace("-p", "libfirst:*i*")
        self.assertEqual(seen.counts()["first"], 2)
        seen = self.trace("-p", "gree*")
        self.assertEqual(seen.counts(), {"greet": 1})

    def test_the_environment(self):
        os.mkdir(self.path("other"))
        self.library("other/libfirst.so", LIBRARY, "-DFUNCTION=first", "-DNUMBER=30")
        program = self.path("prog2")
        self.build(program, PROGRAM, self.path("one/liblocal.so"), self.path("two/libsecond.so.3"),
                   self.path("one/libfirst.so"), "-Wl,--enable-new-dtags,-rpath,$ORIGIN/one:$ORIGIN/two")
        env = {"LD_LIBRARY_PATH": self.path("other")}
        seen = self.trace("-p", "first", command=[program], env=env)
        self.assertEqual(seen.counts(), {"first": 2})
        self.assertEqual(os.path.dirname(self.place_of(seen, "first")), self.path("other"))
        env = {"LD_PRELOAD": self.path("other/libfirst.so")}
        seen = self.trace("-p", "both", command=[program], env=env)
        self.assertEqual(os.path.dirname(self.place_of(seen, "both")), self.path("other"))
        self.assertEqual(seen.counts(), {"both": 3})

    def test_static_and_musl(self):
        for name in ("subject_static", "subject_musl"):
            with self.subTest(name=name):
                program = self.copy_of(harness.fixture(name))
                done = harness.run([*harness.tracer("--dry-run", "-p", "malloc", "-p", "libc:free"), "--", program])
                if name == "subject_static":
                    self.assertIn(b"subject_static:0x", done.stdout + done.stderr)
                else:
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertEqual(len(re.findall(rb"(?m)^  at +\S*musl\S*:0x", done.stdout)), 2, done.stdout)


class Scripts(Bare):
    def test_the_interpreter_is_meant(self):
        script = self.write("script", f"#! {self.program} word\n", 0o755)
        os.symlink(self.program, self.path("prog-link"))
        self.write("outer", f"#!{script}\n", 0o755)
        for name in ("script", "outer"):
            done = harness.run([*harness.tracer("--dry-run", "-p", "greet", "-p", f"p:mine {self.path(name)}:greet"), "--",
                                self.path(name)])
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"is a script: its interpreter {self.program} is probed".encode(), done.stderr)
            self.assertEqual(done.stdout.count(f"at    {self.program}:0x".encode()), 2, done.stdout)

    def test_env(self):
        for line in ("#!/usr/bin/env prog", "#!/usr/bin/env -S A=b prog on"):
            script = self.write("script", line + "\n", 0o755)
            done = harness.run([*harness.tracer("--dry-run", "-p", "greet"), "--", script],
                               env={**os.environ, "PATH": self.folder + ":" + os.environ["PATH"]})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"at    {self.program}:0x".encode(), done.stdout)

    def test_options_of_env(self):
        """Values of options are no programs; what stands after -S is split."""
        for line in ("-u SHELL prog", "-uLSX prog", "-C / prog", "--unset=A -i prog", "--unset A prog", "-vSprog on", "-iS A=b prog",
                     "--split-string=prog on"):
            with self.subTest(line=line):
                script = self.write("script", f"#!/usr/bin/env {line}\n", 0o755)
                done = self.plan(script, PATH=self.folder + ":" + os.environ["PATH"])
                self.assertIn(f"at    {self.program}:0x".encode(), done.stdout)

    def plan(self, program, **environment):
        done = self.plan_of("greet", program, **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def plan_of(self, place, program, **environment):
        """Without the version of the manager under which the test itself may run."""
        inherited = {name: value for name, value in os.environ.items() if not name.endswith("_VERSION")}
        return harness.run([*harness.tracer("--dry-run", "-p", place), "--", program], env={**inherited, **environment}, cwd=self.folder)

    def shim(self, manager, line, name="tool"):
        """A shim of that manager, and the tool in two versions: only the one of 1.0 is the program."""
        folder, inner = self.path(manager), {"asdf": "installs/plug-in"}.get(manager, "versions")
        for version, target in (("1.0", self.program), ("2.0", "/bin/true")):
            os.makedirs(f"{folder}/{inner}/{version}/bin", exist_ok=True)
            if not os.path.lexists(f"{folder}/{inner}/{version}/bin/{name}"):
                os.symlink(target, f"{folder}/{inner}/{version}/bin/{name}")
        os.makedirs(f"{folder}/shims", exist_ok=True)
        return self.write(f"{manager}/shims/{name}", f"#!/usr/bin/env bash\nset -e\n{line}\n", 0o755)

    def check_shim(self, manager, shim, **environment):
        done = self.plan(shim, **environment)
        self.assertIn(f"'{shim}' is a shim of {manager}: {self.path(manager)}/".encode(), done.stderr)
        self.assertIn(b"/1.0/bin/tool:0x", done.stdout)

    def test_shims(self):
        for manager, file in (("pyenv", ".python-version"), ("rbenv", ".ruby-version"), ("nodenv", ".node-version")):
            with self.subTest(manager=manager):
                shim = self.shim(manager, f'exec "/x/libexec/{manager}" exec "$program" "$@"')
                self.check_shim(manager, shim, **{manager.upper() + "_VERSION": "1.0"})
                self.write(f"{manager}/version", "1.0\n")
                self.check_shim(manager, shim)
                self.write(f"{manager}/version", "2.0\n")
                self.write(file, "1.0\n2.0\n")
                self.check_shim(manager, shim)
                os.unlink(self.path(file))

    def test_shims_of_asdf(self):
        shim = self.shim("asdf", '# asdf-plugin: plug-in 2.0\n# asdf-plugin: plug-in 1.0\nexec /x/bin/asdf exec "tool" "$@"')
        self.check_shim("asdf", shim, ASDF_PLUG_IN_VERSION="1.0")
        self.write(".tool-versions", "other 3\nplug-in 1.0\n")
        self.check_shim("asdf", shim)

    def test_a_script_whose_interpreter_is_found_by_a_shim(self):
        shim = self.shim("pyenv", 'exec "/x/pyenv" exec "$program" "$@"')
        script = self.write("script", "#!/usr/bin/env tool\n", 0o755)
        done = self.plan(script, PATH=os.path.dirname(shim) + ":" + os.environ["PATH"], PYENV_VERSION="1.0")
        self.assertIn(b"/pyenv/versions/1.0/bin/tool:0x", done.stdout)
        os.symlink(self.program, self.path("tool"))
        folders = ":".join([os.path.dirname(shim), self.folder, os.environ["PATH"]])
        done = self.plan(shim, PATH=folders, PYENV_VERSION="system")
        self.assertIn(f"at    {self.path('tool')}:0x".encode(), done.stdout)

    def test_shims_that_lead_nowhere(self):
        """The interpreter of the shim is what is probed, and a line says how to find the program."""
        shim = self.shim("pyenv", 'exec "/x/pyenv" exec "$program" "$@"')
        self.write("pyenv/version", "1.0\n")
        for version in ("3.0", "../versions/1.0", "/", "..", "1.0/../1.0", "x" * 9000):
            with self.subTest(version=version[:20]):
                done = self.plan_of("greet", shim, PYENV_VERSION=version)
                self.assertEqual(done.returncode, 125, done.stdout)
                self.assertIn(b"no function 'greet' in", done.stderr)
        done = self.plan_of("malloc", shim, PYENV_VERSION="3.0")
        self.assertIn(b"is a shim of pyenv, and the program that it executes is not known: 'pyenv which tool' says it", done.stderr)

    def test_shims_without_end(self):
        shim = self.shim("pyenv", 'exec "/x/pyenv" exec "$program" "$@"')
        os.unlink(self.path("pyenv/versions/1.0/bin/tool"))
        os.symlink(shim, self.path("pyenv/versions/1.0/bin/tool"))
        os.makedirs(self.path("pyenv/versions/1.0/shims"))
        self.write("pyenv/version", "1.0\n")
        self.assertIn(self.plan_of("malloc", shim).returncode, (0, 125))

    def test_a_line_of_a_function(self):
        seen = self.trace("-p", "greet:0 n", "-p", "prog.c:10")
        self.assertEqual(seen.counts(), {"greet_0": 1, "prog_c_10": 1})


class Refused(Bare):
    def refused(self, *words):
        seen = self.trace(*words, status=125)
        self.assertEqual(seen.stdout, b"")
        return seen.stderr.decode()

    def test_unknown_names(self):
        text = self.refused("-p", "secnod")
        self.assertIn("no function 'secnod' in", text)
        self.assertIn("close: second", text)
        self.assertIn("  secnod\n  ^\n", text)
        self.assertIn("no function 'mallok' in ", self.refused("-p", "mallok(size)"))
        self.assertIn("no function matches 'zz*zz'", self.refused("-p", "zz*zz"))
        self.assertIn("no function 'frist' in", self.refused("-p", "libfirst:frist"))
        self.assertIn("nosuch", self.refused("-p", "libnosuch:f"))

    def test_what_definitions_said_before(self):
        self.assertIn("Invalid register name", self.refused("-p", "greet %zz"))
        self.assertIn("The place to probe is missing", self.refused("-p", "r:greet"))
        self.assertIn("Unknown type", self.refused("-p", "greet %di:strin"))
        self.assertIn("'p:x greet'", self.refused("-r", "p:x greet"))


class Running(Bare):
    def start(self, program=None, **how):
        process = subprocess.Popen([program or self.program, "on"], stdout=subprocess.DEVNULL, **how)
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        process.kill()
        process.wait()

    def attach(self, pid, *words):
        done = harness.run([*harness.tracer("-o", self.path("trace"), "-n", "5", "-d", "20"), *words, "-P", str(pid)])
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("trace"), encoding="latin-1") as file:
            done.hits = harness.parse_trace(file.read())
        return done

    def wait_for_output(self, process):
        def has_started():
            with open(f"/proc/{process.pid}/maps", encoding="latin-1") as file:
                return "libfirst" in file.read()
        harness.wait_until(has_started, "its libraries")

    def test_the_process_and_what_it_has_mapped(self):
        process = self.start()
        self.wait_for_output(process)
        seen = self.attach(process.pid, "-p", "first n=%di", "-p", "libc:usleep", "-p", "main")
        self.assertGreater(seen.counts()["first"], 0)
        self.assertGreater(seen.counts()["usleep"], 0)
        self.assertEqual(self.place_of(seen, "main"), self.program)

    def look(self, pid, *words):
        """What --dry-run says: the address of each event in the process; None: the file is not mapped there."""
        done = harness.run([harness.tool(), "--dry-run", *words, "-P", str(pid)])
        self.assertEqual(done.returncode, 0, done.stderr)
        found = re.findall(rf"(?ms)^[pr]:uprobes/(\w+) .*?^  in    process {pid}, (address \w+|which has not mapped the file)$",
                           done.stdout.decode())
        return {event: int(where.split()[1], 16) if where.startswith("address") else None for event, where in found}

    def test_a_look_says_where_the_probes_would_be(self):
        process = self.start()
        self.wait_for_output(process)
        other = self.path("other.so")
        shutil.copy(self.path("one/liblocal.so"), other)
        places = ("-p", "first", "-p", "libc:usleep", "-p", f"p:other {other}:local_call")
        seen = self.look(process.pid, *places)
        self.assertEqual(seen.pop("other"), None)
        with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
            self.assertIn("TracerPid:\t0\n", file.read())
        with open(f"/proc/{process.pid}/maps", encoding="latin-1") as file:
            self.assertNotIn("libuprobe", file.read())
        hits = self.attach(process.pid, *places).hits
        self.assertEqual(seen, {hit.event: hit.address for hit in hits})
        said = harness.run([harness.tool(), "--explain", "first", "-P", str(process.pid)]).stdout.decode()
        self.assertIn(f"Process {process.pid} has it at address {seen['first']:#x}.", said)

    def test_processes_that_cannot_be_looked_at(self):
        gone = subprocess.Popen(["true"])
        gone.wait()
        for words, text in ((["--dry-run", "-p", "libc:malloc"], "no process"), (["--explain", "malloc"], "no process"),
                            (["-p", "malloc"], "no process"), (["-l"], "no process"), (["--vars=main"], "no process")):
            with self.subTest(words=words):
                done = harness.run([harness.tool(), *words, "-P", str(gone.pid)])
                self.assertEqual((done.returncode, done.stderr.decode()), (125, f"uprobe-run: {text} {gone.pid}\n"))

    def test_a_program_that_was_replaced(self):
        process = self.start()
        self.wait_for_output(process)
        shutil.copy(self.program, self.path("new"))
        os.rename(self.path("new"), self.program)
        library = self.path("one/libfirst.so")
        shutil.copy(library, self.path("new"))
        os.rename(self.path("new"), library)
        seen = self.attach(process.pid, "-p", "first", "-p", "main", "-p", f"p:new {library}:first")
        self.assertGreater(seen.counts().get("first", 0), 0, seen.stderr)
        self.assertNotIn("new", seen.counts())
        self.assertIn(f"{self.program} was replaced or removed after process {process.pid} had started", seen.stderr.decode())
        self.assertIn(f"{library} was replaced after process {process.pid} had mapped it", seen.stderr.decode())

    def test_a_root_of_its_own(self):
        """The process's libc is not the tool's, and its paths lead to its own files, also over absolute links."""
        root = self.path("root")
        os.makedirs(root + "/bin")
        for line in subprocess.check_output(["ldd", self.program], text=True).splitlines():
            found = re.search(r"(/\S+)", line)
            if found:
                os.makedirs(root + os.path.dirname(found[1]), exist_ok=True)
                shutil.copy(os.path.realpath(found[1]), root + found[1])
        shutil.copy(self.program, root + self.program)
        os.symlink(self.program, root + "/bin/work")
        if os.geteuid() != 0:
            self.skipTest("needs root")
        folders = self.path("one") + ":" + self.path("two")
        process = self.start("/bin/work", preexec_fn=lambda: os.chroot(root), env={"LD_LIBRARY_PATH": folders})
        self.wait_for_output(process)
        places = ("-p", "first", "-p", "libc:usleep", "-p", "p:w /bin/work:main")
        looked = self.look(process.pid, *places)
        seen = self.attach(process.pid, *places)
        for hit in seen.hits:
            self.assertEqual(hit.address, looked[hit.event], "in its own namespace of mounts")
        self.assertGreater(seen.counts()["first"], 0)
        self.assertGreater(seen.counts()["usleep"], 0)
        for event in ("first", "usleep", "w"):
            self.assertIn(root, os.path.realpath(self.place_of(seen, event)))


if __name__ == "__main__":
    harness.main()
