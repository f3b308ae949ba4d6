// SPDX-License-Identifier: MIT
// Visits a probed place with every register known, again and again, between two system calls by which a stepper (stepper.c)
// knows its place. A handler checks that its context is one of the program: before the probed place, or after it.
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

// rax rbx rcx rdx rsi rdi rbp r8..r15, flags
uint64_t wanted[16], found[16], stack_at, asked, red_zone_changed;

#ifdef APPROACH
// The probed place is the last of the three, which has no room for a jump: the next one has a name, so that it may be entered.
#define SITE "cmc\ninc %rbx\ncmc\n"
enum { kGain = 1, kChangesFlags = 1 };
#elif defined SEVERAL
#define SITE "inc %rbx\nlea 2(%rbx), %rbx\n"
enum { kGain = 3, kChangesFlags = 1 };
#else
#define SITE "{disp32} lea 1(%rbx), %rbx\n"
enum { kGain = 1, kChangesFlags = 0 };
#endif

void visit(void);
extern const char visit_loaded[], visit_site[], visit_after[], visit_end[];
__asm__(
    ".globl visit, visit_loaded, visit_site, visit_after, visit_end\n.type visit, @function\nvisit:\n.cfi_startproc\n"
    "push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov $110, %eax\nsyscall\nmov %rax, asked(%rip)\n"  // getppid
    "mov %rsp, stack_at(%rip)\n"
    "movabs $0x5a5a5a5a5a5a5a5a, %rax\nmov $-128, %rcx\n1: mov %rax, (%rsp,%rcx)\nadd $8, %rcx\njnz 1b\n"
    "lea wanted(%rip), %rax\n"
    "mov 8(%rax), %rbx\nmov 16(%rax), %rcx\nmov 24(%rax), %rdx\nmov 32(%rax), %rsi\nmov 40(%rax), %rdi\n"
    "mov 48(%rax), %rbp\nmov 56(%rax), %r8\nmov 64(%rax), %r9\nmov 72(%rax), %r10\nmov 80(%rax), %r11\n"
    "mov 88(%rax), %r12\nmov 96(%rax), %r13\nmov 104(%rax), %r14\nmov 112(%rax), %r15\nlea -128(%rsp), %rsp\n"
    "push 120(%rax)\nmov (%rax), %rax\npopf\nlea 128(%rsp), %rsp\nvisit_loaded:\n"
    "visit_site:\n" SITE
    "visit_after:\n"
    "mov %rax, found(%rip)\nmov %rbx, found+8(%rip)\nmov %rcx, found+16(%rip)\nmov %rdx, found+24(%rip)\n"
    "mov %rsi, found+32(%rip)\nmov %rdi, found+40(%rip)\nmov %rbp, found+48(%rip)\nmov %r8, found+56(%rip)\n"
    "mov %r9, found+64(%rip)\nmov %r10, found+72(%rip)\nmov %r11, found+80(%rip)\nmov %r12, found+88(%rip)\n"
    "mov %r13, found+96(%rip)\nmov %r14, found+104(%rip)\nmov %r15, found+112(%rip)\n"
    "lea -128(%rsp), %rsp\npushf\npop found+120(%rip)\nlea 128(%rsp), %rsp\ncld\n"
    "movabs $0x5a5a5a5a5a5a5a5a, %rax\nmov $-128, %rcx\n2: cmp %rax, (%rsp,%rcx)\njne 3f\nadd $8, %rcx\njnz 2b\njmp "
    "4f\n"
    "3: incq red_zone_changed(%rip)\n4:\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\nret\nvisit_end:\n.cfi_endproc\n.size visit, "
    ".-visit\n");

__attribute__((noinline)) void handled(long n) { __asm__ volatile("lea 0x1000(%0), %0\nnop" : "+r"(n)); }

static volatile long signals, bad_places, bad_registers, before, after, elsewhere;

// The registers at one of the two places. All flags but RF, which the kernel sets at will, and IF.
static int is_as_wanted(const greg_t* r, uint64_t gain, int changes_flags) {
  const uint64_t now[] = {r[REG_RAX], r[REG_RBX], r[REG_RCX], r[REG_RDX], r[REG_RSI], r[REG_RDI], r[REG_RBP], r[REG_R8],
                          r[REG_R9],  r[REG_R10], r[REG_R11], r[REG_R12], r[REG_R13], r[REG_R14], r[REG_R15]};
  for (int i = 0; i < 15; ++i)
    if (now[i] != wanted[i] + (i == 1 ? gain : 0)) return 0;
  const uint64_t mask = changes_flags ? 0x40700 : 0x40fd5;
  return (uint64_t)r[REG_RSP] == stack_at && (((uint64_t)r[REG_EFL] ^ wanted[15]) & mask) == 0;
}

static void handle(int number, siginfo_t* info, void* context) {
  (void)number, (void)info;
  const greg_t* r = ((ucontext_t*)context)->uc_mcontext.gregs;
  const char* ip = (const char*)r[REG_RIP];
  ++signals;
  if (ip == visit_site)
    ++before, bad_registers += !is_as_wanted(r, 0, 0);
  else if (ip == visit_after)
    ++after, bad_registers += !is_as_wanted(r, kGain, kChangesFlags);
  else if (ip >= (const char*)visit && ip < visit_end && !(ip > visit_site && ip < visit_after))
    ++elsewhere;
  else
    ++bad_places;
  handled(1);
}

int main(int count, char** words) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = handle;
  sigaction(SIGUSR1, &action, NULL);
  sigaction(SIGBUS, &action, NULL);
  for (int i = 0; i < 15; ++i) wanted[i] = 0x123456789abcdef * (uint64_t)(i + 1);
  wanted[15] = count > 1 ? strtoul(words[1], NULL, 16) : 0x202;
  const int64_t message[] = {getpid(), (int64_t)visit_site, (int64_t)visit_after};
  char go;
  if (write(3, message, sizeof message) != sizeof message || read(4, &go, 1) != 1) return 1;
  long visits = 0, bad_results = 0;
  do {
    visit();
    ++visits;
    uint64_t expected[16];
    memcpy(expected, wanted, sizeof expected);
    expected[1] += kGain;
    if (kChangesFlags) expected[15] = found[15];
    found[15] &= expected[15] | ~0x10000ul;
    bad_results += memcmp(expected, found, sizeof found) != 0;
  } while (asked != 0);
  dprintf(3, "visits %ld signals %ld bad: places %ld registers %ld results %ld red zone %ld\n", visits, signals,
          bad_places, bad_registers, bad_results, (long)red_zone_changed);
  fprintf(stderr, "before %ld, after %ld, elsewhere %ld\n", before, after, elsewhere);
  return 0;
}
