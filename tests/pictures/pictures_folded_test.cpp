// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "engine/pictures/folded.h"
#include "tests/output/sample.h"

namespace uprobe::format {
namespace {

// The address is the name; odd ones belong to a file without symbols.
class Names final : public Symbols {
 public:
  NamedAddress name_of(const trace::EventRecord&, std::uint64_t) override { return {}; }
  CodePlace place_of(const trace::EventRecord*, std::uint64_t address) override {
    if (address % 2 == 1) return {.name = {}, .path = "/lib/libc.so", .offset = address};
    return {.name = address == 4 ? "a;b\n" : "f" + std::to_string(address), .path = {}};
  }
  std::vector<StackFrame> frames_of(const trace::EventRecord&) override { return frames; }

  std::vector<StackFrame> frames = {{2, false}, {3, false}, {5, true}};
};

std::string print(Names& names, int hits) {
  Record record;
  record.add_stack({1});
  FoldedFormatter formatter({.symbols = &names});
  formatter.add(record.layout);
  Buffer out;
  const trace::EventRecord event = record.event();
  for (int i = 0; i < hits; ++i) formatter.append(event, "zsh", out);
  EXPECT_EQ(out.size(), 0u);
  formatter.end({}, out);
  return std::string(out.view());
}

TEST(Folded, TheOutermostFrameIsFirst) {
  Names names;
  EXPECT_EQ(print(names, 3), "zsh;a:b\\n;[libc.so];f2 3\n");
}

TEST(Folded, NothingWithoutHits) {
  Names names;
  EXPECT_EQ(print(names, 0), "");
}

TEST(Folded, WithoutAStackTheEventCounts) {
  Record record;
  FoldedFormatter formatter({});
  formatter.add(record.layout);
  Buffer out;
  formatter.append(record.event(), "a;b", out);
  formatter.append(record.event(), "c", out);
  formatter.append(record.event(), "c", out);
  formatter.end({}, out);
  EXPECT_EQ(out.view(), "a:b;e 1\nc;e 2\n");
}

TEST(Folded, AnyNumberOfStacksIsCounted) {
  Record record;
  FoldedFormatter formatter({});
  formatter.add(record.layout);
  Buffer out;
  const trace::EventRecord event = record.event();
  const std::string long_name(4096, 'x');
  for (int i = 0; i < 40'000; ++i) formatter.append(event, long_name + std::to_string(i % 20'000), out);
  EXPECT_NE(out.size(), 0u) << "it does not wait for the end";
  formatter.end({}, out);
  std::size_t sum = 0;
  const std::string_view text = out.view();
  for (std::size_t at = 0; (at = text.find(";e ", at)) != std::string_view::npos; at += 3)
    sum += static_cast<std::size_t>(text[at + 3] - '0');
  EXPECT_EQ(sum, 40'000u);
}

}  // namespace
}  // namespace uprobe::format
