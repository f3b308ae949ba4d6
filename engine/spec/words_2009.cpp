// SPDX-License-Identifier: MIT
#include "engine/spec/words_2009.h"

#include <cstdint>

#include "engine/lex/number.h"
#include "engine/lex/words.h"

namespace uprobe::spec {
namespace {

constexpr std::uint64_t kInRegisters = 6;  // arguments; the others lie after the return address (System V ABI, 3.2.3)

// The innermost fetch: after the last opening parenthesis, up to the first closing one or the type.
std::string_view core_of(std::string_view body) {
  const std::size_t open = body.rfind('(', body.find(':'));
  if (open != std::string_view::npos) body.remove_prefix(open + 1);
  return body.substr(0, body.find_first_of("):"));
}

}  // namespace

std::string modern_word(std::string_view word) {
  if (word == "sa") return "$stack";
  if (word == "rv") return "$retval";
  if (word == "ra") return "%ip";
  std::uint64_t number = 0;
  constexpr std::size_t kMostDigits = 9;
  if (word.size() < 2 || word.size() > kMostDigits || !is_digit(word[1]) ||
      read_unsigned(word.substr(1), 10, number) != 0)
    return {};
  if (word[0] == 's') return "$stack" + std::to_string(number);
  if (word[0] != 'a') return {};
  return number < kInRegisters ? "$arg" + std::to_string(number + 1)
                               : "$stack" + std::to_string(number - kInRegisters + 1);
}

bool has_word_2009(std::string_view body) { return !modern_word(core_of(body)).empty(); }

std::string modern_body(std::string_view body) {
  const std::string_view core = core_of(body);
  const std::string modern = modern_word(core);
  if (modern.empty()) return std::string(body);
  const auto at = static_cast<std::size_t>(core.data() - body.data());
  return std::string(body.substr(0, at)) + modern + std::string(body.substr(at + core.size()));
}

}  // namespace uprobe::spec
