# SPDX-License-Identifier: MIT
"""Functions of libc that fail in real programs: by `return=` and by a library that LD_PRELOAD puts before libc the programs print the
same, end in the same way and leave the same files, and as many calls have failed. A condition that never holds changes nothing."""
import os
import shutil

import harness
import injection

# (function, condition, what it returns, errno)
MARKED = [
    ("malloc", "size == 77777", "0", "ENOMEM"), ("calloc", "n == 1 && size == 77777", "0", "ENOMEM"), ("write", "size == 77", "-1", "ENOSPC"),
    ("read", "size == 77", "-1", "EIO"), ("open64", 'name == "written"', "-1", "EMFILE"), ("openat", 'name == "marked-at"', "-1", "EACCES"),
    ("connect", "fd == 76", "-1", "ETIMEDOUT"), ("close", "fd == 77", "-1", "EIO"), ("fsync", "fd >= 3", "-1", "EIO"),
    ("getcwd", "size >= 64", "0", "EACCES"), ("strdup", 'text ~ "marked*"', "0", "ENOMEM"), ("fopen64", 'name == "marked-stream"', "0", "EMFILE"),
    ("unlink", 'name ~ "*marked*"', "-1", "EBUSY"),
]
PYTHON = """
import os, socket, sys, threading
def tried(what, call):
    try:
        print(what, call())
    except OSError as error:
        print(what, type(error).__name__, error.errno)
    except (MemoryError, RuntimeError) as error:
        print(what, type(error).__name__)
tried("open", lambda: os.open("written", os.O_RDWR | os.O_CREAT) >= 0)
here = os.open(".", os.O_RDONLY)
file = os.open("other", os.O_RDWR | os.O_CREAT)
tried("write", lambda: os.write(file, bytes(77)))
tried("write", lambda: os.write(file, bytes(78)))
tried("fsync", lambda: os.fsync(file))
tried("fdatasync", lambda: os.fdatasync(file))
os.lseek(file, 0, 0)
tried("read", lambda: len(os.read(file, 77)))
tried("read", lambda: len(os.read(file, 78)))
tried("pread", lambda: len(os.pread(file, 7, 70)))
tried("pwrite", lambda: os.pwrite(file, b"text", 1 << 20))
tried("truncate", lambda: os.ftruncate(file, 77))
tried("dup", lambda: os.dup2(file, 77))
tried("close", lambda: os.close(77))
tried("getcwd", lambda: os.path.isdir(os.getcwd()))
one = socket.socket()
os.dup2(one.fileno(), 76)
tried("connect", lambda: socket.socket(fileno=76).connect(("127.0.0.1", 1)))
open("marked", "w").close()
tried("mkdir", lambda: os.mkdir("marked-folder"))
tried("mkdir", lambda: os.mkdir("marked-folder"))
tried("chdir", lambda: os.chdir("marked-folder"))
os.fchdir(here)
tried("rmdir", lambda: os.rmdir("marked-folder"))
tried("chmod", lambda: os.chmod("marked", 0o600))
tried("link", lambda: os.link("marked", "marked-link"))
tried("symlink", lambda: os.symlink("marked", "marked-symlink"))
tried("readlink", lambda: os.readlink("marked-symlink"))
tried("rename", lambda: os.rename("marked-symlink", "renamed"))
tried("utime", lambda: os.utime("marked", (1, 1)))
tried("access", lambda: os.access("marked", os.W_OK))
tried("pipe", lambda: len(os.pipe2(os.O_CLOEXEC)))
tried("isatty", lambda: os.isatty(file))
tried("umask", lambda: os.umask(0o22))
server = socket.socket(socket.AF_UNIX)
tried("bind", lambda: server.bind("marked.sock"))
tried("listen", lambda: server.listen(7))
a, b = socket.socketpair()
tried("send", lambda: a.send(b"seventy"))
tried("recv", lambda: b.recv(77, socket.MSG_DONTWAIT))
tried("setsockopt", lambda: a.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1))
tried("address", lambda: socket.getaddrinfo("127.0.0.1", "77")[0][4])
def work():
    pass
tried("thread", lambda: threading.Thread(target=work).start())
tried("unlink", lambda: os.unlink("marked"))
"""
IN_PYTHON = [
    ("pread64", "fd >= 3 && size == 7", "3", None), ("pwrite64", "at == 0x100000", "-1", "EFBIG"), ("fdatasync", "fd >= 3", "-1", "EROFS"),
    ("ftruncate64", "size == 77", "-1", "ETXTBSY"), ("mkdir", 'name ~ "*folder"', "-1", "EDQUOT"), ("chdir", 'name == "marked-folder"', "0", None),
    ("rmdir", "", "-1", "ENOTEMPTY"), ("chmod", "mode == 0600", "-1", "EPERM"), ("link", 'to ~ "*link"', "-1", "EMLINK"),
    ("symlink", "", "-1", "ENOSYS"), ("readlink", 'name == "marked-symlink"', "-1", "EINVAL"), ("rename", 'to == "renamed"', "-1", "EXDEV"),
    ("utimensat", 'name == "marked"', "-1", "EROFS"), ("access", 'name == "marked"', "-1", "EACCES"), ("pipe2", "flags != 0", "-1", "ENFILE"),
    ("umask", "", "63", None), ("isatty", "fd >= 3", "1", None), ("bind", "size > 2", "-1", "EADDRINUSE"), ("listen", "most == 7", "-1", "EOPNOTSUPP"),
    ("send", "size == 7", "2", None), ("recv", "size == 77", "-1", "ECONNRESET"), ("setsockopt", "level == 1 && name == 9", "-1", "ENOPROTOOPT"),
    ("socket", "domain == 1", "-1", "EAFNOSUPPORT"), ("getaddrinfo", 'name == "127.0.0.1"', "-2", None), ("pthread_create", "", "11", None),
]
SQL = """create table t(a, b);
insert into t values(1, 'one'), (2, 'two');
begin; update t set b = 'three' where a = 2; commit;
pragma journal_mode = truncate;
insert into t select a + 10, b from t;
vacuum;
select * from t; pragma integrity_check;
pragma journal_mode = wal;
insert into t values(7, 'seven'); select count(*) from t;
"""
IN_SQLITE = [
    ("open64", 'name ~ "*-journal"', "-1", "EMFILE"), ("open64", 'name ~ "*marked.db" && flags > 0x80000', "-1", "EACCES"), ("pread64", "at == 24", "-1", "EIO"),
    ("pread64", "size == 16", "7", None), ("pwrite64", "at >= 4096", "-1", "ENOSPC"), ("pwrite64", "size == 4096", "1000", None),
    ("fdatasync", "fd >= 3", "-1", "EIO"), ("ftruncate64", "size == 0", "-1", "EIO"), ("unlink", 'name ~ "*marked*"', "-1", "EBUSY"),
    ("fcntl64", "command == 6", "-1", "EACCES"), ("fcntl64", "command == 6", "-1", "ENOLCK"), ("stat64", 'name ~ "*marked*"', "-1", "ELOOP"),
    ("lstat64", "", "-1", "EACCES"), ("getcwd", "size >= 64", "0", "EACCES"),
    ("mmap64", "fd >= 3 && size == 32768 && how == 1", "-1", "ENOMEM"), ("malloc", "size > 60000", "0", "ENOMEM"),
]
GIT = """mkdir sub; echo text > marked; echo more > sub/file; ln -s marked sym
{git} init -q -b main .; echo $?
{git} -c core.fsync=all add .; echo $?
{git} -c gc.auto=0 commit -qm first; echo $?
echo changed > marked; {git} status --short; {git} -c gc.auto=0 commit -qam second; echo $?
{git} checkout -q HEAD~1; echo $?; {git} mv marked other; {git} branch one; {git} branch -m one two; {git} log --oneline --all; {git} rm -q sub/file; echo $?
"""
IN_GIT = [
    ("fsync", "fd >= 3", "-1", "EIO"), ("getcwd", "size >= 64", "0", "EACCES"), ("unlink", 'name ~ "*marked*"', "-1", "EBUSY"),
    ("strdup", 'text ~ "*marked*"', "0", "ENOMEM"), ("write", "fd >= 3 && size > 100 && size < 250", "-1", "ENOSPC"), ("open64", 'name ~ "*.lock"', "-1", "EACCES"),
    ("open64", 'name ~ "*tmp_obj*"', "-1", "EROFS"), ("mkdir", 'name ~ "*objects*"', "-1", "ENOSPC"), ("rename", 'name ~ "*.lock"', "-1", "EXDEV"),
    ("link", 'name ~ "*tmp_obj*"', "-1", "EPERM"), ("lstat64", 'name ~ "*marked"', "-1", "EIO"),
    ("chmod", "", "-1", "EPERM"), ("symlink", "", "-1", "EPERM"), ("readlink", 'name ~ "*sym"', "-1", "EIO"), ("rmdir", "", "-1", "EBUSY"),
    ("access", 'name ~ "*.git*"', "-1", "EACCES"), ("opendir", 'name ~ "*.git*"', "0", "EMFILE"), ("chdir", "", "-1", "EACCES"),
    ("mmap64", "fd >= 3 && access == 1 && how == 2 && size < 4096", "-1", "ENOMEM"),
]
TAR = """mkdir tree tree/sub out; echo text > tree/marked; echo more > tree/sub/file; ln -s marked tree/sym; ln tree/marked tree/hard
tar --sort=name --mtime=@0 -cf marked.tar tree; echo $?; tar -tvf marked.tar; tar -C out -xpf marked.tar; echo $?
tar -C out -xpf marked.tar; echo $?; tar -rf marked.tar --mtime=@0 tree/sub; echo $?; tar -df marked.tar; echo $?
"""
IN_TAR = [
    ("openat", 'name == "marked"', "-1", "EACCES"), ("openat", 'name ~ "tree/*" && flags > 64', "-1", "EROFS"), ("mkdirat", "", "-1", "ENOSPC"),
    ("unlinkat", 'name ~ "*marked"', "-1", "EBUSY"), ("symlinkat", "", "-1", "EPERM"), ("linkat", "", "-1", "EMLINK"),
    ("readlinkat", "", "-1", "EIO"), ("fchown", "", "-1", "EPERM"), ("utimensat", "", "-1", "EROFS"), ("fstatat64", 'name == "file"', "-1", "EIO"),
    ("write", "fd >= 3 && size == 10240", "-1", "ENOSPC"), ("write", "fd >= 3 && size == 10240", "512", None), ("read", "fd >= 3 && size == 10240", "-1", "EIO"),
    ("fchmod", "", "-1", "EPERM"), ("fchmodat", "", "-1", "EPERM"),
]
CURL = """echo text > marked; curl -sS -o out "file://$PWD/marked"; echo $?; cat out
curl -sS --connect-timeout 20 http://127.0.0.1:1/ ; echo $?; curl -sS --unix-socket marked http://here/; echo $?; curl -sS --max-time 20 -T marked "file://$PWD/up"; echo $?
"""
IN_CURL = [
    ("open64", 'name ~ "*marked"', "-1", "EACCES"), ("socket", "domain == 2 && type == 1", "-1", "EMFILE"), ("connect", "fd >= 3 && size == 16", "-1", "ENETUNREACH"), ("connect", "fd >= 3 && size == 16", "-1", "EACCES"),
    ("setsockopt", "level == 6", "-1", "ENOPROTOOPT"), ("fcntl64", "command == 4", "-1", "EPERM"),
    ("malloc", "size > 100000", "0", "ENOMEM"),
]
REDIS = """{server} --port 0 --unixsocket marked.sock --unixsocketperm 700 --save '' --appendonly yes --appendfsync always --logfile /dev/null &
n=0; until {client} -s marked.sock ping > /dev/null 2>&1; do n=$((n + 1)); [ $n -lt 500 ] && kill -0 $! 2> /dev/null || break; sleep 0.02; done
ask() {{ {client} -s marked.sock "$@" 2>&1; echo $?; }}
ask set key {text}; ask get key; ask rpush list 1 2 3; ask lrange list 0 -1; ask config get dir; ask save; ask get key
ask shutdown nosave; wait; echo $?
"""
IN_REDIS = [
    ("write", "size == 77", "-1", "ENOSPC"), ("getcwd", "size >= 64", "0", "EACCES"), ("unlink", 'name ~ "*marked*"', "-1", "EBUSY"),
    ("fdatasync", "", "-1", "EIO"), ("rename", 'name ~ "temp-*"', "-1", "EXDEV"), ("mkdir", 'name ~ "*appendonly*"', "-1", "EROFS"),
    ("open64", 'name ~ "*.incr.aof"', "-1", "EACCES"), ("bind", "size > 2", "-1", "EADDRINUSE"), ("listen", "", "-1", "EADDRINUSE"),
    ("chmod", 'name == "marked.sock"', "-1", "EPERM"), ("pthread_create", "", "11", None),
    ("fsync", "", "-1", "EIO"), ("stat64", 'name ~ "*appendonly*"', "-1", "EACCES"), ("fopen64", 'name ~ "*temp*"', "0", "EMFILE"),
]


