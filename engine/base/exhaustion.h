// SPDX-License-Identifier: MIT
// Turns lack of memory or threads into an error. Elsewhere it ends the tool (cli/main.cpp); work that would leave a program
// half traced runs inside this.
#pragma once

#include <exception>

#include "engine/base/result.h"

namespace uprobe {

template <class Work>
Status catch_resource_exhaustion(Work work) try {
  return work();
} catch (const std::exception& e) {
  return Error{.code = Code::system, .text = std::string("memory or threads have run out: ") + e.what()};
}

}  // namespace uprobe
