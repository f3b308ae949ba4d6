// SPDX-License-Identifier: MIT
// Makes a surrounding for another program, one piece a word, then becomes it:
//
//   surround [WORD[=VALUE]]... -- PROGRAM [ARGUMENT]...
//
// Linked statically: it works in a bare chroot, and LD_PRELOAD is for the program alone. Exit code 77: this machine
// does not let it; a line on stderr says what.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kCannot = 77 };
#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif

static void need(int done, const char* what) {
  if (done) return;
  dprintf(2, "surround: %s: %s\n", what, strerror(errno));
  _exit(kCannot);
}

static void write_file(const char* path, const char* text) {
  const int fd = open(path, O_WRONLY);
  need(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), path);
  close(fd);
}

static void set_user(const char* id) {
  const unsigned user = (unsigned)atoi(id);
  need(setgroups(0, NULL) == 0 && setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0, "user");
  prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);  // it owns its files in /proc again
}

static void drop_capabilities(const char* unused) {
  (void)unused;
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
  for (int capability = 0; capability < 64; ++capability) prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
  need(syscall(SYS_capset, &header, none) == 0, "capset");
}

static void mirror(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
  }
  _exit(WEXITSTATUS(status));
}

static void new_processes(const char* unused) {
  (void)unused;
  need(unshare(CLONE_NEWPID) == 0, "a PID namespace");
  const pid_t pid = fork();
  need(pid >= 0, "fork");
  if (pid > 0) mirror(pid);
}

static void new_mounts(const char* unused) {
  (void)unused;
  need(unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "a mount namespace");
}

static void new_user(const char* unused) {
  (void)unused;
  char map[64];
  const int group = (int)getgid();
  snprintf(map, sizeof map, "0 %d 1", (int)getuid());
  need(unshare(CLONE_NEWUSER) == 0, "a user namespace");
  write_file("/proc/self/setgroups", "deny");
  write_file("/proc/self/uid_map", map);
  snprintf(map, sizeof map, "0 %d 1", group);
  write_file("/proc/self/gid_map", map);
}

static void new_rest(const char* unused) {
  (void)unused;
  need(unshare(CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP) == 0, "namespaces");
}

static void mount_proc(const char* options) { need(mount("proc", "/proc", "proc", 0, options) == 0, "mount of /proc"); }
static void unmount_proc(const char* unused) {
  (void)unused;
  need(umount2("/proc", MNT_DETACH) == 0, "umount of /proc");
}

static void change_root(const char* folder) { need(chroot(folder) == 0 && chdir("/") == 0, "chroot"); }

// All of the machine's files under another file system. `folder` is made for it; its parent folder is the same inside and
// outside.
static void overlay(const char* folder) {
  char options[1024], place[512], shared[512], inner[1100];
  need(mkdir(folder, 0755) == 0, folder);
  for (const char* const* name = (const char* const[]){"u", "w", "m", NULL}; *name != NULL; ++name) {
    snprintf(place, sizeof place, "%s/%s", folder, *name);
    need(mkdir(place, 0755) == 0, place);
  }
  snprintf(options, sizeof options, "lowerdir=/,upperdir=%s/u,workdir=%s/w", folder, folder);
  need(mount("overlay", place, "overlay", 0, options) == 0, "an overlay");
  snprintf(shared, sizeof shared, "%s", folder);
  *strrchr(shared, '/') = 0;
  for (const char* const* same = (const char* const[]){"/proc", "/dev", shared, NULL}; *same != NULL; ++same) {
    snprintf(inner, sizeof inner, "%s%s", place, *same);
    need(mount(*same, inner, NULL, MS_BIND | MS_REC, NULL) == 0, inner);
  }
  change_root(place);
}

// As container runtimes do it: `folder`/lower is all that the container's files lie over, and nothing else is left to see.
static void pivot(const char* folder) {
  char options[1024], place[512], inner[600];
  for (const char* const* name = (const char* const[]){"u", "w", "m", NULL}; *name != NULL; ++name) {
    snprintf(place, sizeof place, "%s/%s", folder, *name);
    need(mkdir(place, 0755) == 0, place);
  }
  snprintf(options, sizeof options, "lowerdir=%s/lower,upperdir=%s/u,workdir=%s/w", folder, folder, folder);
  need(mount("overlay", place, "overlay", 0, options) == 0, "an overlay");
  snprintf(inner, sizeof inner, "%s/proc", place);
  need(mount("proc", inner, "proc", 0, NULL) == 0, inner);
  snprintf(inner, sizeof inner, "%s/dev", place);
  need(mount("/dev", inner, NULL, MS_BIND | MS_REC, NULL) == 0, inner);
  need(chdir(place) == 0 && syscall(SYS_pivot_root, ".", ".") == 0 && umount2(".", MNT_DETACH) == 0 && chdir("/") == 0,
       "pivot_root");
}

