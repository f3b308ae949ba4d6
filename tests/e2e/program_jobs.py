# SPDX-License-Identifier: MIT
"""Real programs and a job for each, whose output is the same in every run: scripts/endure and programs_test.py compare it
with and without probes. A job is a shell script that runs in an empty folder of its own, in both cases under the same name.
"""
import os
import re
import shutil
import subprocess
from dataclasses import dataclass

from elf_reader import Elf

LIBC = "/lib/x86_64-linux-gnu/libc.so.6"
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "PYTHONHASHSEED": "0", "PERL_HASH_SEED": "0", "HOME": "/nonexistent",
               "TERM": "dumb", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
               "GIT_COMMITTER_EMAIL": "a@b", "GIT_AUTHOR_DATE": "1000000000 +0000",
               "GIT_COMMITTER_DATE": "1000000000 +0000", "GIT_CONFIG_NOSYSTEM": "1"}


@dataclass
class Job:
    name: str
    target: str  # the file whose functions are armed; NAME.so of the program `of`, or a path
    script: str  # for sh, in an empty folder
    hot: str = ""  # functions of the target that the job certainly reaches
    of: str = ""  # the program that is looked at for the target's path
    glob: str = ""  # which of the target's functions, where all are too many for a short run
    shell: str = "/bin/sh"
    brief: bool = True  # False: left out of the short tests, for time or because another job runs the same script
    slow: bool = False  # runs for more than half a minute with everything armed
    counts_variables: bool = False  # prints how many environment variables there are: LD_PRELOAD and the tool's show
    needs: str = ""  # programs that the script runs
    build: str = ""  # makes the target, in a folder that the job finds in $BUILT


def build(job, folder):
    """The kind of the job's target, with the caller's environment (compilers live in many places)."""
    done = subprocess.run(["/bin/sh", "-c", job.build], cwd=folder, capture_output=True, check=False)
    path = os.path.join(folder, job.target)
    return path if done.returncode == 0 and os.path.exists(path) else None


def target_of(job, built=None):
    """The path of the file to be armed; None if it does not exist. `built`: an empty folder."""
    search = None if job.build else ENVIRONMENT["PATH"]
    if any(not shutil.which(program, path=search) for program in job.needs.split()):
        return None
    if job.build:
        return build(job, built)
    if job.target.startswith("/"):
        return os.path.realpath(job.target) if os.path.exists(job.target) else None
    program = shutil.which(job.of or job.target, path=ENVIRONMENT["PATH"])
    if not program:
        return None
    program = os.path.realpath(program)
    if not job.of:
        return program
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    found = re.search(rf"(/\S*/{re.escape(job.target)}\S*)", listing)
    return os.path.realpath(found[1]) if found else None


def functions_by_frames(path):
    """Definitions of all functions of a stripped file, by their starts in .eh_frame."""
    if not shutil.which("readelf"):
        return []
    text = subprocess.run(["readelf", "-wF", path], capture_output=True, text=True, check=False).stdout
    file = Elf(path)
    starts = sorted({int(start, 16) for start in re.findall(r" pc=([0-9a-f]+)\.\.", text)})
    return [f"p:f{start:x} {path}:{file.offset_of_address(start):#x}" for start in starts if start]


def definitions_of(job, target, tool):
    """One for each function symbol of the file, or, if it has hardly any, for each function in its unwind data."""
    listed = subprocess.run([tool, "-x", target, "-l" + job.glob], capture_output=True, text=True, check=False)
    definitions = [line for line in listed.stdout.splitlines() if line.startswith("p")]
    return definitions if len(definitions) > 50 else functions_by_frames(target)


