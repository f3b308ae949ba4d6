// SPDX-License-Identifier: MIT
// Fuzzes what pairs make of hostile records: any payload for any event of a pair, in any order, from any task. The books balance:
// what was opened is closed, held, opened again, moved, dropped or given up by execve; and both reports are made.
//
// Input: for each record the event, process, thread, size of the payload, and the payload.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/pairs/pair_report.h"
#include "engine/pairs/pairs.h"
#include "engine/program/compile.h"
#include "engine/spec/parse.h"
#include "tests/fuzz/driver.h"

using namespace uprobe;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

program::EventLayout layout_of(const std::string& text, const std::string& function) {
  auto layout = program::compile(*spec::parse_definition(text, {.file_check = nullptr})).take().layout;
  layout.function = function;
  return layout;
}

const std::vector<program::EventLayout>& layouts() {
  static const std::vector<program::EventLayout> all = {
      layout_of("r:leak/malloc /b/x:0x10 key=$retval size=entry($arg1) count=entry($arg2):u64", "malloc"),
      layout_of("p:leak/free /b/x:0x20 key=$arg1", "free"),
      layout_of("p:leak/realloc_begins /b/x:0x30 moved=$arg1", "realloc"),
      layout_of("r:leak/realloc /b/x:0x30 key=$retval size=entry($arg2) failed=$retval:s32", "realloc"),
      layout_of("p:leak/memalign_begins /b/x:0x40", "memalign"),
      layout_of("r:leak/memalign /b/x:0x40 key=$retval", "memalign"),
      layout_of("r:pair/open /b/x:0x50 key=$retval:s32", "open"),
      layout_of("p:pair/close /b/x:0x60 key=$arg1:string", "close"),
      layout_of("p:pair/close2 /b/x:0x70 key=$arg1:s32", "close2"),
  };
  return all;
}

// The records of the input, one after the other.
template <class Formatter>
std::string report(const std::uint8_t* data, std::size_t size) {
  Formatter formatter{format::Options{.escape_control = true}};
  for (const program::EventLayout& layout : layouts()) formatter.add(layout);
  format::Buffer out;
  std::uint64_t ns = 0;
  while (size >= 4) {
    const std::size_t bytes = std::min<std::size_t>(data[3] % 64, size - 4);
    const trace::EventRecord record{.ns = ns += data[3],
                                    .tid = data[2] % 8u,
                                    .pid = data[1] % 4u,
                                    .type = static_cast<std::uint16_t>(data[0] % (layouts().size() + 1)),
                                    .payload = {data + 4, bytes}};
    formatter.append(record, "a\nb", out);
    data += 4 + bytes, size -= 4 + bytes;
  }
  formatter.end({}, out);
  return std::string(out.view());
}

// Steps of a table, four bytes each: few keys, threads and processes, so that they meet.
void check_table(const std::uint8_t* data, std::size_t size) {
  format::PairTable table(size % 2 == 0);
  for (; size >= 4; data += 4, size -= 4)
    table.take({.role = static_cast<format::PairRole>(data[0] % 7),
                .function = data[0] / 7 % 4 + 1u,
                .pid = data[1] % 4u,
                .tid = data[1] / 4 % 8u,
                .ns = data[3],
                .key = data[2] % 16u,
                .size = data[3],
                .has_failed = data[2] >= 200},
               data[3] % 16 == 0 ? "next" : "prog", [](std::uint32_t program) { return program; });
  table.finish();
  for (const auto& [pid, process] : table.processes()) {
    require(process.held.size() <= 16 && process.times.size() <= 16);
    require(process.closed + process.held.size() <= process.opened + process.unknown);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  check_table(data, size);
  const std::string text = report<format::PairsFormatter>(data, size),
                    json = report<format::PairsJsonFormatter>(data, size);
  require(text.find('\x1b') == std::string::npos && json.starts_with("["));
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::string story;
  for (int i = 0; i < 40; ++i) {
    const char head[4] = {static_cast<char>(i % 9), 1, static_cast<char>(i % 3), 48};
    story.append(head, 4).append(48, static_cast<char>(i % 4 + 1));
  }
  return {story, std::string(64, '\1'), std::string("\0\1\1\0\7\1\1\0", 8)};
}
