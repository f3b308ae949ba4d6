// SPDX-License-Identifier: MIT
// Whether a function can return by way of a stub (engine/shared/return_stub.h) and not notice.
#pragma once

#include <string>

#include "engine/flow/flow.h"
#include "engine/plan/resolve.h"

namespace uprobe::plan {

// Why not, as reads on from the function's name: "reads its own return address, at 0x1234". Empty: it can.
//
// Not seen here: what a process can do, and functions that are reached in another way than by a call; the agent leaves a word
// alone that is no return address.
std::string reason_against_stub(const FileFlow& flow, const Site& site);

}  // namespace uprobe::plan
