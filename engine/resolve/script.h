// SPDX-License-Identifier: MIT
// Programs that are scripts: the program that the kernel executes for a file that begins with "#!".
#pragma once

#include <optional>
#include <string>

namespace uprobe {

// Of a script whose interpreter is a script too, the last one; of "/usr/bin/env PROGRAM" the program in PATH. Nothing: the file is
// no script.
std::optional<std::string> interpreter_of(const std::string& path);

}  // namespace uprobe
