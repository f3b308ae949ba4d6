# SPDX-License-Identifier: MIT
"""A function of libc that fails in a program: by `return=`, and by a library that LD_PRELOAD puts before libc. The conditions are filters
over the function's arguments, from which the library's C is made. Functions that libc calls itself, past such a library, have
conditions that do not hold there."""
import hashlib
import os
import re
import shutil

import harness

REGISTERS = ("di", "si", "dx", "cx", "r8", "r9")
FIELDS = {"int": "s32", "mode_t": "u32", "socklen_t": "u32", "size_t": "u64", "off_t": "s64", "long": "s64"}

# How libc declares them.
FUNCTIONS = {
    "malloc": "void* (size_t size)", "calloc": "void* (size_t n, size_t size)", "realloc": "void* (void* old, size_t size)",
    "strdup": "char* (const char* text)", "getcwd": "char* (char* to, size_t size)",
    "open64": "int (const char* name, int flags, mode_t mode)", "openat": "int (int at, const char* name, int flags, mode_t mode)",
    "fopen64": "FILE* (const char* name, const char* how)", "opendir": "DIR* (const char* name)", "close": "int (int fd)",
    "read": "ssize_t (int fd, void* to, size_t size)", "write": "ssize_t (int fd, const void* from, size_t size)",
    "pread64": "ssize_t (int fd, void* to, size_t size, off_t at)", "lseek64": "off_t (int fd, off_t to, int how)",
    "pwrite64": "ssize_t (int fd, const void* from, size_t size, off_t at)", "fsync": "int (int fd)", "fdatasync": "int (int fd)",
    "ftruncate64": "int (int fd, off_t size)", "fcntl64": "int (int fd, int command, long given)",
    "mmap64": "void* (void* to, size_t size, int access, int how, int fd, off_t at)",
    "stat64": "int (const char* name, void* to)", "lstat64": "int (const char* name, void* to)",
    "fstatat64": "int (int at, const char* name, void* to, int flags)", "access": "int (const char* name, int how)",
    "unlink": "int (const char* name)", "unlinkat": "int (int at, const char* name, int flags)", "rmdir": "int (const char* name)",
    "rename": "int (const char* name, const char* to)", "renameat": "int (int at, const char* name, int there, const char* to)",
    "mkdir": "int (const char* name, mode_t mode)", "mkdirat": "int (int at, const char* name, mode_t mode)",
    "link": "int (const char* name, const char* to)", "linkat": "int (int at, const char* name, int there, const char* to, int flags)",
    "symlink": "int (const char* name, const char* to)", "symlinkat": "int (const char* name, int at, const char* to)",
    "readlink": "ssize_t (const char* name, char* to, size_t size)",
    "readlinkat": "ssize_t (int at, const char* name, char* to, size_t size)", "chmod": "int (const char* name, mode_t mode)",
    "fchmod": "int (int fd, mode_t mode)", "fchmodat": "int (int at, const char* name, mode_t mode, int flags)",
    "fchown": "int (int fd, int user, int group)", "utimensat": "int (int at, const char* name, const void* times, int flags)",
    "chdir": "int (const char* name)", "pipe2": "int (void* to, int flags)", "dup2": "int (int fd, int to)", "isatty": "int (int fd)",
    "umask": "mode_t (mode_t mode)", "socket": "int (int domain, int type, int protocol)",
    "bind": "int (int fd, const void* to, socklen_t size)", "connect": "int (int fd, const void* to, socklen_t size)",
    "listen": "int (int fd, int most)", "send": "ssize_t (int fd, const void* from, size_t size, int flags)",
    "recv": "ssize_t (int fd, void* to, size_t size, int flags)",
    "setsockopt": "int (int fd, int level, int name, const void* from, socklen_t size)",
    "getsockname": "int (int fd, void* to, void* size)", "epoll_ctl": "int (int fd, int what, int of, void* event)",
    "pthread_create": "int (void* thread, const void* how, void* work, void* given)",
    "getaddrinfo": "int (const char* name, const char* port, const void* wanted, void* to)",
}
# Other names of the same code, of a C library whose off_t has 64 bits anyway; and those that come to it with checks.
ALIASES = {"open64": ("open", "__open_2", "__open64_2"), "openat": ("openat64", "__openat_2", "__openat64_2"), "fopen64": ("fopen",), "pread64": ("pread",), "pwrite64": ("pwrite",),
           "lseek64": ("lseek",), "ftruncate64": ("ftruncate",), "fcntl64": ("fcntl",), "mmap64": ("mmap",), "stat64": ("stat",),
           "lstat64": ("lstat",), "fstatat64": ("fstatat",)}
# Each failed call adds a byte to a file, by system calls of its own: also in processes that end by _exit.
HEAD = """#define _GNU_SOURCE
#include <errno.h>
#include <fnmatch.h>
#include <stddef.h>
#include <string.h>
#include <sys/types.h>
typedef struct file FILE;
typedef struct folder DIR;
typedef unsigned socklen_t;
char* getenv(const char* name);
void* dlsym(void* where, const char* name);
static long call(long number, long a, long b, long c) {
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
  return result;
}
static void tell(void) {
  const char* path = getenv("INJECTED");
  const long to = path ? call(2, (long)path, 02101, 0644) : -1;  // O_WRONLY, O_CREAT, O_APPEND
  if (to >= 0) call(1, to, (long)"x", 1), call(3, to, 0, 0);
}
static int is_like(const char* text, const char* pattern) { return text && fnmatch(pattern, text, 0) == 0; }
"""


