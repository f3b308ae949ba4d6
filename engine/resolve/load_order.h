// SPDX-License-Identifier: MIT
// The objects of a program in the order in which its loader searches them for a symbol: the program, preloaded libraries, then
// breadth first what each needs. Found without running anything: of a program by glibc's or musl's rules in this environment, of a
// running process among the files that it has mapped.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine/plan/resolve.h"

namespace uprobe {

constexpr std::size_t kMostObjects = 1024;  // of one program; further ones are left out

struct LoadedObject {
  std::string path;
  std::string soname;  // may be empty
};

// The program first. Objects that cannot be found or read are left out.
std::vector<LoadedObject> load_order(const std::string& program, plan::FileCache& files);

// Whether a name without '/' means the object: its file's name or soname, or either one up to the ".so" or a '-' ("libc").
bool is_called(const LoadedObject& object, std::string_view name);

// The path of a library by such a name in the loader's cache and default folders; empty: there is none.
std::string find_library(std::string_view name);

}  // namespace uprobe
