# SPDX-License-Identifier: MIT
"""Completion in bash, zsh and fish: each types the beginning of a line, and has the shell complete it."""
import os
import pty
import re
import shlex
import subprocess
import sys
import termios

import harness

PROGRAM = r"""
#include <unistd.h>
#define KEPT __attribute__((noinline, used))
namespace shop { struct Cart { KEPT int add(int a, char b) { return a + b; } }; }
extern "C" KEPT int take_node(int n) { return n + 1; }
extern "C" KEPT int take_text(int n) { return n + 2; }
int main() { shop::Cart cart; for (;;) usleep(take_text(take_node(cart.add(10000, 1)))); }
"""
FOLDER = "packaging/completion"
SECONDS = 60
# With it begin the names of this test's processes, and of no other's: five letters, since a name has 15 bytes.
OWN = "".join(chr(ord("a") + os.getpid() // 26 ** place % 26) for place in range(5))
NAMED = "import sys; open('/proc/self/comm', 'w').write(sys.argv[1]); print(); sys.stdout.flush(); input()"


class Completion:
    """For a class per shell: complete(LINE) is the line after the tabulator key, as the program would get its words."""
    equals = "="

    def setUp(self):
        super().setUp()
        harness.tool()
        source = self.write("source.cpp", PROGRAM)
        self.program = harness.compiled([harness.need("c++"), "-O1", source], self.path("program"))
        self.scripts = os.path.join(harness.Options.source, FOLDER)
        self.environment = {"PATH": f"{os.path.dirname(harness.tool())}:{os.environ['PATH']}", "HOME": self.folder,
                            "XDG_CONFIG_HOME": self.folder, "XDG_DATA_HOME": self.folder, "TERM": "dumb", "LC_ALL": "C.UTF-8"}
        self.start()

    def check(self, line, *end):
        """The last words of the completed line."""
        self.assertEqual(self.complete(f"uprobe-run {line}")[-len(end):], list(end), line)

    def process(self, *command):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(harness.stop_group, process)
        return process.pid

    def test_options(self):
        self.check("--sty", f"--style{self.equals}")
        self.check("--dry", "--dry-run")
        self.check("-q --max-ev", "-q", f"--max-events{self.equals}")
        self.check("--hist", f"--hist-file{self.equals}")

    def test_values_of_options(self):
        self.check("--style=sh", "--style=short")
        self.check("--format=js", "--format=json")
        self.check("--tier ju", "--tier", "jump")
        self.check("--return=st", "--return=stub")
        self.check("--until la", "--until", "last")
        self.check("--color=nev", "--color=never")
        self.check(f"-x {self.path('prog')}", self.program)
        self.check(f"--output={self.path('sour')}", f"--output={self.path('source.cpp')}")

    def test_processes(self):
        pid = str(self.process(self.program))
        self.check(f"-P {pid}", "-P", pid)
        self.check(f"-P 1,{pid}", f"1,{pid}")
        harness.wait_until(lambda: os.readlink(f"/proc/{pid}/exe") == self.program, "the program")
        renamed = self.path(f"{OWN}-name")
        os.rename(self.program, renamed)
        named = self.process(renamed)
        harness.wait_until(lambda: os.readlink(f"/proc/{named}/exe") == renamed, "the program")
        self.check(f"--comm={OWN}", f"--comm={OWN}-name")

    def test_functions_of_the_named_object(self):
        name = self.program
        self.check(f"-p {name}:take_n", f"{name}:take_node")
        self.check(f"-q -p '{name}:take_n", f"{name}:take_node")
        self.check(f"--probe={name}:take_n", f"--probe={name}:take_node")
        self.check(f"-r {name}:take_t", f"{name}:take_text")
        self.check(f"-p 'p:name {name}:take_n", f"p:name {name}:take_node")
        self.check(f"-x {name} -p take_n", "take_node")
        self.check(f"-x {name} -ltake_n", "-ltake_node")
        self.check(f"--exec={name} --vars=take_t", "--vars=take_text")
        self.check("-p libc:malloc_u", "libc:malloc_usable_size")

    def test_functions_of_the_process(self):
        pid = self.process(self.program)
        harness.wait_until(lambda: os.readlink(f"/proc/{pid}/exe") == self.program, "the program")
        self.check(f"-P {pid} -p take_t", "take_text")

    def test_functions_of_other_languages(self):
        self.check(f"-x {self.program} -p shop::Cart::a", "shop::Cart::add(int, char)")
        self.check(f"-p '{self.program}:shop::C", f"{self.program}:shop::Cart::add(int, char)")

    def test_events_of_the_definitions(self):
        self.check(f"-p 'p:mine/one {self.program}:take_node' -p libc:malloc --trigger=enable_event:mi",
                   "--trigger=enable_event:mine:one")

    def test_events_of_a_session(self):
        pid = self.process(harness.tool(), "-q", "-o", self.path("trace"), "-p", f"p:some/event {self.program}:take_node", "--",
                           self.program)
        harness.wait_until(lambda: b"some/event" in harness.run([harness.tool(), "--control", str(pid), "--list"]).stdout, "the session")
        self.check(f"--control={pid}", f"--control={pid}")
        self.check(f"--control {pid} --remove=so", "--remove=some/event")

    def test_the_program_and_its_words(self):
        self.check(f"-p malloc {self.path('prog')}", self.program)
        self.check(f"-p malloc -- {self.program} {self.path('sour')}", self.path("source.cpp"))

    def test_what_runs_at_the_key_is_the_tool_alone(self):
        for line in (f"-p '$(touch {self.path('bad')})", f"-p '`touch {self.path('bad')}`:", f"-x '$(touch {self.path('bad')})' -p ma"):
            self.complete(f"uprobe-run {line}")
            self.assertFalse(os.path.exists(self.path("bad")), line)


    def test_names_that_a_shell_would_run(self):
        """Of objects and processes: the line gets the name as one word, and nothing of it runs."""
        for name in (f"{OWN}{end}" for end in ("$(>bad)", "`>bad`", ";>bad", "'>bad", '">bad')):
            with open(self.path(name), "wb"):
                pass
            process = subprocess.Popen([sys.executable, "-c", NAMED, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            process.stdout.readline()
            for line, word in ((f"-x {self.path(OWN)}", self.path(name)), (f"--comm {OWN}", name)):
                with self.subTest(line=line, name=name):
                    self.check(line, word)
            process.communicate(b"\n")
            os.unlink(self.path(name))
            self.assertFalse(os.path.exists(self.path("bad")), name)


class Typed(Completion):
    """An interactive shell at a terminal. Its ^O writes the line to a file."""

    def start(self):
        self.answer = self.path("answer")
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        self.terminal = master
        shell = subprocess.Popen(self.command, stdin=slave, stdout=slave, stderr=slave, cwd=self.folder, start_new_session=True,
                                 env=self.environment)
        os.close(slave)
        self.addCleanup(harness.stop_group, shell)
        self.write("setup", self.setup.format(scripts=self.scripts, answer=self.answer))
        self.type(" . ./setup\n")
        self.read_until(lambda: os.path.exists(self.answer) and self.is_editing())

    def is_editing(self):
        """At the prompt, not in a command: the shell reads keys, and the terminal does not edit lines itself."""
        return not termios.tcgetattr(self.terminal)[3] & termios.ICANON

    def type(self, text):
        os.write(self.terminal, text.encode())

    def read_until(self, condition):
        """Keeps the terminal empty: the shell waits for its reader."""
        os.set_blocking(self.terminal, False)

        def is_so():
            try:
                while os.read(self.terminal, 65536):
                    pass
            except BlockingIOError:
                pass
            return condition()
        harness.wait_until(is_so, "the shell", SECONDS)

    def complete(self, line):
        with open(self.answer, "w", encoding="utf-8"):
            pass
        self.type(f"\x15{line}\t\x0f")
        self.read_until(lambda: os.path.getsize(self.answer) > 0 and self.answered().endswith("\n"))
        text = self.answered().rstrip("\n")
        # a quote that is still open
        for end in ("", "'"):
            try:
                return shlex.split(text + end)
            except ValueError:
                pass
        raise AssertionError(text)

    def answered(self):
        with open(self.answer, encoding="utf-8") as file:
            return file.read()


class Bash(Typed, harness.TestCase):
    command = ("bash", "--norc", "--noprofile", "-i")
    setup = """
. {scripts}/uprobe-run.bash
answer() {{ printf '%s\\n' "$READLINE_LINE" > {answer}; }}
bind 'set bell-style none' 'set show-all-if-ambiguous off'
bind -x '"\\C-o": answer'
printf '\\n' > {answer}
"""


class Zsh(Typed, harness.TestCase):
    command = ("zsh", "-f", "-i")
    setup = """
fpath=({scripts} $fpath)
autoload -U compinit && compinit -u -D
answer() {{ print -r -- "$BUFFER" > {answer} }}
zle -N answer
bindkey -e
bindkey '^o' answer
unsetopt beep autolist
print > {answer}
"""

    def start(self):
        harness.need("zsh")
        super().start()


class Fish(Completion, harness.TestCase):
    """Which says the candidates by itself."""
    equals = ""

    def start(self):
        self.fish = harness.need("fish")

    def complete(self, line):
        script = f"source {self.scripts}/uprobe-run.fish; complete -C (cat)"
        seen = harness.run([self.fish, "--no-config", "-c", script], stdin=line.encode(), env=self.environment, cwd=self.folder)
        self.assertEqual((seen.returncode, seen.stderr), (0, b""))
        # Of several the key inserts what they have in common: other processes have numbers that begin like those of this test.
        candidates = [each.split("\t")[0] for each in seen.stdout.decode().splitlines()]
        return line.split(" ")[:-1] + ([os.path.commonprefix(candidates)] if candidates else [])


class Scripts(harness.TestCase):
    def complete(self, *words):
        script = '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _uprobe_run; printf "%s\\n" "${COMPREPLY[@]}"'
        file = os.path.join(harness.Options.source, FOLDER, "uprobe-run.bash")
        seen = harness.run([harness.need("bash"), "-c", script, file, harness.tool(), *words])
        self.assertEqual((seen.returncode, seen.stderr), (0, b""))
        return set(seen.stdout.decode().splitlines())

    def test_names_that_a_shell_would_run(self):
        """Any process may have made them: what the key puts into the line is the name, or nothing."""
        names = [f"{OWN}{end}" for end in ("$(id)", "`id`", "'x", '"x', "\x1b[2J", ";id", " x", "plain")]
        for name in names:
            process = subprocess.Popen([sys.executable, "-c", NAMED, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.addCleanup(process.communicate, b"\n")
            process.stdout.readline()
        bare = self.complete("--comm", OWN)
        self.assertEqual({shlex.split(word)[0] for word in bare if "\\E" not in word}, {*names} - {f"{OWN}\x1b[2J"})
        self.assertNotIn("\x1b", "".join(bare))
        self.assertEqual(self.complete("--comm", f"'{OWN}"), {f"{OWN}{end}" for end in ("$(id)", "`id`", '"x', ";id", " x", "plain")})
        self.assertEqual(self.complete("--comm", f'"{OWN}'), {f"{OWN}{end}" for end in ("'x", ";id", " x", "plain")})

    def test_bash_by_the_arrays_that_it_fills(self):
        complete = self.complete
        options = re.findall(r"^  (?:-\w, |    )(--[\w-]+)", harness.run([harness.tool(), "--help"]).stdout.decode(), re.M)
        self.assertGreater(len(options), 45)
        self.assertLessEqual({*options}, {word.rstrip("=") for word in complete("-")})
        self.assertEqual(complete("--style", "=", ""), {"event", "short", "2009", "graph"})
        self.assertEqual(complete("--trigger", "en"), {"enable_event:"})
        self.assertIn(str(os.getpid()), complete("-P", ""))
        self.assertLessEqual({"malloc", "malloc_trim"}, complete("-p", "libc", ":", "mall"))


if __name__ == "__main__":
    harness.main()