static void bind_with(const char* path, unsigned long flags) {
  need(mount(path, path, NULL, MS_BIND, NULL) == 0 && mount(path, path, NULL, MS_REMOUNT | MS_BIND | flags, NULL) == 0,
       path);
}
static void read_only(const char* path) { bind_with(path, MS_RDONLY); }
static void no_exec(const char* path) { bind_with(path, MS_NOEXEC | MS_NOSUID); }

static void install(struct sock_filter* code, unsigned short count) {
  struct sock_fprog program = {count, code};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  need(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "a seccomp filter");
}

#define LENGTH(array) (unsigned short)(sizeof(array) / sizeof((array)[0]))
#define LOAD_NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define IF_CALL(number, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, yes, no)
#define ANSWER(value) BPF_STMT(BPF_RET | BPF_K, value)
#define REFUSE ANSWER(SECCOMP_RET_ERRNO | EPERM)
#define ALLOW ANSWER(SECCOMP_RET_ALLOW)

// An executable mapping of no file: what jits are forbidden, and ld.so never asks for.
static void forbid_executable_memory(unsigned answer) {
  struct sock_filter code[] = {LOAD_NUMBER,
                               IF_CALL(SYS_mmap, 0, 6),
                               BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
                               BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 4, 0, 4),
                               BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
                               BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x20, 0, 2),
                               ANSWER(answer),
                               ALLOW,
                               ALLOW};
  install(code, LENGTH(code));
}

static void allow_list(unsigned answer) {
  // what a C library and the program of the matrix need, and nothing more
  static const unsigned calls[] = {SYS_read,
                                   SYS_write,
                                   SYS_open,
                                   SYS_close,
                                   SYS_fstat,
                                   SYS_lseek,
                                   SYS_mmap,
                                   SYS_mprotect,
                                   SYS_munmap,
                                   SYS_brk,
                                   SYS_rt_sigaction,
                                   SYS_rt_sigprocmask,
                                   SYS_rt_sigreturn,
                                   SYS_pread64,
                                   SYS_writev,
                                   SYS_access,
                                   SYS_madvise,
                                   SYS_getpid,
                                   SYS_clone,
                                   SYS_fork,
                                   SYS_vfork,
                                   SYS_execve,
                                   SYS_exit,
                                   SYS_wait4,
                                   SYS_fcntl,
                                   SYS_getcwd,
                                   SYS_getrlimit,
                                   SYS_getuid,
                                   SYS_getgid,
                                   SYS_geteuid,
                                   SYS_getegid,
                                   SYS_rt_sigpending,
                                   SYS_sigaltstack,
                                   SYS_getpriority,
                                   SYS_sched_getscheduler,
                                   SYS_prctl,
                                   SYS_arch_prctl,
                                   SYS_gettid,
                                   SYS_futex,
                                   SYS_sched_getaffinity,
                                   SYS_set_tid_address,
                                   SYS_exit_group,
                                   SYS_openat,
                                   SYS_newfstatat,
                                   SYS_set_robust_list,
                                   SYS_prlimit64,
                                   SYS_getrandom,
                                   SYS_rseq,
                                   SYS_clone3,
                                   SYS_ioctl};
  struct sock_filter code[2 * LENGTH(calls) + 2];
  unsigned short at = 0;
  code[at++] = (struct sock_filter)LOAD_NUMBER;
  for (unsigned i = 0; i < LENGTH(calls); ++i) {
    code[at++] = (struct sock_filter)IF_CALL(calls[i], 0, 1);
    code[at++] = (struct sock_filter)ALLOW;
  }
  code[at++] = (struct sock_filter)ANSWER(answer);
  install(code, at);
}

