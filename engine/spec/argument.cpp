// SPDX-License-Identifier: MIT
// Reading arguments: the name, then the type's words, then the fetch, then whether type and fetch go together. This is
// the kernel's order, and it decides which of several mistakes is reported.
#include "engine/spec/argument.h"

#include <algorithm>
#include <array>

#include "engine/lex/suggest.h"
#include "engine/shared/layout.h"
#include "engine/spec/messages.h"
#include "engine/spec/object.h"
#include "engine/spec/type.h"
#include "engine/spec/words_2009.h"

namespace uprobe::spec {
namespace {

// The fields of every record; a filter or a reader of records could not tell an argument of the same name from them. (The
// kernel does not reserve common_cpu and the like.)
constexpr std::array<std::string_view, 8> kReserved = {"common_type",    "common_flags", "common_preempt_count",
                                                       "common_pid",     "common_tgid",  "__probe_ip",
                                                       "__probe_ret_ip", "__probe_func"};

}  // namespace

bool can_be_argument(std::string_view name) {
  return name.size() <= kMaxArgumentName && is_identifier(name) &&
         std::find(kReserved.begin(), kReserved.end(), name) == kReserved.end();
}

namespace {

struct NamedBody {
  std::string name;
  std::size_t offset = 0;  // of the body in the word
};

// Arguments without a name are argN, N their position, and clash with written names like any other.
bool is_used(std::string_view name, const std::vector<Argument>& earlier) {
  for (const std::string_view reserved : kReserved) {
    if (name == reserved) return true;
  }
  for (const Argument& argument : earlier) {
    if (name == argument.name) return true;
  }
  return false;
}

// The last name in "p->next->len", if it can be an argument's name; "latency", "self".
std::string name_of_variable(std::string_view body, const std::vector<Argument>& earlier) {
  const std::string_view fetch = body.substr(0, body.find(':'));
  const bool is_time = fetch == "$latency" || fetch == "$self";
  body.remove_prefix(is_time ? 1 : std::min(body.find_first_not_of("*&"), body.size()));
  if (body.empty() || !(is_letter(body[0]) || body[0] == '_')) return {};
  body = body.substr(0, body.find(':'));
  while (body.ends_with(']')) body = body.substr(0, std::min(body.rfind('['), body.size() - 1));
  std::size_t start = body.size();
  while (start > 0 && (is_letter(body[start - 1]) || is_digit(body[start - 1]) || body[start - 1] == '_')) --start;
  const std::string name(body.substr(start));
  return name.size() <= kMaxArgumentName && is_identifier(name) && !is_used(name, earlier) ? name : std::string();
}

Result<NamedBody> parse_name(const Command& command, std::size_t word, const std::vector<Argument>& earlier,
                             const FetchContext& context) {
  const std::string_view text = command.word(word);
  const std::size_t equals = text.find('=');
  NamedBody result{.name = "arg" + std::to_string(earlier.size() + 1)};
  if (equals != std::string_view::npos) {
    if (equals > kMaxArgumentName) return command.blame(word, 0, message::kArgumentNameTooLong);
    if (equals == 0) return command.blame(word, 0, message::kNoArgumentName);
    result = {.name = std::string(text.substr(0, equals)), .offset = equals + 1};
  } else if (const std::string name = context.strict ? "" : name_of_variable(text, earlier);
             !name.empty() && !(context.words_2009 && has_word_2009(text))) {
    result.name = name;
  }
  if (!is_identifier(result.name)) return command.blame(word, 0, message::kBadArgumentName);
  if (is_used(result.name, earlier)) return command.blame(word, 0, message::kUsedArgumentName);
  return result;
}

// Only these two are strings by themselves; with any other fetch a string type means the string's address.
bool is_comm_or_text(std::string_view fetch) {
  return fetch == "$comm" || fetch == "$COMM" || fetch.starts_with("\\\"");
}

// One argument on its way from text to Argument.
class ArgumentParser {
 public:
  ArgumentParser(const Command& command, std::size_t word, NamedBody named, const FetchContext& context)
      : command_(command), context_(context), word_(word), body_offset_(named.offset) {
    argument_.name = std::move(named.name);
    argument_.body = std::string(command.word(word).substr(named.offset));
    argument_.column = static_cast<int>(command.start(word));
  }

