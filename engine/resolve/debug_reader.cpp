#include "engine/resolve/debug_reader.h"

#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "engine/ipc/message.h"
#include "engine/spec/fetch.h"
#include "engine/spec/type.h"

namespace uprobe {
namespace {

using dwarf::CodeLine;
using dwarf::DebugInfo;
using dwarf::NamedVariable;
using spec::Argument;
using spec::Step;
using spec::StepKind;
using uprobe::put;

enum class Question : std::uint32_t { open, line, declaration, prologue, variable, lines, variables };
enum class Answer : std::uint32_t { error, value };

void put(std::string& to, const CodeLine& line) {
  put(to, std::string_view(line.file));
  put(to, static_cast<std::uint32_t>(line.line));
}
CodeLine take_line(Parser& from) {
  CodeLine line{.file = from.text(), .line = static_cast<int>(from.number())};
  return line;
}

void put(std::string& to, const NamedVariable& variable) {
  for (const std::string* text : {&variable.name, &variable.type, &variable.problem}) put(to, std::string_view(*text));
  put(to, static_cast<std::uint32_t>(variable.is_parameter));
}
NamedVariable take_variable(Parser& from) {
  NamedVariable variable{.name = from.text(), .type = from.text(), .problem = from.text()};
  variable.is_parameter = from.number() != 0;
  return variable;
}

// What a variable's name is looked up with, and what that makes of the argument.
void put(std::string& to, const Argument& argument) {
  put(to, std::string_view(argument.variable));
  for (const std::uint64_t number :
       {std::uint64_t{argument.has_type}, std::uint64_t{argument.is_text}, static_cast<std::uint64_t>(argument.kind),
        std::uint64_t{argument.size}, std::uint64_t{argument.count}, std::uint64_t{argument.is_bitfield},
        std::uint64_t{argument.bit_width}, std::uint64_t{argument.bit_offset}, std::uint64_t{argument.is_user_string},
        static_cast<std::uint64_t>(argument.sink), argument.memory_offset, std::uint64_t{argument.address.has_value()},
        argument.address.value_or(0)})
    put_long(to, number);
  put(to, static_cast<std::uint32_t>(argument.steps.size()));
  for (const Step& step : argument.steps) {
    put(to, static_cast<std::uint32_t>(step.kind));
    put(to, static_cast<std::uint32_t>(step.reg));
    put_long(to, step.value);
  }
}

bool is_step_of_variable(StepKind kind) {
  return kind == StepKind::reg || kind == StepKind::constant || kind == StepKind::file_offset ||
         kind == StepKind::dereference || kind == StepKind::add || kind == StepKind::shift_right ||
         kind == StepKind::vector;
}

// Numbers that the rest of the tool takes for granted, since libdw's reader never gives others.
bool makes_sense(const Argument& argument) {
  constexpr std::uint64_t kWidest = 8;
  const bool is_size = argument.size == 1 || argument.size == 2 || argument.size == 4 || argument.size == kWidest;
  const bool fits = argument.bit_width + argument.bit_offset <= 8 * argument.size;
  if (!is_size || !fits || argument.count > spec::kMaxArray) return false;
  if (argument.sink != spec::Sink::value && argument.sink != spec::Sink::memory) return false;
  for (const Step& step : argument.steps) {
    if (!is_step_of_variable(step.kind)) return false;
    if (step.kind == StepKind::reg && static_cast<std::uint32_t>(step.reg) >= shared::kRegCount) return false;
    if (step.kind == StepKind::vector && step.value >= shared::kVectorCount) return false;
    if (step.kind == StepKind::shift_right && step.value >= 8 * kWidest) return false;
  }
  return true;
}

bool take(Parser& from, Argument& argument) {
  argument.variable = from.text();
  const auto number = [&] { return from.long_number(); };
  argument.has_type = number() != 0, argument.is_text = number() != 0;
  const std::uint64_t kind = number(), size = number(), count = number();
  argument.is_bitfield = number() != 0;
  const std::uint64_t width = number(), offset = number();
  argument.is_user_string = number() != 0;
  const std::uint64_t sink = number();
  argument.memory_offset = number();
  const bool has_address = number() != 0;
  const std::uint64_t address = number();
  argument.address = has_address ? std::optional(address) : std::nullopt;
  if (kind > static_cast<std::uint64_t>(spec::Kind::floating) || sink > static_cast<std::uint64_t>(spec::Sink::text) ||
      size > UINT8_MAX || count > UINT32_MAX || width > UINT8_MAX || offset > UINT8_MAX)
    return false;
  argument.kind = static_cast<spec::Kind>(kind), argument.sink = static_cast<spec::Sink>(sink);
  argument.size = static_cast<std::uint8_t>(size), argument.count = static_cast<std::uint32_t>(count);
  argument.bit_width = static_cast<std::uint8_t>(width), argument.bit_offset = static_cast<std::uint8_t>(offset);
  const std::uint32_t steps = from.number();
  if (steps > static_cast<std::uint32_t>(spec::kKernelEndSlot)) return false;
  argument.steps.clear();
  for (std::uint32_t i = 0; i < steps; ++i) {
    Step step{.kind = from.kind(StepKind::vector)};
    const std::uint32_t reg = from.number();
    if (reg >= shared::kRegCount) return false;
    step.reg = static_cast<shared::Reg>(reg), step.value = from.long_number();
    argument.steps.push_back(step);
  }
  return from.good();
}

// Every list is as long as its count says, which the bytes that are there bound.
template <class Item, class Take>
std::vector<Item> take_list(Parser& from, const Take& take_one) {
  std::vector<Item> list;
  for (std::uint32_t left = from.number(); left != 0 && from.good(); --left) list.push_back(take_one(from));
  return list;
}

template <class Items, class Put>
void put_list(std::string& to, const Items& items, const Put& put_one) {
  put(to, static_cast<std::uint32_t>(items.size()));
  for (const auto& item : items) put_one(item);
}

// The child's side.
class Reader {
 public:
  explicit Reader(const elf::ElfFile& file) : file_(file) {}