def parameters_of(name):
    """(result, [(type, name)])"""
    result, listed = re.fullmatch(r"(.*) \((.*)\)", FUNCTIONS[name]).groups()
    return result, [tuple(one.rsplit(" ", 1)) for one in listed.split(", ")]


def fields(name, condition):
    """Fetch arguments for the parameters that the condition names."""
    words = []
    for register, (kind, parameter) in zip(REGISTERS, parameters_of(name)[1]):
        if re.search(rf"\b{parameter}\b", re.sub(r'"[^"]*"', "", condition)):
            words.append(f"{parameter}=+0(%{register}):string" if kind == "const char*" else f"{parameter}=%{register}:{FIELDS.get(kind, 'u64')}")
    return " ".join(words)


def in_c(condition):
    condition = re.sub(r'(\w+) ~ ("[^"]*")', r"is_like(\1, \2)", condition)
    return re.sub(r'(\w+) == ("[^"]*")', r"(\1 && strcmp(\1, \2) == 0)", condition) or "1"


def wrapper(name, alias, condition, value, error):
    result, parameters = parameters_of(name)
    listed = ", ".join(" ".join(one) for one in parameters)
    given = ", ".join(parameter for _, parameter in parameters)
    failing = f"errno = {error}, " if error else ""
    return (f"{result} {alias}({listed}) {{\n  static {result} (*real)({listed});\n"
            f'  if (real == NULL) real = ({result} (*)({listed}))dlsym((void*)-1L, "{alias}");\n'
            f"  if ({in_c(condition)}) return tell(), {failing}({result}){value};\n  return real({given});\n}}\n")


class Injection(harness.TestCase):
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1",
                   "GIT_AUTHOR_DATE": "1700000000 +0000", "GIT_COMMITTER_DATE": "1700000000 +0000", "PYTHONDONTWRITEBYTECODE": "1",
                   "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    # What is another with each run: times, random numbers.
    changing = ("/index", "-journal", "-wal", "-shm", ".rdb", ".sock")
    names = rb"tmp_obj_\w+"
    numbers = rb"(?<=after )\d+(?= ms)"

    def setUp(self):
        super().setUp()
        self.plain = {}

    def state(self):
        """The files of the working folder, with the hashes of what they hold."""
        found = {}
        for folder, folders, names in os.walk(self.path("work")):
            for name in names + folders:
                path = os.path.join(folder, name)
                digest = f"{os.lstat(path).st_mode:o}"
                if os.path.islink(path):
                    digest += " " + os.readlink(path)
                elif os.path.isfile(path) and not name.endswith(self.changing) and not path.endswith(self.changing):
                    with open(path, "rb") as file:
                        digest += " " + hashlib.sha256(file.read()).hexdigest()
                found[re.sub(self.names.decode(), "NAME", os.path.relpath(path, self.path("work")))] = digest
        return found

    def ran(self, command, stdin, **variables):
        """The streams, the exit code and the files that a fresh folder has afterwards; and what the tool said."""
        shutil.rmtree(self.path("work"), ignore_errors=True)
        os.mkdir(self.path("work"))
        done = harness.run(command, stdin, {**self.environment, **variables}, cwd=self.path("work"))
        said = re.sub(self.numbers, b"NUMBER", re.sub(self.names, b"NAME", re.sub(rb"(?m)^uprobe-run: .*\n", b"", done.stderr)))
        out = re.sub(self.numbers, b"NUMBER", re.sub(self.names, b"NAME", done.stdout))
        return out, said, done.returncode, self.state(), done.stderr

    def compare(self, name, condition, value, error, command, stdin=b""):
        """Returns how many calls have failed."""
        source = self.write(f"in-{name}.c", HEAD + "".join(wrapper(name, alias, condition, value, error)
                                                        for alias in (name, *ALIASES.get(name, ()))))
        library = harness.compiled([harness.need("gcc"), "-O2", "-shared", "-fPIC", "-fno-builtin", "-w", "-D_FORTIFY_SOURCE=0", source, "-ldl"],
                                   self.path(f"in-{name}.so"))
        count = self.path("count")
        if os.path.exists(count):
            os.remove(count)
        by_library = self.ran(command, stdin, LD_PRELOAD=library, INJECTED=count)
        counted = os.path.getsize(count) if os.path.exists(count) else 0
        key = (tuple(command), stdin)
        if key not in self.plain:
            self.plain[key] = self.ran(command, stdin)

        def by_tool(when):
            probe = f"p:i/{name} {harness.libc_of(harness.need('sh'))}:{name} {fields(name, when)}".strip()
            trigger = f"--trigger=return={value}{f',errno={error}' if error else ''}{f' if {when}' if when else ''}"
            return self.ran([harness.tool(), "-o", self.path("trace"), "-p", probe, trigger, "--allow-change", "--", *command], stdin)
        injected = by_tool(condition)
        untouched = by_tool(f"({condition}) && common_pid == 1" if condition else "common_pid == 1")
        self.assertEqual(injected[:4], by_library[:4], (name, injected[4]))
        self.assertEqual(untouched[:4], self.plain[key][:4], (name, untouched[4]))
        self.assertNotIn(b"overridden", untouched[4])
        self.assertNotIn(b"not made", injected[4])
        found = re.search(rb"([\d,]+) overridden", injected[4])
        self.assertEqual(int(found[1].replace(b",", b"")) if found else 0, counted, (name, injected[4]))
        return counted

    def compare_all(self, cells, command, stdin=b""):
        """Each cell has calls that fail."""
        for name, condition, value, error in harness.share_of(cells):
            with self.subTest(name, condition=condition):
                self.assertGreater(self.compare(name, condition, value, error, command, stdin), 0)
