// SPDX-License-Identifier: MIT
// Preloaded into the tool: sends a signal at the n-th of the calls by which the tool holds, changes and awaits programs. The test and
// all processes of the tool share the file that MOMENTS names.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct Moments {
  uint32_t calls;  // so far
  uint32_t when;   // 0: never
  uint32_t signal;
  uint32_t whom;   // 0: the process that calls; 1: the process that it calls ptrace for; kAll; else a process id
  uint32_t fired;  // the process that has the signal
  uint32_t first;  // of the tool's processes
};

// Of the tool, all processes that write or may finish what others have begun; and then only writes are counted.
enum { kAll = 2 };

static struct Moments* moments;

__attribute__((constructor)) static void begin(void) {
  const char* path = getenv("MOMENTS");
  const int file =
      path != NULL && strcmp(program_invocation_short_name, "uprobe-run") == 0 ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return;
  void* mapped = mmap(NULL, sizeof *moments, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped != MAP_FAILED) moments = mapped;
  if (moments != NULL && moments->first == 0) moments->first = (uint32_t)getpid();
  close(file);
}

static int is_guardian(void) {
  char name[16] = "";
  prctl(PR_GET_NAME, name);
  return strcmp(name, "uprobe-guardian") == 0;
}

// A child of vfork that writes for the tool is not the one to be hit. It has the tool's memory, so these are set in both.
static pid_t writer, its_parent;

int setpgid(pid_t pid, pid_t group) {
  writer = getpid();
  its_parent = getppid();
  return (int)syscall(SYS_setpgid, pid, group);
}

static void kill_all(void) {
  const pid_t self = getpid();
  __atomic_store_n(&moments->fired, (uint32_t)self, __ATOMIC_SEQ_CST);
  syscall(SYS_kill, moments->first, SIGKILL);
  if (self == writer) syscall(SYS_kill, its_parent, SIGKILL);
  syscall(SYS_kill, self, SIGKILL);
}

static void come_by(pid_t tracee, int is_write) {
  if (moments == NULL || is_guardian() || (moments->whom == 1 && tracee == 0) || (moments->whom == kAll && !is_write))
    return;
  const int error = errno;
  if (__atomic_add_fetch(&moments->calls, 1, __ATOMIC_SEQ_CST) == __atomic_load_n(&moments->when, __ATOMIC_SEQ_CST)) {
    if (moments->whom == kAll) kill_all();
    const pid_t self = getpid() == writer ? its_parent : getpid();
    const pid_t whom = moments->whom == 0 ? self : moments->whom == 1 ? tracee : (pid_t)moments->whom;
    if (whom == self) __atomic_store_n(&moments->fired, (uint32_t)whom, __ATOMIC_SEQ_CST);
    syscall(SYS_kill, whom, moments->signal);
    __atomic_store_n(&moments->fired, (uint32_t)whom, __ATOMIC_SEQ_CST);
  }
  errno = error;
}

static void come(pid_t tracee) { come_by(tracee, 0); }

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

long ptrace(enum __ptrace_request request, ...) {
  va_list words;
  va_start(words, request);
  const pid_t pid = va_arg(words, pid_t);
  void* const address = va_arg(words, void*);
  void* const data = va_arg(words, void*);
  va_end(words);
  const long result = NEXT(ptrace)(request, pid, address, data);
  come(pid);
  return result;
}

ssize_t pwrite(int file, const void* from, size_t bytes, off_t at) {
  const ssize_t result = NEXT(pwrite)(file, from, bytes, at);
  come_by(0, 1);
  return result;
}

ssize_t pwrite64(int file, const void* from, size_t bytes, off64_t at) {
  const ssize_t result = NEXT(pwrite64)(file, from, bytes, at);
  come_by(0, 1);
  return result;
}

// Polled, so only those that have found something count.
int waitid(idtype_t kind, id_t id, siginfo_t* info, int how) {
  const int result = NEXT(waitid)(kind, id, info, how);
  if (result == 0 && info != NULL && info->si_pid != 0) come(0);
  return result;
}

pid_t waitpid(pid_t pid, int* status, int how) {
  const pid_t result = NEXT(waitpid)(pid, status, how);
  if (result > 0) come(0);
  return result;
}