// As container runtimes have it: by machine, by number and by argument; what it does not list gets the answer, but clone3 ENOSYS.
static void runtimes_list(unsigned answer) {
  enum { kLastKnown = 450, kNewNamespaces = 0x7e020000 };
  static const unsigned missing[] = {
      SYS_mount,       SYS_umount2,      SYS_pivot_root, SYS_swapon,          SYS_swapoff,     SYS_reboot,
      SYS_init_module, SYS_finit_module, SYS_keyctl,     SYS_add_key,         SYS_request_key, SYS_bpf,
      SYS_unshare,     SYS_setns,        SYS_kexec_load, SYS_perf_event_open, SYS_userfaultfd, SYS_open_by_handle_at};
  struct sock_filter code[2 * LENGTH(missing) + 14];
  unsigned short at = 0;
  code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
  code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
  code[at++] = (struct sock_filter)ANSWER(SECCOMP_RET_KILL_PROCESS);
  code[at++] = (struct sock_filter)LOAD_NUMBER;
  for (unsigned i = 0; i < LENGTH(missing); ++i) {
    code[at++] = (struct sock_filter)IF_CALL(missing[i], 0, 1);
    code[at++] = (struct sock_filter)ANSWER(answer);
  }
  code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, kLastKnown, 0, 1);
  code[at++] = (struct sock_filter)ANSWER(answer);
  code[at++] = (struct sock_filter)IF_CALL(SYS_clone3, 0, 1);
  code[at++] = (struct sock_filter)ANSWER(SECCOMP_RET_ERRNO | ENOSYS);
  code[at++] = (struct sock_filter)IF_CALL(SYS_clone, 0, 3);
  code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0]));
  code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kNewNamespaces, 0, 1);
  code[at++] = (struct sock_filter)ANSWER(answer);
  code[at++] = (struct sock_filter)ALLOW;
  install(code, at);
}

static void filter(const char* name) {
  struct sock_filter no_tracing[] = {LOAD_NUMBER,
                                     IF_CALL(SYS_ptrace, 2, 0),
                                     IF_CALL(SYS_process_vm_readv, 1, 0),
                                     IF_CALL(SYS_process_vm_writev, 0, 1),
                                     REFUSE,
                                     ALLOW};
  struct sock_filter no_tracer[] = {LOAD_NUMBER, IF_CALL(SYS_ptrace, 0, 1), ANSWER(SECCOMP_RET_KILL_PROCESS), ALLOW};
  struct sock_filter no_files[] = {LOAD_NUMBER, IF_CALL(SYS_memfd_create, 0, 1), REFUSE, ALLOW};
  // as container engines have it: some calls that no program here makes
  struct sock_filter of_container[] = {LOAD_NUMBER, IF_CALL(SYS_keyctl, 1, 0), IF_CALL(SYS_swapon, 0, 1), REFUSE,
                                       ALLOW};
  struct sock_filter no_signals[] = {LOAD_NUMBER, IF_CALL(SYS_rt_sigaction, 0, 1), REFUSE, ALLOW};
  struct sock_filter log_all[] = {ANSWER(SECCOMP_RET_LOG)};
  if (strcmp(name, "container") == 0) install(of_container, LENGTH(of_container));
  if (strcmp(name, "tracing") == 0) install(no_tracing, LENGTH(no_tracing));
  if (strcmp(name, "tracing-kill") == 0) install(no_tracer, LENGTH(no_tracer));
  if (strcmp(name, "memfd") == 0) install(no_files, LENGTH(no_files));
  if (strcmp(name, "executable") == 0) forbid_executable_memory(SECCOMP_RET_ERRNO | EPERM);
  if (strcmp(name, "executable-kill") == 0) forbid_executable_memory(SECCOMP_RET_KILL_PROCESS);
  if (strcmp(name, "others") == 0) allow_list(SECCOMP_RET_ERRNO | EPERM);
  if (strcmp(name, "others-kill") == 0) allow_list(SECCOMP_RET_KILL_PROCESS);
  if (strcmp(name, "runtime") == 0) runtimes_list(SECCOMP_RET_ERRNO | EPERM);
  if (strcmp(name, "runtime-kill") == 0) runtimes_list(SECCOMP_RET_KILL_PROCESS);
  if (strcmp(name, "no-signals") == 0) install(no_signals, LENGTH(no_signals));
  if (strcmp(name, "log") == 0) install(log_all, LENGTH(log_all));
}

