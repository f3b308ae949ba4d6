// SPDX-License-Identifier: MIT
// The state that a handler finds in its context and in its thread's mask, and the state after it, with each libc.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

static volatile int calls;
__attribute__((noinline)) void probed(int n) {
  __asm__ volatile("" ::"r"(n));
  ++calls;
}

#ifndef __GLIBC__
// The compiler's unwinder was built for glibc and asks it where unwind tables are (dlfcn.h, struct dl_find_object).
#include <link.h>
struct Found {
  unsigned long long flags;
  char *begin, *end;
  void* map;
  void* table;
  unsigned long long reserved[7];
  uintptr_t wanted;
};
static int find(struct dl_phdr_info* object, size_t size, void* data) {
  struct Found* found = data;
  (void)size;
  int covers = 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const uintptr_t at = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
    covers |= object->dlpi_phdr[i].p_type == PT_LOAD && found->wanted - at < object->dlpi_phdr[i].p_memsz;
    if (object->dlpi_phdr[i].p_type == PT_GNU_EH_FRAME) found->table = (void*)at;
  }
  return covers && found->table;
}
int _dl_find_object(void* pc, void* result) {
  struct Found found = {.wanted = (uintptr_t)pc};
  if (!dl_iterate_phdr(find, &found)) return -1;
  memcpy(result, &found, offsetof(struct Found, reserved));
  return 0;
}
#endif

static char stack[65536];
static char* page;
static sigjmp_buf way_out;

static void show(const char* where) {
  sigset_t mask;
  sigprocmask(SIG_BLOCK, NULL, &mask);
  printf("%s: blocked", where);
  for (int i = 1; i < 65; ++i)
    if (sigismember(&mask, i) == 1) printf(" %d", i);
  printf("\n");
}

// Without a stack the kernel shows the flags that were set last, by the program or by one before its execve.
static void show_context(const ucontext_t* context) {
  const stack_t* s = &context->uc_stack;
  printf("  stack %s flags %x size %zu, mask", s->ss_sp == stack ? "own" : s->ss_sp ? "other" : "none",
         s->ss_size ? s->ss_flags : 0, s->ss_size);
  for (int i = 1; i < 65; ++i)
    if (sigismember(&context->uc_sigmask, i) == 1) printf(" %d", i);
  printf("\n");
}

static _Unwind_Reason_Code count(struct _Unwind_Context* context, void* data) {
  if (_Unwind_FindEnclosingFunction((void*)_Unwind_GetIP(context)) == data) *(volatile int*)&calls += 1000;
  return _URC_NO_REASON;
}
// The call is made here: musl's raise has no unwind information to go on with.
__attribute__((noinline)) static void interrupted(int number) {
  probed(number);
  long result = SYS_tgkill;
  __asm__ volatile("syscall" : "+a"(result) : "D"(getpid()), "S"(getpid()), "d"(number) : "rcx", "r11", "memory");
}

static void handle(int number, siginfo_t* info, void* data) {
  (void)info;
  probed(number);
  show(" in handler");
  show_context(data);
  calls = 0;
  _Unwind_Backtrace(count, (void*)interrupted);
  printf("  unwinds %d\n", calls / 1000);
  if (number == SIGUSR1) raise(SIGUSR2);
  if (number == SIGUSR2) sigfillset(&((ucontext_t*)data)->uc_sigmask);
}

static void mend(int number, siginfo_t* info, void* data) {
  probed(number);
  (void)data;
  printf(" fault %d at +%ld\n", info->si_code, (long)((char*)info->si_addr - page));
  show(" in handler");
  raise(SIGUSR1);
  if (info->si_addr == page + 1) siglongjmp(way_out, 1);
  mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static void dies(int number) {
  probed(number);
  *(volatile char*)page = 1;
}

static void install(int number, void (*handler)(int, siginfo_t*, void*), int flags) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | flags;
  sigaddset(&action.sa_mask, SIGTRAP);
  sigaddset(&action.sa_mask, SIGHUP);
  sigaction(number, &action, NULL);
}

static void fault(const char* name) {
  puts(name);
  page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *(volatile char*)page = 1;
  show("mended");
  mprotect(page, 4096, PROT_NONE);
  if (sigsetjmp(way_out, 1) == 0) *(volatile char*)(page + 1) = 1;
  show("jumped");
  munmap(page, 4096);
}

static void fault_in_handler(void) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(5);
    signal(SIGSEGV, dies);
    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *(volatile char*)page = 1;
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("child: signal %d\n", WTERMSIG(status));
}

int main(void) {
  setvbuf(stdout, NULL, _IOFBF, 65536);
  const stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
  for (int round = 0; round < 2; ++round) {
    const int flags = round == 0 ? 0 : SA_ONSTACK;
    if (round == 1) sigaltstack(&own, NULL);
    install(SIGUSR1, handle, flags);
    install(SIGUSR2, handle, flags);
    install(SIGTRAP, handle, flags);
    install(SIGSEGV, mend, flags);
    interrupted(SIGUSR1);
    show("after");
    interrupted(SIGTRAP);
    show("after");
    fault("faults");
    install(SIGSEGV, mend, flags | SA_NODEFER);
    fault("faults, SA_NODEFER");
    fault_in_handler();
  }
  return 0;
}
