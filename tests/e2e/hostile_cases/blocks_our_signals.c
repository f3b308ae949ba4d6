// SPDX-License-Identifier: MIT
// Blocks SIGSEGV, SIGBUS and SIGTRAP, in all threads, and goes on doing so when no tool is there any more: it shows what it has blocked
// before and after that, and sends itself each of them, which stay pending.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static sigset_t all;

__attribute__((noinline)) int probed(int value) {
  __asm__ volatile("");
  return value + 1;
}

static void show(const char* when) {
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, 0, &blocked);
  printf("%s:", when);
  for (int signal = 1; signal < 32; ++signal)
    if (sigismember(&blocked, signal)) printf(" %d", signal);
  printf("\n");
}

static void* waits(void* gate) {
  char word;
  (void)!read(*(int*)gate, &word, 1);
  show("thread");
  raise(SIGBUS);
  return 0;
}

// `pause_us`: until the tool, or a debugger, has come and gone.
static int work(useconds_t pause_us) {
  int gate[2];
  pthread_t thread;
  (void)!pipe(gate);
  pthread_sigmask(SIG_SETMASK, &all, 0);
  pthread_create(&thread, 0, waits, &gate[0]);
  show("before");
  probed(1);
  usleep(pause_us);
  show("after");
  raise(SIGSEGV);
  raise(SIGTRAP);
  (void)!write(gate[1], "x", 1);
  pthread_join(thread, 0);
  show("sent");
  return 5;
}

// "debugged": a child does the work, and is attached to and let go.
int main(int argc, char** argv) {
  (void)argv;
  int status = 0;
  setbuf(stdout, 0);
  sigemptyset(&all);
  sigaddset(&all, SIGSEGV), sigaddset(&all, SIGBUS), sigaddset(&all, SIGTRAP), sigaddset(&all, SIGUSR2);
  if (argc < 2) return work(1000000);
  const pid_t child = fork();
  if (child == 0) _exit(work(1500000));
  usleep(700000);
  if (ptrace(PTRACE_ATTACH, child, 0, 0) == 0) {
    waitpid(child, &status, 0);
    ptrace(PTRACE_DETACH, child, 0, 0);
  }
  waitpid(child, &status, 0);
  printf("status %#x\n", status);
  return 0;
}
