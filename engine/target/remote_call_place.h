// SPDX-License-Identifier: MIT
// Where the code of remote calls is put in a stopped process.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/address.h"
#include "engine/base/result.h"
#include "engine/target/target.h"

namespace uprobe::target {

struct RemoteCallPlace {
  Addr at;
  std::vector<std::uint8_t> before;
  bool is_left;  // the code of a tool that was killed is there, or of one that is at work
};

// Code::refused where the process has no vDSO, or none with room for it.
Result<RemoteCallPlace> find_remote_call_place(const ProcessFiles& files);

}  // namespace uprobe::target
