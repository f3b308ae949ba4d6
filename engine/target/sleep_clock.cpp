// SPDX-License-Identifier: MIT
#include "engine/target/sleep_clock.h"

#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <string>

#include "engine/base/fd.h"
#include "engine/base/procfs.h"
#include "engine/proxy/memory.h"

namespace uprobe::target {
namespace {

// "name   :   value"; null: there is no such line.
const char* after_name(const std::string& text, const std::string& name) {
  const std::size_t at = text.find("\n" + name + " ");
  const std::size_t colon = at == std::string::npos ? at : text.find(':', at);
  return colon == std::string::npos ? nullptr : text.c_str() + colon + 1;
}

// "82366473.130371": milliseconds and nanoseconds.
std::chrono::nanoseconds parse_time(const char* text) {
  char* point = nullptr;
  const long long milliseconds = std::strtoll(text, &point, 10);
  const long long rest = *point == '.' ? std::strtoll(point + 1, nullptr, 10) : 0;
  return std::chrono::milliseconds(milliseconds) + std::chrono::nanoseconds(rest);
}

// The processor is the 39th field, proc(5).
int processor_of(pid_t pid, pid_t tid) {
  const auto text = procfs::read(pid, tid, "stat");
  const std::size_t end = text ? text->rfind(')') : std::string::npos;
  if (end == std::string::npos) return -1;
  std::istringstream fields(text->substr(end + 1));
  std::string word;
  for (int field = 3; field <= 39; ++field)
    if (!(fields >> word)) return -1;
  return std::atoi(word.c_str());
}

// A thread that has just slept has its time from its processor's clock.
std::optional<Sleep> look_at_oneself() {
  const timespec moment{0, 1};
  ::nanosleep(&moment, nullptr);
  return sleep_of(::getpid(), static_cast<pid_t>(::syscall(SYS_gettid)));
}

}  // namespace

std::optional<Sleep> sleep_of(pid_t pid, pid_t tid) {
  const auto text = procfs::read(pid, tid, "sched");
  if (!text) return std::nullopt;
  const char* since = after_name(*text, "se.exec_start");
  const char* switches = after_name(*text, "nr_switches");
  const int processor = processor_of(pid, tid);
  if (since == nullptr || switches == nullptr || processor < 0) return std::nullopt;
  return Sleep{parse_time(since), std::strtoull(switches, nullptr, 10), processor};
}

std::optional<std::chrono::nanoseconds> time_since(const Sleep& sleep) {
  cpu_set_t before, there;
  if (::sched_getaffinity(0, sizeof before, &before) != 0) return std::nullopt;
  CPU_ZERO(&there);
  CPU_SET(static_cast<std::size_t>(sleep.processor), &there);
  if (::sched_setaffinity(0, sizeof there, &there) != 0) return std::nullopt;
  const auto now = look_at_oneself();
  ::sched_setaffinity(0, sizeof before, &before);
  if (!now || now->processor != sleep.processor || now->since < sleep.since) return std::nullopt;
  return now->since - sleep.since;
}

long call_under_way(pid_t pid, pid_t tid) {
  const auto text = proxy::read_of(pid, procfs::path(pid, tid, "syscall"));
  if (!text || text->empty() || (*text)[0] < '0' || (*text)[0] > '9') return -1;
  return std::strtol(text->c_str(), nullptr, 10);
}

}  // namespace uprobe::target