SHELL = r"""
f() { local n; n=$1; if [ "$n" -lt 2 ]; then echo "$n"; else echo $(( $(f $((n-1))) + $(f $((n-2))) )); fi; }
f 6; for i in 1 2 3 4 5 6 7 8 9; do echo "line $i" ; done | sort -r | head -3; x=abc; echo "${x%c}" "${#x}"
trap 'echo usr1' USR1; kill -USR1 $$; (exit 3); echo $?; (kill -TERM $(sh -c 'echo $PPID')); echo $?
cat <<EOF | tr a-z A-Z
here $x
EOF
case $x in a*) echo match ;; esac; sleep 0.01 & wait $!; echo $?; exit 7
"""
PYTHON_TEXT = """
import re, json, hashlib, zlib, decimal
d = {str(i): [i, i * i, "x" * (i % 17)] for i in range(400)}
s = json.dumps(d, sort_keys=True)
print(len(s), hashlib.sha256(s.encode()).hexdigest(), len(re.findall(r"x+", s)), sum(x[1] for x in json.loads(s).values()))
print(len(zlib.compress(s.encode())), decimal.Decimal(2).sqrt())
try:
    raise ValueError("caught")
except ValueError as e:
    print(e)
raise SystemExit(5)
"""
PYTHON_TASKS = """
import threading, queue, asyncio, subprocess, signal, os, sys, multiprocessing
q = queue.Queue()
def work(n):
    for i in range(50): q.put(n * i)
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(sum(q.get() for _ in range(200)))
async def main():
    async def one(n):
        await asyncio.sleep(0.001)
        return n
    return await asyncio.gather(*[one(n) for n in range(20)])
print(asyncio.run(main()))
print(subprocess.run(["sh", "-c", "echo sub; exit 4"], capture_output=True))
print(subprocess.run(["sh", "-c", "kill -9 $$"]).returncode)
with multiprocessing.Pool(2) as pool:
    print(pool.map(abs, range(-5, 5)))
pid = os.fork()
if pid == 0:
    os._exit(9)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
# The handlers run Python, which allocates: thousands of them while the program allocates itself.
PYTHON_TIMER = """
import signal
n = 0
def tick(*_):
    global n
    n += len(str([n] * 3)) > 0
signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
s = 0
while n < 500:
    s += sum(len(str(i)) for i in range(50)) != 90
