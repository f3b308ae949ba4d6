// SPDX-License-Identifier: MIT
// stub_list FILE: the file offset and the name of each function that can return through a stub; "-OFFSET NAME: why" for the
// others.
#include <cstdio>

#include "engine/plan/stub_fit.h"

using namespace uprobe;

int main(int argc, char** argv) {
  auto file = argc == 2 ? elf::ElfFile::open(argv[1]) : Result<elf::ElfFile>(Error{.text = "one file"});
  if (!file) {
    std::fprintf(stderr, "stub_list: %s\n", file.error().text.c_str());
    return 1;
  }
  const auto shared = std::make_shared<const elf::ElfFile>(file.take());
  const plan::FileFlow flow(*shared);
  for (const plan::SweptFunction& function : flow.functions()) {
    const auto offset = shared->offset_of_address(function.range.begin);
    const auto site = offset ? plan::site_at(shared, *offset) : Result<plan::Site>(Error{});
    if (!site) continue;
    const std::string why = plan::reason_against_stub(flow, *site);
    std::printf("%s0x%llx %s%s%s\n", why.empty() ? "" : "-", static_cast<unsigned long long>(*offset),
                site->symbol.c_str(), why.empty() ? "" : ": ", why.c_str());
  }
}
