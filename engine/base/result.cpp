// SPDX-License-Identifier: MIT
#include "engine/base/result.h"

#include <cstring>

namespace uprobe {

Error system_error(std::string what, int err) {
  return Error{.code = Code::system, .text = std::move(what) + ": " + std::strerror(err), .err = err};
}

}  // namespace uprobe
