// SPDX-License-Identifier: MIT
// The program of the matrix: says what it sees of its surroundings, calls take_number() a number of times that it counts
// itself, and ends in one of many ways. What it prints must be the same with probes and without.
//
//   cell [MODE [ARGUMENT]]     see the table at the end; without a mode: surroundings, threads, forks, exit code 7
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kExitCode = 7 };

extern char** environ;
static char* self;
static int* calls;  // shared with children

__attribute__((noinline)) unsigned long take_number(unsigned long n) {
  __asm__ volatile("" : "+r"(n));
  return n + 1;
}

static void call(int count) {
  for (int i = 0; i < count; ++i) {
    take_number((unsigned long)i);
    __atomic_fetch_add(calls, 1, __ATOMIC_RELAXED);
  }
}

static void* call_five(void* unused) {
  call(5);
  return unused;
}

static void tell_signals(void) {
  sigset_t mask, pending;
  sigprocmask(SIG_BLOCK, NULL, &mask);
  sigpending(&pending);
  for (int number = 1; number < 65; ++number) {
    struct sigaction action;
    if (sigismember(&mask, number) == 1) printf("blocked %d\n", number);
    if (sigismember(&pending, number) == 1) printf("pending %d\n", number);
    if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL) printf("disposition %d\n", number);
  }
}

static void tell_limits(void) {
  for (int resource = 0; resource < 16; ++resource) {
    struct rlimit limit;
    if (getrlimit(resource, &limit) == 0)
      printf("limit %d %lx %lx\n", resource, (unsigned long)limit.rlim_cur, (unsigned long)limit.rlim_max);
  }
}

static void tell_process(void) {
  int reaper = -1;
  cpu_set_t cpus;
  stack_t stack;
  prctl(PR_GET_CHILD_SUBREAPER, &reaper);
  sigaltstack(NULL, &stack);
  printf("reaper %d dumpable %d privileges %d secure %lu\n", reaper, prctl(PR_GET_DUMPABLE),
         prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), getauxval(AT_SECURE));
  if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) printf("cpus %d\n", CPU_COUNT(&cpus));
  printf("nice %d class %ld stack %d\n", getpriority(PRIO_PROCESS, 0), syscall(SYS_sched_getscheduler, 0),
         stack.ss_flags);
  printf("user %d %d group %d %d\n", (int)getuid(), (int)geteuid(), (int)getgid(), (int)getegid());
  errno = 0;
  const int child = (int)waitpid(-1, NULL, WNOHANG);
  printf("child %d %d first %d\n", child, errno, getpid() == 1);
}

static void tell_surroundings(int count, char** words) {
  char folder[256];
  for (int fd = 0; fd < 256; ++fd)
    if (fcntl(fd, F_GETFD) >= 0) printf("fd %d\n", fd);
  for (int i = 1; i < count; ++i) printf("argument %d of %zu bytes\n", i, strlen(words[i]));
  for (char** entry = environ; *entry != NULL; ++entry)
    if (strncmp(*entry, "UPROBE_", 7) != 0 && strncmp(*entry, "LD_PRELOAD=", 11) != 0) printf("%.80s\n", *entry);
  printf("folder %s\n", getcwd(folder, sizeof folder) != NULL ? "there" : strerror(errno));
  tell_signals();
  tell_limits();
  tell_process();
}

static void with_threads(void) {
  pthread_t thread[2];
  int made = 0;
  while (made < 2 && pthread_create(&thread[made], NULL, call_five, NULL) == 0) ++made;
  for (int i = 0; i < made; ++i) pthread_join(thread[i], NULL);
  printf("threads %d\n", made);
}

static void with_children(void) {
  int status = -1;
  fflush(stdout);
  const pid_t pid = fork();
  if (pid == 0) {
    call(3);
    _exit(3);
  }
  if (pid > 0) waitpid(pid, &status, 0);
  printf("child %d\n", pid < 0 ? -1 : status >> 8);
  const pid_t borrower = vfork();
  if (borrower == 0) {
    call(1);
    _exit(4);
  }
  if (borrower > 0) waitpid(borrower, &status, 0);
  printf("vfork %d\n", borrower < 0 ? -1 : status >> 8);
}

