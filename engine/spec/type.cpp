// SPDX-License-Identifier: MIT
// Reading types. The order of the checks is the kernel's: it decides which of two mistakes is reported.
#include "engine/spec/type.h"

#include "engine/lex/number.h"
#include "engine/spec/messages.h"

namespace uprobe::spec {
namespace {

struct NamedType {
  std::string_view name;
  Type type;
};

constexpr NamedType kTypes[] = {
    {"u8", {Kind::unsigned_decimal, 1}},
    {"u16", {Kind::unsigned_decimal, 2}},
    {"u32", {Kind::unsigned_decimal, 4}},
    {"u64", {Kind::unsigned_decimal, 8}},
    {"s8", {Kind::signed_decimal, 1}},
    {"s16", {Kind::signed_decimal, 2}},
    {"s32", {Kind::signed_decimal, 4}},
    {"s64", {Kind::signed_decimal, 8}},
    {"x8", {Kind::hex, 1}},
    {"x16", {Kind::hex, 2}},
    {"x32", {Kind::hex, 4}},
    {"x64", {Kind::hex, 8}},
    {"char", {Kind::character, 1}},
    {"string", {Kind::string, 4}},
    {"ustring", {Kind::string, 4, true}},
};

// The tool's own: addresses with the function around them, floating point numbers, and numbers of 16 bytes.
constexpr NamedType kOwnTypes[] = {{"symbol", {Kind::symbol, 8}},
                                   {"f32", {Kind::floating, 4}},
                                   {"f64", {Kind::floating, 8}},
                                   {"u128", {Kind::unsigned_decimal, 8, false, true}},
                                   {"s128", {Kind::signed_decimal, 8, false, true}},
                                   {"x128", {Kind::hex, 8, false, true}}};

// The container's size follows the first '/', in any base.
std::optional<Type> find_container(std::string_view name) {
  const std::size_t slash = name.find('/');
  std::uint64_t bits = 0;
  if (slash == std::string_view::npos || read_unsigned(name.substr(slash + 1), 0, bits) != 0) return {};
  if (bits != 8 && bits != 16 && bits != 32 && bits != 64) return {};
  return Type{Kind::unsigned_decimal, static_cast<std::uint8_t>(bits / 8)};
}

}  // namespace

Result<TypedBody> split_type(const Command& command, std::size_t word, std::size_t offset, std::string_view body,
                             std::size_t from) {
  TypedBody parts{.fetch = body};
  const std::size_t colon = body.find(':', from);
  if (colon == std::string_view::npos) return parts;
  parts.fetch = body.substr(0, colon);
  parts.type_offset = colon + 1;
  parts.type = body.substr(colon + 1);

  // A '[' before the ':' is not an array but text after the fetch.
  const std::size_t open = body.find('[', colon);
  if (open == std::string_view::npos) return parts;
  parts.type = body.substr(colon + 1, open - colon - 1);
  const std::size_t close = body.find(']', open);
  if (close == std::string_view::npos) return command.blame(word, offset + body.size(), message::kArrayOpen);
  if (close + 1 != body.size()) return command.blame(word, offset + close + 1, message::kArraySuffix);
  std::uint64_t count = 0;
  const int err = read_unsigned(body.substr(open + 1, close - open - 1), 0, count);
  if (err != 0 || count == 0 || count > UINT32_MAX) return command.blame(word, offset + open + 1, message::kBadArray);
  if (count > kMaxArray) return command.blame(word, offset + open + 1, message::kArrayTooBig);
  parts.count = static_cast<std::uint32_t>(count);
  return parts;
}

std::optional<Type> find_type(std::optional<std::string_view> name, bool strict) {
  if (!name) return Type{};
  for (const NamedType& candidate : kOwnTypes) {
    if (!strict && candidate.name == *name) return candidate.type;
  }
  // No other type starts with a b, so "bool" is a bitfield without a container.
  if (name->starts_with('b')) return find_container(*name);
  for (const NamedType& candidate : kTypes) {
    if (candidate.name == *name) return candidate.type;
  }
  return {};
}

// find_type has already seen the container; the text between '@' and '/' is read here for the first time.
bool read_bitfield(std::string_view type, Widths widths, Argument& argument) {
  std::size_t used = 0;
  type.remove_prefix(1);
  const std::uint64_t width = read_wrapping(type, used);
  if (width == 0 || !type.substr(used).starts_with('@')) return false;
  type.remove_prefix(used + 1);
  const std::uint64_t offset = read_wrapping(type, used);
  if (used == 0 || !type.substr(used).starts_with('/')) return false;
  const std::uint64_t container = std::uint64_t{argument.size} * 8;
  // This sum is the kernel's whole check, and it may wrap: b18446744073709551615@1/8 passes.
  if (width + offset > container) return false;
  if (widths == Widths::exact && (width > container || offset > container)) return false;
  argument.is_bitfield = true;
  argument.bit_width = static_cast<std::uint8_t>(width);
  argument.bit_offset = static_cast<std::uint8_t>(offset);
  return true;
}

}  // namespace uprobe::spec
