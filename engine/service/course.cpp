// SPDX-License-Identifier: MIT
#include "engine/service/course.h"

#include <sys/resource.h>

#include <algorithm>
#include <string>
#include <utility>

#include "engine/process/members.h"
#include "engine/trace/task_names.h"

namespace uprobe {
namespace {

constexpr auto kBetweenLosses = std::chrono::seconds(1);

// Each takes a descriptor, of which the tool needs others.
std::size_t most_processes() {
  constexpr rlim_t kShare = 4;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  return static_cast<std::size_t>(std::min<rlim_t>(ProcessWatch::kMost, limit.rlim_cur / kShare));
}

}  // namespace

void Course::begin(bool is_wanted, bool wants_mappings) {
  wants_mappings_ = wants_mappings;
  is_wanted_ = is_wanted;
}

Fd Course::open_member(pid_t pid) {
  auto member = control::open_member(needs_.area(), pid);
  if (!member) return {};
  if (mappings_ != nullptr) mappings_->note(pid);
  return std::move(member->handle);
}

void Course::begin_if_asked() {
  if (!is_wanted_ || processes_) return;
  processes_.emplace(ProcessWatch::Needs{.tell = needs_.tell,
                                         .open_member = [this](pid_t pid) { return open_member(pid); },
                                         .has_handed_on = needs_.has_handed_on,
                                         .own_child = needs_.own_child(),
                                         .most = most_processes()});
  needs_.watch(&*processes_);
  for (const FirstProcess& process : needs_.first()) processes_->add_member(process.pid, process.ns, process.comm);
  next_losses_ = std::chrono::steady_clock::now() + kBetweenLosses;
  if (wants_mappings_) mappings_ = needs_.mappings();
}

void Course::tell_mappings() {
  if (mappings_ == nullptr) return;
  for (const control::NotedMappings& noted : mappings_->take()) needs_.tell(build_ids_.add_to(noted));
}

void Course::learn(std::span<const control::SeenTask> tasks, std::span<const control::SeenExec> execs) {
  begin_if_asked();
  if (!processes_) return;
  processes_->learn(tasks, execs);
  tell_mappings();
}

void Course::step() {
  if (!processes_) return;
  processes_->step();
  const auto now = std::chrono::steady_clock::now();
  if (now < next_losses_) return;
  next_losses_ = now + kBetweenLosses;
  tell_losses();
}

void Course::tell_losses() {
  const auto events = needs_.progress();
  if (!events) return;
  const std::uint64_t now = trace::TaskNames::now_ns();
  told_.resize(std::max(told_.size(), events->size()));
  for (std::size_t i = 0; i < events->size(); ++i) {
    const EventProgress& event = (*events)[i];
    if (event.lost <= told_[i].lost && event.missed <= told_[i].missed) continue;
    told_[i] = {event.lost, event.missed};
    needs_.tell(format::LossSoFar{.ns = now, .name = event.name, .hits = event.lost, .returns = event.missed});
  }
}

void Course::note_missing(std::uint64_t dropped) const {
  if (const std::uint64_t looks = mappings_ == nullptr ? 0 : mappings_->dropped(); looks != 0)
    needs_.note(std::to_string(looks) + " times a process mapped more than the recording has");
  if (processes_->is_overfull())
    needs_.note("more than " + std::to_string(processes_->most()) +
                " processes ran at a time: the output tells of some of them neither start nor end");
  if (dropped != 0)
    needs_.note(std::to_string(dropped) +
                " starts, ends and other entries are missing in the output, which was blocked");
}

void Course::end(std::uint64_t dropped) {
  if (!processes_) return;
  processes_->look(true);
  tell_mappings();
  note_missing(dropped);
  needs_.watch(nullptr);
  is_wanted_ = false;
  processes_.reset();
}

}  // namespace uprobe
