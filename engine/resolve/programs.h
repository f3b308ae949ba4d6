// SPDX-License-Identifier: MIT
// Programs and objects on disk: the file of a name; the functions, lines and variables of an object that can be probed.
#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"

namespace uprobe {

// A definition for each function of `object` that can be probed and matches the glob (empty: all): "p:zfree /bin/zsh:zfree";
// for a glob "sdt:..." or "mark:..." each marker (engine/marker/listing.h).
Result<std::vector<std::string>> list_functions(const std::string& object, const std::string& glob);

// By the debug information: a definition for each line of a function that has code, or one at its beginning that shows its
// variables, with a comment for each. Every line can be passed to -i.
enum class SourceList { lines, variables };
Result<std::vector<std::string>> list_source(const std::string& object, const std::string& function, SourceList what);

// The file of an object's name: a path, a program as find_program() finds it, or a library that is called so (load_order.h).
Result<std::string> find_object_file(const std::string& name);

// The file that would be executed for `program`, as execvp finds it. Code::not_found or Code::not_executable.
Result<std::string> find_program(const std::string& program);

// The path of libuprobe.so: next to the program (build tree) or in ../lib/uprobe (installed). Empty if it is nowhere.
std::string find_agent();

}  // namespace uprobe
