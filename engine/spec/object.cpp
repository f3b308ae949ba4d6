// SPDX-License-Identifier: MIT
// A ':' inside parentheses cannot begin a type. Outside, a symbol of an object follows it if no type does, and if the object
// looks like a file or a type comes after the symbol.
#include "engine/spec/object.h"

#include <algorithm>

#include "engine/spec/type.h"

namespace uprobe::spec {
namespace {

bool is_type(std::string_view text) { return find_type(text.substr(0, text.find('[')), false).has_value(); }

bool looks_like_file(std::string_view name) {
  return name.find('/') != std::string_view::npos || name.find(".so") != std::string_view::npos;
}

// The start, in the body, of the text inside all directly nested parentheses.
std::size_t innermost(std::string_view body) {
  std::size_t at = 0;
  while (at < body.size()) {
    const std::string_view rest = body.substr(at);
    if (rest[0] != '+' && rest[0] != '-' && !rest.starts_with("entry(")) break;
    const std::size_t open = rest.find('(');
    if (open == std::string_view::npos) break;
    at += open + 1;
  }
  return at;
}

}  // namespace

std::optional<ObjectName> find_object(std::string_view body) {
  const std::size_t at = innermost(body);
  if (at >= body.size() || body[at] != '@') return {};
  const std::size_t colon = body.find(':', at);
  if (colon == std::string_view::npos) return {};
  const std::string_view object = body.substr(at + 1, colon - at - 1);
  if (object.empty() || object.find(')') != std::string_view::npos) return {};
  const std::size_t end = std::min(body.find_first_of(at == 0 ? ":" : ":)", colon + 1), body.size());
  const std::string_view symbol = body.substr(colon + 1, end - colon - 1);
  const ObjectName found{.end = end, .bytes = object.size() + 1};
  if (symbol.empty()) return {};
  if (end < body.size() && body[end] == ')') return found;
  const bool has_type = at == 0 && end < body.size() && is_type(body.substr(end + 1));
  if (is_type(symbol)) return has_type && looks_like_file(object) ? std::optional(found) : std::nullopt;
  return has_type || looks_like_file(object) ? std::optional(found) : std::nullopt;
}

}  // namespace uprobe::spec
