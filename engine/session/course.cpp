// SPDX-License-Identifier: MIT
#include "engine/session/course.h"

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

void Course::begin(const Recipient& recipient) {
  wants_mappings_ = recipient.wants_mappings();
  is_wanted_ = recipient.wants_course();
}

void Course::begin_if_asked() {
  if (!is_wanted_ || processes_) return;
  const auto open_member = [this](pid_t pid) {
    auto member = control::open_member(recording_.area(), pid);
    if (member && mappings_ != nullptr) mappings_->note(pid);
    return member ? std::move(member->handle) : Fd();
  };
  processes_.emplace(
      ProcessWatch::Needs{.tell = [this](const format::ProcessEvent& event) { recording_.own().tell_process(event); },
                          .open_member = open_member,
                          .has_handed_on = [this](std::uint64_t ns) { return recording_.has_handed_on(ns); },
                          .own_child = targets_.awaits_program() ? targets_.child() : 0,
                          .most = most_processes()});
  recording_.own().watch(&*processes_);
  const std::uint64_t began = recording_.began_ns();
  trace::TaskNames& names = recording_.names();
  for (const pid_t pid : targets_.roots())
    processes_->add_member(pid, began, names.name(names.called(static_cast<std::uint32_t>(pid)), began));
  next_losses_ = std::chrono::steady_clock::now() + kBetweenLosses;
  if (wants_mappings_ && targets_.has_mail()) mappings_ = targets_.mail().mappings();
}

void Course::tell_mappings() {
  if (mappings_ == nullptr) return;
  for (const control::NotedMappings& noted : mappings_->take())
    recording_.own().tell_mappings(build_ids_.add_to(noted));
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
  const auto events = changes_.progress();
  if (!events) return;
  const std::uint64_t now = trace::TaskNames::now_ns();
  told_.resize(std::max(told_.size(), events->size()));
  for (std::size_t i = 0; i < events->size(); ++i) {
    const EventProgress& event = (*events)[i];
    if (event.lost <= told_[i].lost && event.missed <= told_[i].missed) continue;
    told_[i] = {event.lost, event.missed};
    recording_.own().tell_loss({.ns = now, .name = event.name, .hits = event.lost, .returns = event.missed});
  }
}

void Course::end() {
  if (!processes_) return;
  processes_->look(true);
  tell_mappings();
  if (const std::uint64_t dropped = mappings_ == nullptr ? 0 : mappings_->dropped(); dropped != 0)
    messages_.notes.push_back(std::to_string(dropped) + " times a process mapped more than the recording has");
  if (processes_->is_overfull())
    messages_.notes.push_back("more than " + std::to_string(processes_->most()) +
                              " processes ran at a time: the output tells of some of them neither start nor end");
  if (const std::uint64_t dropped = recording_.own().dropped_course(); dropped != 0)
    messages_.notes.push_back(std::to_string(dropped) +
                              " starts, ends and other entries are missing in the output, which was blocked");
  recording_.own().watch(nullptr);
  is_wanted_ = false;
  processes_.reset();
}

}  // namespace uprobe
