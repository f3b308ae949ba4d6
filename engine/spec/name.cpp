// SPDX-License-Identifier: MIT
// Names of events and groups.
#include "engine/spec/name.h"

#include <algorithm>
#include <string_view>

#include "engine/base/text.h"
#include "engine/spec/messages.h"

namespace uprobe::spec {
namespace {

// As an identifier, but hyphens are letters.
bool is_group_name(std::string_view text) {
  if (text.empty() || is_digit(text[0])) return false;
  for (const char c : text) {
    if (!is_letter(c) && !is_digit(c) && c != '_' && c != '-') return false;
  }
  return true;
}

// The file's name up to the first '.', '-' or '_'.
std::string_view base_of(std::string_view path) {
  path.remove_prefix(path.rfind('/') + 1);
  return path.substr(0, path.find_first_of(".-_"));
}

// Symbols may have any characters, names of events only [A-Za-z0-9_].
std::string sanitised(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c);
    if (!plain) c = '_';
  }
  return result;
}

std::string symbol_text(const Place& place) {
  if (place.offset == 0) return sanitised(place.symbol);
  const bool before = static_cast<std::int64_t>(place.offset) < 0;
  return sanitised(place.symbol + (before ? "_minus_" + hex(0 - place.offset) : "_" + hex(place.offset)));
}

std::string kprobe_text(const Place& place) {
  if (place.symbol.empty()) return hex(place.offset);
  const auto distance = static_cast<std::int64_t>(place.offset);
  const std::string digits = std::to_string(distance < 0 ? 0 - place.offset : place.offset);
  return sanitised(place.symbol) + (distance < 0 ? "_minus_" : "_") + digits;
}

std::string cut(std::string name) {
  if (name.size() > kMaxEventName) name.resize(kMaxEventName);
  return name;
}

// Long names (of C++) differ near their ends: a digest of the whole name (FNV-1a) replaces the end.
std::string cut_apart(const std::string& name) {
  if (name.size() <= kMaxEventName) return name;
  std::uint32_t sum = 0x811c9dc5;
  for (const char c : name) sum = (sum ^ static_cast<unsigned char>(c)) * 0x01000193;
  const std::string end = "_" + hex(sum).substr(2);
  return name.substr(0, kMaxEventName - end.size()) + end;
}

}  // namespace

Result<EventName> parse_event_name(const Command& command, bool strict) {
  const std::string_view word = command.word(0);
  EventName result;
  if (word.size() < 2 || word[1] != ':') return result;

  std::size_t at = 2;
  std::size_t slash = word.find('/', at);
  if (slash == std::string_view::npos) slash = word.find('.', at);
  const bool has_group = slash != std::string_view::npos;
  if (has_group) {
    const std::string_view group = word.substr(at, slash - at);
    if (group.empty()) return command.blame(0, at, message::kNoGroup);
    if (group.size() > kMaxEventName) return command.blame(0, at, message::kGroupTooLong);
    if (!is_group_name(group)) return command.blame(0, at, message::kBadGroup);
    result.group = std::string(group);
    at = slash + 1;
  }
  const std::string_view event = word.substr(at);
  if (event.empty() && (has_group || !strict)) return result;
  if (event.empty()) return command.blame(0, at, message::kNoEvent);
  if (event.size() > kMaxEventName) return command.blame(0, at, message::kEventTooLong);
  if (!is_identifier(event) && (strict || event != kNameOfSymbol)) return command.blame(0, at, message::kBadEvent);
  result.event = std::string(event);
  return result;
}

std::string symbol_event_name(const Place& place) {
  const std::string name = symbol_text(place);
  return cut_apart(name.empty() || is_digit(name[0]) ? "_" + name : name);
}

std::string function_event_name(std::string_view function) {
  constexpr std::string_view kUnnamed = "(anonymous namespace)::", kTag = "[abi:";
  std::string name;
  int depth = 0;  // of template arguments
  bool gap = false;
  for (std::size_t i = 0; i < function.size(); ++i) {
    const char c = function[i];
    if (function.substr(i).starts_with(kUnnamed)) {
      i += kUnnamed.size() - 1;
      continue;
    }
    if (function.substr(i).starts_with(kTag)) {
      i = std::min(function.find(']', i), function.size());
      continue;
    }
    // "<T as Trait>::f" of Rust begins with one that is no template's.
    const bool is_operator = function.substr(0, i).ends_with("operator");
    if (c == '<' && i != 0 && !is_operator) ++depth;
    const bool is_plain = c == '_' || is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (is_plain && depth == 0) {
      if (gap && !name.empty()) name += '_';
      name += c;
    }
    if (depth == 0 || !is_plain) gap = !is_plain;
    if (c == '>' && depth > 0) --depth;
  }
  return name;
}

std::string bare_event_name(const Place& place, std::string_view function) {
  std::string name = function_event_name(function);
  if (!place.source.empty()) name = function_event_name(place.source) + "_" + std::to_string(place.line);
  if (place.symbol.empty() && place.source.empty()) name = sanitised(base_of(place.path)) + "_" + hex(place.offset);
  const auto distance = static_cast<std::int64_t>(place.offset);
  if (!place.symbol.empty() && distance != 0)
    name += distance < 0 ? "_minus_" + hex(0 - place.offset) : "_" + hex(place.offset);
  return cut_apart(name.empty() || is_digit(name[0]) ? "_" + name : name);
}

// If the kernel would make the name too, the file's own name is used unchanged.
std::string automatic_name(const Place& place, bool is_return) {
  if (!place.names_object) return cut_apart(is_return ? "r_" + kprobe_text(place) : "p_" + kprobe_text(place));
  const std::string base(base_of(place.path));
  if (place.symbol.empty()) return cut("p_" + base + "_" + hex(place.offset));
  return cut_apart("p_" + sanitised(base) + "_" + symbol_text(place));
}

}  // namespace uprobe::spec
