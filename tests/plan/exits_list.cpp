// SPDX-License-Identifier: MIT
// exits_list FILE: the file offset of each function whose exits are all known, with "tail" after it if some of them are jumps
// to other functions.
#include <cstdio>

#include "engine/plan/exits.h"

using namespace uprobe;

int main(int argc, char** argv) {
  const auto file = argc == 2 ? elf::ElfFile::open(argv[1]) : Result<elf::ElfFile>(Error{.text = "one file"});
  if (!file) {
    std::fprintf(stderr, "exits_list: %s\n", file.error().text.c_str());
    return 1;
  }
  const plan::FileFlow flow(*file);
  const plan::FunctionEntries entries(flow);
  for (const plan::SweptFunction& function : flow.functions()) {
    const auto exits = plan::exits_of(flow, entries, function.range.begin);
    const auto offset = file->offset_of_address(function.range.begin);
    if (!exits || !offset) continue;
    bool has_jump = false;
    for (const plan::Exit& exit : *exits) has_jump = has_jump || exit.is_jump;
    std::printf("0x%llx%s\n", static_cast<unsigned long long>(*offset), has_jump ? " tail" : "");
  }
}
