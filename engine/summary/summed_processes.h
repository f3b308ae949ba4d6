// SPDX-License-Identifier: MIT
// Which process each bank of the sums of calls belongs to (engine/shared/call_sums.h). The process says it in memory that every
// process of its trust domain can write; what it says is copied once, and bounded. Not thread-safe.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/summary/call_sums.h"
#include "engine/trace/area.h"
#include "engine/trace/task_names.h"

namespace uprobe::summary {

// By its id in the tool's PID namespace; id 0: all processes that found no bank left.
struct SummedProcess {
  std::uint32_t id = 0;
  std::string name;
  friend auto operator<=>(const SummedProcess&, const SummedProcess&) = default;
};

class SummedProcesses {
 public:
  // Looks at banks that have come since the last call. `names` has the names and ids of tasks that do not say theirs.
  void learn(const trace::Area& area, trace::TaskNames& names);
  // Nothing: the bank has no process yet. `bank` may be one that learn() has not seen.
  std::optional<SummedProcess> of(const trace::Area& area, Bank bank) const;

 private:
  std::map<Bank, SummedProcess> known_;
  std::vector<std::uint32_t> looked_at_;  // per live part: so many banks are all known
};

// Each process that has a bank, with its banks: of one program in one process, or of several programs with one name and id.
std::map<SummedProcess, std::vector<Bank>> banks_by_process(const trace::Area& area, const SummedProcesses& known);

}  // namespace uprobe::summary
