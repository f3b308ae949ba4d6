// SPDX-License-Identifier: MIT
// Changes its signal mask at a place before which the agent comes by a jump, again and again, between two system calls by which a
// stepper (stepper.c) knows its place. A handler checks that its context is one of the program: before the call, or after it, with
// the mask of that place.
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

uint64_t asked, result, left_cx, left_r11, stack_at, sets[3];  // to be set, before, the kernel's answer

// rbx, rbp and r12 to r15 hold what the handler looks for; the flags are odd ones.
void visit(long how);
extern const char visit_site[], visit_call[], visit_after[], visit_end[];
__asm__(
    ".globl visit, visit_site, visit_call, visit_after, visit_end\n.type visit, @function\nvisit:\n.cfi_startproc\n"
    "push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rdi, %rbx\nmov $110, %eax\nsyscall\nmov %rax, asked(%rip)\n"  // getppid
    "mov %rsp, stack_at(%rip)\nmov %rbx, %rdi\nlea sets(%rip), %rsi\nlea sets+16(%rip), %rdx\nmov $8, %r10d\n"
    "mov $0x5a5a5a5a, %ebx\nmov %rbx, %rbp\nmov %rbx, %r12\nmov %rbx, %r13\nmov %rbx, %r14\nmov %rbx, %r15\n"
    "mov $0x77, %r8d\nmov $0x78, %r9d\nmov $-1, %rax\nstc\n"
    "visit_site:\nmov $14, %eax\n"
    "visit_call:\nsyscall\n"
    "visit_after:\nmov %rax, result(%rip)\nmov %rcx, left_cx(%rip)\nmov %r11, left_r11(%rip)\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\nret\nvisit_end:\n.cfi_endproc\n.size visit, "
    ".-visit\n");

static volatile long signals, bad_places, bad_registers, bad_masks, before, after;

static int has_kept(const greg_t* r) {
  const int kept[] = {REG_RBX, REG_RBP, REG_R12, REG_R13, REG_R14, REG_R15};
  for (unsigned i = 0; i < sizeof kept / sizeof kept[0]; ++i)
    if (r[kept[i]] != 0x5a5a5a5a) return 0;
  return r[REG_R8] == 0x77 && r[REG_R9] == 0x78 && r[REG_R10] == 8 && (uint64_t)r[REG_RSP] == stack_at &&
         r[REG_RSI] == (greg_t)sets && r[REG_RDX] == (greg_t)(sets + 2) && (r[REG_EFL] & 1) != 0;
}

static void handle(int number, siginfo_t* info, void* context) {
  (void)number, (void)info;
  const ucontext_t* c = context;
  const greg_t* r = c->uc_mcontext.gregs;
  const char* ip = (const char*)r[REG_RIP];
  uint64_t mask;
  memcpy(&mask, &c->uc_sigmask, sizeof mask);
  ++signals;
  if (ip == visit_site || ip == visit_call) {
    ++before, bad_masks += mask != sets[1];
    bad_registers += !has_kept(r) || r[REG_RAX] != (ip == visit_site ? -1 : 14);
  } else if (ip == visit_after) {
    ++after, bad_masks += mask != sets[0];
    bad_registers += !has_kept(r) || r[REG_RAX] != 0 || (const char*)r[REG_RCX] != visit_after;
  } else if (ip < (const char*)visit || ip >= visit_end || (ip > visit_site && ip < visit_after)) {
    ++bad_places;
  }
}

int main(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = handle;
  sigaction(SIGUSR1, &action, NULL);
  sigaction(SIGBUS, &action, NULL);
  const int64_t message[] = {getpid(), (int64_t)visit_site, (int64_t)visit_after};
  const uint64_t kinds[] = {1ul << (SIGUSR2 - 1), 1ul << (SIGTRAP - 1) | 1ul << (SIGHUP - 1), 0};
  char go;
  if (write(3, message, sizeof message) != sizeof message || read(4, &go, 1) != 1) return 1;
  long visits = 0, bad_results = 0;
  do {
    sets[1] = sets[0];
    sets[0] = kinds[visits++ % 3];
    sets[2] = ~0ul;
    visit(SIG_SETMASK);
    bad_results += result != 0 || sets[2] != sets[1] || (const char*)left_cx != visit_after || (left_r11 & 1) == 0;
  } while (asked != 0);
  dprintf(3, "visits %ld signals %ld bad: places %ld registers %ld results %ld red zone %ld\n", visits, signals,
          bad_places, bad_registers, bad_results + bad_masks, 0L);
  fprintf(stderr, "before %ld, after %ld\n", before, after);
  return 0;
}
