// SPDX-License-Identifier: MIT
// The messages between DebugReader and its confined child. The file that the child reads may have taken over the child, so its
// answer is accepted as a whole, with numbers that the rest of the tool can handle, or not at all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/dwarf/debug_info.h"
#include "engine/ipc/message.h"
#include "engine/spec/probe_spec.h"

namespace uprobe {

enum class Question : std::uint32_t {
  open,
  line,
  declaration,
  prologue,
  variable,
  lines,
  variables,
  copies,
  copys_variable,
  copys_variables,
  lines_of_copies,
  result,
};
enum class Answer : std::uint32_t { error, value };

std::string question(Question which);
std::string question(Question which, std::uint64_t address);

void put(std::string& to, const dwarf::CodeLine& line);
void put(std::string& to, const dwarf::NamedVariable& variable);
void put(std::string& to, const dwarf::InlinedCopy& copy);
// The part of an argument that the search for a variable needs, and that the search sets.
void put(std::string& to, const spec::Argument& argument);
bool take(Parser& from, spec::Argument& argument);

template <class Items, class Put>
void put_list(std::string& to, const Items& items, const Put& put_one) {
  put(to, static_cast<std::uint32_t>(items.size()));
  for (const auto& item : items) put_one(item);
}

// Decoders for the answers, in the order of the questions. An Error: the child's, or Code::damaged, about the debug information
// of `path`.
// The build id of a file that is missing; empty: none.
Result<std::string> decode_opened(std::string_view answer, const std::string& path);
Result<std::vector<std::uint64_t>> decode_addresses(std::string_view answer, const std::string& path);
Result<dwarf::CodeLine> decode_declaration(std::string_view answer, const std::string& path);
Result<std::uint64_t> decode_address(std::string_view answer, const std::string& path);
Result<spec::Argument> decode_argument(std::string_view answer, const std::string& path);
Result<std::vector<dwarf::CodeLine>> decode_lines(std::string_view answer, const std::string& path);
Result<std::vector<dwarf::NamedVariable>> decode_variables(std::string_view answer, const std::string& path);
// No more than there can be, and each with an address or a problem.
Result<std::vector<dwarf::InlinedCopy>> decode_copies(std::string_view answer, const std::string& path);

// An error about the debug information of a file.
Error about_debug_information(const std::string& path, Error error);

}  // namespace uprobe
