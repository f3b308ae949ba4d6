// SPDX-License-Identifier: MIT
// Places that are too short for a jump, each before an instruction that a branch may enter, and the code that leads to them.
//
//   places list               "NAME OFFSET APPROACH" of each, from the beginning of walk()
//   places walk COUNT         prints a digest of all results of walk()
//   places faults             a handler repairs the faults of a prefix window and of a place; prints how many, and where
//   places raw_faults         the same with a handler that returns by an instruction of its own
//   places live               "ready"; two threads walk until a line comes; the answer to each line is the count of their walks
//   places writable           walks, makes the code writable and executable again, walks
//   places fork               a child walks, and so does its child by vfork
//   places library FILE N     loads and unloads this as a library, N times, and walks in it
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

// Returns a digest of registers and flags; counts its rounds at `counter`.
uint64_t walk(uint64_t count, atomic_ulong* counter);
extern const char walk_end[];
extern const int places[], place_count;
__asm__(
    // a branch that may enter after it, but never does
    ".macro ENTERED at\n.L\\at: test %rdi, %rdi\njs .L\\at\n.endm\n"
    ".skip 160, 0xf4\n"  // no padding for a short jump
    ".globl walk, walk_end\n.type walk, @function\n.p2align 4\nwalk:\n.cfi_startproc\nxor %eax, %eax\n.Lhead:\n"
    ".Lone_from: lea 1(%rdi), %rdx\n.Lone: cmc\nENTERED one_after\nadc %rdx, %rax\n"
    ".Lfour_from: stc\nclc\nstc\nclc\n.Lfour: cmc\nENTERED four_after\nadc %rdx, %rax\n"
    ".Lmemory_from: mov (%rsi), %rcx\n.Lmemory: lock incq (%rsi)\nENTERED memory_after\nadc %rdx, %rax\n"
    "cmp $-1, %rdi\n.Lbranch_from: je .Lnever\n.Lbranch: inc %rdx\nENTERED branch_after\nadc %rdx, %rax\n"
    ".Lstack_from: push %rdi\npop %r8\n.Lstack: mov %edi, %r9d\nENTERED stack_after\nadd %r8, %rax\nadd %r9, %rax\n"
    ".Lcall_from: push %rsi\n.Lcall: call *callee(%rip)\npop %rsi\n"
    "dec %rdi\njnz .Lhead\nENTERED last_after\n.Lreturn_from: imul $3, %rax, %rax\n.Lreturn: ret\n"
    ".Lnever: ud2\nwalk_end:\n.cfi_endproc\n.size walk, .-walk\n"
    ".type called, @function\ncalled:\n.cfi_startproc\nadd %rdi, %rax\nret\n.cfi_endproc\n.size called, "
    ".-called\n.skip 160, 0xf4\n"
    ".data\ncallee: .quad called\n.section .rodata\n.p2align 2\n.globl places, place_count\nplaces:\n"
    ".macro PLACE name\n.long .L\\name - walk, .L\\name - .L\\name\\()_from\n.endm\n"
    "PLACE one\nPLACE four\nPLACE memory\nPLACE branch\nPLACE stack\nPLACE return\nplace_count: .long (place_count - "
    "places) / 8\n.text\n");
static const char* const kNames[] = {"one", "four", "memory", "branch", "stack", "return"};

static int place(const char* name) {
  for (int i = 0; i < place_count; ++i)
    if (strcmp(kNames[i], name) == 0) return i;
  abort();
}

static atomic_ulong counted;
static atomic_int ending;

static void* walk_on(void* unused) {
  (void)unused;
  while (!ending)
    if (walk(3, &counted) != 171) abort();
  return NULL;
}

static int live(void) {
  pthread_t threads[2];
  for (int i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, walk_on, NULL);
  puts("ready");
  fflush(stdout);
  for (int c = getchar(); c != EOF; c = getchar()) {
    if (c != '\n') continue;
    printf("%lu\n", counted);
    fflush(stdout);
  }
  ending = 1;
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  printf("%lu\n", counted);
  return 0;
}

static atomic_ulong repaired;
static long seen_before, seen_at, seen_elsewhere;

