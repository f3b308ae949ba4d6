// SPDX-License-Identifier: MIT
// Works like preload/helper.cpp, but in a process that runs and may have threads. It needs two processes, one after the other,
// since execve gives a process the exit signal SIGCHLD. The intermediate process has exit signal 0 and ends at once, and the
// kernel gives the tool another parent. If that would be this process (a subreaper, or process 1) the intermediate process
// stays as the tool's parent; it needs memory of its own then.
//
// Otherwise the processes share this one's memory until execve (CLONE_VM), so that a large program need not be copied, and each
// parent waits for its child (CLONE_VFORK). They make system calls in inline assembly and do nothing else.
#include "library/self_attach_tracer.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <initializer_list>

#include "arch/abi/start_process.h"
#include "engine/base/procfs.h"
#include "engine/ipc/self_attach_protocol.h"
#include "engine/resolve/programs.h"
#include "engine/session/session.h"
#include "library/system_call.h"

namespace libuprobe {
namespace {

constexpr std::size_t kStackBytes = 64 << 10;

// Shared by all of the processes, also where they have memory of their own.
struct Start {
  const char* path;
  char* const* words;
  char* const* variables;
  int socket;
  bool stays;  // the intermediate process
  int error;   // why the tool could not be started; 0: it was
  alignas(16) char stacks[2][kStackBytes];
};

// Not through the C library's function, which sanitizers intercept: what they do for a child would be done to this process's memory.
// Returns a negative errno.
pid_t start_process(int flags, char* stack, void (*work)(void*), void* of) {
  return static_cast<pid_t>(uprobe::arch::start_process(flags, stack, work, of));
}

[[noreturn]] void end(std::uint64_t code) {
  for (;;) system_call(SYS_exit_group, code);
}

void close_from(unsigned first) {
  if (system_call(SYS_close_range, first, ~0U, 0) == 0) return;
  for (unsigned fd = first; fd < 65536; ++fd) system_call(SYS_close, fd);  // a kernel before 5.9
}

// Limits on the program's memory must not apply to the tool.
void lift_limits() {
  for (const std::uint64_t resource : {RLIMIT_DATA, RLIMIT_STACK, RLIMIT_AS}) {
    rlimit limit{};
    if (system_call(SYS_prlimit64, 0, resource, 0, as_word(&limit)) != 0) continue;
    limit.rlim_cur = limit.rlim_max;
    system_call(SYS_prlimit64, 0, resource, as_word(&limit), 0);
  }
}

void become_tool(void* of) {
  Start& start = *static_cast<Start*>(of);
  const auto socket = static_cast<std::uint64_t>(start.socket);
  system_call(SYS_setsid);
  if (start.socket == uprobe::kAttendSocket)
    system_call(SYS_fcntl, socket, F_SETFD, 0);
  else
    system_call(SYS_dup2, socket, uprobe::kAttendSocket);
  close_from(uprobe::kAttendSocket + 1);
  lift_limits();
  start.error =
      static_cast<int>(-system_call(SYS_execve, as_word(start.path), as_word(start.words), as_word(start.variables)));
  end(127);
}

void be_intermediate(void* of) {
  Start& start = *static_cast<Start*>(of);
  const int flags = CLONE_VM | CLONE_VFORK | CLONE_UNTRACED;
  const pid_t tool = start_process(flags, start.stacks[1] + kStackBytes, become_tool, of);
  if (tool < 0) start.error = -tool;
  if (start.stays && tool > 0) {
    system_call(SYS_setsid);
    close_from(0);
    while (system_call(SYS_wait4, static_cast<std::uint64_t>(tool), 0, __WALL, 0) == -EINTR) {
    }
  }
  end(0);
}

bool is_parent_of_orphans() {
  int is_reaper = 0;
  ::prctl(PR_GET_CHILD_SUBREAPER, &is_reaper);
  return is_reaper != 0 || ::getpid() == 1;
}

// Whether the tool will find this process: /proc belongs to its PID namespace, and its children are born into that namespace.
// (The first process of a new namespace would be its process 1, and its end the end of the namespace.)
bool can_be_found() {
  return uprobe::procfs::link("/proc/self") == std::to_string(::getpid()) &&
         uprobe::procfs::link("/proc/self/ns/pid") == uprobe::procfs::link("/proc/self/ns/pid_for_children");
}

// The tool is next to the agent (build tree), or in bin if the agent is in lib/uprobe or lib/TRIPLET/uprobe.
std::string find_tool(const Options& options) {
  if (!options.tool.empty()) return options.tool;
  const std::string agent = options.agent.empty() ? uprobe::find_agent() : options.agent;
  const std::string folder = agent.substr(0, agent.rfind('/') + 1);
  for (const char* tail : {"uprobe-run", "../../bin/uprobe-run", "../../../bin/uprobe-run"})
    if (::access((folder + tail).c_str(), X_OK) == 0) return folder + tail;
  return folder + "uprobe-run";
}

Error cannot_run(const std::string& tool, int error) {
  return {.text = "cannot run " + tool + ": " + std::strerror(error),
          .help = "set Options::tool to the path of uprobe-run"};
}

// 0 or an errno; `intermediate`: the intermediate process if it stays.
int start_processes(Start& start, pid_t& intermediate) {
  const int flags = CLONE_UNTRACED | (start.stays ? 0 : CLONE_VM | CLONE_VFORK);
  const pid_t child = start_process(flags, start.stacks[0] + kStackBytes, be_intermediate, &start);
  if (child < 0) return -child;
  if (start.stays) return intermediate = child, 0;
  while (::wait4(child, nullptr, __WCLONE, nullptr) < 0 && errno == EINTR) {
  }
  return start.error;
}

class SharedStart {
 public:
  SharedStart() : memory_(::mmap(nullptr, sizeof(Start), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
  ~SharedStart() {
    if (*this) ::munmap(memory_, sizeof(Start));
  }
  SharedStart(const SharedStart&) = delete;
  SharedStart& operator=(const SharedStart&) = delete;
  explicit operator bool() const { return memory_ != MAP_FAILED; }
  Start& operator*() const { return *static_cast<Start*>(memory_); }

 private:
  void* memory_;
};

}  // namespace

// The tool gets an empty environment: the program's must not matter to it, least of all variables that its loader obeys.
Result<SelfAttachTracer> start_self_attach_tracer(const Options& options, std::uint32_t thread,
                                                  const std::string& callbacks) {
  if (!can_be_found()) return Error{.text = "/proc, or new processes of this one, belong to another PID namespace"};
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return Error{.text = "no descriptor is left"};
  SelfAttachTracer tracer{.socket = uprobe::Fd(ends[0])};
  const uprobe::Fd its(ends[1]);
  const SharedStart shared;
  if (!shared) return Error{.text = "out of memory"};
  const std::string tool = find_tool(options);
  std::array<std::string, uprobe::kAttendWords> texts = {"uprobe-run",           uprobe::kAttendOption,
                                                         std::to_string(thread), std::to_string(options.buffer_bytes),
                                                         options.agent,          callbacks};
  std::array<char*, uprobe::kAttendWords + 1> words{};
  for (std::size_t i = 0; i < texts.size(); ++i) words[i] = texts[i].data();
  std::array<char*, 1> variables{};
  Start& start = *shared;
  start.path = tool.c_str(), start.words = words.data(), start.variables = variables.data();
  start.socket = its.get(), start.stays = is_parent_of_orphans();
  const int error = start_processes(start, tracer.intermediate);
  if (error != 0) return cannot_run(tool, error);
  return tracer;
}

}  // namespace libuprobe
