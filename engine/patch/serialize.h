// SPDX-License-Identifier: MIT
// What has to come between two changes of the same code while it runs: an event on every processor after which it fetches
// and decodes the code anew (SDM vol. 3A, "Handling Self- and Cross-Modifying Code": the other processors execute a serializing
// instruction before they execute what was changed).
#pragma once

#include <sys/types.h>

#include <chrono>

#include "engine/base/result.h"

namespace uprobe::control {

class Serializer {
 public:
  virtual ~Serializer() = default;
  // Ok: every processor that may run the process's code has gone through such an event since the call began. An Error where
  // that cannot be shown: then what was written last has to be the last.
  virtual Status serialize() = 0;
};

// For a running process of another address space, without touching it. Not for processes that share our memory.
class ProcessSerializer : public Serializer {
 public:
  explicit ProcessSerializer(pid_t pid) : pid_(pid) {}
  Status serialize() override;

 private:
  pid_t pid_;
};

// The first of the two ways alone. Code::refused where a processor that some thread of the process may use was not reached
// by `deadline`.
Status visit_processors(pid_t pid, std::chrono::steady_clock::time_point deadline);

}  // namespace uprobe::control