signal.setitimer(signal.ITIMER_REAL, 0)
print(s)
"""
PERL = r"""perl -e 'my %h; $h{$_ % 17} .= chr(65 + $_ % 26) for 1..500; print "$_ $h{$_}\n" for sort { $a <=> $b } keys %h;
printf("%.6f\n", sqrt(2)); my $s = "abc" x 100; $s =~ s/b(.)/$1x/g; print length $s, "\n";
my $p = fork; if (!$p) { exit 3 } waitpid $p, 0; print $? >> 8, "\n"; print `echo back`;
$SIG{ALRM} = sub { die "alarm\n" }; use Time::HiRes qw(ualarm); eval { ualarm 50000; select(undef, undef, undef, 5); }; print $@;
eval { die { code => 7 } }; exit $@->{code}'
"""
PERL_TIMER = r"""perl -MTime::HiRes=setitimer,ITIMER_REAL -e 'my $n = 0; $SIG{ALRM} = sub { $n += length("x" x $n) > -1 };
setitimer(ITIMER_REAL, 0.001, 0.001); my %h; my $i = 0; while ($n < 1000) { $h{$i++ % 100} = "v$i" }
setitimer(ITIMER_REAL, 0); print scalar(keys %h), "\n"'
"""
SQL = r"""sqlite3 :memory: "create table t(a integer, b text); with recursive c(n) as (select 1 union all select n+1 from c
where n < 500) insert into t select n, 'row' || n from c; create index i on t(b); select count(*), sum(a), max(b) from t;
select b from t where a % 97 = 0 order by b desc; delete from t where a > 250; select count(*) from t;"
sqlite3 file.db "create table t(a); begin; insert into t values(1),(2); commit; pragma integrity_check; vacuum;"
sqlite3 file.db "select sum(a) from t; select no_such_column from t"
"""
GIT = r"""
git init -q -b main one; cd one; for i in 1 2 3 4 5 6 7 8; do seq $i 100 > file$i; git add .; git commit -qm "commit $i"; done
git log --oneline | cat; git diff HEAD~3 --stat | cat; git gc -q; git fsck --no-progress; cd ..
git clone -q one two; cd two; git checkout -q -b side HEAD~2; echo x > file1; git commit -qam side; git merge -q main -m merge
git log --graph --format=%s | head -20; git rev-parse HEAD; git status --short; git no-such-command; echo $?
"""
MAKE = r"""
for i in 1 2 3 4; do cat > f$i.c <<EOF
#include <stdio.h>
int f$i(int x) { return printf("f$i %d\\n", x) * $i; }
EOF
done
cat > main.cpp <<'EOF'
#include <vector>
#include <iostream>
extern "C" int f1(int), f2(int), f3(int), f4(int);
int main() { std::vector<int> v{f1(1), f2(2), f3(3)}; std::cout << v.size() << f4(9) << std::endl; }
EOF
cat > Makefile <<'EOF'
all: prog ; ./prog
prog: f1.o f2.o f3.o f4.o main.o ; @$(CXX) -o $@ $^
%.o: %.c ; @$(CC) -O2 -c $<
%.o: %.cpp ; @$(CXX) -O1 -c $<
EOF
make -s -j2; objdump -d f1.o | wc -l; echo 'int main( { }' > bad.c; gcc -c bad.c; echo $?
"""
CLANG = r"""
echo 'int printf(const char*, ...); struct s { int a; long b; }; int main() { struct s x = {1, 2}; for (int i = 0; i < 9; ++i) x.b += i * x.a;
return printf("%ld\n", x.b); }' > a.c; clang -O2 -o a a.c; ./a; echo $?; echo 'int main( { }' > bad.c; clang -c bad.c; echo $?
"""
NODE = r"""cat > a.js <<'EOF'
const { Worker, isMainThread, parentPort } = require("worker_threads");
let sum = 0; for (let i = 0; i < 2e5; ++i) sum = (sum * 31 + i) % 1000003; console.log(sum);
const c = require("crypto").createHash("sha256").update("x".repeat(1e5)).digest("hex"); console.log(c);
process.once("SIGUSR2", () => console.log("usr2")); process.kill(process.pid, "SIGUSR2");
const z = require("zlib"); console.log(z.gunzipSync(z.gzipSync("y".repeat(1e5))).length);
const w = new Worker(`require("worker_threads").parentPort.postMessage([...Array(1e4).keys()].reduce((a, b) => a + b))`, { eval: true });
w.on("message", (m) => { console.log("worker", m);
  require("child_process").exec("echo child; exit 3", (e, out) => { console.log(out, e.code);
    let n = 0; const t = setInterval(() => { if (++n == 5) { clearInterval(t); console.log("timer"); process.exitCode = 6; } }, 1); }); });
try { null.x } catch (e) { console.log(e.message) }
EOF
node a.js
"""
GO_BUILD = r"""cat > a.go <<'EOF'
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
)

func spin(n int) (s int) {
	for i := 0; i < n; i++ {
		s = (s*31 + i) % 1000003
	}
	return
}

