# SPDX-License-Identifier: MIT
"""What users of bpftrace, perf, strace, gdb, ltrace, uftrace, Frida, DTrace, SystemTap, trace-cmd and bcc type first. Each line works,
or one line says what to type instead; that line is run as it is printed, and works."""
import os
import re
import shlex
import subprocess

import harness

PROGRAM = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((noinline)) int count(int n) { return n + (int)strlen(getenv("PATH")); }
__attribute__((noinline)) char *greet(const char *who, int n) {
  char *text = malloc(64);
  snprintf(text, 64, "hello %s %d", who, count(n));
  return text;
}
int main(int argc, char **argv) {
  do {
    char *text = greet("world", 3);
    int fd = open("/dev/null", O_WRONLY);
    if (write(fd, text, 5) != 5) return 1;
    close(fd);
    free(text);
    if (argc > 1) usleep(20000);
  } while (argc > 1);
  return 0;
}
"""
LINE = 7  # of count in the source, which begins with a blank line

# What is typed; events that are seen at least once. {demo} is the program, {pid} a process of it that runs.
WORKS = [
    # everybody
    ("-p greet -- {demo}", "greet"),
    ("-p malloc {demo}", "malloc"),
    ("--stack -p greet {demo}", "greet"),
    ("-k -p greet {demo}", "greet"),
    ("-p 'malloc(size)' -- {demo}", "malloc"),
    ("-p {demo}:greet -- {demo}", "greet"),
    ("-p 'greet' -P {pid}", "greet"),
    ("--pid {pid} -p greet", "greet"),
    ("-P {pid} -p libc:write", "write"),
    # bpftrace
    ("-p uprobe:{demo}:greet -- {demo}", "greet"),
    ("-p uretprobe:{demo}:greet -- {demo}", "greet"),
    ("-p u:{demo}:greet -p ur:{demo}:greet -- {demo}", "greet greet__return"),
    ("-p uprobe:libc:malloc -- {demo}", "malloc"),
    ("-p 'uprobe:{demo}:g*' -- {demo}", "greet"),
    ("-p 'libc:strl*' -- {demo}", "strlen"),
    ("-p '*alloc*' -- {demo}", "malloc"),
    # perf
    ("-x {demo} -p greet -- {demo}", "greet"),
    ("-x {demo} -p 'greet%return' -- {demo}", "greet"),
    ("-x {demo} -p 'greet who n' -- {demo}", "greet"),
    ("-x {demo} -p 'mine=greet n=%si' -- {demo}", "mine"),
    ("-x {demo} -p 'grp:mine=greet' -- {demo}", "mine"),
    ("-x {demo} -p 'greet@demo.c' -- {demo}", "greet"),
    ("-x {demo} -p count:0 -- {demo}", "count_0"),
    ("-x {demo} -p 'demo.c:{line}' -- {demo}", "demo_c_{line}"),
    ("--probe greet {demo}", "greet"),
    # gdb
    ("-p 'break greet' -- {demo}", "greet"),
    ("-p 'b demo.c:{line}' -- {demo}", "demo_c_{line}"),
    ("-p 'tbreak count' -- {demo}", "count"),
    ("-p 'b *{address}' -- {demo}", "{address_event}"),
    ("-p 'b *greet+0' -- {demo}", "greet"),
    ("-p 'count n if n == 3' -- {demo}", "count"),
    ("-r greet -- {demo}", "greet"),
    # strace, ltrace, bcc
    ("-f -o {trace} -p open -- {demo}", "open"),
    ("-p malloc@libc.so.6 -- {demo}", "malloc"),
    ("-p 'malloc@libc.so*' -- {demo}", "malloc"),
    ("-p malloc@libc -- {demo}", "malloc"),
    ("-p greet@MAIN -- {demo}", "greet"),
    ("-p p:libc.so.6:malloc -- {demo}", "malloc"),
    ("-p c:malloc -- {demo}", "malloc"),
    ("-p 'r:c:malloc' -- {demo}", "malloc"),
    ("-p libc.so.6:write -p libc:open -- {demo}", "write open"),
    ("-p 'libc:open path=+0(%di):string flags=%si' -- {demo}", "open"),
    ("-p 'break greet if n > 2' -- {demo}", "greet"),
    ("-p 'b demo.c:{line} if n == 3' -- {demo}", "demo_c_{line}"),
    ("-p 'rbreak ^gre' -- {demo}", "greet"),
    ("-p 'uprobe:{demo}:\"greet\"' -- {demo}", "greet"),
    ("-pgreet {demo}", "greet"),
    ("-p 'greet()' {demo}", None),
    ("-p 'greet(who,n)' {demo}", "greet"),
    ("--dry-run -p greet -P {pid}", None),
    ("--explain greet -P {pid}", None),
    ("--probe={demo}:greet --output={trace} {demo}", "greet"),
    ("-p 'greet if n > 2' {demo}", "greet"),
    ("-p 'greet(who, n) if n > 2' {demo}", "greet"),
    ("-p '{demo}:greet if n == 3 && comm == \"demo\"' {demo}", "greet"),
    ("-p 'b greet thread 1' {demo}", "greet"),
    ("-p 'break greet if strcmp(who, \"world\") == 0' {demo}", "greet"),
    ("-p 'break greet if !strcmp(who,\"world\")' {demo}", "greet"),
    ("-p 'break greet if $_streq(who, \"world\")' {demo}", "greet"),
    ("-p 'break greet if strcmp(who, \"moon\") != 0' {demo}", "greet"),
    ("-p 'dprintf greet,\"%d\\n\", n' {demo}", "greet"),
    # Frida
    ("-p '{demo}!greet' {demo}", "greet"),
    ("-p 'libc.so.6!open*' {demo}", "open"),
    # DTrace
    ("-p 'pid$target:libc:malloc:entry' {demo}", "malloc"),
    ("-p 'pid$target:a.out:greet:entry' {demo}", "greet"),
    ("-p 'pid$target:demo:greet:return' {demo}", "greet"),
    ("-p 'pid$target::greet:entry' -p 'pid$target::greet:return' {demo}", "greet greet__return"),
    ("-p 'pid{pid}::greet:entry' -P {pid}", "greet"),
    # SystemTap
    ("-p 'process(\"{demo}\").function(\"greet\")' {demo}", "greet"),
    ("-p 'process(\"{demo}\").function(\"greet\").call' -p 'process.function(\"count\").return' {demo}", "greet count"),
    ("-p 'process(\"{demo}\").statement(\"*@demo.c:{line}\")' {demo}", "demo_c_{line}"),
    ("-p 'process(\"{demo}\").library(\"libc.so.6\").function(\"malloc\")' {demo}", "malloc"),
    ("-p 'count(int n)' {demo}", None),
    # what others wrap, and slips that mean one thing
    ("-P '{pid} {pid}' -p greet", "greet"),
    ("-p libc.so:malloc {demo}", "malloc"),
    ("-p {demo}:greet env X=1 {demo}", "greet"),
    # conditions on what a return has
    ("-r 'count if retval > 3' {demo}", "count"),
    ("-r 'count $retval if $retval > 3' {demo}", "count"),
    ("-r 'count if latency > 0' {demo}", "count"),
    ("-r 'count $latency if $latency > 0 && $latency < 1000000000' {demo}", "count"),
]

# What is typed; what has to be typed instead; the events of that.
SAYS = [
    # everybody
    ("malloc {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("{demo} -p greet", "uprobe-run -p greet {demo}", "greet"),
    ("{demo}:greet", "uprobe-run -p {demo}:greet --object={demo}", "greet"),
    ("-p r:greet -- {demo}", "-r greet", None),
    ("-p p:greet -- {demo}", "-p greet", None),
    ("-P {pid} greet", "uprobe-run -P {pid} -p greet", "greet"),
    # bpftrace
    ("-e 'uprobe:{demo}:greet'", "uprobe-run -p {demo}:greet --object={demo}", "greet"),
    ("uprobe:{demo}:greet", "uprobe-run -p {demo}:greet --object={demo}", "greet"),
    ("-e 'uretprobe:{demo}:greet {{ printf(\"%s\\n\", str(retval)); }}' -- {demo}",
     "uprobe-run -p '{demo}:greet%return $retval:string' {demo}", "greet"),
    ("-p 'uprobe:{demo}:greet {{ printf(\"%s\", str(arg0)); }}' -- {demo}", "uprobe-run -p '{demo}:greet $arg1:string' {demo}",
     "greet"),
    ("-l 'uprobe:{demo}:g*'", "uprobe-run -x {demo} '-lg*'", None),
    ("-p kprobe:vfs_open -- {demo}", "uprobe-run -p libc:open {demo}", "open"),
    ("-e tracepoint:syscalls:sys_enter_write -- {demo}", "uprobe-run -p libc:write {demo}", "write"),
    # perf
    ("-x {demo} greet", "uprobe-run -x {demo} -p greet --object={demo}", "greet"),
    ("probe -x {demo} greet", "uprobe-run -x {demo} -p greet --object={demo}", "greet"),
    ("probe -x {demo} --add 'greet%return' -- {demo}", "uprobe-run -x {demo} -p greet%return {demo}", "greet"),
    ("record -e probe_libc:malloc -- {demo}", "uprobe-run -p libc:malloc {demo}", "malloc"),
    ("trace -e open {demo}", "uprobe-run -p open {demo}", "open"),
    ("-a greet {demo}", "uprobe-run -p greet {demo}", "greet"),
    # strace
    ("-e trace=open,close {demo}", "uprobe-run -p libc:open -p libc:close {demo}", "open close"),
    ("-e open {demo}", "uprobe-run -p open {demo}", "open"),
    ("-f -tt -e trace=write {demo}", "uprobe-run -f -p libc:write {demo}", "write"),
    ("-c -e write -p {pid}", "uprobe-run -p write -P {pid}", "write"),
    ("-p {pid} -e trace=write", "uprobe-run -P {pid} -p libc:write", "write"),
    ("-p {pid}", "uprobe-run -P {pid} -p malloc", "malloc"),
    # gdb
    ("-ex 'break greet' --args {demo}", "uprobe-run -p greet {demo}", "greet"),
    ("-ex 'b demo.c:{line}' -ex run {demo}", "uprobe-run -p demo.c:{line} {demo}", "demo_c_{line}"),
    # ltrace
    ("-e malloc {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("-e malloc+free@libc.so.6 {demo}", "uprobe-run -p malloc -p libc.so.6:free {demo}", "malloc free"),
    ("-x greet {demo}", "uprobe-run -p greet {demo}", "greet"),
    # nothing to look at
    ("{demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("strace {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("-c {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("-tt -T {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("--args {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    # bpftrace
    ("-e 'u:{demo}:greet {{ @ = hist(arg1); }}' {demo}",
     "uprobe-run -p '{demo}:greet arg1=$arg2' --trigger=hist:keys=arg1.log2 {demo}", None),
    ("-e 'uprobe:{demo}:greet /arg1 == 3/ {{ @ = count(); }}' -c '{demo}'",
     "uprobe-run -p '{demo}:greet arg1=$arg2 if arg1 == 3' {demo}", "greet"),
    ("-e 'BEGIN {{ printf(\"x\"); }} uprobe:{demo}:greet {{ exit(); }}' {demo}", "uprobe-run -p {demo}:greet {demo}", "greet"),
    ("-e 'uprobe:{demo}:greet,uprobe:{demo}:count {{ @[probe] = count(); }}' {demo}",
     "uprobe-run -p {demo}:greet -p {demo}:count {demo}", "greet count"),
    ("-e 'uprobe:{demo}:greet {{ @[ustack] = count(); }}' {demo}", "uprobe-run -p {demo}:greet --trigger=stacktrace {demo}", "greet"),
    ("-p 'greet str(arg0)' {demo}", "-p 'greet $arg1:string'", None),
    ("-p 'uprobe:{demo}:greet,uprobe:{demo}:count' {demo}", "uprobe-run -p {demo}:greet -p {demo}:count {demo}", "greet count"),
    ("-l '{demo}:g*'", "uprobe-run -x {demo} '-lg*'", None),
    ("-lv 'u:{demo}:g*'", "uprobe-run -x {demo} '-lg*'", None),
    ("-p BEGIN {demo}", "'BEGIN' and 'END' are bpftrace's", None),
    # perf
    ("probe -x {demo} --funcs", "uprobe-run -x {demo} -l", None),
    ("probe -x {demo} -L greet", "uprobe-run -x {demo} --lines=greet", None),
    ("probe -x {demo} -V greet", "uprobe-run -x {demo} --vars=greet", None),
    ("probe -l", "uprobe-run --control SESSION --list", None),
    ("probe -d greet", "uprobe-run --control SESSION --remove=greet", None),
    ("probe -x {demo} greet who n -- {demo}", "uprobe-run -x {demo} -p 'greet who n' {demo}", "greet"),
    ("record -g -e probe_libc:malloc {demo}", "uprobe-run -p libc:malloc --trigger=stacktrace {demo}", "malloc"),
    ("perf record -aR -e probe_libc:malloc -- {demo}", "uprobe-run -p libc:malloc {demo}", "malloc"),
    ("perf trace -p {pid}", "uprobe-run -P {pid} -p malloc", "malloc"),
    # strace
    ("-fp {pid}", "uprobe-run -f -P {pid} -p malloc", "malloc"),
    ("-e trace=%file {demo}", "uprobe-run -p libc:open -p libc:access -p libc:unlink {demo}", "open"),
    ("-e trace=desc {demo}", "uprobe-run -p libc:read -p libc:write -p libc:close {demo}", "write close"),
    ("-k -e write {demo}", "uprobe-run -p write --trigger=stacktrace {demo}", "write"),
    ("-y -e signal=none -e open {demo}", "uprobe-run -p open {demo}", "open"),
    ("-e inject=open:error=ENOENT -e open {demo}", "uprobe-run -p open {demo}", "open"),
    ("-E A=b -S calls -e open {demo}", "uprobe-run -p open {demo}", "open"),
    ("--trace=open {demo}", "uprobe-run -p libc:open {demo}", "open"),
    # gdb
    ("-ex 'catch syscall open' -ex run {demo}", "uprobe-run -p libc:open {demo}", "open"),
    ("-p 'catch syscall open' {demo}", "-p libc:open", None),
    ("-ex 'tbreak demo.c:{line} if n == 3' -ex c --args {demo}", "uprobe-run -p 'demo.c:{line} n if n == 3' {demo}", "demo_c_{line}"),
    ("-batch -ex 'break greet' -ex run -ex bt {demo}", "uprobe-run -p greet {demo}", "greet"),
    ("-ex 'b greet' -p {pid}", "uprobe-run -p greet -P {pid}", "greet"),
    ("-ex 'info functions gre' {demo}", "uprobe-run '-l*gre*' {demo}", None),
    ("-ex 'rbreak ^gre' {demo}", "uprobe-run -p 'gre*' {demo}", "greet"),
    ("-p 'watch total' {demo}", "watchpoints are not known", None),
    # ltrace
    ("-e malloc+free-realloc {demo}", "uprobe-run -p malloc -p free {demo}", "malloc free"),
    ("-e '*alloc@libc*' {demo}", "uprobe-run -p 'libc:*alloc' {demo}", "malloc"),
    ("-x '@libc.so*' {demo}", "uprobe-run -p 'libc:*' {demo}", None),
    ("-S -e malloc {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    # bpftrace: counts and histograms
    ("bpftrace -e 'uprobe:{demo}:greet {{ @ = count(); }}' -c {demo}", "uprobe-run -p {demo}:greet {demo}", "greet"),
    ("bpftrace -e 'uprobe:{demo}:greet {{ @x = hist(arg1); }}' -c {demo}",
     "uprobe-run -p '{demo}:greet arg1=$arg2' --trigger=hist:keys=arg1.log2 {demo}", None),
    ("bpftrace -e 'uretprobe:{demo}:count {{ @ = hist(retval); }}' -c {demo}",
     "uprobe-run -p '{demo}:count%return retval=$retval' --trigger=hist:keys=retval.log2 {demo}", None),
    ("bpftrace -e 'uprobe:{demo}:greet {{ @s[tid] = nsecs; }} uretprobe:{demo}:greet {{ @ = hist(nsecs - @s[tid]); }}' -c {demo}",
     "uprobe-run -p '{demo}:greet%return $latency' --trigger=hist:keys=latency.log2 {demo}", None),
    ("bpftrace -e 'uprobe:{demo}:greet {{ @[ustack(5)] = count(); }}' -c {demo}",
     "uprobe-run -p {demo}:greet --trigger=stacktrace {demo}", "greet"),
    ("bpftrace -p {pid} -e 'uprobe:libc:write {{ printf(\"%d\", arg0); }}'", "uprobe-run -P {pid} -p 'libc:write $arg1'", "write"),
    ("-e 'count()' {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("-e '@[ustack]' {demo}", "uprobe-run -p malloc --trigger=stacktrace {demo}", "malloc"),
    ("-c 'ls -l'", "uprobe-run -p malloc ls -l", None),
    # perf
    ("perf list", "uprobe-run -x libc -l", None),
    ("perf report", "uprobe-run --replay=FILE", None),
    ("perf script", "uprobe-run --replay=FILE", None),
    ("perf probe -x {demo} --add greet", "uprobe-run -x {demo} -p greet --object={demo}", "greet"),
    ("perf probe -x {demo} -F", "uprobe-run -x {demo} -l", None),
    ("perf probe {demo} greet", "uprobe-run -x {demo} -p greet --object={demo}", "greet"),
    ("perf probe greet", "uprobe-run -p greet PROGRAM", None),
    ("perf top", "uprobe-run -p malloc PROGRAM", None),
    ("perf stat -e uprobes:greet {demo}", "uprobe-run -p greet {demo}", "greet"),
    ("perf stat -e cycles {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("perf record -F 99 -g -- {demo}", "uprobe-run -p malloc --trigger=stacktrace {demo}", "malloc"),
    ("perf record -g -p {pid}", "uprobe-run -P {pid} -p malloc --trigger=stacktrace", "malloc"),
    ("perf ftrace -T malloc {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("record -e sched:sched_switch {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    # uftrace
    ("uftrace {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("uftrace record -F greet {demo}", "uprobe-run -p greet {demo}", "greet"),
    ("uftrace live -F greet -D 2 {demo}", "uprobe-run -p greet {demo}", "greet"),
    ("uftrace -A greet@arg1/s,arg2 {demo}", "uprobe-run -p 'greet $arg1:string $arg2' {demo}", "greet"),
    ("uftrace record -R greet@retval/s {demo}", "uprobe-run -p 'greet%return $retval:string' {demo}", "greet"),
    ("uftrace record -P 'gre.*' {demo}", "uprobe-run -p 'gre*' {demo}", "greet"),
    ("uftrace record -a -l -t 1us -N malloc -T greet@trace {demo}", "uprobe-run -p greet {demo}", "greet"),
    ("uftrace replay", "uprobe-run --replay=FILE", None),
    ("-a {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("-U {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("-F greet {demo}", "uprobe-run -p greet {demo}", "greet"),
    ("-A greet@arg2 {demo}", "uprobe-run -p 'greet $arg2' {demo}", "greet"),
    ("-R greet@retval {demo}", "uprobe-run -p 'greet%return $retval' {demo}", "greet"),
    ("-P 'gre.*' {demo}", "uprobe-run -p 'gre*' {demo}", "greet"),
    # Frida
    ("-i greet {demo}", "uprobe-run -p greet {demo}", "greet"),
    ("-i 'libc.so.6!ope*' {demo}", "uprobe-run -p 'libc.so.6!ope*' {demo}", "open"),
    ("frida-trace -f {demo} -i 'gre*'", "uprobe-run -p 'gre*' {demo}", "greet"),
    ("frida-trace -i 'open*' -p {pid}", "uprobe-run -p 'open*' -P {pid}", "open"),
    ("frida-trace -n demo -i greet", "uprobe-run --comm=demo -x demo -p greet", None),
    ("frida-trace -a '{demo}!{address}' -f {demo}", "uprobe-run -p {demo}:{address} {demo}", None),
    ("-a '{demo}!greet' {demo}", "uprobe-run -p {demo}:greet {demo}", "greet"),
    # DTrace
    ("-n 'pid$target:libc:malloc:entry' -c {demo}", "uprobe-run -p libc:malloc {demo}", "malloc"),
    ("dtrace -n 'pid$target::greet:entry {{ printf(\"%s\", copyinstr(arg0)); }}' -c {demo}",
     "uprobe-run -p 'greet $arg1:string' {demo}", "greet"),
    ("dtrace -n 'pid$target::greet:entry /arg1 == 3/ {{ @ = count(); }}' -c {demo}",
     "uprobe-run -p 'greet arg1=$arg2 if arg1 == 3' {demo}", "greet"),
    ("dtrace -n 'pid$target::greet:entry {{ @[ustack()] = count(); }}' -c {demo}",
     "uprobe-run -p greet --trigger=stacktrace {demo}", "greet"),
    ("dtrace -n 'pid$target::count:return {{ trace(arg1); }}' -c {demo}", "uprobe-run -p 'count%return $retval' {demo}", "count"),
    ("dtrace -n 'pid$target::malloc:entry' -p {pid}", "uprobe-run -p malloc -P {pid}", "malloc"),
    ("dtrace -n syscall::write:entry -c {demo}", "uprobe-run -p libc:write {demo}", "write"),
    ("dtrace -l -n 'pid$target:demo:g*:entry' -c {demo}", "uprobe-run '-lg*' {demo}", None),
    ("pid$target:libc:malloc:entry {demo}", "uprobe-run -p libc:malloc {demo}", "malloc"),
    ("entry:greet {demo}", "uprobe-run -p greet {demo}", "greet"),
    ("-p entry:greet {demo}", "-p greet", None),
    ("-p return:greet {demo}", "-p greet%return", None),
    # SystemTap
    ("stap -e 'probe process(\"{demo}\").function(\"greet\") {{ println($$parms) }}' -c {demo}",
     "uprobe-run -p '{demo}:greet $params' {demo}", "greet"),
    ("-e 'probe process(\"{demo}\").function(\"greet\").return {{ println($return) }}' -c {demo}",
     "uprobe-run -p '{demo}:greet%return $retval' {demo}", "greet"),
    ("stap -e 'probe process(\"{demo}\").function(\"greet\").call {{ println(user_string($who)) }}' -c {demo}",
     "uprobe-run -p '{demo}:greet who' {demo}", "greet"),
    ("stap -x {pid} -e 'probe process(\"{demo}\").function(\"greet\") {{ print_ubacktrace() }}'",
     "uprobe-run -P {pid} -p {demo}:greet --trigger=stacktrace", "greet"),
    ("stap -L 'process(\"{demo}\").function(\"g*\")'", "uprobe-run -x {demo} '-lg*'", None),
    ("-p 'process(\"{demo}\").mark(\"x\")' {demo}", "no marker '*:x'", None),
    ("-p 'kernel.function(\"vfs_read\")' {demo}", "uprobe-run -p libc:read {demo}", None),
    ("-p syscall.open {demo}", "-p libc:open", None),
    ("-p begin {demo}", "a trace lasts as long as the program", None),
    # trace-cmd
    ("trace-cmd record -e uprobes:greet {demo}", "uprobe-run -p greet {demo}", "greet"),
    ("trace-cmd record -p function -l greet -F {demo}", "uprobe-run -p greet {demo}", "greet"),
    ("trace-cmd record -e all {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("trace-cmd report", "uprobe-run --replay=FILE", None),
    # bcc
    ("funccount {demo}:greet", "uprobe-run -p {demo}:greet --object={demo}", "greet"),
    ("funccount -p {pid} c:malloc", "uprobe-run -P {pid} -p c:malloc", "malloc"),
    ("funclatency -p {pid} c:malloc", "uprobe-run -P {pid} -p 'c:malloc%return $latency' --trigger=hist:keys=latency.log2", None),
    ("stackcount -p {pid} c:malloc", "uprobe-run -P {pid} -p c:malloc --trigger=stacktrace", "malloc"),
    ("trace 'p:c:open \"%s %x\", arg1, arg2' {demo}", "uprobe-run -p 'c:open $arg1:string $arg2' {demo}", "open"),
    ("argdist -H 'p:c:malloc(size_t size):size_t:size' {demo}", "uprobe-run -p 'c:malloc(size)' {demo}", "malloc"),
    ("trace-bpfcc 'c:malloc \"%d\", arg1' {demo}", "uprobe-run -p 'c:malloc $arg1' {demo}", "malloc"),
    # strace, ltrace, gdb
    ("gdb {demo} -ex 'break greet'", "uprobe-run -p greet {demo}", "greet"),
    ("perf probe -x libc.so.6 malloc -- {demo}", "uprobe-run -p libc.so.6:malloc {demo}", "malloc"),
    ("trace-cmd record -e uprobes {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("dtrace -n 'pid$target::greet:entry{{@=quantize(arg1);}}' -c {demo}",
     "uprobe-run -p 'greet arg1=$arg2' --trigger=hist:keys=arg1.log2 {demo}", None),
    ("stap -e 'probe process(\"{demo}\").function(\"greet\"), process(\"{demo}\").function(\"count\") {{ f() }}' -c {demo}",
     "uprobe-run -p {demo}:greet -p {demo}:count {demo}", "greet count"),
    ("bpftrace -e 'uprobe:{demo}:greet /comm == \"demo\"/ {{ @ = count(); }}' -c {demo}",
     "uprobe-run -p '{demo}:greet if comm == \"demo\"' {demo}", "greet"),
    ("bpftrace -e 'uprobe:{demo}:greet /arg1 > 2/ {{ printf(\"%s\", str(arg0)); }}' -c {demo}",
     "uprobe-run -p '{demo}:greet arg1=$arg2 $arg1:string if arg1 > 2' {demo}", "greet"),
    ("bpftrace -e 'uprobe:{demo}:greet /str(arg0) == \"world\"/ {{ @[str(arg0)] = count(); }}' -c {demo}",
     "uprobe-run -p '{demo}:greet arg0=$arg1:string if arg0 == \"world\"' {demo}", "greet"),
    ("bpftrace -e 'uprobe:{demo}:greet /pid == 1/ {{ @ = hist(arg1); }}' -c {demo}",
     "uprobe-run -p '{demo}:greet arg1=$arg2 if common_pid == 1' --trigger=hist:keys=arg1.log2 {demo}", None),
    ("-e 'uprobe:{demo}:cpp:\"greet\" {{ f(); }}' {demo}", "uprobe-run -p {demo}:greet {demo}", "greet"),
    ("perf probe -x {demo} -D greet", "uprobe-run -x {demo} --dry-run -p greet", None),
    ("stap -e 'probe begin {{ f() }} probe process(\"{demo}\").function(\"greet\") {{ println($n) }}' -c {demo}",
     "uprobe-run -p '{demo}:greet n' {demo}", "greet"),
    ("-p 'greet(int)' {demo}", "-p greet", None),
    ("--timeout 3 -p greet {demo}", "uprobe-run -d 3 -p greet {demo}", "greet"),
    ("-p 'demo!greet' {demo}", "-p demo:greet", None),
    ("-p 'demo`greet' {demo}", "-p demo:greet", None),
    ("-p greet@demo {demo}", "-p demo:greet", None),
    ("-p malloc@plt {demo}", "-p malloc", None),
    ("-S {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("-x getcwd -F {demo}", "uprobe-run -p getcwd {demo}", None),
    ("-P /dev/null {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("ltrace -w 5 -e malloc {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("gdb -p {pid}", "uprobe-run -P {pid} -p malloc", "malloc"),
    ("-ex 'dprintf greet,\"%d\", n' {demo}", "uprobe-run -p 'greet n' {demo}", "greet"),
    ("-p '*{address}' {demo}", "-p {address}", None),
    ("-p '&greet' {demo}", "-p greet", None),
    ("-p 'char *greet(const char *who, int n)' {demo}", "-p 'greet(who,n)'", None),
    ("-p 'void greet(const char *, int)' {demo}", "-p greet", None),
    ("-p greet --count {demo}", "uprobe-run -p greet {demo}", "greet"),
    # slips
    ("-p=greet {demo}", "uprobe-run -p greet {demo}", "greet"),
    ("-p greet", "uprobe-run -p greet PROGRAM", None),
    ("-p {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("-p {demo} {demo}", "-p {demo}:FUNCTION", None),
    ("-P {pid}", "uprobe-run -P {pid} -p malloc", "malloc"),
    ("-P {pid} {pid} -p greet", "uprobe-run -P {pid},{pid} -p greet", "greet"),
    ("-F -p greet {demo}", "uprobe-run -p greet {demo}", "greet"),
    ("-p greet -n {demo}", "a whole number from 1 on", None),
    ("-p greet --json {demo}", "--format=json", None),
    ("-p greet --format-json {demo}", "did you mean '--format=json'?", None),
    ("-p greet --csv {demo}", "did you mean '--format=csv'?", None),
    ("-p greet --if 'n > 2' {demo}", "did you mean '--filter=EXPR'?", None),
    ("-p 'greet n' --hist n {demo}", "did you mean '--trigger=hist:keys=FIELD'?", None),
    ("-top -p greet {demo}", "uprobe-run --top -p greet {demo}", None),
    ("-force -p greet {demo}", "uprobe-run --force -p greet {demo}", "greet"),
    ("-version", "did you mean '--version'?", None),
    ("help", "uprobe-run --help", None),
    ("--doctor {pid}", "uprobe-run --doctor -P {pid}", None),
    ("--doctor -p {pid}", "uprobe-run --doctor -P {pid}", None),
    ("b greet {demo}", "uprobe-run -p greet {demo}", "greet"),
    ("break greet", "uprobe-run -p greet PROGRAM", None),
    ("bpftrace script.bt -p {pid}", "uprobe-run -P {pid} -p malloc", "malloc"),
    ("-p greet env X=1 {demo}", "it is in a program that env executes: -p {demo}:greet", None),
    ("-p greet sh -c {demo}", "it is in a program that sh executes: -p {demo}:greet", None),
    ("-p {demo}+{address} {demo}", "-p {demo}:{address}", None),
    ("-p '{demo} greet' {demo}", "-p {demo}:greet", None),
    ("-p 'p {demo} greet' {demo}", "-p {demo}:greet", None),
    ("-p {demo}:greet:return {demo}", "-p {demo}:greet%return", None),
    ("-p greet:entry {demo}", "-p greet", None),
    ("-p greet:return {demo}", "-p greet%return", None),
    ("-p greet%ret {demo}", "-p greet%return", None),
    ("-p greet@return {demo}", "-p greet%return", None),
    ("-p demo.c {demo}", "-p demo.c:LINE", None),
    ("-p sys_open {demo}", "-p libc:open", None),
    ("-p __x64_sys_openat {demo}", "-p libc:openat", None),
    ("-p /nowhere/libc.so.6:malloc {demo}", "-p libc.so.6:malloc", None),
    ("-p libfoo:exit {demo}", "libc.so.6 has one: -p libc.so.6:exit", None),
    ("-p 'greet $rdi' {demo}", "did you mean '%rdi'?", None),
    ("-p 'greet $args' {demo}", "did you mean '$params'?", None),
    ("-p 'greet *' {demo}", "$params is every parameter, $vars every variable", None),
    ("-r 'greet $return' {demo}", "did you mean '$retval'?", None),
    ("-p 'greet n' --filter n=3 {demo}", "operators are == != < <= > >= &, and ~ for texts", None),
    ("-o {folder} -p greet {demo}", "{folder}: cannot write to it: it is a directory", None),
    ("-p greet,count {demo}", "uprobe-run -p greet -p count {demo}", "greet count"),
    ("-pid {pid} -p greet", "uprobe-run --pid {pid} -p greet", "greet"),
    ("-probe greet {demo}", "uprobe-run -p greet {demo}", "greet"),
    ("-P demo -p greet", "processes of that name: --comm=demo", None),
    ("--outptu=x -p greet {demo}", "did you mean '--output'?", None),
    ("-p gret {demo}", "close: greet", None),
    ("-p libc:maloc {demo}", "close: malloc", None),
    ("-p libx:malloc {demo}", "libc.so.6 has one: -p libc.so.6:malloc", None),
    ("-p libx:nothing {demo}", "there are: demo, libc.so.6", None),
    ("-p demo.c:700 {demo}", "it is after the last line with code; --lines=FUNC", None),
    ("-p 'greet n=2' {demo}", "a condition follows ' if '", None),
    ("-p 'greet arg1' {demo}", "$arg1 is the first argument", None),
    ("-p 'greet $arg0' {demo}", "$arg1 is the first argument", None),
    ("-p 'greet who:str' {demo}", "did you mean 'string'?", None),
    ("-p 'greet n' --filter 'm > 2' {demo}", "there are: n; comm, common_pid and cpu are of all events", None),
    ("-p 'greet n' --trigger hist:keys=m {demo}", "there are: n; comm, common_pid and cpu are of all events", None),
    ("-p greet --filter 'n > 2' {demo}", "the event records no values", None),
    ("-p greet --trigger enable_event:uprobes:grt {demo}", "there are: uprobes:greet", None),
    # tools that look for one thing
    ("memleak -p {pid}", "uprobe-run -P {pid} --leak=malloc", None),
    ("memleak {demo}", "uprobe-run --leak=malloc {demo}", None),
    ("valgrind --leak-check=full {demo}", "uprobe-run --leak=malloc {demo}", None),
    ("valgrind --tool=callgrind {demo}", "uprobe-run -c -p '*' {demo}", None),
    ("heaptrack {demo}", "uprobe-run --leak=malloc {demo}", None),
    ("opensnoop -p {pid}", "uprobe-run -P {pid} -p 'libc:open $arg1:string'", "open"),
    ("execsnoop", "uprobe-run -p 'libc:execve $arg1:string' PROGRAM", None),
    ("gethostlatency -p {pid}", "uprobe-run -P {pid} -p 'libc:getaddrinfo%return $latency'", None),
    ("bashreadline", "uprobe-run -p '/bin/bash:readline%return $retval:string' --object=/bin/bash", None),
    ("deadlock {pid}", "uprobe-run -P {pid} '--pair=pthread_mutex_lock:$arg1 -> pthread_mutex_unlock:$arg1'", None),
    ("profile -F 99 -p {pid}", "uprobe-run -P {pid} -c -p '*'", None),
    ("samply record {demo}", "uprobe-run -c -p '*' {demo}", None),
    ("rr record {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("pstack {pid}", "uprobe-run -P {pid} -p malloc", "malloc"),
    # perf
    ("perf probe -x {demo} --vars=greet", "uprobe-run -x {demo} --vars=greet", None),
    ("perf probe --del=probe_demo:greet", "uprobe-run --control SESSION --remove=probe_demo:greet", None),
    ("perf record --call-graph dwarf -e probe_libc:malloc {demo}", "uprobe-run -p libc:malloc --trigger=stacktrace {demo}",
     "malloc"),
    ("perf trace -s {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("perf trace --no-syscalls -e probe_demo:greet {demo}", "uprobe-run -p demo:greet {demo}", "greet"),
    ("perf sched record {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("perf lock record {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    # strace, ltrace, uftrace
    ("strace -r -e write {demo}", "uprobe-run -p write {demo}", "write"),
    ("strace -u nobody -e write {demo}", "uprobe-run -p write {demo}", "write"),
    ("strace --inject=write:retval=5 {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("ltrace -l libc.so.6 {demo}", "uprobe-run -p 'libc.so.6:*' {demo}", None),
    ("ltrace -F file -e malloc {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("ltrace -i {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("uftrace --no-libcall {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    # gdb
    ("gdb -ex 'info line greet' {demo}", "uprobe-run --lines=greet {demo}", None),
    ("gdb -ex 'list greet' {demo}", "uprobe-run --lines=greet {demo}", None),
    ("gdb -ex 'info scope greet' {demo}", "uprobe-run --vars=greet {demo}", None),
    ("gdb -ex 'trace greet' {demo}", "uprobe-run -p greet {demo}", "greet"),
    ("gdb -ex 'catch exec' {demo}", "uprobe-run -p libc:execve {demo}", None),
    # DTrace, SystemTap
    ("dtrace -n 'profile-99 {{ @[ustack()] = count(); }}' -c {demo}", "uprobe-run -p malloc --trigger=stacktrace {demo}", "malloc"),
    ("dtrace -n 'proc:::exec-success'", "uprobe-run -p malloc PROGRAM", None),
    ("dtrace -n 'pid$target::greet:entry {{ self->t = timestamp; }} pid$target::greet:return {{ @ = quantize(timestamp - self->t); }}'"
     " -c {demo}", "uprobe-run -p 'greet%return $latency' --trigger=hist:keys=latency.log2 {demo}", None),
    ("stap -e 'probe process.begin {{ println(1) }}' -c {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    ("stap -e 'probe timer.s(1) {{ println(1) }}' -c {demo}", "uprobe-run -p malloc {demo}", "malloc"),
    # bpftrace, bcc
    ("bpftrace -e 'uprobe:{demo}:count {{ @[arg0] = count(); }}' -c {demo}",
     "uprobe-run -p '{demo}:count arg0=$arg1' --trigger=hist:keys=arg0 {demo}", None),
    ("bpftrace -e 'uprobe:{demo}:count {{ @ = lhist(arg0, 0, 100, 10); }}' -c {demo}",
     "uprobe-run -p '{demo}:count arg0=$arg1' --trigger=hist:keys=arg0.log2 {demo}", None),
    ("bpftrace -e 'uprobe:{demo}:greet {{ print(args.who); }}' -c {demo}", "uprobe-run -p '{demo}:greet who' {demo}", "greet"),
    ("trace '{demo}:greet \"%s %d\", who, n' {demo}", "uprobe-run -p '{demo}:greet who n' {demo}", "greet"),
    ("argdist -C 'r:c:getenv(char *name):char*:$retval' {demo}", "uprobe-run -p 'c:getenv%return $retval' {demo}", "getenv"),
    # values and conditions
    ("-p 'greet who,n' {demo}", "uprobe-run -p 'greet who n' {demo}", "greet"),
    ("-p 'greet who, n' {demo}", "uprobe-run -p 'greet who n' {demo}", "greet"),
    ("-p 'greet {{who}} {{n}}' {demo}", "uprobe-run -p 'greet who n' {demo}", "greet"),
    ("-p 'greet n > 2' {demo}", "uprobe-run -p 'greet n if n > 2' {demo}", "greet"),
    ("-p 'greet where n > 2' {demo}", "uprobe-run -p 'greet n if n > 2' {demo}", "greet"),
    ("-p 'greet when n == 3' {demo}", "uprobe-run -p 'greet n if n == 3' {demo}", "greet"),
    ("-p 'greet /n == 3/' {demo}", "uprobe-run -p 'greet n if n == 3' {demo}", "greet"),
    ("-p 'greet $n' {demo}", "did you mean 'n'? A variable of the program has no '$' before it", None),
    ("-p 'greet $pid' {demo}", "each line shows it; conditions know it as common_pid, cpu and comm", None),
    ("-p 'greet $ustack' {demo}", "--trigger=stacktrace shows the stack", None),
    ("-p 'greet comm' {demo}", "did you mean '$comm'?", None),
    ("-r 'greet ret' {demo}", "did you mean '$retval'?", None),
    ("-r 'greet elapsed' {demo}", "did you mean '$latency'? It is in nanoseconds", None),
    ("-r 'greet $duration' {demo}", "did you mean '$latency'?", None),
    ("-p 'greet latency' {demo}", "a return has it: -r 'greet $latency'", None),
    ("-p 'gr.*' {demo}", "-p 'gr*'", None),
    ("-p '^greet$' {demo}", "-p greet", None),
    ("-p 'return greet' {demo}", "-p greet%return", None),
    ("-p 'entry greet' {demo}", "-p greet", None),
    ("bpftrace -e 'uprobe:{demo}:greet {{ printf(\"%d\", reg(\"si\")); }}' -c {demo}", "uprobe-run -p '{demo}:greet %si' {demo}", "greet"),
    ("strace -e trace=/^open {demo}", "uprobe-run -p 'libc:open*' {demo}", "open"),
    ("uftrace record -A '^gr@arg1/s' {demo}", "uprobe-run -p 'gr* $arg1:string' {demo}", "greet"),
    ("uftrace record -R 'gre.*@retval/s' {demo}", "uprobe-run -p 'gre*%return $retval:string' {demo}", "greet"),
    ("gdb -ex 'b greet if strcmp(who, \"world\") == 0' {demo}", "uprobe-run -p 'greet who if who == \"world\"' {demo}", "greet"),
    ("-p 'info locals' {demo}", "-p 'FUNCTION $vars'", None),
    ("-p 'info args' {demo}", "-p 'FUNCTION $params'", None),
    ("-p finish {demo}", "-p 'FUNCTION%return $retval'", None),
    ("-p 'print who' {demo}", "-p 'FUNCTION who'", None),
    ("-p 'greet n/x' {demo}", "a type stands after a ':', as :x64, :string", None),
    ("-p 'greet who:s' {demo}", "did you mean 'string'?", None),
    ("-p 'greet n:__int128' {demo}", "did you mean 's128'?", None),
    ("-p 'greet $1' {demo}", "did you mean '$arg1'?", None),
    ("-p 'greet pid' {demo}", "each line shows it; conditions know it as common_pid, cpu and comm", None),
    ("-p 'greet tid' {demo}", "each line shows it; conditions know it as common_pid, cpu and comm", None),
    ("-p 'greet ustack' {demo}", "--trigger=stacktrace shows the stack", None),
    ("--symbol=greet {demo}", "did you mean '--probe=DEF'?", None),
    ("--retprobe greet {demo}", "did you mean '-r DEF'?", None),
]

# What is typed; its exit code, and what is said: nothing else can be meant.
ENDS = [
    ("-p greet demo", 127, "did you mean ./demo?"),
    ("-l libc.so.6 {demo}", 127, "a library is listed by -x libc.so.6"),
    ("-p greet ./nosuch", 127, "./nosuch: No such file or directory"),
    ("-p greet X=1 {demo}", 127, "variables stand before uprobe-run: X=... uprobe-run ..."),
    ("-p greet '{demo} on'", 127, "without quotes around them"),
    ("-p greet {folder}", 126, "{folder}: is a directory"),
    ("-p greet {plain}", 126, "chmod +x {plain} makes it a program"),
    ("-p malloc {unnamed}", 125, "a script is run by the program that its first line names, as in #!/bin/sh"),
    ("-p malloc {orphan}", 125, "is a script, and there is no '/nowhere/sh' to run it"),
]


class FirstLines(harness.TestCase):
    def setUp(self):
        super().setUp()
        source = self.write("demo.c", PROGRAM)
        self.demo = self.path("demo")
        subprocess.run([harness.need("gcc"), "-O0", "-g", "-fPIE", "-pie", "-o", self.demo, source], check=True)
        symbols = subprocess.check_output(["nm", self.demo], text=True)
        address = "0x" + re.search(r"(?m)^0*([0-9a-f]+) T count$", symbols)[1]
        self.running = subprocess.Popen([self.demo, "on"])
        self.addCleanup(self.running.wait)
        self.addCleanup(self.running.kill)
        harness.wait_until(lambda: "libc.so" in self.maps(), "the program's libc")
        self.names = {"demo": self.demo, "pid": self.running.pid, "trace": self.path("its_trace"), "line": LINE,
                      "address": address, "address_event": f"demo_{address}", "folder": self.path("folder"),
                      "plain": self.write("plain", "text"), "unnamed": self.write("unnamed", "echo", 0o755),
                      "orphan": self.write("orphan", "#!/nowhere/sh\n", 0o755)}
        os.mkdir(self.names["folder"])

    def maps(self):
        with open(f"/proc/{self.running.pid}/maps", encoding="latin-1") as file:
            return file.read()

    def run_line(self, line, *options):
        done = harness.run([*harness.tracer(*options), *shlex.split(line)])
        text = (done.stdout + done.stderr).decode(errors="replace")
        if os.path.exists(self.names["trace"]):
            with open(self.names["trace"], encoding="latin-1") as file:
                text += file.read()
        return done.returncode, text

    def check_works(self, line, events):
        code, text = self.run_line(line, "-d", "3")  # an end for what would go on
        self.assertEqual(code, 0, text)
        seen = {hit.event for hit in harness.parse_trace(text)}
        for event in (events or "").format(**self.names).split():
            self.assertIn(event, seen, text)


class Works(FirstLines):
    def test_each(self):
        for line, events in WORKS:
            with self.subTest(line=line):
                self.check_works(line.format(**self.names), events)


class Says(FirstLines):
    def test_each(self):
        for line, better, events in SAYS:
            with self.subTest(line=line):
                code, text = self.run_line(line.format(**self.names))
                better = better.format(**self.names)
                self.assertEqual(code, 125, text)
                self.assertLessEqual(len(text.splitlines()), 4, text)  # what, where (with a caret), what to do
                self.assertIn(better, text)
                if events:
                    said = next(one for one in text.splitlines() if better in one)
                    self.assertEqual(said.strip(), better, "the line holds nothing else")
                    self.check_works(better.removeprefix("uprobe-run "), events)


class Ends(FirstLines):
    def test_each(self):
        for line, status, says in ENDS:
            with self.subTest(line=line):
                done = harness.run([*harness.tracer(), *shlex.split(line.format(**self.names))], cwd=self.folder)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertIn(says.format(**self.names), done.stderr.decode())


class Enough(harness.TestCase):
    def test_there_are_three_hundred(self):
        self.assertGreaterEqual(len(WORKS) + len(SAYS) + len(ENDS), 300)


if __name__ == "__main__":
    harness.main()
