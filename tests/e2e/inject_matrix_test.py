# SPDX-License-Identifier: MIT
"""Functions of libc that fail in real programs: by `return=` and by a library that LD_PRELOAD puts before libc the programs print the
same, end in the same way and leave the same files, and as many calls have failed. A condition that never holds changes nothing."""
import hashlib
import os
import re
import shutil

import harness

# What fails: how a library declares it; its condition in C, and as a filter over the probe's fields.
CASES = {
    "malloc": ("void* malloc(size_t size)", "size", "size >= 77777 && size <= 77777", "size=%di:u64", "size == 77777", "0", "ENOMEM"),
    "calloc": ("void* calloc(size_t n, size_t size)", "n, size", "n == 1 && size == 77777", "n=%di:u64 size=%si:u64",
               "n == 1 && size == 77777", "0", "ENOMEM"),
    "write": ("ssize_t write(int fd, const void* from, size_t size)", "fd, from, size", "size == 77", "size=%dx:u64", "size == 77",
              "-1", "ENOSPC"),
    "read": ("ssize_t read(int fd, void* to, size_t size)", "fd, to, size", "size == 77", "size=%dx:u64", "size == 77", "-1", "EIO"),
    "open64": ("int open64(const char* name, int flags, ...)", None, 'strcmp(name, "written") == 0', "name=+0(%di):string",
               'name == "written"', "-1", "EMFILE"),
    "openat": ("int openat(int at, const char* name, int flags, ...)", None, 'strcmp(name, "marked-at") == 0',
               "name=+0(%si):string", 'name == "marked-at"', "-1", "EACCES"),
    "connect": ("int connect(int fd, const struct sockaddr* to, socklen_t size)", "fd, to, size", "fd == 76", "fd=%di:s32", "fd == 76",
                "-1", "ETIMEDOUT"),
    "close": ("int close(int fd)", "fd", "fd == 77", "fd=%di:s32", "fd == 77", "-1", "EIO"),
    "fsync": ("int fsync(int fd)", "fd", "fd >= 3", "fd=%di:s32", "fd >= 3", "-1", "EIO"),
    "getcwd": ("char* getcwd(char* to, size_t size)", "to, size", "size >= 64", "size=%si:u64", "size >= 64", "0", "EACCES"),
    "strdup": ("char* strdup(const char* text)", "text", 'strncmp(text, "marked", 6) == 0', "text=+0(%di):string",
               'text ~ "marked*"', "0", "ENOMEM"),
    "fopen64": ("FILE* fopen64(const char* name, const char* mode)", "name, mode", 'strcmp(name, "marked-stream") == 0',
                "name=+0(%di):string", 'name == "marked-stream"', "0", "EMFILE"),
    "unlink": ("int unlink(const char* name)", "name", 'strstr(name, "marked") != NULL', "name=+0(%di):string", 'name ~ "*marked*"',
               "-1", "EBUSY"),
}
ALIASES = {"open64": ["open"], "fopen64": ["fopen"]}
HEAD = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
static long failed;
__attribute__((destructor)) static void tell(void) {
  const char* path = getenv("INJECTED");
  char text[32];
  const int to = failed != 0 && path ? (int)syscall(2, path, O_WRONLY | O_CREAT | O_APPEND, 0644) : -1;
  if (to >= 0) syscall(1, to, text, (long)snprintf(text, sizeof text, "%ld\\n", failed));
}
"""
PYTHON = """
import os, socket, sys
def tried(what, call):
    try:
        print(what, call())
    except OSError as error:
        print(what, error.errno)
    except MemoryError:
        print(what, "no memory")