  std::string answer(std::string_view request) {
    Parser words(request);
    const Question question = words.kind(Question::variables);
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
      case Question::open:
        return ok();
      case Question::line:
        return tell_line(words, reply);
      case Question::declaration: {
        const auto found = debug.declaration_of(words.text());
        if (!found) return found.error();
        put(reply, *found);
        return ok();
      }
      case Question::prologue:
        put_long(reply, debug.behind_prologue(words.long_number()));
        return ok();
      case Question::variable:
        return tell_variable(words, reply);
      case Question::lines:
        put_list(reply, debug.lines_of(words.long_number()), [&](const CodeLine& line) { put(reply, line); });
        return ok();
      case Question::variables:
        put_list(reply, debug.variables_at(words.long_number()), [&](const NamedVariable& one) { put(reply, one); });
        return ok();
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

  Status tell_variable(Parser& words, std::string& reply) {
    const std::uint64_t address = words.long_number();
    Argument argument;
    take(words, argument);
    if (Status found = (*debug_)->find_variable(address, argument); !found) return found;
    put(reply, argument);
    return ok();
  }

  const elf::ElfFile& file_;
  std::optional<Result<DebugInfo>> debug_;
};

std::string question(Question which) {
  std::string request;
  put(request, static_cast<std::uint32_t>(which));
  return request;
}

std::string question(Question which, std::uint64_t address) {
  std::string request = question(which);
  put_long(request, address);
  return request;
}

// Debug information of large programs has gigabytes; what another user has made has as much as a test of it shows to be enough.
Confinement confinement_for(const elf::ElfFile& file) {
  constexpr uid_t kNobody = 65534;
  struct stat status {};
  const bool is_it =
      ::stat(file.path().c_str(), &status) == 0 && elf::Identity{status.st_dev, status.st_ino} == file.identity();
  const uid_t owner = is_it ? status.st_uid : kNobody;
  if (owner == 0 || owner == ::geteuid())
    return {.user = 0, .memory_bytes = std::uint64_t{8} << 30, .patience = std::chrono::seconds(120)};
  return {.user = owner, .memory_bytes = std::uint64_t{256} << 20, .patience = std::chrono::seconds(10)};
}

}  // namespace

Result<DebugReader> DebugReader::open(std::shared_ptr<const elf::ElfFile> file) {
  const auto reader = std::make_shared<Reader>(*file);
  auto child =
      Confined::start(confinement_for(*file), [reader](std::string_view request) { return reader->answer(request); });
  if (!child) return child.error();
  DebugReader opened(file->path(), child.take());
  const auto begun = opened.ask<Unit>(question(Question::open), [](Parser&) { return Unit{}; });
  if (!begun) return begun.error();
  return opened;
}

template <class Value, class Take>
Result<Value> DebugReader::ask(const std::string& request, const Take& take_value) const {
  const auto about = [this](std::string text) { return path_ + ": its debug information: " + std::move(text); };
  const auto reply = reader_.ask(request);
  if (!reply) {
    Error error = reply.error();
    error.text = about(error.text);
    return error;
  }
  Parser words(*reply);
  if (words.kind(Answer::value) == Answer::error) {
    Error error = take_error(words);
    if (words.is_done()) return error;
  } else {
    Value value = take_value(words);
    if (words.is_done()) return value;
  }
  return Error{.code = Code::damaged, .text = about("what is read there makes no sense")};
}

Result<std::vector<std::uint64_t>> DebugReader::find_line(const std::string& file, int line,
                                                          const std::string& function) const {
  std::string request = question(Question::line);
  put(request, std::string_view(file));
  put(request, static_cast<std::uint32_t>(line));
  put(request, std::string_view(function));
  return ask<std::vector<std::uint64_t>>(request, [](Parser& words) {
    return take_list<std::uint64_t>(words, [](Parser& from) { return from.long_number(); });
  });
}

Result<CodeLine> DebugReader::declaration_of(const std::string& function) const {
  std::string request = question(Question::declaration);
  put(request, std::string_view(function));
  return ask<CodeLine>(request, take_line);
}

Result<std::uint64_t> DebugReader::behind_prologue(std::uint64_t address) const {
  return ask<std::uint64_t>(question(Question::prologue, address), [](Parser& words) { return words.long_number(); });
}

Status DebugReader::find_variable(std::uint64_t address, Argument& argument) const {
  std::string request = question(Question::variable, address);
  put(request, argument);
  const auto found = ask<std::optional<Argument>>(request, [](Parser& words) -> std::optional<Argument> {
    Argument made;
    return take(words, made) && makes_sense(made) ? std::optional(std::move(made)) : std::nullopt;
  });
  if (!found) return found.error();
  const std::optional<Argument>& made = *found;
  if (!made) return Error{.code = Code::damaged, .text = path_ + ": its debug information makes no sense"};
  argument.steps = made->steps, argument.sink = made->sink, argument.memory_offset = made->memory_offset;
  argument.address = made->address, argument.kind = made->kind, argument.size = made->size,
  argument.count = made->count;
  argument.is_text = made->is_text, argument.is_bitfield = made->is_bitfield;
  argument.bit_width = made->bit_width, argument.bit_offset = made->bit_offset;
  return ok();
}

Result<std::vector<CodeLine>> DebugReader::lines_of(std::uint64_t address) const {
  return ask<std::vector<CodeLine>>(question(Question::lines, address),
                                    [](Parser& words) { return take_list<CodeLine>(words, take_line); });
}

Result<std::vector<NamedVariable>> DebugReader::variables_at(std::uint64_t address) const {
  return ask<std::vector<NamedVariable>>(question(Question::variables, address),
                                         [](Parser& words) { return take_list<NamedVariable>(words, take_variable); });
}

}  // namespace uprobe
