// SPDX-License-Identifier: MIT
// The kernel's own uprobe events on one target, for comparison: a group and a tracing instance of this run, removed however the
// run ends.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/base/result.h"

namespace uprobe::bench {

class KernelEvents {
 public:
  // Empty, or the reason why the kernel's events cannot be used here.
  static std::string why_not();
  // Removes the events of a run that has ended in any way.
  static void remove(pid_t owner);
  // The same for runs that were killed together with the process that waits for them.
  static void remove_leftovers();

  explicit KernelEvents(pid_t owner);
  // "KIND:NAME FILE:OFFSET ARGUMENTS", in the group of this run; recorded from now on. Kind: p or r.
  Status add(char kind, const std::string& name, const std::string& file, std::uint64_t offset,
             const std::string& arguments);
  // Event -> hits.
  Result<std::map<std::string, std::uint64_t>> hits() const;

 private:
  std::string folder_, group_, instance_;  // folder_: a part of the paths of this run's targets
};

}  // namespace uprobe::bench
