// SPDX-License-Identifier: MIT
// Messages between tools on one target pass a socket unchanged; other bytes are recognised as such.
#include <gtest/gtest.h>

#include "engine/ipc/peer_protocol.h"
#include "engine/ipc/record_queue.h"

namespace uprobe::test {
namespace {

Hello some_hello() {
  Hello hello{.pass = "a pass",
              .processes = {12, 34},
              .known_as = 56,
              .folder = "/a b",
              .string_limit = 78,
              .strict = true,
              .force = false};
  hello.tier = plan::Tier::breakpoint;
  hello.returns = plan::ReturnMode::exits;
  hello.definitions = {{.text = "p:f /a:1 %di", .default_object = "/bin/x", .filter = "arg1 > 5"},
                       {.text = "r:g /b:f", .default_object = ""}};
  return hello;
}

const std::vector<std::uint8_t> kPayload = {1, 0, 0, 0, 0xff, 7}, kStack(16, 0x40);

ClientRecord some_record(std::uint32_t index) {
  trace::EventRecord record{
      .ns = 1ull << 40, .tid = 77, .cpu = 3, .type = 9, .flags = 0x8001, .payload = kPayload, .stack = kStack};
  return {.index = index, .record = record, .task = "a task"};
}

std::string record_message(std::uint32_t index) {
  std::string bytes;
  append_record(bytes, some_record(index));
  return bytes;
}

Summary some_summary() {
  Summary summary;
  ProbeSummary probe;
  probe.name = "g/e", probe.place = "/x:0x1", probe.hits = 1ull << 33, probe.lost_to_reader_lag = 5,
  probe.hint = "never";
  summary.probes = {probe, probe};
  summary.breakpoints = 2, summary.notes = {"a", "b"};
  return summary;
}

std::vector<std::string> all_messages() {
  return {
      encode(some_hello()),
      encode_greeting("a pass"),
      encode_leave(),
      encode_admitted({"p:a", ""}),
      encode(Refusal{.error = {.code = Code::limit, .text = "no", .where = "p", .column = 3, .help = "h", .err = 11},
                     .come_back = true}),
      record_message(2),
      encode(some_summary()),
      encode(ClientEnd::processes)};
}

// Decodes it as the kind that it claims. Whether it makes sense.
bool is_sense(const MessageCutter::Message& message) {
  switch (message.word) {
    case Word::hello:
      return decode_hello(message.bytes).has_value();
    case Word::greeting:
      return decode_greeting(message.bytes).has_value();
    case Word::leave:
      return message.bytes.empty();
    case Word::admitted:
      return decode_admitted(message.bytes).has_value();
    case Word::refused:
      return decode_refusal(message.bytes).has_value();
    case Word::record:
      return decode_record(message.bytes).has_value();
    case Word::summary:
      return decode_summary(message.bytes).has_value();
    case Word::ended:
      return decode_end(message.bytes).has_value();
    default:
      return false;  // those of self-attach tracers
  }
}

std::string inside(const std::string& message) { return message.substr(8); }

TEST(GuestProtocol, BringsAHello) {
  const auto got = decode_hello(inside(encode(some_hello())));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->pass, "a pass");
  EXPECT_EQ(decode_greeting(inside(encode_greeting("a pass"))), "a pass");
  EXPECT_EQ(got->processes, some_hello().processes);
  EXPECT_EQ(got->known_as, 56U);
  EXPECT_EQ(got->folder, "/a b");
  EXPECT_EQ(got->string_limit, 78u);
  EXPECT_TRUE(got->strict && !got->force);
  EXPECT_EQ(got->tier, plan::Tier::breakpoint);
  EXPECT_EQ(got->returns, plan::ReturnMode::exits);
  ASSERT_EQ(got->definitions.size(), 2U);
  EXPECT_EQ(got->definitions[0].text + got->definitions[0].default_object, "p:f /a:1 %di/bin/x");
  EXPECT_EQ(got->definitions[0].filter, "arg1 > 5");
  EXPECT_FALSE(got->definitions[1].filter);
}

TEST(GuestProtocol, BringsRecords) {
  const std::string message = record_message(2);
  EXPECT_EQ(message.size(), record_bytes(some_record(2)));
  const auto got = decode_record(std::string_view(message).substr(8));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->index, 2U);
  EXPECT_EQ(got->record.type, 2U);
  EXPECT_EQ(got->record.ns, 1ull << 40);
  EXPECT_EQ(got->record.tid, 77U);
  EXPECT_EQ(got->record.cpu, 3U);
  EXPECT_EQ(got->record.flags, 0x8001U);
  EXPECT_EQ(got->task, "a task");
  EXPECT_EQ(std::vector<std::uint8_t>(got->record.payload.begin(), got->record.payload.end()), kPayload);
  EXPECT_EQ(std::vector<std::uint8_t>(got->record.stack.begin(), got->record.stack.end()), kStack);
}

