// SPDX-License-Identifier: MIT
// See installed.h.
#include "library/installed.h"

#include <unistd.h>

namespace libuprobe {

std::string installed_agent(const std::string& header) {
  if (!header.starts_with("/")) return {};
  std::string prefix = header;
  for (int level = 0; level < 3; ++level) prefix.erase(prefix.rfind('/') == std::string::npos ? 0 : prefix.rfind('/'));
  for (const char* folder : {"/" UPROBE_LIBDIR, "/lib"})
    if (const std::string path = prefix + folder + "/uprobe/libuprobe.so"; ::access(path.c_str(), R_OK) == 0)
      return path;
  return {};
}

Options with_agent(Options options) {
  if (options.agent.empty()) options.agent = installed_agent(options.header);
  return options;
}

}  // namespace libuprobe
