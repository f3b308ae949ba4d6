// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "engine/output/perf.h"
#include "tests/output/sample.h"

namespace uprobe::format {
namespace {

class Names final : public Symbols {
 public:
  NamedAddress name_of(const trace::EventRecord&, std::uint64_t) override { return {}; }
  CodePlace place_of(const trace::EventRecord*, std::uint64_t address) override {
    if (address == 0x401136) return {.name = "f", .distance = 0, .size = 8, .path = "/bin/f"};
    if (address == 0x401fff) return {.name = {}, .path = "/lib/libc.so\n", .offset = 1};
    return {};
  }
  std::vector<StackFrame> frames_of(const trace::EventRecord&) override {
    return {{0x401136, false}, {0x402000, true}, {5, false}};
  }
};

TEST(Perf, ALineOfAHit) {
  Record record;
  record.text("s", "a\n")
      .field("k", Kind::signed_decimal, -3)
      .array("v", Kind::hex, std::vector<std::uint16_t>{1, 255});
  EXPECT_EQ(line_of<PerfFormatter>(record, {.escape_control = true}, "z sh\x1b"),
            "z sh\\x1b 12/13 [001] 12.345678901: uprobes:e: (401136) s=\"a\\n\" k=-3 v={0x1,0xff}\n");
  EXPECT_EQ(line_of<PerfFormatter>(Record("e", true)), "zsh 12/13 [001] 12.345678901: uprobes:e: (402000 <- 401136)\n");
}

TEST(Perf, FramesAndAnEmptyLine) {
  Names names;
  Record record;
  record.add_stack({1});
  const std::string line = line_of<PerfFormatter>(record, {.escape_control = true, .symbols = &names});
  EXPECT_EQ(line.substr(line.find('\n')),
            "\n\t401136 f+0x0 (/bin/f)\n\t402000 [unknown] (/lib/libc.so\\n)\n\t5 [unknown] ([unknown])\n\n");
}

TEST(Perf, AThreadWhoseProcessIsNotKnown) {
  Record record;
  PerfFormatter formatter({});
  formatter.add(record.layout);
  trace::EventRecord event = record.event();
  event.pid = 0;
  Buffer out;
  formatter.append(event, "", out);
  EXPECT_EQ(out.view().substr(0, 11), "? 13 [001] ");
}

}  // namespace
}  // namespace uprobe::format