tried("open", lambda: os.open("written", os.O_RDWR | os.O_CREAT) >= 0)
file = os.open("other", os.O_RDWR | os.O_CREAT)
tried("write", lambda: os.write(file, bytes(77)))
tried("write", lambda: os.write(file, bytes(78)))
tried("fsync", lambda: os.fsync(file))
os.lseek(file, 0, 0)
tried("read", lambda: len(os.read(file, 77)))
tried("read", lambda: len(os.read(file, 78)))
tried("dup", lambda: os.dup2(file, 77))
tried("close", lambda: os.close(77))
tried("getcwd", lambda: os.path.isdir(os.getcwd()))
one = socket.socket()
os.dup2(one.fileno(), 76)
tried("connect", lambda: socket.socket(fileno=76).connect(("127.0.0.1", 1)))
open("marked", "w").close()
tried("unlink", lambda: os.unlink("marked"))
"""
SQL = """create table t(a, b);
insert into t values(1, 'one'), (2, 'two');
begin; update t set b = 'three' where a = 2; commit;
select * from t; pragma integrity_check;
"""


def wrapper(name, alias):
    declaration, arguments, condition, _, _, value, error = CASES[name]
    declaration = declaration.replace(f"{name}(", f"{alias}(")
    kind = declaration[:declaration.index(alias)].strip()
    parameters = declaration[declaration.index("("):]
    forward = f"return real({arguments});"
    if arguments is None:
        names = "at, name, flags" if name == "openat" else "name, flags"
        forward = f"va_list list; va_start(list, flags); const int mode = va_arg(list, int); va_end(list); return real({names}, mode);"
    return (f"{declaration} {{\n  static {kind} (*real){parameters};\n"
            f'  if (real == NULL) real = ({kind} (*){parameters})dlsym(RTLD_NEXT, "{alias}");\n'
            f"  if ({condition}) return ++failed, errno = {error}, ({kind}){value};\n  {forward}\n}}\n")


class Matrix(harness.TestCase):
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1",
                   "GIT_AUTHOR_DATE": "1700000000 +0000", "GIT_COMMITTER_DATE": "1700000000 +0000", "PYTHONDONTWRITEBYTECODE": "1",
                   "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}

    def state(self):
        """The files of the working folder, with the hashes of what they hold, but for what is another with each run."""
        found = {}
        for folder, _, names in os.walk(self.path("work")):
            for name in names:
                path = os.path.join(folder, name)
                digest = "no file"
                if os.path.isfile(path):
                    with open(path, "rb") as file:
                        digest = hashlib.sha256(file.read()).hexdigest()
                name = re.sub(r"tmp_obj_\w+", "tmp_obj", os.path.relpath(path, self.path("work")))
                found[name] = "" if name.endswith(("/index", "-journal", ".rdb")) else digest  # times, random numbers
        return found

    def ran(self, command, stdin=b"", **variables):
        """The streams, the exit code and the files that a fresh folder has afterwards."""
        shutil.rmtree(self.path("work"), ignore_errors=True)
        os.mkdir(self.path("work"))
        done = harness.run(command, stdin, {**self.environment, **variables}, cwd=self.path("work"))
        said = re.sub(rb"tmp_obj_\w+", b"tmp_obj", re.sub(rb"(?m)^uprobe-run: .*\n", b"", done.stderr))
        return done.stdout, said, done.returncode, self.state(), done.stderr

    def compare(self, name, command, stdin=b""):
        """Returns how many calls have failed."""
        _, _, _, fields, condition, value, error = CASES[name]
        source = self.write(f"{name}.c", HEAD + "".join(wrapper(name, alias) for alias in [name, *ALIASES.get(name, [])]))
        library = harness.compiled([harness.need("gcc"), "-O2", "-shared", "-fPIC", "-fno-builtin", "-w", source, "-ldl"],
                                   self.path(f"{name}.so"))
        by_library = self.ran(command, stdin, LD_PRELOAD=library, INJECTED=self.path(f"{name}.count"))
        plain = self.ran(command, stdin)

        def by_tool(when):
            probe = f"p:i/{name} {harness.libc_of(harness.need('sh'))}:{name} {fields}"
            return self.ran([harness.tool(), "-o", self.path("trace"), "-p", probe, f"--trigger=return={value},errno={error} if {when}",
                             "--allow-change", "--", *command], stdin)
        injected, untouched = by_tool(condition), by_tool(f"({condition}) && common_pid == 1")
        self.assertEqual(injected[:4], by_library[:4], (name, injected[4]))
        self.assertEqual(untouched[:4], plain[:4], (name, untouched[4]))
        self.assertNotIn(b"overridden", untouched[4])
        self.assertNotIn(b"not made", injected[4])
        counted = 0
        if os.path.exists(self.path(f"{name}.count")):
            with open(self.path(f"{name}.count"), encoding="ascii") as file:
                counted = sum(int(line) for line in file)
        found = re.search(rb"([\d,]+) overridden", injected[4])
        self.assertEqual(int(found[1].replace(b",", b"")) if found else 0, counted, (name, injected[4]))
        return counted

    def test_a_c_program(self):
        source = os.path.abspath(os.path.join(harness.Options.source, "tests/e2e/fixtures/injected_calls.c"))
        program = harness.compiled([harness.need("gcc"), "-O2", "-fno-builtin", "-w", source], self.path("calls"))
        for name in CASES:
            with self.subTest(name):
                self.assertEqual(self.compare(name, [program]), 2 if name == "close" else 1)

    def test_python(self):
        script = self.write("calls.py", PYTHON)
        python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else harness.need("python3")
        for name in ("write", "read", "open64", "connect", "close", "fsync", "getcwd", "unlink"):
            with self.subTest(name):
                self.assertEqual(self.compare(name, [python, "-S", "-E", script]), 1)

    def test_sqlite(self):
        sqlite = harness.need("sqlite3")
        failed = 0
        for name in ("getcwd", "fsync", "unlink", "close", "malloc"):
            with self.subTest(name):
                failed += self.compare(name, [sqlite, "-batch", "marked.db"], SQL.encode())
        self.assertGreater(failed, 2)

    def test_redis(self):
        """A server that writes each command to a file, and its clients. Its allocator is another one than libc's."""
        client = harness.need("redis-cli")
        server = harness.need("redis-server") and shutil.which("redis-server")  # a link: the program goes by its name
        job = self.write("job", f"""{server} --port 0 --unixsocket marked.sock --save '' --appendonly yes --appendfsync always --logfile /dev/null &
n=0; until {client} -s marked.sock ping > /dev/null 2>&1; do n=$((n + 1)); [ $n -lt 500 ] || break; sleep 0.02; done
ask() {{ {client} -s marked.sock "$@" 2>&1; echo $?; }}
ask set key {"v" * 70}; ask get key; ask rpush list 1 2 3; ask lrange list 0 -1; ask config get dir; ask save; ask get key
ask shutdown nosave; wait; echo $?
""")
        failed = 0
        for name in ("write", "getcwd", "unlink"):
            with self.subTest(name):
                failed += self.compare(name, [harness.need("sh"), job])
        self.assertGreater(failed, 2)

    def test_git(self):
        git = harness.need("git")
        job = self.write("job", f"{git} init -q -b main . && echo text > marked && {git} -c core.fsync=all add marked && "
                                f"{git} -c gc.auto=0 commit -qm first; echo $?; {git} status --short\n")
        failed = 0
        for name in ("fsync", "getcwd", "unlink", "strdup", "write"):
            with self.subTest(name):
                failed += self.compare(name, [harness.need("sh"), job])
        self.assertGreater(failed, 2)


if __name__ == "__main__":
    harness.main()
