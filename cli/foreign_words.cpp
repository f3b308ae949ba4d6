// SPDX-License-Identifier: MIT
#include "cli/foreign_words.h"

#include <algorithm>
#include <cctype>

namespace uprobe::cli {
namespace {

constexpr std::string_view kCondition = " if ";

bool is_decimal(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

}  // namespace

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool is_name(std::string_view text) {
  return !text.empty() && !is_decimal(text[0]) && std::all_of(text.begin(), text.end(), is_word);
}

std::vector<std::string> names_in(std::string_view text) {
  std::vector<std::string> names;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && is_word(text[end])) ++end;
    const std::string name(text.substr(at, end - at));
    if (is_name(name) && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    at = std::max(end, at + 1);
  }
  return names;
}

std::string system_call(std::string_view name) {
  for (const std::string_view prefix : {"sys_enter_", "sys_exit_", "__x64_sys_", "__ia32_sys_", "__se_sys_", "do_sys_",
                                        "ksys_", "SyS_", "sys_", "vfs_"})
    if (name.starts_with(prefix)) {
      name.remove_prefix(prefix.size());
      break;
    }
  return std::string(name.substr(0, name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789*")));
}

std::string fetch_of(std::string_view name) {
  if (name == "retval") return "$retval";
  const bool is_argument = name.size() == 4 && name.starts_with("arg") && name[3] >= '0' && name[3] <= '5';
  return is_argument ? "$arg" + std::string(1, static_cast<char>(name[3] + 1)) : std::string();
}

std::string fetches_in(std::string_view program) {
  std::string found;
  for (const std::string& name : names_in(program)) {
    const std::string fetch = fetch_of(name);
    if (fetch.empty()) continue;
    const bool is_text = program.find("str(" + name) != std::string_view::npos;
    found += " " + fetch + (is_text ? ":string" : "");
  }
  for (std::size_t at = 0; (at = program.find("reg(\"", at)) != std::string_view::npos;) {
    at += 5;
    const std::string_view name = program.substr(at, program.find('"', at) - at);
    if (is_name(name)) found += " %" + std::string(name);
  }
  // bpftrace's parameters by their names: "args.size", formerly "args->size".
  for (const std::string_view before : {"args.", "args->"})
    for (std::size_t at = 0; (at = program.find(before, at)) != std::string_view::npos;) {
      at += before.size();
      std::size_t end = at;
      while (end < program.size() && is_word(program[end])) ++end;
      const std::string name(program.substr(at, end - at));
      if (is_name(name) && (found + " ").find(" " + name + " ") == std::string::npos) found += " " + name;
    }
  return found;
}

std::string without_texts(std::string_view condition) {
  std::string words;
  for (std::size_t at = 0; at < condition.size(); ++at) {
    if (condition[at] == '"') at = std::min(condition.find('"', at + 1), condition.size() - 1);
    words += condition[at];
  }
  return words;
}

std::string filter_of(std::string_view condition) {
  condition = trimmed(condition);
  const bool is_comm = condition.starts_with("comm == \"") && condition.find('"', 9) == condition.size() - 1;
  if (is_comm) return " if " + std::string(condition);
  constexpr std::string_view kPid = "pid == ";
  if (condition.starts_with(kPid) && is_decimal_number(condition.substr(kPid.size())))
    return " if common_" + std::string(condition);
  // "str(arg0)" is the text that arg0 points to.
  std::string plain(condition), fetches;
  for (std::size_t at = 0; (at = plain.find("str(arg", at)) != std::string::npos;) {
    const std::string name = plain.substr(at + 4, 4);
    if (fetch_of(name).empty() || plain.substr(at + 8, 1) != ")") return {};
    plain.replace(at, 9, name);
    if (const std::string text = " " + name + "=" + fetch_of(name) + ":string"; fetches.find(text) == std::string::npos)
      fetches += text;
  }
  const std::string words = without_texts(plain);
  const bool is_plain = std::all_of(words.begin(), words.end(), [](char c) {
    return is_word(c) || std::string_view(" =!<>&|()\"").find(c) != std::string_view::npos;
  });
  for (const std::string& name : names_in(words)) {
    const std::string fetch = fetch_of(name);
    if (fetch.empty()) return {};
    if (fetches.find(" " + name + "=") == std::string::npos) fetches += " " + name + "=" + fetch;
  }
  return is_plain && !fetches.empty() ? fetches + std::string(kCondition) + std::string(trimmed(plain)) : std::string();
}

std::string records_of(std::string_view rest) {
  rest = trimmed(rest);
  if (!rest.starts_with('/')) return fetches_in(rest);
  const std::size_t end = std::min(rest.find('/', 1), rest.size());
  std::string filter = filter_of(rest.substr(1, end - 1));
  const std::string more = fetches_in(rest.substr(end));
  if (filter.empty()) return fetches_in(rest);
  std::string before = filter.substr(0, filter.find(kCondition));
  for (std::size_t at = 0; at < more.size();) {  // each begins with a blank
    const std::size_t next = std::min(more.find(' ', at + 1), more.size());
    const std::string fetch = more.substr(at + 1, next - at - 1), value = fetch.substr(0, fetch.find(':'));
    if ((before + " ").find("=" + value + " ") == std::string::npos && before.find("=" + fetch) == std::string::npos)
      before += " " + fetch;
    at = next;
  }
  return before + filter.substr(filter.find(kCondition));
}

std::string glob_of(std::string_view expression) {
  const bool from_start = expression.starts_with('^'), to_end = expression.ends_with('$');
  if (from_start) expression.remove_prefix(1);
  if (to_end && !expression.empty()) expression.remove_suffix(1);
  std::string glob(expression);
  for (std::size_t at = 0; (at = glob.find(".*")) != std::string::npos;) glob.replace(at, 2, "*");
  return (from_start ? "" : "*") + glob + (to_end || glob.ends_with('*') ? "" : "*");
}

std::string glob_from_start(std::string_view expression) {
  return glob_of(expression.starts_with('^') ? std::string(expression) : "^" + std::string(expression));
}

bool is_decimal_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_decimal);
}

}  // namespace uprobe::cli
