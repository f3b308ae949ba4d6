// SPDX-License-Identifier: MIT
// Numbers for stacks, and their functions' names. A stack is named when it is first seen: its process may be gone later.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/output/symbols.h"
#include "engine/trace/event_record.h"

namespace uprobe::format {

class PairStacks {
 public:
  // 0: a record without a stack. Stacks that are new after it is full have one number.
  static constexpr std::uint32_t kNone = 0;

  explicit PairStacks(Symbols* symbols) : symbols_(symbols) {}

  // Of the program that the process has executed as the `program`th.
  std::uint32_t number_of(const trace::EventRecord& record, std::uint32_t pid, std::uint32_t program);
  // The innermost first.
  const std::vector<std::string>& names(std::uint32_t number) const { return stacks_[number]; }

 private:
  std::vector<std::string> name(const trace::EventRecord& record, const std::vector<StackFrame>& frames) const;
  std::uint32_t number_of_names(std::vector<std::string> names);

  Symbols* const symbols_;
  std::unordered_map<std::string, std::uint32_t> by_addresses_, by_names_;
  std::vector<std::vector<std::string>> stacks_ = {{"[no stack]"}, {"[other stacks]"}};
  std::size_t bytes_ = 0;
};

}  // namespace uprobe::format
