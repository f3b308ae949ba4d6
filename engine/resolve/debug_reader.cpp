// SPDX-License-Identifier: MIT
#include "engine/resolve/debug_reader.h"

#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <span>
#include <utility>

#include "engine/base/debuginfod.h"
#include "engine/resolve/debug_protocol.h"

namespace uprobe {
namespace {

using dwarf::CodeLine;
using dwarf::DebugInfo;
using dwarf::InlinedCopy;
using dwarf::NamedVariable;
using spec::Argument;
using uprobe::put;

// The child's side.
class Reader {
 public:
  explicit Reader(const elf::ElfFile& file) : file_(file) {}

  std::string answer(std::string_view request) {
    Parser words(request);
    const Question question = words.kind(Question::result);
    if (!debug_) debug_.emplace(DebugInfo::open(file_));
    if (!*debug_) return failed(debug_->error());
    std::string reply;
    put(reply, static_cast<std::uint32_t>(Answer::value));
    const Status done = tell(question, words, reply);
    return done ? reply : failed(done.error());
  }

 private:
  static std::string failed(const Error& error) {
    std::string reply;
    put(reply, static_cast<std::uint32_t>(Answer::error));
    put(reply, error);
    return reply;
  }

  Status tell(Question question, Parser& words, std::string& reply) {
    const DebugInfo& debug = **debug_;
    switch (question) {
      case Question::open: {
        const auto missing = debug.missing_shared();
        put(reply, std::string_view(reinterpret_cast<const char*>(missing.data()), missing.size()));
        return ok();
      }
      case Question::line:
        return tell_line(words, reply);
      case Question::declaration: {
        const auto found = debug.declaration_of(words.text());
        if (!found) return found.error();
        put(reply, *found);
        return ok();
      }
      case Question::prologue:
        put_long(reply, debug.after_prologue(words.long_number()));
        return ok();
      case Question::variable:
      case Question::result:
        return tell_variable(question, words, reply);
      case Question::lines:
        put_list(reply, debug.lines_of(words.long_number()), [&](const CodeLine& line) { put(reply, line); });
        return ok();
      case Question::variables:
        put_list(reply, debug.variables_at(words.long_number()), [&](const NamedVariable& one) { put(reply, one); });
        return ok();
      default:
        return tell_of_copies(question, words, reply);
    }
  }

  Status tell_of_copies(Question question, Parser& words, std::string& reply) {
    const DebugInfo& debug = **debug_;
    if (question == Question::copies) {
      const auto found = debug.copies_of(words.text());
      if (!found) return found.error();
      put_list(reply, *found, [&](const InlinedCopy& copy) { put(reply, copy); });
    } else if (question == Question::copys_variables) {
      put_list(reply, debug.variables_of_copy(words.number()), [&](const NamedVariable& one) { put(reply, one); });
    } else if (question == Question::lines_of_copies) {
      put_list(reply, debug.lines_of_copies(), [&](const CodeLine& line) { put(reply, line); });
    } else {
      const std::uint32_t copy = words.number();
      Argument argument;
      take(words, argument);
      RETURN_IF_ERROR(debug.find_copys_variable(copy, argument));
      put(reply, argument);
    }
    return ok();
  }

  Status tell_line(Parser& words, std::string& reply) {
    const std::string file = words.text();
    const int line = static_cast<int>(words.number());
    const auto found = (*debug_)->find_line(file, line, words.text());
    if (!found) return found.error();
    put_list(reply, *found, [&](std::uint64_t address) { put_long(reply, address); });
    return ok();
  }

  Status tell_variable(Question question, Parser& words, std::string& reply) {
    const std::uint64_t address = words.long_number();
    Argument argument;
    take(words, argument);
    RETURN_IF_ERROR(question == Question::result ? (*debug_)->find_result(address, argument)
                                                 : (*debug_)->find_variable(address, argument));
    put(reply, argument);
    return ok();
  }

