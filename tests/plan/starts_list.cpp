// Of each file: how many of the instructions that a linear walk of its functions finds are shown to be some, and samples of the
// others.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "arch/x86/code/scan.h"
#include "engine/plan/proven_code.h"

using namespace uprobe;

int main(int argc, char** argv) {
  const char* list = std::getenv("LIST");
  for (int i = 1; i < argc; ++i) {
    const auto file = elf::ElfFile::open(argv[i]);
    if (!file) continue;
    using Clock = std::chrono::steady_clock;
    const auto t0 = Clock::now();
    const plan::FileFlow flow(*file);
    const auto t1 = Clock::now();
    const plan::ProvenCode proven(flow);
    const auto t2 = Clock::now();
    std::size_t all = 0, unproven = 0, padding = 0, undefined = 0, local = 0;
    std::map<std::string, std::size_t> why;
    for (const plan::SweptFunction& function : flow.functions()) {
      plan::Reach own(*file, {function.range});
      own.add(function.range.begin);
      own.run();
      bool was = true;
      for (auto at = flow.next_start(function.range.begin, function.range.end); at;
           at = flow.next_start(*at + 1, function.range.end)) {
        ++all;
        x86::Scanned insn;
        x86::scan(flow.bytes_at(*at), Addr{*at}, insn);
        local += own.is_start(*at);
        if (proven.is_start(*at)) {
          was = true;
          continue;
        }
        if (insn.is_padding) {
          ++padding;
          continue;
        }
        if (insn.is_undefined) {
          ++undefined;
          continue;
        }
        ++unproven;
        ++why[plan::text_of(function.trouble)];
        if (list && was)
          std::printf("    %#lx %s in %#lx  %s\n", *at, x86::disassemble(flow.bytes_at(*at), Addr{*at}).c_str(),
                      function.range.begin, plan::text_of(function.trouble));
        was = false;
      }
    }
    const auto ms = [](auto d) { return std::chrono::duration<double, std::milli>(d).count(); };
    std::printf(
        "%s: %zu insns, local %.3f%%, unproven %zu = %.4f%% (padding %zu undefined %zu)  flow %.0f ms, proven %.0f "
        "ms\n",
        argv[i], all, 100.0 * double(local) / double(all), unproven, 100.0 * double(unproven) / double(all), padding,
        undefined, ms(t1 - t0), ms(t2 - t1));
    for (auto& [text, n] : why) std::printf("   %8zu %s\n", n, text.c_str());
  }
}
