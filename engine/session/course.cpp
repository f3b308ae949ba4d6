// SPDX-License-Identifier: MIT
#include "engine/session/course.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/process/members.h"
#include "engine/trace/task_names.h"

namespace uprobe {
namespace {

constexpr auto kBetweenLosses = std::chrono::seconds(1);

}  // namespace

void Course::begin(const Recipient& recipient) {
  if (!recipient.wants_course() || processes_) return;
  const auto open_member = [this](pid_t pid) {
    auto member = control::open_member(recording_.area(), pid);
    return member ? std::move(member->handle) : Fd();
  };
  processes_.emplace(
      ProcessWatch::Needs{.tell = [this](const format::ProcessEvent& event) { recording_.own().tell_process(event); },
                          .open_member = open_member,
                          .has_handed_on = [this](std::uint64_t ns) { return recording_.has_handed_on(ns); },
                          .own_child = targets_.awaits_program() ? targets_.child() : 0});
  recording_.own().watch(&*processes_);
  const std::uint64_t began = recording_.began_ns();
  trace::TaskNames& names = recording_.names();
  for (const pid_t pid : targets_.roots())
    processes_->add_member(pid, began, names.name(names.called(static_cast<std::uint32_t>(pid)), began));
  next_losses_ = std::chrono::steady_clock::now() + kBetweenLosses;
}

void Course::learn(std::span<const control::SeenTask> tasks, std::span<const control::SeenExec> execs) {
  if (processes_) processes_->learn(tasks, execs);
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
  if (processes_->is_overfull())
    messages_.notes.push_back("more than " + std::to_string(ProcessWatch::kMost) +
                              " processes ran at a time: the output tells of some of them neither start nor end");
  if (const std::uint64_t dropped = recording_.own().dropped_course(); dropped != 0)
    messages_.notes.push_back(std::to_string(dropped) +
                              " starts, ends and losses are missing in the output, which was blocked");
  recording_.own().watch(nullptr);
  processes_.reset();
}

}  // namespace uprobe
