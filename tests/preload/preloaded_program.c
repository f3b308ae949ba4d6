// SPDX-License-Identifier: MIT
// A program for LD_PRELOAD: says what it sees of the agent and its helper, or makes a surrounding for another program.
// Every mode calls take_number() a known number of times.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

__attribute__((noinline)) unsigned long take_number(unsigned long n) {
  __asm__ volatile("" : "+r"(n));
  return n + 1;
}

static volatile sig_atomic_t children_seen;
static void on_child(int number) {
  (void)number;
  ++children_seen;
}

static void tell_wait(const char *name, int options) {
  int status = 0;
  errno = 0;
  const pid_t pid = waitpid(-1, &status, options);
  printf("%s %d %s\n", name, (int)pid, errno == ECHILD ? "ECHILD" : strerror(errno));
}

// No child, no signal, nothing pending.
static void family(void) {
  sigset_t pending;
  signal(SIGCHLD, on_child);
  tell_wait("wait", 0);
  // process 1 is the parent of orphans: there the helper's parent shows to those who ask for clones
  if (getpid() != 1) {
    tell_wait("clone", __WCLONE);
    tell_wait("all", __WALL);
  }
  sigpending(&pending);
  printf("signals %d pending %d\n", (int)children_seen, sigismember(&pending, SIGCHLD));
}

static void surroundings(void) {
  int reaper = -1;
  sigset_t mask;
  for (char **entry = environ; *entry != NULL; ++entry) puts(*entry);
  for (int fd = 0; fd < 1024; ++fd)
    if (fcntl(fd, F_GETFD) >= 0) printf("fd %d\n", fd);
  sigprocmask(SIG_BLOCK, NULL, &mask);
  for (int number = 1; number < 65; ++number) {
    struct sigaction action;
    if (sigismember(&mask, number) == 1) printf("blocked %d\n", number);
    if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL) printf("disposition %d\n", number);
  }
  prctl(PR_GET_CHILD_SUBREAPER, &reaper);
  printf("reaper %d\n", reaper);
  printf("session %d group %d\n", getsid(0) == getpid(), getpgrp() == getpid());
}

static void forks(int count) {
  for (int i = 0; i < count; ++i)
    if (fork() == 0) {
      take_number(100 + (unsigned long)i);
      exit(0);
    }
  while (wait(NULL) > 0) {
  }
}

// A child that lives on with nothing of its parent's but the session. Prints its id.
static void leave_daemon(void) {
  int ready[2];
  if (pipe(ready) != 0) exit(3);
  const pid_t pid = fork();
  if (pid == 0) {
    const int null = open("/dev/null", O_RDWR);
    setsid();
    for (int fd = 0; fd < 3; ++fd) dup2(null, fd);
    if (write(ready[1], "", 1) != 1) _exit(3);
    sleep(600);
    _exit(0);
  }
  char byte;
  if (read(ready[0], &byte, 1) != 1) exit(3);
  printf("%d\n", (int)pid);
}

// Forbids what an attacher would need; what the agent needs as well, if it is to be `deadly`.
static void install_filter(int deadly) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, deadly ? SYS_memfd_create : SYS_ptrace, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, deadly ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof code[0], code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) exit(3);
}

static void prepare(const char *mode) {
  if (strcmp(mode, "under-filter") == 0) install_filter(0);
  if (strcmp(mode, "under-deadly-filter") == 0) install_filter(1);
  if (strcmp(mode, "as-reaper") == 0) prctl(PR_SET_CHILD_SUBREAPER, 1);
  if (strcmp(mode, "without-streams") == 0)
    for (int fd = 0; fd < 3; ++fd) close(fd);
  if (strcmp(mode, "with-blocked") == 0) {
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGTRAP);
    sigaddset(&mask, SIGUSR1);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    signal(SIGSEGV, SIG_IGN);
    signal(SIGUSR2, SIG_IGN);
  }
}

int main(int count, char **words) {
  const char *mode = count > 1 ? words[1] : "plain";
  // PREPARATION PRELOAD PROGRAM...: the surrounding is made first, then the library is loaded into the program
  if (count > 3) {
    prepare(mode);
    setenv("LD_PRELOAD", words[2], 1);
    execv(words[3], words + 3);
    _exit(4);
  }
  take_number(1);
  if (strcmp(mode, "family") == 0) family();
  if (strcmp(mode, "surroundings") == 0) surroundings();
  if (strcmp(mode, "forks") == 0) forks(5);
  if (strcmp(mode, "daemon") == 0) leave_daemon();
  if (strcmp(mode, "exec") == 0) execl(words[0], words[0], "plain", NULL);
  if (strcmp(mode, "quick") == 0) _exit(7);
  if (strcmp(mode, "signal") == 0) raise(SIGKILL);
  take_number(2);
  return 7;
}
