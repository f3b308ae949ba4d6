// SPDX-License-Identifier: MIT
// Commands and replies pass a socket unchanged; other bytes are recognised as such.
#include <gtest/gtest.h>

#include "engine/ipc/call_table.h"
#include "engine/ipc/control_protocol.h"

namespace uprobe::test {
namespace {

std::vector<Command> some_orders() {
  return {{CommandKind::define, "p:f /a:1 %di", "/bin/x", "arg1 > 5"},
          {CommandKind::disable, "", ""},
          {CommandKind::clear, "a\0b", ""}};
}

Reply failed_reply() {
  return {.text = "added a/b\n",
          .error = Error{.code = Code::limit, .text = "no", .where = "p f", .column = -1, .help = "less", .err = 28},
          .failed = 3};
}

TEST(LiveProtocol, BringsOrders) {
  const auto got = decode_commands(encode(some_orders()));
  ASSERT_TRUE(got);
  ASSERT_EQ(got->size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ((*got)[i].kind, some_orders()[i].kind);
    EXPECT_EQ((*got)[i].text, some_orders()[i].text);
    EXPECT_EQ((*got)[i].default_object, some_orders()[i].default_object);
    EXPECT_EQ((*got)[i].filter, some_orders()[i].filter);
  }
}

TEST(LiveProtocol, BringsRequests) {
  const std::string bytes = encode(Request{"a pass", some_orders()});
  const auto got = decode_request(bytes);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->pass, "a pass");
  EXPECT_EQ(got->commands.size(), 3U);
  for (std::size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(decode_request(bytes.substr(0, size)));
  EXPECT_FALSE(decode_request(bytes + "x"));
  EXPECT_FALSE(decode_request(encode(some_orders()))) << "of another version";
}

TEST(LiveProtocol, BringsReplies) {
  const auto good = decode_reply(encode(Reply{.text = "x", .error = {}}));
  ASSERT_TRUE(good);
  EXPECT_EQ(good->text, "x");
  EXPECT_FALSE(good->error);
  const auto bad = decode_reply(encode(failed_reply()));
  ASSERT_TRUE(bad && bad->error);
  EXPECT_EQ(bad->failed, 3U);
  EXPECT_EQ(bad->error->code, Code::limit);
  EXPECT_EQ(bad->error->column, -1);
  EXPECT_EQ(bad->error->err, 28);
  EXPECT_EQ(bad->error->text + bad->error->where + bad->error->help, "nop fless");
}

TEST(LiveProtocol, RefusesEveryPartAndEveryAddition) {
  const std::string commands = encode(some_orders()), reply = encode(failed_reply());
  for (std::size_t bytes = 0; bytes < commands.size(); ++bytes)
    EXPECT_FALSE(decode_commands(commands.substr(0, bytes)));
  for (std::size_t bytes = 0; bytes < reply.size(); ++bytes) EXPECT_FALSE(decode_reply(reply.substr(0, bytes)));
  EXPECT_FALSE(decode_commands(commands + "x"));
  EXPECT_FALSE(decode_reply(reply + "x"));
}

TEST(LiveProtocol, NoBytesOfAnotherKindAreBelieved) {
  for (const std::string& good : {encode(some_orders()), encode(failed_reply())})
    for (std::size_t at = 0; at < good.size(); ++at)
      for (const char value : {'\0', '\1', '\x7f', '\xff'}) {
        std::string bytes = good;
        bytes[at] = value;
        static_cast<void>(decode_commands(bytes));
        static_cast<void>(decode_reply(bytes));
      }
  EXPECT_FALSE(decode_commands(std::string(8, '\xff')));
}

TEST(LiveProtocol, BringsTheTableOfCalls) {
  CallSummary row{
      .event = "f", .place = "/x:0x1", .calls = 9, .returns = 6, .abandoned = 1, .unfollowed = 2, .untimed = 3};
  row.total_ns = 1ull << 40, row.self_ns = 5, row.mean_ns = 10, row.p50_ns = 11, row.p90_ns = 12, row.p99_ns = 13;
  row.max_ns = ~0ull;
  CallSummary without = row;
  without.self_ns.reset();
  const std::string bytes = encode(std::vector<CallSummary>{row, without});
  const auto rows = decode_calls(bytes);
  ASSERT_TRUE(rows && rows->size() == 2);
  EXPECT_EQ(encode(*rows), bytes);
  EXPECT_EQ((*rows)[0].self_ns, 5U);
  EXPECT_EQ((*rows)[1].self_ns, std::nullopt);
  EXPECT_EQ((*rows)[1].max_ns, ~0ull);
  for (std::size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(decode_calls(bytes.substr(0, size))) << size;
  EXPECT_FALSE(decode_calls(bytes + "x"));
  EXPECT_FALSE(decode_calls("\xff\xff\xff\xff"));
}

}  // namespace
}  // namespace uprobe::test