class Matrix(injection.Injection):
    def test_a_c_program(self):
        source = os.path.abspath(os.path.join(harness.Options.source, "tests/e2e/fixtures/injected_calls.c"))
        program = harness.compiled([harness.need("gcc"), "-O2", "-fno-builtin", "-w", source], self.path("calls"))
        for name, condition, value, error in MARKED:
            with self.subTest(name):
                self.assertEqual(self.compare(name, condition, value, error, [program]), 2 if name == "close" else 1)

    def test_python(self):
        script = self.write("calls.py", PYTHON)
        python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else harness.need("python3")
        names = ("write", "read", "open64", "connect", "close", "fsync", "getcwd", "unlink")
        self.compare_all([one for one in MARKED if one[0] in names] + IN_PYTHON, [python, "-S", "-E", script])

    def test_sqlite(self):
        self.compare_all(IN_SQLITE, [harness.need("sqlite3"), "-batch", "marked.db"], SQL.encode())

    def test_redis(self):
        """A server that writes each command to a file, and its clients. Its allocator is another one than libc's."""
        client = harness.need("redis-cli")
        server = harness.need("redis-server") and shutil.which("redis-server")  # a link: the program goes by its name
        self.compare_all(IN_REDIS, [harness.need("sh"), self.write("job", REDIS.format(server=server, client=client, text="v" * 70))])

    def test_git(self):
        self.compare_all(IN_GIT, [harness.need("sh"), self.write("job", GIT.format(git=harness.need("git")))])

    def test_tar(self):
        harness.need("tar")
        self.compare_all(IN_TAR, [harness.need("sh"), self.write("job", TAR)])

    def test_curl(self):
        harness.need("curl")
        self.compare_all(IN_CURL, [harness.need("sh"), self.write("job", CURL)])


if __name__ == "__main__":
    harness.main()
