// SPDX-License-Identifier: MIT
// The names in a dynamic section by which the loader finds libraries.
#pragma once

#include "engine/elf/elf_file.h"
#include "engine/elf/image.h"

namespace uprobe::elf {

LinkNames link_names(const Image& image);

}  // namespace uprobe::elf
