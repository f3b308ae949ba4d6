// SPDX-License-Identifier: MIT
// A program to attach to, under filters and in containers. A thread calls work() all the time; the first one does what it is told by
// lines on standard input, and answers each with one line. Its system calls are few: those of surround.c's narrow list.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int ends;

__attribute__((noinline)) void work(int number, const char* text) { __asm__ volatile("" ::"r"(number), "r"(text)); }

static void* works(void* unused) {
  for (unsigned n = 0; !ends; ++n) {
    work((int)(n % 7), "inside");
    for (volatile int pause = 0; pause < 20000; ++pause) {
    }
  }
  return unused;
}

static void load(const char* library) {
  void* const loaded = dlopen(library, RTLD_NOW);
  int (*const called)(const char*) = loaded == NULL ? NULL : (int (*)(const char*))dlsym(loaded, "called_later");
  printf("loaded %d\n", called == NULL ? -1 : called("late"));
}

static void run(const char* program) {
  const pid_t child = fork();
  if (child == 0) {
    execl(program, program, NULL);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("run %d\n", status);
}

// Death for what a tool would have to make it do on its way out.
static void seal(void) {
  static const unsigned forbidden[] = {SYS_mmap, SYS_munmap, SYS_mprotect, SYS_sigaltstack, SYS_ppoll, SYS_gettid};
  struct sock_filter code[2 * sizeof forbidden / sizeof forbidden[0] + 2];
  unsigned short at = 0;
  code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  for (size_t i = 0; i < sizeof forbidden / sizeof forbidden[0]; ++i) {
    code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, forbidden[i], 0, 1);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  }
  code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_fprog program = {at, code};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  // for all threads: SECCOMP_FILTER_FLAG_TSYNC
  printf("sealed %ld\n", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program));
}

int main(void) {
  static char line[4096], folder[4096];
  pthread_t thread;
  setvbuf(stdout, NULL, _IOLBF, 0);
  pthread_create(&thread, NULL, works, NULL);
  puts("ready");
  while (fgets(line, sizeof line, stdin) != NULL) {
    line[strcspn(line, "\n")] = 0;
    if (strncmp(line, "load ", 5) == 0) load(line + 5);
    if (strncmp(line, "run ", 4) == 0) run(line + 4);
    if (strcmp(line, "seal") == 0) seal();
    if (strcmp(line, "where") == 0) puts(getcwd(folder, sizeof folder) == NULL ? "nowhere" : folder);
    if (strcmp(line, "end") == 0) break;
  }
  ends = 1;
  pthread_join(thread, NULL);
  puts("fine");
  fflush(stdout);
  _exit(3);
}