  Result<Argument> parse(std::uint32_t& fixed_bytes);

 private:
  Status choose_type(const TypedBody& parts);
  Status narrow(const TypedBody& parts, Fetch& fetch);
  Status fit_vector(const TypedBody& parts, const Fetch& fetch);
  Status join(const TypedBody& parts, Fetch& fetch);
  Status join_string(const TypedBody& parts, Fetch& fetch);
  Status follow_value(const TypedBody& parts, Fetch& fetch);
  Status join_bitfield(const TypedBody& parts, Fetch& fetch);
  Status join_array(const TypedBody& parts, Fetch& fetch);
  Status join_wide(const TypedBody& parts, Fetch& fetch);

  Error blame(std::size_t offset, std::string_view message, int err = EINVAL) const {
    return command_.blame(word_, body_offset_ + offset, message, err);
  }

  const Command& command_;
  const FetchContext& context_;
  std::size_t word_, body_offset_;
  Argument argument_;
};

Result<Argument> ArgumentParser::parse(std::uint32_t& fixed_bytes) {
  const std::string_view body = command_.word(word_).substr(body_offset_);
  const auto object = context_.strict ? std::nullopt : find_object(body);
  // The kernel's limit; an object's path may have any length.
  if (body.size() - (object ? object->bytes : 0) > kMaxArgumentBody) return blame(0, message::kArgumentTooLong, E2BIG);
  if (argument_.body.empty()) return blame(0, message::kNoArgumentBody);
  auto parts = split_type(command_, word_, body_offset_, body, object ? object->end : 0);
  if (!parts) return parts.error();
  RETURN_IF_ERROR(choose_type(*parts));
  auto fetch = parse_fetch(command_, word_, body_offset_, parts->fetch, context_);
  if (!fetch) return fetch.error();
  RETURN_IF_ERROR(narrow(*parts, *fetch));
  // Checked before type and fetch are joined: like the kernel, this reports a too big event before a string in a register.
  fixed_bytes += fixed_size(argument_);
  if (fixed_bytes > shared::kMaxFixedArguments) return blame(fetch->blame_offset, message::kEventTooBig, E2BIG);
  RETURN_IF_ERROR(join(*parts, *fetch));
  if (fetch->has_word_2009) argument_.body = modern_body(argument_.body);
  argument_.steps = std::move(fetch->steps);
  argument_.memory_offset = fetch->memory_offset;
  argument_.entry = std::move(fetch->entry);
  // Takes only the bytes that are shown; an address that is followed later takes a whole word.
  if (argument_.entry && argument_.steps.size() == 1 && argument_.sink == Sink::value)
    argument_.entry->size = argument_.size;
  argument_.text = std::move(fetch->text);
  argument_.symbol = std::move(fetch->symbol);
  argument_.object = std::move(fetch->object);
  argument_.object_column = argument_.column + static_cast<int>(body_offset_ + fetch->object_offset);
  if (fetch->yield == Yield::variable) argument_.variable = std::string(parts->fetch);
  argument_.symbol_column = argument_.column + static_cast<int>(body_offset_ + fetch->symbol_offset);
  return std::move(argument_);
}

// The type alone; `join` decides whether it suits the fetch, after the fetch has been read.
Status ArgumentParser::choose_type(const TypedBody& parts) {
  std::optional<std::string_view> name = parts.type;
  if (is_comm_or_text(parts.fetch)) {
    if (parts.count != 0 || (name && *name != "string")) return blame(parts.type_offset, message::kNeedStringType);
    name = "string";
  }
  const auto type = find_type(name, context_.strict);
  if (!type) {
    Error error = blame(parts.type_offset, message::kBadType);
    error.help = type_help(name.value_or(""));
    return error;
  }
  argument_.kind = type->kind;
  argument_.size = type->size;
  argument_.is_user_string = type->is_user_string;
  argument_.count = parts.count;
  argument_.has_type = parts.type.has_value();
  if (type->is_wide && parts.count != 0) return blame(parts.type_offset, message::kWideArray);
  if (type->is_wide) argument_.is_wide = true, argument_.count = 2;
  return ok();
}

// A vector register is an array of its words, unless a type says how to read its lowest bytes.
Status ArgumentParser::fit_vector(const TypedBody& parts, const Fetch& fetch) {
  if (!parts.type) argument_.count = fetch.register_bytes / 8u;
  if (argument_.kind == Kind::string || fixed_size(argument_) <= fetch.register_bytes) return ok();
  Error error = blame(parts.type_offset, message::kVectorTooShort);
  error.help = std::to_string(fetch.register_bytes) + " bytes are at most :x64[" +
               std::to_string(fetch.register_bytes / 8) + "], :x8[" + std::to_string(fetch.register_bytes) + "]";
  return error;
}

// A part of a register has its own width unless a type is narrower: %edi is x32. A floating point return value is in a vector
// register.
Status ArgumentParser::narrow(const TypedBody& parts, Fetch& fetch) {
  if (fetch.is_retval && argument_.kind == Kind::floating && parts.count == 0)
    fetch.steps = {{.kind = StepKind::vector, .value = shared::kFloatReturnVector}};
  if (is_vector(fetch)) return fit_vector(parts, fetch);
  if (!fetch.steps.empty() && is_time(fetch.steps[0].kind) && !parts.type) argument_.kind = Kind::unsigned_decimal;
  const bool is_thread = !fetch.steps.empty() && fetch.steps[0].kind == StepKind::thread;
  if (is_thread && !parts.type) argument_.kind = Kind::unsigned_decimal, argument_.size = 4;
  if (fetch.register_bytes == 8) return ok();
  if (!parts.type) argument_.size = fetch.register_bytes;
  if (argument_.kind == Kind::string || argument_.size <= fetch.register_bytes) return ok();
  Error error = blame(parts.type_offset, message::kTypeTooWide);
  error.help = "the whole register has the kernel's name: %di, %ax, %r8";
  return error;
}

// Decides how the value gets into the record. `fetch.slot` goes on counting the kernel's instructions.
Status ArgumentParser::join(const TypedBody& parts, Fetch& fetch) {
  const bool is_memory = fetch.yield == Yield::memory || fetch.yield == Yield::user_memory;
  argument_.sink = is_memory ? Sink::memory : Sink::value;
  if (argument_.kind == Kind::string) {
    RETURN_IF_ERROR(join_string(parts, fetch));
  } else if (!is_memory) {
    // A value is stored by an instruction of its own; a last dereference becomes the store.
    ++fetch.slot;
  }
  if (parts.type && parts.type->starts_with('b')) {
    RETURN_IF_ERROR(join_bitfield(parts, fetch));
  }
  if (argument_.is_wide) return join_wide(parts, fetch);
  return parts.count != 0 ? join_array(parts, fetch) : ok();
}

// Two registers return a number of 16 bytes.
Status ArgumentParser::join_wide(const TypedBody& parts, Fetch& fetch) {
  if (fetch.yield == Yield::variable || is_vector(fetch)) return ok();
  if (fetch.is_retval) {
    argument_.upper = UpperHalf{.steps = {{.kind = StepKind::reg, .reg = shared::kUpperReturnRegister}}};
    return ok();
  }
  if (fetch.yield != Yield::memory) return blame(fetch.blame_offset + parts.type_offset, message::kWideNeedsMemory);
  if (++fetch.slot == kKernelEndSlot) return blame(fetch.blame_offset, message::kTooDeep, E2BIG);
  return ok();
}

// An immediate is the address of a string; the kernel keeps its instruction and adds one for the store.
Status ArgumentParser::join_string(const TypedBody& parts, Fetch& fetch) {
  switch (fetch.yield) {
    case Yield::value:
      return follow_value(parts, fetch);
    case Yield::variable:
      return ok();
    case Yield::comm:
      argument_.sink = Sink::comm;
      break;
    case Yield::text:
      argument_.sink = Sink::text;
      break;
    case Yield::immediate:
    case Yield::memory:
    case Yield::user_memory:
      argument_.sink = Sink::memory;
      break;
  }
  const bool is_address = fetch.yield == Yield::memory || fetch.yield == Yield::user_memory;
  if (is_address && argument_.count == 0) return ok();
  if (++fetch.slot == kKernelEndSlot) return blame(fetch.blame_offset, message::kTooDeep, E2BIG);
  return ok();
}

// "%di:string" is "+0(%di):string", and is listed as that, which kernels take. Only registers, words of the stack and what a
// return keeps of them are addresses.
Status ArgumentParser::follow_value(const TypedBody& parts, Fetch& fetch) {
  const StepKind source = fetch.entry ? fetch.entry->steps.front().kind : fetch.steps.front().kind;
  const bool is_number = is_time(source) || source == StepKind::thread || source == StepKind::vector;
  const std::string memory = "+0(" + std::string(parts.fetch) + "):" + std::string(parts.type.value_or(""));
  if (is_number || argument_.count != 0 || context_.strict) {
    Error error = blame(fetch.blame_offset + parts.type_offset, message::kNeedMemory);
    if (!is_number && argument_.count == 0) error.help = "'" + memory + "' is the string that it points to";
    return error;
  }
  if (fetch.register_bytes != 8) return blame(0, message::kPartOfAddress);
  if (++fetch.slot == kKernelEndSlot) return blame(fetch.blame_offset, message::kTooDeep, E2BIG);
  fetch.yield = Yield::memory;
  argument_.sink = Sink::memory;
  argument_.body = memory;
  return ok();
}

// The kernel blames the type even if it is the instruction for the shift that exceeds the limit.
Status ArgumentParser::join_bitfield(const TypedBody& parts, Fetch& fetch) {
  const Widths widths = context_.strict ? Widths::wrapping : Widths::exact;
  if (!read_bitfield(*parts.type, widths, argument_) || ++fetch.slot == kKernelEndSlot)
    return blame(fetch.blame_offset + parts.type_offset, message::kBadBitfield);
  return ok();
}

// An array is read from memory at once. The kernel's loop has no user-space variant (+uOFF), except for strings.
Status ArgumentParser::join_array(const TypedBody& parts, Fetch& fetch) {
  const bool is_string = argument_.kind == Kind::string;
  if (fetch.yield == Yield::variable) return ok();
  if (is_vector(fetch)) return ok();
  if (!is_string && fetch.yield != Yield::memory)
    return blame(fetch.blame_offset + parts.type_offset, message::kNeedMemory);
  if (++fetch.slot == kKernelEndSlot) return blame(fetch.blame_offset, message::kTooDeep, E2BIG);
  return ok();
}

}  // namespace

// A string counts with its locator: its characters are not in the fixed part.
std::uint32_t fixed_size(const Argument& argument) {
  return argument.size * (argument.count == 0 ? 1 : argument.count);
}

Result<std::vector<Argument>> parse_arguments(const Command& command, const FetchContext& context) {
  std::vector<Argument> arguments;
  std::uint32_t fixed_bytes = 0;
  for (std::size_t word = 2; word < command.size(); ++word) {
    auto named = parse_name(command, word, arguments, context);
    if (!named) return named.error();
    auto argument = ArgumentParser(command, word, named.take(), context).parse(fixed_bytes);
    if (!argument) return argument.error();
    arguments.push_back(argument.take());
  }
  return arguments;
}

}  // namespace uprobe::spec