  const elf::ElfFile& file_;
  std::optional<Result<DebugInfo>> debug_;
};

uid_t owner_of(const elf::ElfFile& file) {
  constexpr uid_t kNobody = 65534;
  struct stat status {};
  const bool is_it =
      ::stat(file.path().c_str(), &status) == 0 && elf::Identity{status.st_dev, status.st_ino} == file.identity();
  return is_it ? status.st_uid : kNobody;
}

// The file of root or of the tool's own user.
bool is_trusted(const elf::ElfFile& file) {
  const uid_t owner = owner_of(file);
  return owner == 0 || owner == ::geteuid();
}

// Debug information of large programs has gigabytes. For a file that another user owns the limit is what tests show to be
// enough.
Confinement confinement_for(const elf::ElfFile& file) {
  if (is_trusted(file))
    return {.user = 0, .memory_bytes = std::uint64_t{8} << 30, .patience = std::chrono::seconds(120)};
  return {.user = owner_of(file), .memory_bytes = std::uint64_t{256} << 20, .patience = std::chrono::seconds(10)};
}

}  // namespace

Status fetch_debug_information(const elf::ElfFile& file) {
  if (debuginfod::cached_file(file.build_id()).empty() || !is_trusted(file))
    return Error{.code = Code::refused, .text = "it is not fetched"};
  return debuginfod::fetch(file.build_id(), file.path());
}

// What there is here, else what a server has.
Result<DebugReader> DebugReader::start_or_fetch(const std::shared_ptr<const elf::ElfFile>& file) {
  auto opened = start(file);
  const bool is_wanted = !opened && opened.error().code == Code::refused;
  if (!is_wanted || debuginfod::cached_file(file->build_id()).empty()) return opened;
  if (const Status fetched = fetch_debug_information(*file); !fetched) {
    Error error = opened.error();
    error.help += "; " + fetched.error().text;
    return error;
  }
  return start(file);
}

Result<DebugReader> DebugReader::open(const std::shared_ptr<const elf::ElfFile>& file) {
  auto opened = start_or_fetch(file);
  if (!opened || opened->missing_.empty() || !is_trusted(*file)) return opened;
  const std::string id = opened->missing_;
  const std::span bytes(reinterpret_cast<const std::uint8_t*>(id.data()), id.size());
  const bool is_fetched = !debuginfod::cached_file(bytes).empty() && debuginfod::fetch(bytes, file->path() + " (dwz)");
  return is_fetched ? start(file) : std::move(opened);
}

Result<DebugReader> DebugReader::open_here(const std::shared_ptr<const elf::ElfFile>& file) {
  auto opened = start(file);
  if (opened && !opened->missing_.empty())
    return Error{.code = Code::refused, .text = "a part of the debug information is missing"};
  return opened;
}

Result<DebugReader> DebugReader::start(const std::shared_ptr<const elf::ElfFile>& file) {
  const auto reader = std::make_shared<Reader>(*file);
  auto child =
      Confined::start(confinement_for(*file), [reader](std::string_view request) { return reader->answer(request); });
  if (!child) return child.error();
  DebugReader opened(file->path(), child.take());
  const auto answer = opened.ask(question(Question::open));
  if (!answer) return answer.error();
  auto missing = decode_opened(*answer, opened.path_);
  if (!missing) return missing.error();
  opened.missing_ = missing.take();
  return opened;
}

Result<std::string> DebugReader::ask(const std::string& request) const {
  auto answer = reader_.ask(request);
  if (!answer) return about_debug_information(path_, answer.error());
  return answer;
}

Result<std::vector<std::uint64_t>> DebugReader::find_line(const std::string& file, int line,
                                                          const std::string& function) const {
  std::string request = question(Question::line);
  put(request, std::string_view(file));
  put(request, static_cast<std::uint32_t>(line));
  put(request, std::string_view(function));
  const auto answer = ask(request);
  if (!answer) return answer.error();
  return decode_addresses(*answer, path_);
}

Result<CodeLine> DebugReader::declaration_of(const std::string& function) const {
  std::string request = question(Question::declaration);
  put(request, std::string_view(function));
  const auto answer = ask(request);
  if (!answer) return answer.error();
  return decode_declaration(*answer, path_);
}

Result<std::uint64_t> DebugReader::after_prologue(std::uint64_t address) const {
  const auto answer = ask(question(Question::prologue, address));
  if (!answer) return answer.error();
  return decode_address(*answer, path_);
}

Status DebugReader::ask_for_variable(std::string request, Argument& argument) const {
  put(request, argument);
  const auto answer = ask(request);
  if (!answer) return answer.error();
  const auto made = decode_argument(*answer, path_);
  if (!made) return made.error();
  argument.steps = made->steps, argument.sink = made->sink, argument.memory_offset = made->memory_offset;
  argument.address = made->address, argument.kind = made->kind, argument.size = made->size,
  argument.count = made->count;
  argument.is_text = made->is_text, argument.is_bitfield = made->is_bitfield;
  argument.is_wide = made->is_wide, argument.upper = made->upper;
  argument.bit_width = made->bit_width, argument.bit_offset = made->bit_offset;
  return ok();
}

Status DebugReader::find_variable(std::uint64_t address, Argument& argument) const {
  return ask_for_variable(question(Question::variable, address), argument);
}

Status DebugReader::find_result(std::uint64_t address, Argument& argument) const {
  return ask_for_variable(question(Question::result, address), argument);
}

Status DebugReader::find_copys_variable(std::uint32_t copy, Argument& argument) const {
  std::string request = question(Question::copys_variable);
  put(request, copy);
  return ask_for_variable(std::move(request), argument);
}

Result<std::vector<InlinedCopy>> DebugReader::copies_of(const std::string& function) const {
  std::string request = question(Question::copies);
  put(request, std::string_view(function));
  const auto answer = ask(request);
  if (!answer) return answer.error();
  return decode_copies(*answer, path_);
}

Result<std::vector<NamedVariable>> DebugReader::variables_of_copy(std::uint32_t copy) const {
  std::string request = question(Question::copys_variables);
  put(request, copy);
  const auto answer = ask(request);
  if (!answer) return answer.error();
  return decode_variables(*answer, path_);
}

Result<std::vector<CodeLine>> DebugReader::lines_of_copies() const {
  const auto answer = ask(question(Question::lines_of_copies));
  if (!answer) return answer.error();
  return decode_lines(*answer, path_);
}

Result<std::vector<CodeLine>> DebugReader::lines_of(std::uint64_t address) const {
  const auto answer = ask(question(Question::lines, address));
  if (!answer) return answer.error();
  return decode_lines(*answer, path_);
}

Result<std::vector<NamedVariable>> DebugReader::variables_at(std::uint64_t address) const {
  const auto answer = ask(question(Question::variables, address));
  if (!answer) return answer.error();
  return decode_variables(*answer, path_);
}

}  // namespace uprobe
