// SPDX-License-Identifier: MIT
// The event that has to come between two changes of running code: on every processor, one after which the processor fetches and
// decodes the code again (SDM vol. 3A, "Handling Self- and Cross-Modifying Code": the other processors execute a serializing
// instruction before they execute the changed code).
#pragma once

#include <sys/types.h>

#include <chrono>

#include "engine/base/result.h"

namespace uprobe::control {

class Serializer {
 public:
  virtual ~Serializer() = default;
  // Ok: every processor that may run the process's code has had such an event since the call began. An Error where that cannot
  // be shown: the caller must make no further change then.
  virtual Status serialize() = 0;
};

// For a running process with another address space. Does not touch it. Not for processes that share the tool's memory.
class ProcessSerializer : public Serializer {
 public:
  explicit ProcessSerializer(pid_t pid) : pid_(pid) {}
  Status serialize() override;

 private:
  pid_t pid_;
};

// The visits alone. Code::refused where a processor that some thread of the process may use was not reached by `deadline`.
Status visit_processors(pid_t pid, std::chrono::steady_clock::time_point deadline);

}  // namespace uprobe::control
