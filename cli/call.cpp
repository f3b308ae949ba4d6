// SPDX-License-Identifier: MIT
#include "cli/call.h"

#include <cerrno>

namespace uprobe::cli {

Outcome fail(const Call& call, const Error& error, int code) {
  call.diagnostics.error(error);
  return {code, 0};
}

Outcome print(const Call& call, const std::string& text) {
  const int err = write_patiently(call.streams.out, text);
  if (err == 0 || err == EPIPE) return {};
  return fail(call, system_error("cannot write to standard output", err));
}

}  // namespace uprobe::cli
