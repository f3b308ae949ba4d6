// SPDX-License-Identifier: MIT
// Memory and threads that have run out, as an error. Elsewhere that ends the tool (cli/main.cpp); where it would leave a
// program half traced, the work is done through this.
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
