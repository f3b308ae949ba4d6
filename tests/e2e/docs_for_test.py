# SPDX-License-Identifier: MIT
"""The pages of docs/for/ are true: what each prints is written, built and run, from its top to its end, in one shell.

A page has three kinds of fenced blocks: `sh` are commands, which have to end with 0; `output` after them are lines that they print,
in any order, as the program's and the tool's streams meet by chance ("..." for further ones; a number of two digits or more stands for any);
others are files, whose names stand before them (`NAME`:). Blocks for a program that is not installed are left out, and named.
systemctl is a stub here (STUBS), as no systemd runs where tests do: what it does with a unit is not shown by this test. The page for containers runs without any capability, under
no-new-privileges and the default filter of a container. After a change, to print what the commands say now:

    python3 tests/e2e/docs_for_test.py --tool build/uprobe-run --fixtures build/tests/e2e/fixtures --source . show NAME
"""
import collections
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field

import harness

PAGES = ["beside-other-tools", "ci", "containers", "cpp-and-rust", "go", "systemd"]
def contained(surround):
    """The beginning of a command that runs as in a container: no capability, none to be had, the filter of container runtimes."""
    return [surround, "capabilities", "no-new-privileges", "filter=runtime", "--"]


COMMANDS = 10  # of the tool, on each page
ANYTHING = "..."
MARK = "\x01"
OPTIONAL = ["g++", "gcc", "rustc", "go", "gdb", "perf", "trace-cmd", "python3"]
MASKS = [(re.compile(pattern, re.M), masked) for pattern, masked in (
    (r"^ *\S+-\d+ +\[\d+\] (\S{5} +)?\d+\.\d{6}: ", "TASK-PID [CPU] TIME: "),
    (r"^ *\S+ +\d+ +\[\d+\] +\d+\.\d{6}: ", "TASK PID [CPU] TIME: "),  # perf's
    (r" (/usr)?/lib\S*/(?=lib)", " LIB/"),
    (r"/\S+/work\b", "WORK"),
    (r"0x[0-9a-f]{3,}", "ADDRESS"),
    (r"\b[0-9a-f]{9,16}\b", "ADDRESS"),
    (r"\b\d{1,3}(,\d{3})+\b|\b\d{2,}\b", "NUMBER"),
)]
# systemctl --user for a single service: it reads the unit and its drop-ins, and starts the command as systemd would.
STUBS = {"systemctl": r"""#!/usr/bin/env python3
import os, shlex, signal, subprocess, sys
home = os.environ["HOME"]
folder, pid_file = home + "/.config/systemd/user", home + "/.shop.pid"
def stop():
    if os.path.exists(pid_file):
        try:
            os.kill(int(open(pid_file).read()), signal.SIGTERM)
        except ProcessLookupError:
            pass
        os.unlink(pid_file)
def restart():
    stop()
    command, variables = None, {}
    drop_ins = [f"{folder}/shop.service.d/{name}" for name in sorted(os.listdir(folder + "/shop.service.d"))]
    for path in [folder + "/shop.service", *drop_ins]:
        for line in open(path).read().replace("%h", home).splitlines():
            key, _, value = line.partition("=")
            if key == "ExecStart":
                command = [word.replace("$$", "$") for word in shlex.split(value)] or None
            elif key == "Environment":
                variables.update(word.split("=", 1) for word in shlex.split(value))
            elif line != "[Service]":
                sys.exit("not known to this test: " + line)
    with open(home + "/journal", "a") as journal:
        service = subprocess.Popen(command, env={**os.environ, **variables}, cwd="/", stdin=subprocess.DEVNULL, stdout=journal,
                                   stderr=journal)
    with open(pid_file, "w") as file:
        file.write(str(service.pid))
calls = {"daemon-reload": lambda: None, "restart shop": restart, "stop shop": stop,
         "show -p MainPID --value shop": lambda: print(open(pid_file).read())}
if sys.argv[1] != "--user":
    sys.exit("not known to this test: " + shlex.join(sys.argv))
calls[" ".join(sys.argv[2:])]()
"""}


@dataclass
class Block:
    text: str
    line: int
    output: list = None  # lines, if the page shows any
    needs: list = field(default_factory=list)


@dataclass
class Page:
    files: dict = field(default_factory=dict)
    blocks: list = field(default_factory=list)


def read(name):
    with open(os.path.join(harness.Options.source, "docs/for", name + ".md"), encoding="utf-8") as file:
        return file.read().splitlines()


def parse(lines):
    page, kind, body, before = Page(), None, [], ""
    for number, line in enumerate(lines, 1):
        if kind is None and line.startswith("```"):
            kind, body = line[3:], []
        elif kind is None:
            before = line or before
        elif line != "```":
            body.append(line)
        else:
            if kind == "sh":
                page.blocks.append(Block("\n".join(body), number - len(body)))
            elif kind == "output":
                page.blocks[-1].output = body
            else:
                page.files[re.search(r"`([\w.-]+)`:$", before)[1]] = "\n".join(body) + "\n"
            kind = None
    return page


def masked(line):
    for pattern, replacement in MASKS:
        line = pattern.sub(replacement, line)
    return line.rstrip()


def counted(lines):
    return collections.Counter(masked(line) for line in lines if line.strip() and line != ANYTHING)


