// SPDX-License-Identifier: MIT
#include "cli/slips.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "cli/foreign_words.h"
#include "engine/spec/bare.h"
#include "engine/spec/place.h"

namespace uprobe::cli {
namespace {

Meant as_place(std::string text) { return Meant{.places = {std::move(text)}, .problem = {}}; }

bool begins_with_path(std::string_view text) {
  return text.starts_with('/') || text.starts_with("./") || text.starts_with("../");
}

// "zfree:return", "zfree%ret", "zfree@entry".
std::optional<Meant> of_side(std::string_view text) {
  static constexpr std::array<std::string_view, 4> kReturns = {"return", "ret", "r", "exit"};
  static constexpr std::array<std::string_view, 2> kEntries = {"entry", "p"};
  const std::size_t between = text.find_last_of(":%@");
  if (between == std::string_view::npos || between == 0) return {};
  const std::string_view function = text.substr(0, between), side = text.substr(between + 1);
  const bool is_object = function.starts_with("lib") || function.find(".so") != std::string_view::npos;
  const bool has_path = begins_with_path(function) && function.find(':') != std::string_view::npos;
  if (!has_path && (is_object || !is_name(function))) return {};
  const auto is_side = [&](std::string_view one) { return one == side; };
  if (std::any_of(kReturns.begin(), kReturns.end(), is_side)) return as_place(spec::at_return(function));
  if (std::any_of(kEntries.begin(), kEntries.end(), is_side)) return as_place(std::string(function));
  return {};
}

// "./prog+0x1189", "./prog zfree", "p ./prog zfree", "./prog": a path, and no ':' after it.
std::optional<Meant> of_path(std::string_view text) {
  if (text.starts_with("p ")) text = trimmed(text.substr(2));
  if (!begins_with_path(text) || text.find(':') != std::string_view::npos) return {};
  const std::size_t end = std::min(text.find_first_of("+ "), text.size());
  const std::string path(text.substr(0, end));
  if (::access(path.c_str(), R_OK) != 0) return {};
  const std::string_view rest = trimmed(text.substr(std::min(end + 1, text.size())));
  return as_place(path + ":" + (rest.empty() ? "FUNCTION" : std::string(rest)));
}

// "/lib/libc.so.6:malloc", where the library lies elsewhere.
std::optional<Meant> of_library(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (!begins_with_path(text) || colon == std::string_view::npos) return {};
  const std::string path(text.substr(0, colon));
  const std::string name = path.substr(path.rfind('/') + 1);
  if (name.find(".so") == std::string::npos || ::access(path.c_str(), F_OK) == 0) return {};
  return as_place(name + std::string(text.substr(colon)));
}

std::optional<Meant> of_source(std::string_view text) {
  const bool is_complete = !text.ends_with(':');
  const bool is_source = spec::is_source_name(is_complete ? text : text.substr(0, text.size() - 1));
  if (!is_source || text.find(' ') != std::string_view::npos) return {};
  return as_place(std::string(text) + (is_complete ? ":LINE" : "LINE"));
}

// The kernel's function of a system call: libc's makes it.
std::optional<Meant> of_system_call(std::string_view text) {
  static constexpr std::array<std::string_view, 5> kHeads = {"sys_", "SyS_", "__x64_sys_", "ksys_", "do_sys_"};
  const bool is_call = is_name(text) && std::any_of(kHeads.begin(), kHeads.end(),
                                                    [&](std::string_view head) { return text.starts_with(head); });
  if (!is_call) return {};
  return as_place(std::string(kLibc) + system_call(text));
}

}  // namespace

std::optional<Meant> meaning_of_slip(std::string_view text) {
  text = trimmed(text);
  for (const auto& rule : {of_side, of_path, of_library, of_source, of_system_call})
    if (auto meant = rule(text)) return meant;
  return {};
}

std::string place_in_executed(const std::string& function, const std::vector<std::string>& program,
                              const HasFunction& has) {
  if (!is_name(function)) return {};
  for (std::size_t i = 1; i < program.size(); ++i) {
    const std::string path = program[i].substr(0, program[i].find(' '));
    if (path.find('/') != std::string::npos && ::access(path.c_str(), X_OK) == 0 && has(path, function))
      return path + ":" + function;
  }
  return {};
}

}  // namespace uprobe::cli
