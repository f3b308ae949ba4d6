// SPDX-License-Identifier: MIT
#include "engine/trace/task_numbers.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <utility>

#include "engine/base/fd.h"
#include "engine/target/process_list.h"

namespace uprobe::trace {
namespace {

constexpr std::size_t kMostProcesses = 256, kMostBelow = 256;
constexpr std::uint64_t kShare = 5, kMostAtOnce = 20'000'000;
constexpr unsigned kMostReads = 1024;

std::uint64_t now_ns() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(time).count());
}

std::uint32_t number_in(std::string_view text) {
  std::uint32_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::vector<std::uint32_t> numbers_in(const std::string& folder) {
  std::vector<std::uint32_t> found;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (const std::uint32_t number = number_in(at->path().filename().string()); number != 0) found.push_back(number);
  return found;
}

}  // namespace

TaskNumbers::TaskNumbers(std::string proc, std::function<bool(std::uint32_t)> is_traced)
    : proc_(std::move(proc)), is_traced_(std::move(is_traced)) {}

TaskNumbers::Found TaskNumbers::find(const shared::TaskNumber& task) {
  const std::uint64_t begin = now_ns();
  left_ns_ = std::min(kMostAtOnce, left_ns_ + (begin - last_ns_) / kShare);
  last_ns_ = begin;
  if (left_ns_ == 0) return {.has_looked = false, .number = 0};
  reads_left_ = kMostReads;
  const std::uint32_t number = look_for(task);
  left_ns_ -= std::min(left_ns_, now_ns() - begin);
  return {.has_looked = true, .number = number};
}

std::uint32_t TaskNumbers::look_for(const shared::TaskNumber& task) {
  if (task.process == 0 || (is_traced_ && !is_traced_(task.process))) return 0;
  const std::uint32_t found = task.of_child ? 0 : thread_of(task.process, task.thread);
  return found != 0 ? found : thread_below(task.process, task.thread);
}

// 0: the task has ended, or this look has read enough.
TaskNumbers::Own TaskNumbers::own_number(std::uint32_t process, std::uint32_t thread) {
  if (!may_read()) return {};
  const auto status = read_file(folder(process) + "/" + std::to_string(thread) + "/status");
  const auto ids = status ? target::namespace_ids(*status) : std::vector<pid_t>();
  return ids.empty() ? Own{} : Own{static_cast<std::uint32_t>(ids.back()), ids.size()};
}

// The ids of a thread never change, so only new threads are read. If there are too many, the next look continues.
void TaskNumbers::read_threads(std::uint32_t process, Threads& known) {
  Threads now;
  for (const std::uint32_t thread : numbers_in(folder(process))) {
    const auto old = known.find(thread);
    if (old != known.end())
      now.insert(*old);
    else if (const Own own = own_number(process, thread); own.number != 0)
      now.emplace(thread, own.number);
  }
  known = std::move(now);
}

std::uint32_t TaskNumbers::thread_of(std::uint32_t process, std::uint32_t own) {
  if (own_number(process, process).number == own) return process;
  if (threads_.size() >= kMostProcesses && !threads_.contains(process)) threads_.clear();
  Threads& known = threads_[process];
  const auto is_it = [&](const auto& thread) {
    return thread.second == own && own_number(process, thread.first).number == own;
  };
  for (const auto& thread : known)
    if (is_it(thread)) return thread.first;
  read_threads(process, known);
  for (const auto& [thread, number] : known)
    if (number == own) return thread;
  return 0;
}

std::vector<std::uint32_t> TaskNumbers::children_of(std::uint32_t process) {
  std::vector<std::uint32_t> children;
  for (const std::uint32_t thread : numbers_in(folder(process))) {
    if (!may_read()) break;
    const auto list = read_file(folder(process) + "/" + std::to_string(thread) + "/children");
    std::string_view rest = list ? std::string_view(*list) : std::string_view();
    for (std::size_t end = 0; (end = rest.find(' ')) != std::string_view::npos; rest.remove_prefix(end + 1))
      if (const std::uint32_t child = number_in(rest.substr(0, end)); child != 0) children.push_back(child);
  }
  return children;
}

// The nearest process first. In a nested namespace the same id may be another task's.
std::uint32_t TaskNumbers::thread_below(std::uint32_t process, std::uint32_t own) {
  const std::size_t depth = own_number(process, process).depth;
  std::vector<std::uint32_t> open{process};
  for (std::size_t at = 0; at < open.size() && at < kMostBelow; ++at) {
    const std::vector<std::uint32_t> children = children_of(open[at]);
    for (const std::uint32_t child : children)
      if (own_number(child, child).depth == depth && (!is_traced_ || is_traced_(child)))
        if (const std::uint32_t found = thread_of(child, own); found != 0) return found;
    open.insert(open.end(), children.begin(), children.end());
  }
  return 0;
}

}  // namespace uprobe::trace
