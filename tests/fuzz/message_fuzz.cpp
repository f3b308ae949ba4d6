// SPDX-License-Identifier: MIT
// Fuzzes the bytes of sockets: messages of other tools and of self-attach tracers, commands and replies of --control. An
// accepted message is the same after it is encoded and decoded once more. The first byte chooses the protocol, and the pieces
// in which the rest arrives.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "engine/ipc/call_table.h"
#include "engine/ipc/control_protocol.h"
#include "engine/ipc/peer_protocol.h"
#include "engine/ipc/self_attach_protocol.h"
#include "tests/fuzz/driver.h"

using namespace uprobe;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

std::string inside(const std::string& message) { return message.substr(8); }

void check(const MessageCutter::Message& message) {
  const std::string bytes(message.bytes);
  if (message.word == Word::hello) {
    if (const auto hello = decode_hello(bytes)) require(decode_hello(inside(encode(*hello))).has_value());
  } else if (message.word == Word::greeting) {
    if (const auto pass = decode_greeting(bytes)) require(decode_greeting(inside(encode_greeting(*pass))) == *pass);
  } else if (message.word == Word::admitted) {
    if (const auto probes = decode_admitted(bytes))
      require(decode_admitted(inside(encode_admitted(*probes))) == *probes);
  } else if (message.word == Word::refused) {
    if (const auto refusal = decode_refusal(bytes)) require(decode_refusal(inside(encode(*refusal))).has_value());
  } else if (message.word == Word::record) {
    if (const auto record = decode_record(bytes)) {
      std::string again;
      append_record(again, *record);
      require(again.size() == record_bytes(*record) && inside(again) == bytes);
    }
  } else if (message.word == Word::summary) {
    if (const auto summary = decode_summary(bytes)) require(decode_summary(inside(encode(*summary))).has_value());
  } else if (message.word == Word::ended) {
    static_cast<void>(decode_end(bytes));
  } else if (message.word == Word::layout) {
    static_cast<void>(decode_layout(bytes));
  } else if (message.word == Word::command) {
    if (const auto command = decode_command(bytes))
      require(decode_command(inside(encode_command(*command))).has_value());
  } else if (message.word == Word::reply) {
    static_cast<void>(decode_reply(bytes));
  }
}

void cut(std::string_view bytes, std::size_t piece) {
  MessageCutter cutter(piece % 2 == 0 ? kMostMessageBytes : kMostHelloBytes);
  while (!bytes.empty() && !cutter.is_bad()) {
    cutter.add(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
    while (const auto message = cutter.next()) check(*message);
  }
}

void read_control(std::string_view bytes) {
  if (const auto request = decode_request(bytes)) {
    const auto again = decode_request(encode(*request));
    require(again && again->pass == request->pass && again->commands.size() == request->commands.size());
  }
  if (const auto rows = decode_calls(bytes)) require(decode_calls(encode(*rows)).has_value());
  if (const auto reply = decode_reply(bytes)) require(decode_reply(encode(*reply)).has_value());
}

Hello some_hello() {
  Hello hello{.pass = std::string(32, 'a'), .processes = {12, 34}, .known_as = 56, .folder = "/a b", .strict = true};
  hello.definitions = {{.text = "p:f /a:1 %di", .default_object = "/bin/x", .filter = "arg1 > 5"},
                       {.text = "r:g /b:f", .default_object = ""}};
  return hello;
}

std::string some_record() {
  static const std::vector<std::uint8_t> payload = {1, 0, 0, 0, 0xff, 7}, stack(16, 0x40);
  trace::EventRecord record{
      .ns = 1ull << 40, .tid = 77, .cpu = 3, .type = 9, .flags = 0x8001, .payload = payload, .stack = stack};
  std::string bytes;
  append_record(bytes, {.index = 2, .record = record, .task = "a task"});
  return bytes;
}

Summary some_summary() {
  Summary summary;
  ProbeSummary probe;
  probe.name = "g/e", probe.place = "/x:0x1", probe.hits = 7, probe.hint = "never";
  summary.probes = {probe, probe};
  summary.notes = {"a", "b"};
  return summary;
}

LayoutMessage some_layout() {
  LayoutMessage message;
  message.index = 3;
  message.layout.group = "g", message.layout.event = "e", message.layout.fixed_bytes = 24;
  message.layout.fields.push_back({.name = "a", .kind = program::Kind::string, .size = 4, .offset = 16, .count = 0});
  return message;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 4 == 0)
    read_control(bytes);
  else
    cut(bytes, data[0]);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  const Error error{.code = Code::limit, .text = "no", .where = "p", .column = 3, .help = "h", .err = 11};
  const std::vector<Command> commands = {{CommandKind::define, "p:f /a:1 %di", "/bin/x", "arg1 > 5"},
                                         {CommandKind::clear, "", ""}};
  const std::string piece(1, '\x7f');
  std::vector<std::string> seeds;
  for (const std::string& message :
       {encode(some_hello()), encode_greeting(std::string(32, 'b')), encode_leave(), encode_admitted({"p:a", ""}),
        encode(Refusal{.error = error, .come_back = true}), some_record(), encode(some_summary()),
        encode(ClientEnd::processes), encode(some_layout()), encode_command(commands[0]),
        encode_reply(Reply{.text = "x", .error = error, .failed = 1})})
    seeds.push_back(piece + message);
  seeds.push_back(piece + encode(some_hello()) + some_record() + some_record() + encode_leave());
  seeds.push_back(std::string(1, '\0') + encode(Request{std::string(32, 'c'), commands}));
  seeds.push_back(std::string(1, '\0') + encode(Reply{.text = "added a/b\n", .error = error, .failed = 3}));
  const CallSummary row{.event = "f", .place = "/x:0x1", .calls = 7, .returns = 6, .abandoned = 1, .self_ns = 5};
  seeds.push_back(std::string(1, '\0') + encode(std::vector<CallSummary>{row, row}));
  return seeds;
}
