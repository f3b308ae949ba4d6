// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "engine/base/fd.h"
#include "engine/export/files.h"
#include "engine/export/formats.h"
#include "tests/output/sample.h"

namespace uprobe::format {
namespace {

TEST(Formats, AreFoundByName) {
  for (const Format& format : formats()) EXPECT_EQ(format_called(format.name), &format);
  EXPECT_EQ(format_called("tex"), nullptr);
  EXPECT_EQ(format_names().substr(0, 17), "text, graph, json");
}

// Each with a record of every kind of value whose strings and arrays are nonsense: only what is in the payload is read.
TEST(Formats, TakeAnyPayload) {
  Record record("e", true);
  record.field("k", Kind::symbol, std::uint64_t{1})
      .array("s", Kind::string, std::vector<std::uint32_t>(64, 0xffffffff));
  record.add_stack({1, 2});
  for (const Format& format : formats()) {
    for (std::size_t size = 0; size <= record.payload.size(); size += 3) {
      const Fd file(::memfd_create("formats", MFD_CLOEXEC));
      Files files(file.get());  // no folder: a format that has several files is told so, and goes on
      const auto formatter = format.make({.files = &files});
      formatter->add(record.layout);
      Buffer out;
      formatter->header(out);
      trace::EventRecord event = record.event();
      const std::vector<std::uint8_t> some(record.payload.begin(), record.payload.begin() + static_cast<long>(size));
      event.payload = some;
      formatter->append(event, "\x1b", out);
      event.type = 7;
      formatter->append(event, "no such event", out);
      formatter->end({}, out);
      EXPECT_EQ(out.view().find("no such"), std::string_view::npos) << format.name;
    }
  }
}

}  // namespace
}  // namespace uprobe::format
