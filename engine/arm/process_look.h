// SPDX-License-Identifier: MIT
// A look at all mappings of a process: arms those that are new or have changed, and retires the points whose code is gone.
#pragma once

#include <map>
#include <vector>

#include "engine/arm/process_arming.h"

namespace uprobe::control {

// Whether no look is needed after code of a file was mapped at `reported`: what is there is known, and has no place for any point; and
// there was none in that range. Programs may map the same files thousands of times.
bool has_nothing_to_arm(ArmState& state, target::Target& target, const Block& block, const Changed& reported);

class ProcessLook {
 public:
  // All must outlive it. The target is stopped, or one of its threads waits for the tool.
  ProcessLook(ArmState& state, target::Target& target, Block& block, const std::vector<target::Mapping>& maps,
              const Changed& reported);
  Status run();

 private:
  Status look_at(const target::Mapping& m, const KnownMapping* known);
  Status retire(const Changed& range);
  Result<bool> has_gone(std::uint32_t point);
  std::vector<KnownMapping> all_known() const;

  ArmState& state_;
  ProcessArming process_;
  Block& block_;
  std::vector<KnownMapping> before_;        // mappings as of the last look
  std::vector<KnownMapping> untouched_;     // those of them that did not change, by address
  std::map<Addr, KnownMapping> looked_at_;  // looked at again; a mapping without a file always is
  bool is_unbound_ = false;                 // an IFUNC has not chosen yet
};

}  // namespace uprobe::control