func main() {
	var wait sync.WaitGroup
	results := make([]int, 8)
	for g := range results {
		wait.Add(1)
		go func(g int) {
			defer wait.Done()
			for i := 0; i < 20; i++ {
				results[g] += spin(20000 + g)
				_ = make([]byte, 100000)
				runtime.Gosched()
			}
		}(g)
	}
	wait.Wait()
	runtime.GC()
	fmt.Println(results)
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1)
	syscall.Kill(os.Getpid(), syscall.SIGUSR1)
	fmt.Println(<-c)
	func() {
		defer func() { fmt.Println(recover()) }()
		var p *int
		*p = 1
	}()
	out, err := exec.Command("sh", "-c", "echo child; exit 3").CombinedOutput()
	fmt.Println(string(out), err)
	os.Exit(6)
}
EOF
GO111MODULE=off GOCACHE=$PWD/cache go build -o subject a.go
"""
RUST_BUILD = r"""cat > a.rs <<'EOF'
use std::collections::HashMap;
use std::sync::{mpsc, Arc, Mutex};
use std::thread;
fn main() {
    let (send, receive) = mpsc::channel();
    let total = Arc::new(Mutex::new(0u64));
    let threads: Vec<_> = (0..4u64).map(|n| { let send = send.clone(); let total = total.clone(); thread::spawn(move || {
        for i in 0..200 { send.send(n * i).unwrap(); *total.lock().unwrap() += i; } }) }).collect();
    drop(send);
    let sum: u64 = receive.iter().sum();
    for t in threads { t.join().unwrap(); }
    let mut m = HashMap::new();
    for i in 0..1000 { *m.entry(format!("k{}", i % 37)).or_insert(0) += i; }
    let caught = std::panic::catch_unwind(|| { if sum_of(3) == 6 { panic!("caught"); } });
    println!("{} {} {} {}", sum, total.lock().unwrap(), m.len(), caught.is_err());
    println!("{:?}", std::process::Command::new("sh").args(["-c", "exit 3"]).status().unwrap().code());
    std::process::exit(6);
}
#[inline(never)]
fn sum_of(n: u32) -> u32 { (1..=n).sum() }
EOF
rustc -C opt-level=1 -C debuginfo=0 -o subject a.rs
"""
REDIS = r"""
redis-server --port 0 --unixsocket $PWD/s --save '' --daemonize no --logfile log --dir $PWD &
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do [ -S s ] && break; sleep 0.1; done
c="redis-cli -s s"; $c set a 1; $c incr a; $c config set latency-monitor-threshold 100
redis-benchmark -s s -n 500 -c 5 -q -t set,get,lpush,incr > /dev/null; echo $?
for i in 1 2 3 4 5; do $c rpush list $i; done; $c lrange list 0 -1; $c eval 'return redis.call("get", KEYS[1])' 1 a
$c bgsave; sleep 0.3; ls dump.rdb; $c dbsize; $c debug reload; $c get a; $c shutdown nosave; wait; echo $?
"""
NGINX = r"""
mkdir -p www logs; seq 1 2000 > www/big; echo hello > www/small
chmod 755 .; printf 'user root; daemon off; worker_processes 2; pid nginx.pid; error_log err; events { worker_connections 64; }\nhttp { access_log off;
client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5; gzip on; gzip_types *;
server { listen unix:s; root www; location /p/ { proxy_pass http://unix:s:/; } } }' > conf
nginx -p $PWD -c conf & for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do [ -S s ] && break; sleep 0.1; done
g="curl -s --unix-socket s"; for i in 1 2 3 4 5 6 7 8 9 10; do $g http://x/small; $g http://x/p/big | cksum; done
$g --compressed http://x/big | cksum; $g -o /dev/null -w '%{http_code}\n' http://x/none
kill -HUP $(cat nginx.pid); sleep 0.2; $g http://x/small; kill -QUIT $(cat nginx.pid); wait; echo $?; sed 's/.*open() "[^"]*/open "/' err
"""
OPENSSL = r"""
seq 1 20000 > data; for d in sha256 sha512 md5 blake2b512; do openssl dgst -$d data; done
openssl enc -aes-256-cbc -pbkdf2 -k pass -S 0102030405060708 -in data | openssl dgst -sha256
openssl req -x509 -newkey rsa:2048 -nodes -keyout key -out cert -subj /CN=x -days 2 2>/dev/null; openssl x509 -in cert -noout -subject
openssl dgst -sha256 -sign key -out sig data; openssl dgst -sha256 -verify <(openssl x509 -in cert -noout -pubkey) -signature sig data
openssl speed -seconds 1 -bytes 16 md5 > /dev/null 2>&1; echo $?
"""
ARCHIVES = r"""
mkdir d; for i in 1 2 3 4 5; do seq $i 5000 > d/f$i; done; tar --sort=name --mtime=@0 --owner=0 --group=0 -cf a.tar d; cksum a.tar
gzip -nk a.tar; xz -k -T2 a.tar; bzip2 -k a.tar; for f in a.tar.*; do echo $f; done; gzip -dc a.tar.gz | cksum; xz -dc a.tar.xz | cksum
tar -xzf a.tar.gz -C d; tar -tJf a.tar.xz; diff -r d/d d | head -3; sort -S 1M --parallel=2 d/f1 | md5sum; find d -type f | sort; gzip -t a.tar; echo $?
"""
CURL = r"""
seq 1 3000 > file; cat > server.py <<'EOF'
import http.server, threading, sys, functools
h = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("H", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None}))
open("port.new", "w").write(str(h.server_port)); import os; os.rename("port.new", "port"); h.serve_forever()
EOF
python3 server.py & server=$!; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do [ -f port ] && break; sleep 0.1; done
u=http://127.0.0.1:$(cat port); for i in 1 2 3 4 5; do curl -s $u/file | cksum; done; curl -s $u/file $u/none | wc -l; curl -sf $u/none; echo $?
wget -q -O - $u/file | cksum; wget -q $u/none; echo $?; { kill $server; wait $server; } 2> /dev/null; echo $?
"""
VIM = r"""
seq 1 50 > f; vim -u NONE -i NONE -n -es f -c '%s/1/one/g' -c 'g/5/d' -c 'normal Goend' -c 'wq'; echo $?; cat f
printf '1,5d\ng/one/s//1/\n$p\nw\nq\n' | ed -s f; echo $?; cksum f; sed -i 's/2/two/' f; grep -c two f; awk '{ s += $1 } END { print s }' f
"""
JAVA = r"""cat > A.java <<'EOF'
import java.util.*;
import java.util.concurrent.*;
public class A {
  static int f(int n) { return n < 2 ? n : f(n - 1) + f(n - 2); }
  public static void main(String[] a) throws Exception {
    ExecutorService e = Executors.newFixedThreadPool(4);
    List<Future<Integer>> l = new ArrayList<>();
    for (int i = 0; i < 8; ++i) { final int n = 15 + i; l.add(e.submit(() -> f(n))); }
    for (Future<Integer> x : l) System.out.println(x.get());
    e.shutdown(); Map<String, byte[]> m = new HashMap<>();
    for (int i = 0; i < 2000; ++i) m.put("k" + i % 100, new byte[10000]); System.gc(); System.out.println(m.size());
    try { String s = null; s.length(); } catch (NullPointerException x) { System.out.println("npe"); }
    System.out.println(new ProcessBuilder("sh", "-c", "exit 3").start().waitFor()); System.exit(6);
  }
}
EOF
java -Xshare:auto A.java
"""
GDB = r"""echo 'int f(int x) { return x * 2; } int main() { int s = 0; for (int i = 0; i < 3; ++i) s += f(i); return s; }' > a.c; gcc -g -O0 -o a a.c
gdb -nx -q -batch -ex 'break f' -ex run -ex 'print x' -ex bt -ex continue -ex 'print x' -ex 'delete' -ex continue ./a 2>&1 | sed 's/process [0-9]*/process N/'
"""
STRACE = r"""strace -f -e signal=none -e trace=execve,exit_group -o log sh -c '/bin/true; exit 4'; echo $?; sed 's/^[0-9]* *//; s/0x[0-9a-f]*/P/' log"""
PTY = r"""script -qec 'echo in a pty; tty > /dev/null && echo yes; stty size' typescript < /dev/null | tr -d '\r'; echo $?
tmux -S sock -f /dev/null new-session -d -x 80 -y 24 'echo from tmux > out; sleep 0.1; echo more >> out'
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do [ "$(cat out 2>/dev/null | wc -l)" = 2 ] && break; sleep 0.1; done; cat out
tmux -S sock kill-server 2>/dev/null; true
"""
DAEMON = r"""
cat > d.sh <<'EOF'
echo started > out; trap 'echo told >> out; echo done > end; exit 0' TERM; echo $$ > pid; while :; do sleep 0.02; done
EOF
setsid sh -c 'sh d.sh < /dev/null > /dev/null 2>&1 &'; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do [ -s pid ] && break; sleep 0.1; done
kill $(cat pid); for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do [ -f end ] && break; sleep 0.1; done; cat out; nohup echo nohup; timeout 0.1 sleep 5; echo $?
"""
POSTGRES = r"""
B=$(ls -d /usr/lib/postgresql/*/bin | head -1); chown -R 65534 . ; r() { setpriv --reuid 65534 --clear-groups "$@"; }
r $B/initdb -D data -A trust -U tester -N > /dev/null 2>&1; echo $?
r $B/pg_ctl -D data -w -l log -o "-k $PWD -c listen_addresses= -c fsync=off" start > /dev/null; echo $?
p="psql -h $PWD -U tester -d postgres -Atqc"; $p 'create table t as select g as a, md5(g::text) as b from generate_series(1, 3000) g'
$p 'create index on t(b); select count(*), sum(a), max(b) from t'; $p 'select a from t order by b limit 5'; $p 'select 1/0'; echo $?
r $B/pg_ctl -D data -m fast -w stop > /dev/null; echo $?
"""
# Throws through 1, 2 and 50 frames, rethrown, nested, in threads, and longjmps, as often as it is told; then it says whether
# its memory has grown in the second half.
THROWS = r"""
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>
#define APART __attribute__((noinline, noclone))
thread_local std::jmp_buf back;
thread_local long destroyed;
struct Guard { ~Guard() { ++destroyed; } };
APART long dive(int depth, int kind) {
  Guard guard;
  if (depth != 0) return dive(depth - 1, kind) + 1;
  if (kind == 0) throw std::runtime_error("deep");
  if (kind == 1) throw kind;
  if (kind == 2) return static_cast<long>(std::string().at(3));
  return 0;
}
APART long leap(int depth) {
  if (depth == 0) std::longjmp(back, 1);
  return leap(depth - 1) + 1;
}
APART long again(int depth, int kind) {
  try { return dive(depth, kind); } catch (const std::exception&) { throw; } catch (...) { throw std::string("other"); }
}
APART long turn(long i) {
  static const int depths[] = {1, 2, 50};
  long sum = 0;
  try { sum += again(i % 64 == 0 ? 50 : depths[i % 2], static_cast<int>(i % 4)); }
  catch (const std::exception& e) { sum += e.what()[0]; }
  catch (const std::string& s) { sum += static_cast<long>(s.size()); }
  if (setjmp(back) == 0) sum += leap(static_cast<int>(i % 5)); else ++sum;
  return sum;
}
// Pages of its own: what a tracer shares with it comes and goes.
long resident() {
  long all = 0, pages = 0, shared = 0;
  FILE* f = std::fopen("/proc/self/statm", "r");
  if (f == nullptr || std::fscanf(f, "%ld %ld %ld", &all, &pages, &shared) != 3) std::abort();
  std::fclose(f);
  return pages - shared;
}
int main(int, char** argv) {
  const long count = std::atol(argv[1]);
  long sums[3] = {};
  const auto work = [&](long* sum, long n) { for (long i = 0; i < n; ++i) *sum += turn(i); *sum += destroyed; };
  std::thread first(work, &sums[1], count / 4), second(work, &sums[2], count / 4);
  work(&sums[0], count / 20);
  first.join(), second.join();
  const long before = resident();
  work(&sums[0], count / 2);
  const long grown = resident() - before;
  std::printf("%ld %ld %ld %s\n", sums[0], sums[1], sums[2], grown < 256 ? "flat" : "grown");
}
"""


def here(text):
    """A program text as an argument of sh."""
    return "'" + text.replace("'", "'\\''") + "'"


JOBS = [
    Job("bash", "bash", SHELL, "execute_command dispose_words", shell="/bin/bash"),
    Job("dash", "dash", SHELL, "", shell="/bin/dash"),
    Job("zsh", "zsh", SHELL, "zfree execlist", shell="/bin/zsh"),
    Job("libc under zsh", LIBC, SHELL, "malloc free write read fork", shell="/bin/zsh"),
    Job("libc under python3", LIBC, "python3 -c " + here(PYTHON_TEXT), "malloc free realloc read memcpy", needs="python3"),
    Job("libc under tasks", LIBC, "python3 -c " + here(PYTHON_TASKS), "malloc pthread_create fork epoll_wait", needs="python3"),
    Job("python3", "python3", "python3 -c " + here(PYTHON_TEXT), "PyObject_Malloc PyUnicode_New PyDict_New"),
    Job("python3 tasks", "python3", "python3 -c " + here(PYTHON_TASKS), "PyObject_Malloc PyEval_AcquireThread PyTuple_New"),
    Job("python3 timer", "python3", "python3 -c " + here(PYTHON_TIMER), "PyUnicode_New PyObject_Str"),
    Job("perl", "perl", PERL, "Perl_newSV Perl_sv_setsv_flags Perl_pp_entersub"),
    Job("perl timer", "perl", PERL_TIMER, "Perl_despatch_signals Perl_safesysmalloc Perl_pp_length"),
    Job("libsqlite3", "libsqlite3", SQL, "sqlite3_step sqlite3_malloc64 sqlite3_prepare_v2", of="sqlite3"),
    Job("git", "git", GIT, ""),
    Job("libc under git", LIBC, GIT, "malloc open64 write mmap64 unlink", needs="git", brief=False),
    Job("libc under make", LIBC, MAKE, "malloc vfork execve fopen64 fwrite", needs="make g++"),
    Job("libbfd under make", "libbfd", MAKE, "bfd_openr bfd_check_format", of="objdump", needs="make g++", brief=False),
    Job("libc under clang", LIBC, CLANG, "malloc free memcpy", needs="clang"),
    Job("node", "node", NODE, "", glob="*uv_*"),
    Job("libc under node", LIBC, NODE, "malloc pthread_mutex_lock epoll_pwait mprotect", needs="node", brief=False),
    Job("go", "subject", "$BUILT/subject", "runtime.mallocgc runtime.sigtrampgo runtime.newproc", needs="go", build=GO_BUILD),
    Job("rust", "subject", "$BUILT/subject 2>&1 | sed 's/thread.*panicked/panicked/'; echo $?",
        needs="rustc", build=RUST_BUILD, brief=False),
    Job("redis", "redis-server", REDIS, "", needs="redis-cli redis-benchmark"),
    Job("libc under redis", LIBC, REDIS, "malloc epoll_wait fork write", needs="redis-server redis-cli redis-benchmark", brief=False),
    Job("nginx", "nginx", NGINX, "ngx_palloc ngx_http_handler", needs="curl"),
    Job("libc under nginx", LIBC, NGINX, "malloc epoll_wait sigsuspend fork writev", needs="nginx curl", brief=False),
    Job("libcrypto", "libcrypto", OPENSSL, "EVP_DigestUpdate CRYPTO_malloc BN_mod_exp_mont", of="openssl", shell="/bin/bash",
        slow=True, brief=False),
    Job("libc under archives", LIBC, ARCHIVES, "read write malloc fork", needs="tar gzip xz bzip2"),
    Job("liblzma", "liblzma", ARCHIVES, "lzma_code", of="xz", needs="tar gzip bzip2", brief=False),
    Job("libcurl", "libcurl", CURL, "curl_easy_perform curl_easy_setopt", of="curl", needs="python3 wget"),
    Job("libc under curl", LIBC, CURL, "malloc poll recv connect", needs="curl python3 wget", brief=False),
    Job("vim", "vim", VIM, "", needs="ed awk"),
    Job("libc under vim", LIBC, VIM, "malloc read open64 getenv", needs="vim ed awk", brief=False),
    Job("libjvm", "/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so", JAVA, "JVM_FillInStackTrace", needs="java",
        slow=True, brief=False),
    Job("libc under java", LIBC, JAVA, "malloc pthread_create sigaction mmap", needs="java", brief=False),
    Job("libc under gdb", LIBC, GDB, "malloc ptrace waitpid", needs="gdb gcc"),
    Job("libc under strace", LIBC, STRACE, "ptrace fork", needs="strace", counts_variables=True),
    Job("libc under a pty", LIBC, PTY, "fork setsid ioctl", needs="script tmux"),
    Job("libc under a daemon", LIBC, DAEMON, "fork setsid sigaction"),
    Job("libc under postgres", LIBC, POSTGRES, "malloc fork", needs="psql setpriv", brief=False),
]
THROWS_BUILD = "g++ -O2 -pthread -x c++ -o subject - <<'EOF'\n" + THROWS + "EOF"
# Each test of the interpreter's own suite and how it ended, without the one that may wait for ever anyway. The suite is taken
# from Debian's package where it is not installed; what it needs of the standard library is there.
PYTHON_TESTS = """
import contextlib, io, unittest
def each(suite):
    for test in suite:
        yield from each(test) if isinstance(test, unittest.TestSuite) else [test]
for name in ("json", "re", "exceptions", "generators", "threading"):
    tests = [test for test in each(unittest.defaultTestLoader.loadTestsFromName("test.test_" + name))
             if "daemon_threads" not in test.id()]
    with contextlib.redirect_stdout(io.StringIO()):
        result = unittest.TextTestRunner(stream=io.StringIO()).run(unittest.TestSuite(tests))
    bad = {test.id() for test, _ in result.failures + result.errors}
    print(name, result.testsRun, len(result.skipped), sorted(bad))
"""
PYTHON_TESTS_BUILD = r"""
S=/usr/lib/python3.11/test; cp -r $S test || exit 1
[ -d $S/test_json ] || { apt-get download libpython3.11-testsuite && dpkg -x libpython3.11-testsuite*.deb . &&
  cp -rn usr/lib/python3.11/test/. test/; }
chmod -R a+rX .
"""
# What `scripts/endure --return` runs besides jobs of the list above, and with which libraries.
RETURN_JOBS = ("bash", "libc under zsh", "python3", "python3 tasks", "python3 timer", "libsqlite3")
MORE_RETURN_JOBS = [
    Job("c++ exceptions", "subject", "$BUILT/subject 20000", needs="g++", build=THROWS_BUILD),
    Job("c++ exceptions, long", "subject", "$BUILT/subject 500000", needs="g++", build=THROWS_BUILD, slow=True),
    Job("python3 tests", "/usr/bin/python3.11", "PYTHONPATH=$BUILT python3.11 -c " + here(PYTHON_TESTS), needs="python3.11",
        build=PYTHON_TESTS_BUILD, slow=True),
]
LIBSTDCXX = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"


def return_definitions(target):
    """Entry and return of all functions of the target, of libc and of libstdc++, as far as they can be probed; the target's
    returns look back to their entries."""
    files = {os.path.realpath(path): "" for path in (LIBC, LIBSTDCXX) if os.path.exists(path)}
    files[os.path.realpath(target)] = " $latency a=$entry_arg1 b=entry(+0(%si)):u32"
    return [line for i, (path, wanted) in enumerate(sorted(files.items()))
            for line in (f"p:in{i}/e {path}:*", f"r:out{i}/r {path}:*{wanted}")]