static void repair(int number, siginfo_t* info, void* context) {
  (void)number, (void)info;
  greg_t* r = ((ucontext_t*)context)->uc_mcontext.gregs;
  const int i = place("memory");
  const long at = r[REG_RIP] - (long)walk - places[2 * i];
  if (at == -places[2 * i + 1])
    ++seen_before;
  else if (at == 0)
    ++seen_at;
  else
    ++seen_elsewhere;
  // at first read-only, so that the place faults too
  static void* page;
  if (page == NULL) page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  r[REG_RSI] = (greg_t)(r[REG_RSI] == 8 ? page : (void*)&repaired);
}

extern const char raw_restorer[];
__asm__("raw_restorer: mov $15, %eax\nsyscall\n");  // rt_sigreturn

static int faults(int raw) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = repair;
  const struct {
    void* handler;
    unsigned long flags;
    const char* restorer;
    uint64_t mask;
  } own = {(void*)repair, SA_SIGINFO | 0x04000000, raw_restorer, 0};  // SA_RESTORER
  if (raw)
    syscall(SYS_rt_sigaction, SIGSEGV, &own, NULL, 8);
  else
    sigaction(SIGSEGV, &action, NULL);
  for (int i = 0; i < 100; ++i)
    if (walk(1, (void*)8) != 36) return 1;
  printf("repaired %lu before %ld at %ld elsewhere %ld\n", repaired, seen_before, seen_at, seen_elsewhere);
  return 0;
}

static int writable(void) {
  const uintptr_t begin = (uintptr_t)walk & -4096ul, end = ((uintptr_t)walk_end + 4095) & -4096ul;
  uint64_t digest = walk(10, &counted);
  if (mprotect((void*)begin, end - begin, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) return 1;
  digest += walk(10, &counted);
  if (mprotect((void*)begin, end - begin, PROT_READ | PROT_EXEC) != 0) return 1;
  digest += walk(10, &counted);
  printf("%lu rounds %#lx\n", counted, digest);
  return 0;
}

static int forks(void) {
  uint64_t digest = walk(5, &counted);
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    digest += walk(5, &counted);
    const pid_t inner = vfork();
    if (inner == 0) _exit(walk(5, &counted) != 0 ? 7 : 8);
    int status = 0;
    waitpid(inner, &status, 0);
    printf("%lu rounds %#lx %x\n", counted, digest, status);
    return 0;
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("%lu rounds %#lx %x\n", counted, digest, status);
  return 0;
}

// Prints a digest of all results, and how much memory has no file in the end.
static int library(const char* file, long times) {
  uint64_t digest = 0, unnamed = 0, begin = 0, end = 0, inode = 0;
  char line[4096];
  for (long i = 0; i < times; ++i) {
    void* const handle = dlopen(file, RTLD_NOW);
    uint64_t (*const its_walk)(uint64_t, atomic_ulong*) =
        handle != NULL ? (uint64_t(*)(uint64_t, atomic_ulong*))dlsym(handle, "walk") : NULL;
    if (its_walk == NULL) return 1;
    digest += its_walk(2, &counted);
    if (dlclose(handle) != 0) return 1;
  }
  FILE* const maps = fopen("/proc/self/maps", "re");
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
    if (sscanf(line, "%lx-%lx %*s %*s %*s %lu", &begin, &end, &inode) == 3 && inode == 0) unnamed += end - begin;
  printf("%lu rounds %#lx, %lu\n", counted, digest, unnamed);
  return 0;
}

int main(int count, char** words) {
  const char* mode = count > 1 ? words[1] : "list";
  if (strcmp(mode, "live") == 0) return live();
  if (strcmp(mode, "faults") == 0) return faults(0);
  if (strcmp(mode, "raw_faults") == 0) return faults(1);
  if (strcmp(mode, "writable") == 0) return writable();
  if (strcmp(mode, "fork") == 0) return forks();
  if (strcmp(mode, "library") == 0 && count > 3) return library(words[2], strtol(words[3], NULL, 0));
  if (strcmp(mode, "walk") == 0 && count > 2) return printf("%#lx\n", walk(strtoul(words[2], NULL, 0), &counted)) < 0;
  for (int i = 0; i < place_count; ++i) printf("%s %d %d\n", kNames[i], places[2 * i], places[2 * i + 1]);
  return 0;
}
