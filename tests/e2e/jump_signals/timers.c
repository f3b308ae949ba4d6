// SPDX-License-Identifier: MIT
// Threads that execute a probed instruction as fast as they can, under timers whose handlers do so too, leave by siglongjmp, go
// on by setcontext, and ask for their callers. The instruction, or the second one of a window of two (SEVERAL), counts its
// executions: the number of hits must equal that. APPROACH: it is too short for a jump, which begins before it.
#define _GNU_SOURCE
#include <execinfo.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

atomic_long executed;
void probed(void);
extern const char probed_site[], probed_end[];
__asm__(
#ifdef APPROACH
    ".skip 160, 0xf4\n"  // no padding for a short jump
#endif
    ".globl probed, probed_site, probed_end\n.type probed, @function\nprobed:\n.cfi_startproc\nprobed_site:\n"
#ifdef SEVERAL
    "push %rbx\n.cfi_adjust_cfa_offset 8\nlock incq executed(%rip)\npop %rbx\n.cfi_adjust_cfa_offset -8\n"
#elif defined APPROACH
    "lea executed(%rip), %rax\nxor %ecx, %ecx\nlock incq (%rax)\n.globl probed_named\nprobed_named:\n"
#else
    "lock incq executed(%rip)\n"
#endif
    "ret\nprobed_end:\n.cfi_endproc\n.size probed, .-probed\n"
#ifdef APPROACH
    ".skip 160, 0xf4\n"
#endif
);

static atomic_long handled, jumped, traced, lost_callers;
static __thread sigjmp_buf out;
static __thread volatile int armed;
static __thread uint64_t choice;

__attribute__((noinline)) static void visit_often(void) {
  for (int i = 0; i < 1000; ++i) probed();
  __asm__ volatile("");
}

// The unwinder must find the caller of the probed function.
static void look_back(const ucontext_t* context) {
  const char* ip = (const char*)context->uc_mcontext.gregs[REG_RIP];
  if (ip < (const char*)probed || ip >= probed_end) return;
  void* frames[32];
  const int count = backtrace(frames, 32);
  int found = 0;
  for (int i = 0; i < count; ++i)
    found |=
        (const char*)frames[i] > (const char*)visit_often && (const char*)frames[i] < (const char*)visit_often + 64;
  ++traced;
  lost_callers += !found;
}

static void handle(int number, siginfo_t* info, void* context) {
  (void)number, (void)info;
  ++handled;
  if (!armed) return;
  choice = choice * 6364136223846793005u + 1442695040888963407u;
  switch (choice >> 61) {
    case 0:
    case 1:
    case 2:
      probed();
      return;
    case 3:
      ++jumped;
      armed = 0;
      siglongjmp(out, 1);
    case 4: {
      ucontext_t here;
      volatile int been = 0;
      getcontext(&here);
      probed();
      if (been++ == 0) setcontext(&here);
      return;
    }
    default:
      look_back(context);
  }
}

static void* work(void* seed) {
  struct sigevent event;
  memset(&event, 0, sizeof event);
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGALRM;
  event._sigev_un._tid = (int)syscall(SYS_gettid);
  timer_t timer;
  timer_create(CLOCK_MONOTONIC, &event, &timer);
  const struct itimerspec pace = {{0, 70000}, {0, 70000}};
  choice = (uint64_t)seed;
  sigsetjmp(out, 1);
  if (jumped == 0 || handled == 0) timer_settime(timer, 0, &pace, NULL);
  armed = 1;
  while (handled < 4000) visit_often();
  armed = 0;
  timer_delete(timer);
  return NULL;
}

int main(void) {
  void* warm[4];
  backtrace(warm, 4);
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  action.sa_sigaction = handle;
  sigaction(SIGALRM, &action, NULL);
  pthread_t threads[2];
  for (long i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, work, (void*)(7919 * (i + 1)));
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  printf("%ld executed, %ld callers lost\n", (long)executed, (long)lost_callers);
  fprintf(stderr, "handled %ld jumped %ld traced %ld\n", (long)handled, (long)jumped, (long)traced);
  return 0;
}
