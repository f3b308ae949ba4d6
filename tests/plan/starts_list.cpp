// SPDX-License-Identifier: MIT
// For each file: how many of the instructions found by a linear walk of its functions are refused as places, and why. LIST=1
// prints them.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "arch/code/relocate.h"
#include "engine/flow/boundary.h"

using namespace uprobe;

int main(int argc, char** argv) {
  const bool lists = std::getenv("LIST") != nullptr;
  for (int i = 1; i < argc; ++i) {
    auto opened = elf::ElfFile::open(argv[i]);
    if (!opened) continue;
    const auto file = std::make_shared<const elf::ElfFile>(opened.take());
    plan::FlowCache flows;
    plan::Boundaries boundaries(file, flows);
    const plan::FileFlow& flow = flows.of(file);
    using Clock = std::chrono::steady_clock;
    const auto begun = Clock::now();
    std::size_t all = 0, refused = 0;
    std::map<std::string, std::size_t> reasons;
    for (const plan::SweptFunction& function : flow.functions())
      for (auto at = flow.next_start(function.range.begin, function.range.end); at;
           at = flow.next_start(*at + 1, function.range.end)) {
        ++all;
        const plan::Boundary boundary = boundaries.find(*at);
        if (boundary.is_start) continue;
        ++refused;
        ++reasons[boundary.known ? "inside an instruction" : boundary.reason];
        if (lists)
          std::printf("    %#lx %s in %#lx, %s\n", *at, arch::disassemble(flow.bytes_at(*at), Addr{*at}).c_str(),
                      function.range.begin, plan::text_of(function.trouble));
      }
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begun).count();
    std::printf("%s: %zu instructions, %zu refused = %.4f %%, %.0f ms\n", argv[i], all, refused,
                all == 0 ? 0 : 100.0 * static_cast<double>(refused) / static_cast<double>(all), ms);
    for (const auto& [reason, count] : reasons) std::printf("   %8zu %s\n", count, reason.c_str());
  }
}