static int finish(void) {
  printf("calls %d\n", *calls);
  fflush(stdout);
  return kExitCode;
}

static int work(const char* unused) {
  (void)unused;
  call(4);
  with_threads();
  with_children();
  return finish();
}

// Handlers run while a child, a thread and the kernel send signals.
static void on_signal(int number) {
  (void)number;
  call(1);
}

static int signals(const char* unused) {
  (void)unused;
  sigset_t all;
  signal(SIGUSR1, on_signal);
  for (int i = 0; i < 20; ++i) raise(SIGUSR1);
  signal(SIGTRAP, SIG_IGN);
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, NULL);
  tell_signals();
  return work(NULL);
}

static int strict(const char* unused) {
  (void)unused;
  char line[32];
  call(3);
  const int length = snprintf(line, sizeof line, "calls %d\n", *calls + 5);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) return 1;
  call(5);
  syscall(SYS_exit, write(1, line, (size_t)length) == length ? kExitCode : 9);
  return 1;
}

// Allows what comes after it in this program, and kills for everything else.
static int own_filter(const char* unused) {
  (void)unused;
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 5, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_writev, 4, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof code[0], code};
  call(2);
  printf("begin\n");
  fflush(stdout);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return 1;
  call(5);
  return finish();
}

static int other_user(const char* unused) {
  (void)unused;
  call(2);
  if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0) printf("no other user\n");
  return work(NULL);
}

static int undumpable(const char* unused) {
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  return work(unused);
}

static int unlinked(const char* unused) {
  printf("unlink %d\n", unlink(self));
  return work(unused);
}

static int without_descriptors(const char* unused) {
  (void)unused;
  call(2);
  printf("calls 7\n");
  fflush(stdout);
  for (int fd = 0; fd < 1024; ++fd) close(fd);
  call(5);
  return kExitCode;
}

// The starter ends while its grandchild works on; the reader of stdout waits for both.
static int daemonise(const char* unused) {
  (void)unused;
  int ready[2];
  if (pipe(ready) != 0) return 1;
  call(1);
  if (fork() == 0) {
    setsid();
    if (fork() != 0) _exit(0);
    const pid_t parent = getppid();
    call(3);
    if (write(ready[1], "", 1) != 1) _exit(1);
    for (int i = 0; i < 200 && getppid() == parent; ++i) usleep(1000);
    usleep(500000);  // the tool looks for those that go on a moment after the starter has ended
    call(2);
    finish();
    exit(0);
  }
  char byte;
  wait(NULL);
  if (read(ready[0], &byte, 1) != 1) return 1;
  return kExitCode;
}

static int exec_chain(const char* length) {
  const long more = length != NULL ? atol(length) : 3;
  char next[24];
  call(1);
  printf("link %ld\n", more);
  fflush(stdout);
  if (more == 0) return kExitCode;
  snprintf(next, sizeof next, "%ld", more - 1);
  execl(self, self, "chain", next, NULL);
  return 1;
}

static int stopped(const char* unused) {
  (void)unused;
  call(1);
  fflush(stdout);
  const pid_t me = getpid();
  const pid_t waker = fork();
  if (waker == 0) {
    usleep(30000);
    for (int i = 0; i < 100 && kill(me, SIGCONT) == 0 && getppid() == me; ++i) usleep(10000);
    _exit(0);
  }
  raise(SIGSTOP);
  call(1);
  kill(waker, SIGKILL);
  waitpid(waker, NULL, 0);
  return finish();
}

static int ends_by(const char* signal_number) {
  call(2);
  finish();
  const int number = signal_number != NULL ? atoi(signal_number) : SIGABRT;
  if (number == SIGABRT) abort();
  kill(getpid(), number);
  return 1;
}

static int ends_quickly(const char* unused) {
  (void)unused;
  call(2);
  finish();
  _exit(kExitCode);
}

static int ends_at_once(const char* unused) {
  (void)unused;
  call(2);
  finish();
  syscall(SYS_exit_group, kExitCode);
  return 1;
}

