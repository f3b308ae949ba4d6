// SPDX-License-Identifier: MIT
// Programs that are scripts: the program that the kernel executes for a file that begins with "#!". Shims of version managers are
// scripts that choose a program by a version that the user has set, and execute it.
#pragma once

#include <optional>
#include <string>

namespace uprobe {

// What runs in the end for a script.
struct ScriptProgram {
  std::string path;
  std::string shim;     // of a shim among the scripts: its path; empty: there is none
  std::string manager;  // the version manager of that shim: "pyenv", "rbenv", "nodenv", "asdf"
  bool is_known =
      true;  // else `path` is the interpreter of the shim, which executes a program that the version does not name
};

// Of a script whose interpreter is a script too, the last one; of "/usr/bin/env PROGRAM" the program in PATH; of a shim the program
// of the version that the environment, the files of the current folder and its parents, or the manager's own file names. Only files
// are read; at most eight scripts are followed. Nothing: the file is no script.
std::optional<ScriptProgram> program_of_script(const std::string& path);

}  // namespace uprobe