TEST(GuestProtocol, BringsAnswers) {
  const auto refusal = decode_refusal(inside(all_messages()[4]));
  ASSERT_TRUE(refusal && refusal->come_back);
  EXPECT_EQ(refusal->error.text + refusal->error.where + refusal->error.help, "noph");
  EXPECT_EQ(refusal->error.column, 3);
  EXPECT_EQ(decode_admitted(inside(encode_admitted({"p:a", ""}))), (std::vector<std::string>{"p:a", ""}));
  const auto summary = decode_summary(inside(encode(some_summary())));
  ASSERT_TRUE(summary && summary->probes.size() == 2);
  EXPECT_EQ(summary->probes[1].hits, 1ull << 33);
  EXPECT_EQ(summary->probes[1].lost_to_reader_lag, 5U);
  EXPECT_EQ(summary->probes[1].hint, "never");
  EXPECT_EQ(summary->notes, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(decode_end(inside(encode(ClientEnd::processes))), ClientEnd::processes);
}

TEST(GuestProtocol, SomeMessagesAreWholeOnes) {
  const std::string one = record_message(1), all = one + record_message(2) + one;
  EXPECT_EQ(some_messages(all, 0), one.size());
  EXPECT_EQ(some_messages(all, one.size() - 1), one.size());
  EXPECT_EQ(some_messages(all, one.size()), 2 * one.size());
  EXPECT_EQ(some_messages(all, all.size()), all.size());
  EXPECT_EQ(some_messages("", 5), 0U);
}

TEST(GuestProtocol, MessagesComeOutAsTheyWentInHoweverTheyAreCut) {
  std::string all;
  for (const std::string& message : all_messages()) all += message;
  for (const std::size_t part : {std::size_t{1}, std::size_t{7}, std::size_t{64}, all.size()}) {
    MessageCutter cutter;
    std::size_t messages = 0;
    for (std::size_t at = 0; at < all.size(); at += part) {
      cutter.add(std::string_view(all).substr(at, part));
      while (const auto message = cutter.next()) {
        EXPECT_EQ(message->bytes, inside(all_messages()[messages]));
        EXPECT_TRUE(is_sense(*message));
        ++messages;
      }
    }
    EXPECT_EQ(messages, all_messages().size());
    EXPECT_FALSE(cutter.is_bad());
  }
}

TEST(GuestProtocol, EveryPartAndEveryAdditionIsRefused) {
  for (const std::string& whole : all_messages()) {
    MessageCutter cutter;
    cutter.add(whole);
    const auto message = cutter.next();
    ASSERT_TRUE(message);
    for (std::size_t size = 0; size < message->bytes.size(); ++size)
      EXPECT_FALSE(is_sense({message->word, message->bytes.substr(0, size)}));
    const std::string longer = std::string(message->bytes) + "x";
    EXPECT_FALSE(is_sense({message->word, longer}));
  }
}

TEST(GuestProtocol, NoBytesAreBelieved) {
  for (const std::string& good : all_messages())
    for (std::size_t at = 0; at < good.size(); ++at)
      for (const char value : {'\0', '\1', '\x7f', '\xff'}) {
        std::string bytes = good;
        bytes[at] = value;
        MessageCutter cutter;
        cutter.add(bytes);
        while (const auto message = cutter.next()) static_cast<void>(is_sense(*message));
      }
}

TEST(GuestProtocol, NoLengthIsWaitedForThatIsTooLong) {
  MessageCutter cutter;
  cutter.add(std::string("\xff\xff\xff\x7f\1\0\0\0", 8));
  EXPECT_FALSE(cutter.next());
  EXPECT_TRUE(cutter.is_bad());
  MessageCutter small(kMostHelloBytes);
  small.add(std::string("\1\0\x10\0\1\0\0\0", 8));
  EXPECT_FALSE(small.next());
  EXPECT_TRUE(small.is_bad());
  MessageCutter unknown;
  unknown.add(std::string("\0\0\0\0\x63\0\0\0", 8));
  EXPECT_FALSE(unknown.next());
  EXPECT_TRUE(unknown.is_bad());
}

TEST(RecordQueue, WhatIsBeyondItsRoomIsCounted) {
  RecordQueue queue;
  const std::size_t fit = (std::size_t{32} << 20) / record_bytes(some_record(0));
  for (std::size_t i = 0; i < fit + 3; ++i) queue.take(some_record(i < fit ? 0 : 1));
  EXPECT_EQ(queue.lost(0), 0U);
  EXPECT_EQ(queue.lost(1), 3U);
  EXPECT_EQ(queue.lost(2), 0U);
  std::string bytes = "of before";
  queue.swap_out(bytes);
  std::size_t seen = 0;
  each_record(bytes, [&](const ClientRecord& record) { seen += record.index == 0 && record.task == "a task" ? 1 : 0; });
  EXPECT_EQ(seen, fit);
  EXPECT_TRUE(queue.is_empty());
  queue.close();
  EXPECT_FALSE(queue.wait(std::chrono::milliseconds(0)));
}

}  // namespace
}  // namespace uprobe::test
