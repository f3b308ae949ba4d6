// SPDX-License-Identifier: MIT
#include "engine/summary/summed_processes.h"

#include <algorithm>
#include <cstring>

namespace uprobe::summary {
namespace {

constexpr const char* kNameless = "<...>";  // as in a trace

struct Signature {
  trace::Task task;
  bool is_thread;
  std::string name;
};

std::optional<Signature> signature_of(const trace::Area& area, Bank bank) {
  const shared::SumBank& at = area.live(bank.part).sum_bank(bank.number);
  const std::uint64_t key = __atomic_load_n(&at.task, __ATOMIC_ACQUIRE);
  if (key == 0) return std::nullopt;
  char name[sizeof at.name] = {};
  std::memcpy(name, at.name, sizeof name - 1);
  return Signature{shared::task_of_key(key), __atomic_load_n(&at.is_thread, __ATOMIC_RELAXED) != 0,
                   std::string(name, ::strnlen(name, sizeof name))};
}

SummedProcess named(std::uint32_t id, std::string_view name) {
  return {id, std::string(name.empty() ? kNameless : name)};
}

SummedProcess look_up(const Signature& says, trace::TaskNames& names) {
  std::uint32_t id = names.number(says.task);
  if (says.is_thread)
    if (const std::uint32_t process = names.process(says.task); process != 0) id = process;
  return named(id, says.name.empty() ? names.name(names.called(id)) : says.name);
}

}  // namespace

void SummedProcesses::learn(const trace::Area& area, trace::TaskNames& names) {
  looked_at_.resize(area.live_count(), 1);
  for (std::size_t part = 0; part < looked_at_.size(); ++part) {
    const std::uint32_t used = area.live(part).used_banks();
    bool are_known = true;
    for (std::uint32_t number = looked_at_[part]; number < used; ++number) {
      const Bank bank{part, number};
      if (const auto says = known_.contains(bank) ? std::nullopt : signature_of(area, bank))
        known_.emplace(bank, look_up(*says, names));
      are_known = are_known && known_.contains(bank);
      if (are_known) looked_at_[part] = number + 1;
    }
  }
}

std::optional<SummedProcess> SummedProcesses::of(const trace::Area& area, Bank bank) const {
  if (bank.number == 0) return SummedProcess{};
  if (const auto found = known_.find(bank); found != known_.end()) return found->second;
  const auto says = signature_of(area, bank);
  if (!says) return std::nullopt;
  return named(says->task.number().is_elsewhere() ? says->task.number().process : says->task.number().thread,
               says->name);
}

std::map<SummedProcess, std::vector<Bank>> banks_by_process(const trace::Area& area, const SummedProcesses& known) {
  std::map<SummedProcess, std::vector<Bank>> processes;
  for (std::size_t part = 0; part < area.live_count(); ++part)
    for (std::uint32_t number = 0; number < area.live(part).used_banks(); ++number)
      if (const auto process = known.of(area, {part, number})) processes[*process].push_back({part, number});
  return processes;
}

}  // namespace uprobe::summary
