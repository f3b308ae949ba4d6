// SPDX-License-Identifier: MIT
#include "engine/target/process_stat.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "engine/base/fd.h"
#include "engine/base/procfs.h"
#include "engine/target/target.h"

namespace uprobe::target {

std::optional<ProcessStat> parse_stat(std::string_view text) {
  const std::size_t begin = text.find('('), end = text.rfind(')');  // the name may have some of its own
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return std::nullopt;
  ProcessStat stat{.name = std::string(text.substr(begin + 1, end - begin - 1))};
  std::istringstream fields(std::string(text.substr(end + 1)));
  std::string word;
  fields >> stat.state;
  for (int field = 4; field <= 22 && fields >> word; ++field) {
    if (field == 9) stat.flags = std::strtoull(word.c_str(), nullptr, 10);
    if (field == 20) stat.threads = std::strtoull(word.c_str(), nullptr, 10);
    if (field == 22) stat.started = std::strtoull(word.c_str(), nullptr, 10);
  }
  return stat;
}

std::optional<ProcessStat> stat_of(pid_t pid) {
  const auto text = procfs::read(pid, "stat");
  return text ? parse_stat(*text) : std::nullopt;
}

namespace {

std::optional<ProcessStat> stat_of_thread(pid_t pid, pid_t tid) {
  const auto text = procfs::read(pid, tid, "stat");
  return text ? parse_stat(*text) : std::nullopt;
}

}  // namespace

ThreadRun run_of(pid_t pid, pid_t tid) {
  ThreadRun run;
  if (const auto stat = stat_of_thread(pid, tid)) run.state = stat->state;
  std::uint64_t waited = 0;
  if (const auto times = procfs::read(pid, tid, "schedstat"))
    std::istringstream(*times) >> run.ran_ns >> waited >> run.turns;
  return run;
}

bool is_kernel_thread(const ProcessStat& stat) {
  constexpr std::uint64_t kKernelThread = 0x200000;  // PF_KTHREAD, include/linux/sched.h
  return (stat.flags & kKernelThread) != 0;
}

// The flags had other meanings before Linux 5.12 (PF_IO_WORKER) and 6.4 (PF_USER_WORKER), and any thread may have such a name. A thread that
// has both can only be one of these (io_uring/io-wq.c, io_uring/sqpoll.c, kernel/vhost_task.c).
bool is_kernels(const ProcessStat& thread) {
  constexpr std::uint64_t kIoWorker = 1 << 4, kUserWorker = 1 << 14;
  return (thread.flags & (kIoWorker | kUserWorker)) != 0 &&
         (thread.name.starts_with("iou-") || thread.name.starts_with("vhost-"));
}

bool is_kernels(pid_t pid, pid_t tid) {
  const auto stat = stat_of_thread(pid, tid);
  return stat && is_kernels(*stat);
}

bool has_ended(const ProcessStat& stat) { return (stat.state == 'Z' || stat.state == 'X') && stat.threads <= 1; }

bool has_ended(pid_t pid) {
  const auto stat = stat_of(pid);
  return !stat || has_ended(*stat);
}

bool has_thread_that_cannot_stop(pid_t pid) {
  return std::ranges::any_of(threads_of(pid), [pid](pid_t tid) {
    const auto stat = stat_of_thread(pid, tid);
    return stat && stat->state == 'D' && !is_kernels(*stat);
  });
}

}  // namespace uprobe::target
