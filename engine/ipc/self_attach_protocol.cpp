// SPDX-License-Identifier: MIT
#include "engine/ipc/self_attach_protocol.h"

#include "engine/ipc/message.h"

namespace uprobe {
namespace {

void put_field(std::string& to, const program::Field& field) {
  put(to, std::string_view(field.name));
  for (const auto number :
       {static_cast<std::uint32_t>(field.kind), std::uint32_t{field.size}, field.offset, field.count})
    put(to, number);
}

program::Field take_field(Parser& from) {
  program::Field field;
  field.name = from.text();
  field.kind = from.kind(program::Kind::floating);
  field.size = static_cast<std::uint8_t>(from.number());
  field.offset = from.number();
  field.count = from.number();
  return field;
}

std::string framed(Word word, std::string_view body) {
  std::string bytes = begin_message(word);
  bytes.append(body);
  return finish_message(std::move(bytes));
}

}  // namespace

std::string encode(const LayoutMessage& message) {
  const program::EventLayout& layout = message.layout;
  std::string bytes = begin_message(Word::layout);
  put(bytes, message.index);
  put(bytes, std::string_view(layout.group));
  put(bytes, std::string_view(layout.event));
  put(bytes, layout.is_return ? 1U : 0U);
  put(bytes, layout.fixed_bytes);
  put(bytes, static_cast<std::uint32_t>(layout.fields.size()));
  for (const program::Field& field : layout.fields) put_field(bytes, field);
  return finish_message(std::move(bytes));
}

std::optional<LayoutMessage> decode_layout(std::string_view bytes) {
  Parser parser(bytes);
  LayoutMessage message{.index = parser.number(), .layout = {.group = parser.text(), .event = parser.text()}};
  message.layout.is_return = parser.number() != 0;
  message.layout.fixed_bytes = parser.number();
  for (std::uint32_t left = parser.number(); left != 0 && parser.good(); --left)
    message.layout.fields.push_back(take_field(parser));
  if (!parser.is_done() || message.index > UINT16_MAX) return std::nullopt;
  return message;
}

std::string encode_command(const Command& command) {
  return framed(Word::command, encode(std::vector<Command>{command}));
}

std::string encode_reply(const Reply& reply) { return framed(Word::reply, encode(reply)); }

std::optional<Command> decode_command(std::string_view bytes) {
  auto commands = decode_commands(bytes);
  if (!commands || commands->size() != 1) return std::nullopt;
  return std::move(commands->front());
}

}  // namespace uprobe
