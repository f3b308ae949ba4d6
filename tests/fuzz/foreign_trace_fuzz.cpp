// SPDX-License-Identifier: MIT
// Fuzzes what is read of the lines of trace-cmd: the time of a line, and the clock among a file's options.
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "engine/recording/foreign_trace.h"
#include "tests/fuzz/driver.h"

using namespace uprobe;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto time = recording::time_of_line(text); time && text.find(']') == std::string_view::npos) std::abort();
  for (const format::ForeignEvent& event : recording::events_in(text))
    if (event.name.find('\n') != event.name.npos || event.text.size() > size || event.comm.size() > size) std::abort();
  const auto clock = recording::clock_of_options("FILE", text);
  if (!clock && clock.error().text.find('\x1b') != std::string::npos) std::abort();
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {"          cat-5047  [001]  2990.587610900: open: (7f)",
          "          cat-5047  [001]2990589532575: open:", "a [01] [1024] d..1. 1.000002: e: x",
          "\t[Option TRACECLOCK, 38 bytes]\nlocal global [mono] boot\n\"mono\" [clock]\n",
          "[Option TRACECLOCK, 1 bytes]\n[wall]\n\"\" [name]\n\"boot\" [clock]\n"};
}