static void* outlive_main(void* main_thread) {
  pthread_join(*(pthread_t*)main_thread, NULL);
  call(2);
  exit(finish());
}

static int ends_without_main(const char* unused) {
  (void)unused;
  static pthread_t main_thread;
  pthread_t thread;
  main_thread = pthread_self();
  call(1);
  pthread_create(&thread, NULL, outlive_main, &main_thread);
  pthread_exit(NULL);
}

// Calls of execve that fail, under a rain of signals none of which may be lost.
static volatile sig_atomic_t drops;
static void on_drop(int number) {
  (void)number;
  ++drops;
}

static int failing_execs(const char* unused) {
  (void)unused;
  enum { kDrops = 200 };
  signal(SIGRTMIN + 1, on_drop);
  fflush(stdout);
  const pid_t me = getpid(), sender = fork();
  for (int i = 0; sender == 0 && i < kDrops; ++i) {
    const union sigval value = {i};
    sigqueue(me, SIGRTMIN + 1, value);
    usleep(200);
  }
  if (sender == 0) _exit(0);
  int calls_of_exec = 0;
  while (waitpid(sender, NULL, WNOHANG) == 0) {
    execl("/no/such/program", "program", NULL);
    if (errno != ENOENT) printf("errno %d\n", errno);
    ++calls_of_exec;
  }
  call(1);
  printf("signals %d %s\n", (int)drops, calls_of_exec > 0 ? "among execs" : "alone");
  return finish();
}

// For the test that kills the tool: some milliseconds of threads and forks.
static int busy(const char* rounds) {
  for (long i = rounds != NULL ? atol(rounds) : 10; i > 0; --i) {
    with_threads();
    with_children();
    usleep(300);
  }
  return finish();
}

// A line of answer to each line, and the end with the input's.
static int lines(const char* unused) {
  (void)unused;
  printf("ready\n");
  fflush(stdout);
  for (int seen = getchar(); seen != EOF; seen = getchar()) {
    with_threads();
    fflush(stdout);
  }
  return finish();
}

// More threads at once than a small RLIMIT_DATA has room for, if each took more than its own small stack.
static void* wait_for_all(void* barrier) {
  call(1);
  pthread_barrier_wait(barrier);
  return NULL;
}

static int crowd(const char* unused) {
  (void)unused;
  enum { kThreads = 12, kStack = 64 << 10 };
  pthread_t threads[kThreads];
  pthread_barrier_t barrier;
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, kStack);
  pthread_barrier_init(&barrier, NULL, kThreads + 1);
  for (int i = 0; i < kThreads; ++i) {
    if (pthread_create(&threads[i], &small, wait_for_all, &barrier) != 0) {
      printf("%d threads\n", i);
      fflush(stdout);
      _exit(finish());
    }
    while (__atomic_load_n(calls, __ATOMIC_RELAXED) <= i) sched_yield();
  }
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  return finish();
}

static const struct {
  const char* name;
  int (*run)(const char* argument);
} modes[] = {{"work", work},
             {"signals", signals},
             {"strict", strict},
             {"filter", own_filter},
             {"user", other_user},
             {"undumpable", undumpable},
             {"unlinked", unlinked},
             {"descriptors", without_descriptors},
             {"daemon", daemonise},
             {"chain", exec_chain},
             {"stopped", stopped},
             {"signal", ends_by},
             {"lines", lines},
             {"quick", ends_quickly},
             {"at-once", ends_at_once},
             {"without-main", ends_without_main},
             {"failing-execs", failing_execs},
             {"busy", busy},
             {"crowd", crowd}};

int main(int count, char** words) {
  static int own_count;
  self = count > 0 ? words[0] : NULL;
  calls = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (calls == MAP_FAILED) calls = &own_count;
  for (size_t i = 0; count > 1 && i < sizeof modes / sizeof modes[0]; ++i)
    if (strcmp(words[1], modes[i].name) == 0) return modes[i].run(words[2]);
  tell_surroundings(count, words);
  return work(NULL);
}
