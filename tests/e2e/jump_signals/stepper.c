// SPDX-License-Identifier: MIT
// stepper steps|breaks SIGNAL COMMAND...: runs a command that ends in subject.c, and sends it a signal at every instruction of
// its visits: found by single steps, or by a hardware breakpoint at each byte of its slot and of the body (a step inside an
// rseq section aborts it, a breakpoint after it does not). Prints the signals sent, then the subject's output.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kGetppid = 110, kMostSteps = 20000, kSyscallStop = SIGTRAP | 0x80, kSlot = 64, kThunkCall = 5, kBody = 700 };
static struct { int64_t pid, site, after; } subject;
static long sent;

static void die(const char* what) {
  perror(what);
  exit(3);
}

static struct user_regs_struct registers(void) {
  struct user_regs_struct r;
  if (ptrace(PTRACE_GETREGS, subject.pid, 0, &r) != 0) die("getregs");
  return r;
}

// The signal that the thread has stopped with; it ends only with an answer to the marker.
static int go(int how, int number) {
  int status = 0;
  if (ptrace(how, subject.pid, 0, number) != 0) die("resume");
  if (waitpid(subject.pid, &status, __WALL) < 0) die("wait");
  if (!WIFSTOPPED(status)) {
    printf("the subject has ended with status %x\n", status);
    exit(3);
  }
  return WSTOPSIG(status);
}

static int is_marker(int stop, int* entered) {
  if (stop != kSyscallStop) return 0;
  *entered = !*entered;
  return registers().orig_rax == kGetppid && !*entered;
}

// On to the next marker; passes the subject's own signals on.
static void go_to_marker(int number) {
  for (int entered = 0, stop = number;;) {
    stop = go(PTRACE_SYSCALL, stop);
    if (is_marker(stop, &entered)) return;
    if (stop == kSyscallStop || stop >> 8 != 0) stop = 0;
  }
}

static int has_passed(void) {
  const int64_t ip = (int64_t)registers().rip;
  return ip >= subject.after && ip < subject.after + 64;
}

static void set_breakpoint(uint64_t at) {
  const size_t base = offsetof(struct user, u_debugreg);
  if (ptrace(PTRACE_POKEUSER, subject.pid, base, at) != 0 ||
      ptrace(PTRACE_POKEUSER, subject.pid, base + 7 * 8, at != 0 ? 1 : 0) != 0) {
    puts("no breakpoints here");
    exit(77);
  }
}

// To the probed place, without a step: after a stepped popf the kernel takes the trap flag for the program's own.
static void go_to_site(void) {
  set_breakpoint((uint64_t)subject.site);
  for (int stop = 0; (stop = go(PTRACE_CONT, stop)) != SIGTRAP || (int64_t)registers().rip != subject.site;) continue;
  set_breakpoint(0);
}

// So many steps, then the signal. Returns 0 when the visit was over before.
static int send_after(long steps, int number) {
  go_to_site();
  for (long i = 0; i < steps; ++i) {
    const int stop = go(PTRACE_SINGLESTEP, 0);
    if (stop != SIGTRAP) die("not a step");
    if (has_passed()) return 0;
  }
  ++sent;
  go_to_marker(number);
  return 1;
}

static long count_steps(void) {
  long steps = 0;
  go_to_site();
  while (!has_passed()) {
    if (++steps == kMostSteps) die("too many steps");
    if (go(PTRACE_SINGLESTEP, 0) != SIGTRAP) die("not a step");
  }
  go_to_marker(0);
  return steps;
}

// Every step at the beginning, and with UPROBE_TEST_LONG also at the end; of the others some, since the way to each is stepped.
static void all_steps(int number) {
  const int is_long = getenv("UPROBE_TEST_LONG") != NULL;
  const long steps = count_steps(), sparse = is_long ? 11 : 37, end = is_long ? 1 : 4;
  for (long n = 0; n < steps; n += n < 150 ? 1 : n > steps - 60 ? end : sparse)
    if (!send_after(n, number)) go_to_marker(0);
  printf("%ld steps ", steps);
}

static void break_at(uint64_t at, int number) {
  set_breakpoint(at);
  for (int entered = 0, stop = 0;;) {
    stop = go(PTRACE_SYSCALL, stop);
    if (is_marker(stop, &entered)) break;
    if (stop == kSyscallStop) stop = 0;
    if (stop != SIGTRAP || registers().rip != at) continue;
    set_breakpoint(0);
    ++sent;
    return go_to_marker(number);
  }
  set_breakpoint(0);
}