class Shell:
    """Runs the blocks of a page in a folder with the page's files, with the tool on PATH as an installation has it."""

    def __init__(self, folder, files, home=None):
        self.folder, self.bin = folder, os.path.join(folder, ".tool/bin")
        os.makedirs(self.bin)
        os.symlink(os.path.abspath(harness.tool()), os.path.join(self.bin, "uprobe-run"))
        for name, text in files.items():
            self.write(os.path.join(folder, name), text)
        for name, text in STUBS.items():
            self.write(os.path.join(self.bin, name), text, 0o755)
        self.env = {"PATH": self.bin + ":" + os.environ["PATH"], "HOME": home or os.environ.get("HOME", folder),
                    "LC_ALL": "C", "TERM": "dumb", "GOCACHE": os.path.join(folder, ".go"),
                    "GOFLAGS": "-buildvcs=false", "DEBUGINFOD_URLS": ""}

    @staticmethod
    def write(path, text, mode=0o644):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)

    def run(self, blocks, before=()):
        """(exit code, lines) of each; processes in the background may outlive a block, and end with the page."""
        script = "".join(f"{{\n{block.text}\n}} 2>&1\nprintf '{MARK}%s{MARK}' $?\n" for block in blocks)
        with open(os.path.join(self.folder, ".output"), "w+b") as output:
            shell = subprocess.Popen([*map(os.path.abspath, before[:1]), *before[1:], "/bin/bash", "-c", script], env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL,
                                     stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                shell.wait(10 * harness.TIMEOUT)
            finally:
                harness.stop_group(shell)
            output.seek(0)
            parts = output.read().decode("latin-1").split(MARK)
        seen = [(int(code), text.splitlines()) for text, code in zip(parts[::2], parts[1::2])]
        if len(seen) != len(blocks):
            raise AssertionError(f"the page did not run to its end: {parts[-1]}")
        return seen


def missing_programs(page):
    """Takes out the blocks that cannot run here, and those that use what they would have built."""
    missing, unbuilt, rest = [], [], []
    for block in page.blocks:
        absent = [name for name in OPTIONAL
                  if re.search(rf"(?m)(^|[|;&(] *|sudo ){re.escape(name)} ", block.text) and not shutil.which(name)]
        if absent or any(re.search(rf"\./{re.escape(name)}\b", block.text) for name in unbuilt):
            missing += absent
            unbuilt += re.findall(r"-o (\S+)", block.text) if absent else []
        else:
            rest.append(block)
    page.blocks = rest
    return sorted(set(missing))


class Pages(harness.TestCase):
    def check(self, name, before=(), home=None):
        page = parse(read(name))
        missing = missing_programs(page)
        for block, (code, lines) in zip(page.blocks, Shell(self.folder, page.files, home).run(page.blocks, before)):
            with self.subTest(command=block.text):
                said = f"docs/for/{name}.md:{block.line}\n" + "\n".join(lines)
                self.assertEqual(code, 0, said)
                if block.output is None:
                    continue
                shown, seen = counted(block.output), counted(lines)
                self.assertEqual(shown - seen, collections.Counter(), f"is in the page and was not said: {said}")
                if ANYTHING not in block.output:
                    self.assertEqual(seen - shown, collections.Counter(), f"was said and is not in the page: {said}")
        if missing:
            self.skipTest(f"{', '.join(missing)} is not installed")

    def test_beside_other_tools(self):
        self.check("beside-other-tools")

    def test_ci(self):
        self.check("ci")

    def test_containers(self):
        surround = os.path.join(harness.Options.fixtures or "", "../../matrix/surround")
        if not os.path.exists(surround):
            self.skipTest("a static C library is not installed")
        self.check("containers", contained(surround))

    def test_cpp_and_rust(self):
        self.check("cpp-and-rust")

    def test_go(self):
        self.check("go")

    def test_systemd(self):
        self.check("systemd", home=self.folder)


class Whole(harness.TestCase):
    def test_each_page_has_its_commands(self):
        folder = os.path.join(harness.Options.source, "docs/for")
        self.assertEqual(sorted(os.listdir(folder)), [name + ".md" for name in PAGES])
        for name in PAGES:
            with self.subTest(page=name):
                page = parse(read(name))
                of_tool = [block for block in page.blocks if re.search(r"uprobe-run|UPROBE_|libuprobe", block.text)]
                self.assertEqual(len(of_tool), COMMANDS)
                self.assertGreaterEqual(sum(block.output is not None for block in of_tool), 5)

    def test_the_readme_leads_to_each(self):
        with open(os.path.join(harness.Options.source, "README.md"), encoding="utf-8") as file:
            text = file.read()
        for name in PAGES:
            self.assertIn(f"(docs/for/{name}.md)", text)


def show(name):
    with harness.tempfile.TemporaryDirectory(prefix="uprobe-e2e.") as folder:
        page = parse(read(name))
        missing_programs(page)
        home = folder if name == "systemd" else None
        before = contained("build/tests/matrix/surround") if name == "containers" else ()
        for block, (code, lines) in zip(page.blocks, Shell(folder, page.files, home).run(page.blocks, before)):
            print("-" * 40, f"{block.text}\n{'-' * 40} {code}", *lines, sep="\n")


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[-2] == "show":
        harness.Options.source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        harness.Options.tool = sys.argv[sys.argv.index("--tool") + 1]
        show(sys.argv[-1])
    else:
        harness.main()
