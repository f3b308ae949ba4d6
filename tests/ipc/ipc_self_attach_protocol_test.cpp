// SPDX-License-Identifier: MIT
// Messages between a process and its self-attach tracer pass unchanged; other bytes are recognised as such.
#include <gtest/gtest.h>

#include "engine/ipc/event_info.h"
#include "engine/ipc/self_attach_protocol.h"

namespace uprobe::test {
namespace {

LayoutMessage some_layout() {
  program::EventLayout layout{.group = "g", .event = "e", .is_return = true, .fixed_bytes = 40};
  layout.fields = {{.name = "a", .kind = program::Kind::signed_decimal, .size = 4, .offset = 24},
                   {.name = "b", .kind = program::Kind::string, .size = 4, .offset = 28, .count = 2}};
  return {.index = 7, .layout = layout};
}

std::string inside(const std::string& message, Word word) {
  MessageCutter cutter;
  cutter.add(message);
  const auto cut = cutter.next();
  EXPECT_TRUE(cut && cut->word == word);
  return cut ? std::string(cut->bytes) : std::string();
}

TEST(AttendantProtocol, BringsLayouts) {
  const auto got = decode_layout(inside(encode(some_layout()), Word::layout));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->index, 7U);
  EXPECT_EQ(got->layout.group + "/" + got->layout.event, "g/e");
  EXPECT_TRUE(got->layout.is_return);
  EXPECT_EQ(got->layout.fixed_bytes, 40U);
  ASSERT_EQ(got->layout.fields.size(), 2U);
  const program::Field &number = got->layout.fields[0], &text = got->layout.fields[1];
  EXPECT_EQ(number.name, "a");
  EXPECT_EQ(number.kind, program::Kind::signed_decimal);
  EXPECT_EQ(number.size, 4U);
  EXPECT_EQ(number.offset, 24U);
  EXPECT_EQ(number.count, 0U);
  EXPECT_EQ(text.kind, program::Kind::string);
  EXPECT_EQ(text.count, 2U);
}

TEST(AttendantProtocol, BringsOrdersAndReplies) {
  const Command command{.kind = CommandKind::define, .text = "p:a /b:c", .default_object = "/d"};
  const auto got = decode_command(inside(encode_command(command), Word::command));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->kind, CommandKind::define);
  EXPECT_EQ(got->text + got->default_object, "p:a /b:c/d");
  const Reply reply{.text = {}, .error = Error{.text = "no", .where = "p:a /b:c", .column = 4}};
  const auto back = decode_reply(inside(encode_reply(reply), Word::reply));
  ASSERT_TRUE(back && back->error);
  EXPECT_EQ(back->error->where, "p:a /b:c");
  EXPECT_EQ(back->error->column, 4);
}

TEST(AttendantProtocol, BringsWhatIsKnownOfEvents) {
  const std::vector<ProbeState> probes = {
      {.definition = {}, .name = "g/e", .on = false, .hits = 3, .print_format = "n=%d"},
      {.definition = {}, .name = "g/e", .on = true, .hits = 4, .lost = 1, .missed = 2},
      {.definition = {}, .name = "g/e", .owner = 9}};
  const std::vector<EventInfo> events = events_of(probes);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].places, 2U);
  EXPECT_EQ(events[0].hits, 7U);
  EXPECT_TRUE(events[0].on);
  const std::string bytes = encode(events);
  const auto got = decode_events(bytes);
  ASSERT_TRUE(got);
  EXPECT_TRUE(*got == events);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(decode_events(std::string_view(bytes).substr(0, size))) << size;
  EXPECT_FALSE(decode_events(bytes + "x"));
}

TEST(AttendantProtocol, MakesNothingOfOtherBytes) {
  const std::string layout = inside(encode(some_layout()), Word::layout);
  for (std::size_t size = 0; size < layout.size(); ++size)
    EXPECT_FALSE(decode_layout(std::string_view(layout).substr(0, size))) << size;
  EXPECT_FALSE(decode_layout(layout + "x"));
  std::string kind = layout;
  kind[kind.find("a", 12) + 1] = '\x63';  // of the first field
  EXPECT_FALSE(decode_layout(kind));
  EXPECT_FALSE(decode_command(""));
  EXPECT_FALSE(decode_command(encode(std::vector<Command>{})));
  EXPECT_FALSE(decode_command(encode(std::vector<Command>(2))));
}

}  // namespace
}  // namespace uprobe::test