static void set_personality(const char* flags) {
  need(personality((unsigned long)strtol(flags, NULL, 0)) >= 0, "personality");
}

// RESOURCE:SOFT[:HARD], numbers as of getrlimit; -1 is no limit
static void limit(const char* text) {
  char* at = NULL;
  const int resource = (int)strtol(text, &at, 10);
  struct rlimit values;
  values.rlim_cur = values.rlim_max = (rlim_t)strtoll(at + 1, &at, 10);
  if (*at == ':') values.rlim_max = (rlim_t)strtoll(at + 1, NULL, 10);
  need(setrlimit(resource, &values) == 0, "setrlimit");
}

static void close_one(const char* fd) { close(atoi(fd)); }
static void close_all(const char* unused) {
  (void)unused;
  for (int fd = 0; fd < 1024; ++fd) close(fd);
}

static void block(const char* number) {
  sigset_t set;
  if (atoi(number) == 0) sigfillset(&set);
  if (atoi(number) != 0) sigemptyset(&set), sigaddset(&set, atoi(number));
  sigprocmask(SIG_BLOCK, &set, NULL);
}
static void ignore(const char* number) { signal(atoi(number), SIG_IGN); }

static void set_nice(const char* value) { need(setpriority(PRIO_PROCESS, 0, atoi(value)) == 0, "nice"); }
static void be_realtime(const char* priority) {
  const struct sched_param parameters = {.sched_priority = atoi(priority)};
  need(syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &parameters) == 0, "SCHED_FIFO");
}
static void one_cpu(const char* cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(atoi(cpu), &set);
  need(sched_setaffinity(0, sizeof set, &set) == 0, "affinity");
}

static void be_reaper(const char* unused) {
  (void)unused;
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}
static void no_privileges(const char* unused) {
  (void)unused;
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}
static void refuse_new_code(const char* unused) {
  (void)unused;
  need(prctl(PR_SET_MDWE, 1, 0, 0, 0) == 0, "PR_SET_MDWE");
}
static void no_time_stamps(const char* unused) {
  (void)unused;
  need(prctl(PR_SET_TSC, PR_TSC_SIGSEGV) == 0, "PR_SET_TSC");
}
static void deleted_folder(const char* path) {
  need(mkdir(path, 0777) == 0 && chdir(path) == 0 && rmdir(path) == 0, "a folder to delete");
}
static void go_to(const char* path) { need(chdir(path) == 0, path); }

static int no_words = 0;
static void without_words(const char* unused) {
  (void)unused;
  no_words = 1;
}

static const struct {
  const char* name;
  void (*make)(const char* value);
} pieces[] = {{"user", set_user},
              {"capabilities", drop_capabilities},
              {"processes", new_processes},
              {"mounts", new_mounts},
              {"user-namespace", new_user},
              {"namespaces", new_rest},
              {"proc", mount_proc},
              {"no-proc", unmount_proc},
              {"root", change_root},
              {"overlay", overlay},
              {"pivot", pivot},
              {"read-only", read_only},
              {"no-exec", no_exec},
              {"filter", filter},
              {"personality", set_personality},
              {"limit", limit},
              {"close", close_one},
              {"close-all", close_all},
              {"block", block},
              {"ignore", ignore},
              {"nice", set_nice},
              {"fifo", be_realtime},
              {"cpu", one_cpu},
              {"reaper", be_reaper},
              {"no-new-privileges", no_privileges},
              {"mdwe", refuse_new_code},
              {"no-tsc", no_time_stamps},
              {"deleted-folder", deleted_folder},
              {"folder", go_to},
              {"no-words", without_words}};

static void make(char* word) {
  char* value = strchr(word, '=');
  if (value != NULL) *value++ = 0;
  for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; ++i) {
    if (strcmp(word, pieces[i].name) != 0) continue;
    pieces[i].make(value);
    return;
  }
  errno = EINVAL;
  need(0, word);
}

int main(int count, char** words) {
  int at = 1;
  for (; at < count && strcmp(words[at], "--") != 0; ++at) make(words[at]);
  if (at + 1 >= count) return kCannot;
  char* nothing[] = {NULL};
  execv(words[at + 1], no_words ? nothing : words + at + 1);
  need(0, words[at + 1]);
}
