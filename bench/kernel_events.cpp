// SPDX-License-Identifier: MIT
#include "bench/kernel_events.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <sstream>

#include "engine/base/fd.h"

namespace uprobe::bench {
namespace {

const std::string kTracefs = "/sys/kernel/tracing";
const std::string kEvents = kTracefs + "/uprobe_events";
const std::string kPrefix = "uprobe_bench_";
constexpr char kBufferKb[] = "4096";  // of each CPU: the size of our rings

Status put(const std::string& path, const std::string& text, int flags = 0) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | flags));
  if (!file) return system_error("open " + path, errno);
  if (const int err = write_all(file.get(), text.data(), text.size())) return system_error("write " + path, err);
  return ok();
}

std::string group_of(pid_t owner) { return kPrefix + std::to_string(owner); }

std::vector<std::string> events_of(const std::string& group) {
  std::vector<std::string> events;
  std::istringstream lines(read_file(kEvents).take());
  const std::string start = ":" + group + "/";  // after p or r
  for (std::string line; std::getline(lines, line);)
    if (line.find(start) == 1) events.push_back(line.substr(start.size() + 1, line.find(' ') - start.size() - 1));
  return events;
}

// The events are removed before the instance: it cannot go while one of them is enabled in it.
void remove_group(const std::string& group) {
  const std::string instance = kTracefs + "/instances/" + group;
  for (const std::string& event : events_of(group)) {
    static_cast<void>(put(instance + "/events/" + group + "/" + event + "/enable", "0"));
    static_cast<void>(put(kEvents, "-:" + group + "/" + event + "\n", O_APPEND));
  }
  ::rmdir(instance.c_str());
}

}  // namespace

std::string KernelEvents::why_not() {
  if (::access(kEvents.c_str(), W_OK) != 0) return "no tracefs";
  if (::access((kTracefs + "/instances").c_str(), W_OK) != 0) return "no tracing instances";
  return {};
}

void KernelEvents::remove(pid_t owner) {
  if (why_not().empty()) remove_group(group_of(owner));
}

void KernelEvents::remove_leftovers() {
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(kTracefs + "/instances", failed)) {
    const std::string name = entry.path().filename();
    int owner = 0;
    if (std::sscanf(name.c_str(), "uprobe_bench_%d", &owner) == 1 && ::kill(owner, 0) != 0 && errno == ESRCH)
      remove_group(name);
  }
}

KernelEvents::KernelEvents(pid_t owner)
    : folder_("/uprobe-bench-" + std::to_string(owner) + "/"),
      group_(group_of(owner)),
      instance_(kTracefs + "/instances/" + group_) {}

Status KernelEvents::add(char kind, const std::string& name, const std::string& file, std::uint64_t offset,
                         const std::string& arguments) {
  if (::mkdir(instance_.c_str(), 0750) == 0)
    if (Status s = put(instance_ + "/buffer_size_kb", kBufferKb); !s) return s;
  char place[32];
  std::snprintf(place, sizeof place, ":0x%llx ", static_cast<unsigned long long>(offset));
  const std::string definition = kind + (":" + group_) + "/" + name + " " + file + place + arguments + "\n";
  if (Status s = put(kEvents, definition, O_APPEND); !s) return s;
  return put(instance_ + "/events/" + group_ + "/" + name + "/enable", "1");
}

Result<std::map<std::string, std::uint64_t>> KernelEvents::hits() const {
  auto text = read_file(kTracefs + "/uprobe_profile");
  if (!text) return text.error();
  std::map<std::string, std::uint64_t> hits;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string path, event;
    std::uint64_t count = 0;
    if (words >> path >> event >> count && path.find(folder_) != std::string::npos) hits[event] += count;
  }
  return hits;
}

}  // namespace uprobe::bench
