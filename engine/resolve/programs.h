// SPDX-License-Identifier: MIT
// Programs and objects on disk: which file a name means, which functions, lines and variables an object has to probe.
#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"

namespace uprobe {

// A line per function that can be probed in `object` whose name matches the glob (empty: all): "p:zfree /bin/zsh:zfree".
Result<std::vector<std::string>> list_functions(const std::string& object, const std::string& glob);

// What the debug information says of a function: a definition for each of its lines that has code, or one that shows its
// variables at its beginning, with a comment for each. Every line can be given to -i.
enum class SourceList { lines, variables };
Result<std::vector<std::string>> list_source(const std::string& object, const std::string& function, SourceList what);

// The file that running `program` would execute, as execvp finds it. Code::not_found or Code::not_executable.
Result<std::string> find_program(const std::string& program);

// Where libuprobe.so is: beside the program (build tree), in ../lib/uprobe (installed). Empty if nowhere.
std::string find_agent();

}  // namespace uprobe
