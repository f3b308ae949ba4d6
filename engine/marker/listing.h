// SPDX-License-Identifier: MIT
// The markers of a file, as definitions for the user.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/elf/elf_file.h"

namespace uprobe::marker {

// "p /lib/libc.so.6:sdt:libc:setjmp # 3 places: u64 s32 u64" for each marker whose "PROVIDER:NAME" matches the glob (fnmatch),
// by name. An argument that cannot be recorded is "-". Last, as comments, the notes that were refused.
std::vector<std::string> list_markers(const std::string& path, const elf::ElfFile& file, const std::string& glob);

// "p ./shop:mark:shop:opened # 2 places: "fd=%d path=%s"" for each mark, with all formats of its name.
std::vector<std::string> list_marks(const std::string& path, const elf::ElfFile& file, const std::string& glob);

}  // namespace uprobe::marker
