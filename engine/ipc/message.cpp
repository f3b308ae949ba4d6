// SPDX-License-Identifier: MIT
#include "engine/ipc/message.h"

namespace uprobe {

void put(std::string& to, const Error& error) {
  put(to, static_cast<std::uint32_t>(error.code));
  put(to, static_cast<std::uint32_t>(error.column));
  put(to, static_cast<std::uint32_t>(error.err));
  put(to, static_cast<std::uint32_t>(error.definition));
  put(to, static_cast<std::uint32_t>(error.signal));
  for (const std::string* text : {&error.text, &error.where, &error.help}) put(to, std::string_view(*text));
}

Error take_error(Parser& from) {
  Error error;
  error.code = from.kind(Code::system);
  error.column = static_cast<int>(from.number());
  error.err = static_cast<int>(from.number());
  error.definition = static_cast<int>(from.number());
  error.signal = static_cast<int>(from.number());
  for (std::string* text : {&error.text, &error.where, &error.help}) *text = from.text();
  return error;
}

}  // namespace uprobe
