// SPDX-License-Identifier: MIT
#include "engine/base/result.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace uprobe {

Error system_error(std::string what, int err) {
  return Error{.code = Code::system, .text = std::move(what) + ": " + std::strerror(err), .err = err};
}

void taken_from_failed(const Error& error) {
  std::fprintf(stderr, "uprobe: internal error: the value of a failed call was used (%s)\n", error.text.c_str());
  std::abort();
}

void error_of_success() {
  std::fputs("uprobe: internal error: the error of a successful call was used\n", stderr);
  std::abort();
}

}  // namespace uprobe
