// SPDX-License-Identifier: MIT
// The machine and the tool's own rights. See doctor.h.
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>

#include "engine/base/fd.h"
#include "engine/base/procfs.h"
#include "engine/doctor/doctor.h"
#include "engine/resolve/programs.h"
#include "engine/target/attachable.h"

namespace uprobe {
namespace {

constexpr unsigned kSysPtrace = 19, kSysAdmin = 21;  // linux/capability.h

std::string status_of_tool() {
  const auto status = read_file("/proc/self/status");
  return status ? *status : std::string();
}

bool has_capability(const std::string& status, unsigned number) {
  return (procfs::capabilities(status, "CapEff") >> number & 1) != 0;
}

// A small file's first word; nothing: it cannot be read.
std::optional<std::string> setting(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return std::nullopt;
  return text->substr(0, text->find_first_of(" \t\n"));
}

Finding kernel() {
  utsname facts{};
  ::uname(&facts);
  return {Verdict::good, "kernel", std::string(facts.sysname) + " " + facts.release + " on " + facts.machine, ""};
}

// What launching does first: a child lets itself be traced, stops, and is let go. 0, or an errno.
int try_tracing_a_child() {
  const pid_t child = ::fork();
  if (child < 0) return errno;
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(errno);
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) == child && WIFSTOPPED(status)) ::ptrace(PTRACE_CONT, child, nullptr, nullptr);
  return WIFEXITED(status) ? WEXITSTATUS(status) : EPERM;
}

Finding starting(int error) {
  if (error == 0) return {Verdict::good, "starting programs", "a child of the tool can be traced", ""};
  return {Verdict::bad, "starting programs",
          std::string("a child cannot be traced (ptrace: ") + std::strerror(error) + ")",
          "use LD_PRELOAD=libuprobe.so UPROBE_PROBES='p:open libc:open64' PROGRAM, which needs no ptrace; or allow "
          "ptrace (" +
              std::string(target::kAllowPtrace) + ")"};
}

// The first one maps all users to themselves (user_namespaces(7)).
bool is_in_user_namespace() {
  const auto map = read_file("/proc/self/uid_map");
  if (!map) return false;
  std::istringstream numbers(*map);
  std::uint64_t inside = 0, outside = 0, count = 0;
  numbers >> inside >> outside >> count;
  return inside != 0 || outside != 0 || count != UINT32_MAX;
}

Finding attaching(const std::string& status, bool has_ptrace) {
  if (!has_ptrace)
    return {
        Verdict::bad, "attaching", "needs ptrace, which is forbidden here",
        "attach from outside of this container, as root of the host, whose uprobe-run takes this container's paths"};
  return judge_attaching({.yama_scope = procfs::ptrace_scope(),
                          .is_root = ::geteuid() == 0,
                          .may_trace_all = has_capability(status, kSysPtrace),
                          .is_in_user_namespace = is_in_user_namespace()});
}

Finding seccomp(const std::string& status) {
  const std::string mode(procfs::field(status, "Seccomp").value_or("0"));
  if (mode == "0") return {Verdict::good, "seccomp", "the tool is under no filter", ""};
  return {
      Verdict::limited, "seccomp",
      "the tool is under a seccomp filter: it attaches to processes without one, or under the same filters",
      "--doctor -P PID says of a process whether that is so; as root outside of the filter uprobe-run attaches to all"};
}

// An unregistration that fits no registration: EINVAL where the call exists (kernel/rseq.c).
Finding restartable_sequences() {
#ifdef SYS_rseq
  if (::syscall(SYS_rseq, nullptr, 0, 0, 0) != 0 && errno != ENOSYS && errno != EPERM)
    return {Verdict::good, "rseq", "records are written without a lock", ""};
#endif
  return {Verdict::limited, "rseq",
          "there are no restartable sequences: each hit claims a ring with a locked instruction",
          "Linux 4.18 and glibc 2.35 have them, unless a filter forbids the call"};
}

Finding user_namespaces() {
  const auto most = setting("/proc/sys/user/max_user_namespaces");
  const auto unprivileged = setting("/proc/sys/kernel/unprivileged_userns_clone");
  if (most.value_or("0") == "0" || unprivileged.value_or("1") == "0")
    return {Verdict::good, "user namespaces", "users cannot make them; the tool does not need them", ""};
  return {Verdict::good, "user namespaces",
          "users can make them; processes in another one are attached to by root only", ""};
}

Finding debug_information() {
  std::error_code unread;
  if (std::filesystem::is_directory("/usr/lib/debug/.build-id", unread))
    return {Verdict::good, "debug information", "separate debug files are installed in /usr/lib/debug", ""};
  const std::string advice = find_program("debuginfod-find") ? "debuginfod-find debuginfo FILE fetches a file's"
                                                             : "install the -dbgsym packages of what is probed";
  return {Verdict::limited, "debug information",
          "there are no separate debug files: lines and variables are known of programs built with -g only", advice};
}

Finding kernel_uprobes(const std::string& status) {
  for (const char* folder : {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"})
    if (::access((std::string(folder) + "/uprobe_events").c_str(), W_OK) == 0)
      return {Verdict::good, "kernel uprobes",
              std::string("can be used in ") + folder + "; this tool does not need them", ""};
  const bool could = has_capability(status, kSysAdmin);
  return {Verdict::good, "kernel uprobes", "cannot be used here; this tool does not need them",
          could ? "mount -t tracefs nodev /sys/kernel/tracing makes them available" : ""};
}

}  // namespace

Finding judge_attaching(const PtraceRules& rules) {
  const std::string subject = "attaching";
  if (rules.yama_scope == "3")
    return {Verdict::bad, subject, "ptrace is switched off until the next boot (kernel.yama.ptrace_scope is 3)",
            "start the program with LD_PRELOAD=libuprobe.so, which needs no ptrace"};
  if (rules.may_trace_all && rules.is_in_user_namespace)
    return {Verdict::limited, subject,
            "to processes of this user namespace and those in it (CAP_SYS_PTRACE holds there alone)",
            "to others from outside of the namespace"};
  if (rules.may_trace_all) return {Verdict::good, subject, "to processes of all users (CAP_SYS_PTRACE)", ""};
  if (rules.yama_scope == "2")
    return {Verdict::bad, subject, "needs CAP_SYS_PTRACE (kernel.yama.ptrace_scope is 2)",
            "use sudo, or start the program with LD_PRELOAD=libuprobe.so, which needs no ptrace"};
  if (rules.yama_scope == "1")
    return {Verdict::limited, subject, "to programs that uprobe-run has started only (kernel.yama.ptrace_scope is 1)",
            "sudo sysctl kernel.yama.ptrace_scope=0, use sudo, or start the program under uprobe-run"};
  if (rules.is_root)
    return {Verdict::limited, subject,
            "to processes with no more capabilities than the tool, which lacks CAP_SYS_PTRACE", target::kAllowPtrace};
  return {Verdict::good, subject, "to this user's own processes", ""};
}

std::vector<Finding> examine_machine() {
  const std::string status = status_of_tool();
  const int error = try_tracing_a_child();
  return {
      kernel(),          starting(error),     attaching(status, error == 0), seccomp(status), restartable_sequences(),
      user_namespaces(), debug_information(), kernel_uprobes(status)};
}

}  // namespace uprobe
