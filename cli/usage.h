// SPDX-License-Identifier: MIT
// The error of a command line that cannot be taken.
#pragma once

#include <string>
#include <utility>

#include "engine/base/result.h"

namespace uprobe::cli {

// `text` is the reason, `help` what to type or do.
inline Error usage(std::string text, std::string help = {}) {
  return Error{.code = Code::usage, .text = std::move(text), .help = std::move(help)};
}

}  // namespace uprobe::cli
