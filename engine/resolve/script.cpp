// SPDX-License-Identifier: MIT
// The kernel reads 256 bytes of a file (BINPRM_BUF_SIZE) and follows four interpreters.
#include "engine/resolve/script.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "engine/base/regular_file.h"
#include "engine/resolve/programs.h"

namespace uprobe {
namespace {

constexpr std::size_t kFirstBytes = 256;
constexpr int kMostScripts = 4;
constexpr std::string_view kBlanks = " \t";

std::string_view take_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(kBlanks));
  text.remove_prefix(word.size());
  return word;
}

// What stands after "#!"; empty: no script.
std::string first_line(const std::string& path) {
  const auto file = open_regular(path);
  std::array<char, kFirstBytes> bytes{};
  if (!file) return {};
  const ssize_t read = read_at(file->fd, bytes.data(), bytes.size(), 0);
  if (read < 2 || bytes[0] != '#' || bytes[1] != '!') return {};
  const std::string_view text(bytes.data() + 2, static_cast<std::size_t>(read) - 2);
  return std::string(text.substr(0, text.find_first_of(std::string_view("\n\0", 2))));
}

// "-S" of env, its other options and its variables stand before the program.
std::string program_of_env(std::string_view arguments) {
  for (std::string_view word = take_word(arguments); !word.empty(); word = take_word(arguments)) {
    if (word.starts_with("-S") && word.size() > 2) word.remove_prefix(2);
    if (word[0] == '-' || word.find('=') != std::string_view::npos) continue;
    const auto program = find_program(std::string(word));
    return program ? *program : std::string();
  }
  return {};
}

}  // namespace

std::optional<std::string> interpreter_of(const std::string& path) {
  std::optional<std::string> found;
  std::string file = path;
  for (int scripts = 0; scripts < kMostScripts; ++scripts) {
    const std::string line = first_line(file);
    std::string_view rest = line;
    std::string next(take_word(rest));
    if (next.ends_with("/env")) next = program_of_env(rest);
    if (next.empty()) break;
    found = file = next;
  }
  return found;
}

}  // namespace uprobe