static uint64_t target_at(uint64_t at, uint8_t opcode) {
  const uint64_t text = (uint64_t)ptrace(PTRACE_PEEKTEXT, subject.pid, at, 0);
  if ((text & 0xff) != opcode) die("no jump at the probed place");
  return at + 5 + (uint64_t)(int64_t)(int32_t)(text >> 8);
}

static uint64_t jump_target(uint64_t at) {
  const uint64_t text = (uint64_t)ptrace(PTRACE_PEEKTEXT, subject.pid, at, 0);
  if ((text & 0xff) == 0xeb) return jump_target(at + 2 + (uint64_t)(int64_t)(int8_t)(text >> 8));
  return target_at(at, 0xe9);
}

static int byte_at(uint64_t at) { return (int)(ptrace(PTRACE_PEEKTEXT, subject.pid, at, 0) & 0xff); }

// The place of a prefix window, by the jump after its copy.
static uint64_t thunk_after(uint64_t copy) {
  if (byte_at(copy + kThunkCall) == 0xe8) return copy;
  for (uint64_t at = copy; at < copy + kSlot; ++at)
    if (byte_at(at) == 0xe9 && byte_at(target_at(at, 0xe9) + kThunkCall) == 0xe8) return target_at(at, 0xe9);
  die("no thunk");
  return 0;
}

static void all_breaks(int number) {
  const uint64_t first = jump_target((uint64_t)subject.site), thunk = thunk_after(first);
  const uint64_t body = target_at(thunk + kThunkCall, 0xe8);
  for (uint64_t at = first; first != thunk && at < first + kSlot; ++at) break_at(at, number);
  for (uint64_t at = thunk; at < thunk + kSlot; ++at) break_at(at, number);
  for (uint64_t at = body; at < body + kBody; ++at) break_at(at, number);
}

static void start(char** command, int* from, int* to) {
  int out[2], in[2];
  if (pipe(out) != 0 || pipe(in) != 0) die("pipe");
  if (fork() == 0) {
    dup2(out[1], 103), dup2(in[0], 104);
    dup2(103, 3), dup2(104, 4);
    for (int fd = 5; fd < 110; ++fd) close(fd);
    execvp(command[0], command);
    die("exec");
  }
  close(out[1]), close(in[0]);
  *from = out[0], *to = in[1];
}

__attribute__((noinline)) static int passes_by(int number) {
  __asm__ volatile("" : "+r"(number));
  return number;
}

// A virtual machine may accept a hardware breakpoint and never stop there: tried on a child that passes one.
static int breakpoints_stop(void) {
  const pid_t child = fork();
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    raise(SIGSTOP);
    _exit(passes_by(7));
  }
  int status;
  waitpid(child, &status, 0);
  subject.pid = child;
  set_breakpoint((uint64_t)passes_by);
  ptrace(PTRACE_CONT, child, 0, 0);
  waitpid(child, &status, 0);
  const int stops = WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP;
  kill(child, SIGKILL);
  if (stops) waitpid(child, &status, 0);
  subject.pid = 0;
  return stops;
}

int main(int count, char** words) {
  int from, to, status;
  if (count < 4) return 2;
  if (!breakpoints_stop()) {
    puts("no hardware breakpoint stops a program here");
    return 77;
  }
  const int number = atoi(words[2]);
  start(words + 3, &from, &to);
  if (read(from, &subject, sizeof subject) != sizeof subject) die("no subject");
  if (ptrace(PTRACE_SEIZE, subject.pid, 0, PTRACE_O_TRACESYSGOOD) != 0) die("seize");
  if (ptrace(PTRACE_INTERRUPT, subject.pid, 0, 0) != 0) die("interrupt");
  if (waitpid(subject.pid, &status, __WALL) < 0) die("wait");
  if (write(to, "g", 1) != 1) die("write");
  go_to_marker(0);
  strcmp(words[1], "steps") == 0 ? all_steps(number) : all_breaks(number);
  struct user_regs_struct r = registers();
  r.rax = 0;  // the last visit
  ptrace(PTRACE_SETREGS, subject.pid, 0, &r);
  ptrace(PTRACE_DETACH, subject.pid, 0, 0);
  char text[256] = "";
  const ssize_t length = read(from, text, sizeof text - 1);
  printf("sent %ld\n%s", sent, length > 0 ? text : "");
  fflush(stdout);
  while (wait(&status) > 0) continue;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 4;
}
