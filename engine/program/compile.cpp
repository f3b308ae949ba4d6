// SPDX-License-Identifier: MIT
// Compiling arguments one after the other: source, dereferences, then one store (and a shift for bitfields).
#include "engine/program/compile.h"

#include <algorithm>
#include <cerrno>

namespace uprobe::program {
namespace {

using shared::Insn;
using shared::Op;
using spec::Argument;
using spec::Sink;
using spec::Step;
using spec::StepKind;

std::uint32_t elements(const Argument& argument) { return argument.count == 0 ? 1 : argument.count; }

Error limit_error(std::string text) { return Error{.code = Code::limit, .text = std::move(text), .err = E2BIG}; }

// The instructions of one event; `text` collects its constant strings.
class Compiler {
 public:
  explicit Compiler(EventProgram& program) : program_(program) {}

  Status add(const Argument& argument, const Field& field);
  void end() { emit({.op = Op::end}); }

 private:
  void emit(Insn insn) { program_.insns.push_back(insn); }
  void emit_entry(const Argument& argument);
  void emit_step(const Step& step);
  void emit_value(const std::vector<Step>& steps, const Field& field);
  void emit_memory(const Argument& argument, const Field& field);
  void emit_halves(const Argument& argument, const Field& field);
  void emit_text(const Argument& argument, const Field& field);
  Status emit_shift(const Argument& argument, const Field& field);
  void emit_extension(const Argument& argument, const Field& field);

  EventProgram& program_;
};

// `\IMM:string[N]` reads no pointers in the kernel: every element is a fault, as at address 0.
bool is_array_of_immediate(const Argument& argument) {
  const bool immediate = !argument.body.empty() && argument.body[0] == '\\';
  return immediate && argument.kind == Kind::string && argument.count != 0 && argument.sink == Sink::memory;
}

// A string with a length and no NUL.
bool has_length(const Argument& argument) {
  return std::any_of(argument.steps.begin(), argument.steps.end(),
                     [](const Step& step) { return step.kind == StepKind::length; });
}

void Compiler::emit_step(const Step& step) {
  switch (step.kind) {
    case StepKind::reg:
      return emit({.op = Op::load_register, .size = static_cast<std::uint8_t>(step.reg)});
    case StepKind::constant:
      return emit({.op = Op::load_constant, .immediate = step.value});
    case StepKind::file_offset:
      return emit({.op = Op::load_file_offset, .immediate = step.value});
    case StepKind::object:
      return emit({.op = Op::load_object,
                   .count = static_cast<std::uint16_t>(program_.objects.size() - 1),
                   .immediate = step.value});
    case StepKind::dereference:
      return emit({.op = Op::dereference, .immediate = step.value});
    case StepKind::add:
      return emit({.op = Op::add, .immediate = step.value});
    case StepKind::shift_right:
      return emit({.op = Op::shift_right, .immediate = step.value});
    case StepKind::add_register:
      return emit({.op = Op::add_register,
                   .size = static_cast<std::uint8_t>(step.reg),
                   .count = static_cast<std::uint16_t>(step.value)});
    case StepKind::entry:
      return emit({.op = Op::load_entry,
                   .size = program_.noted.fields.back().size,
                   .offset = program_.noted.fields.back().offset});
    case StepKind::latency:
      return emit({.op = Op::load_latency});
    case StepKind::self_time:
      return emit({.op = Op::load_self});
    case StepKind::thread:
      return emit({.op = Op::load_thread});
    case StepKind::thread_pointer:
      return emit({.op = Op::load_thread_pointer});
    case StepKind::keep:
    case StepKind::length:
      return emit({.op = Op::keep});
    case StepKind::add_kept:
      return emit({.op = Op::add_kept});
    case StepKind::add_thread_pointer:
      return emit({.op = Op::add_thread_pointer});
    case StepKind::thread_data:
      return emit({.op = Op::find_thread_data});
    case StepKind::vector:  // emit_value() stores it
      return;
  }
}

// A vector register has more bytes than the working value: it is stored as it is.
void Compiler::emit_value(const std::vector<Step>& steps, const Field& field) {
  const std::uint32_t count = field.count == 0 ? 1 : field.count;
  if (!steps.empty() && steps.back().kind == StepKind::vector)
    return emit({.op = Op::store_vector,
                 .size = static_cast<std::uint8_t>(steps.back().value),
                 .count = static_cast<std::uint16_t>(field.size * count),
                 .offset = field.offset});
  emit({.op = Op::store_value, .size = field.size, .offset = field.offset});
}

// The other program: the fetch of argument.entry becomes a field of the entry record.
void Compiler::emit_entry(const Argument& argument) {
  EventLayout& noted = program_.noted;
  const spec::EntryFetch& entry = *argument.entry;
  const Field& field = noted.fields.emplace_back(Field{argument.name, Kind::hex, entry.size, noted.fixed_bytes});
  noted.fixed_bytes += field.size;
  program_.insns.swap(program_.note);
  emit({.op = Op::begin});
  for (const Step& step : entry.steps) emit_step(step);
  if (entry.is_memory)
    emit({.op = Op::store_memory, .count = field.size, .offset = field.offset, .immediate = entry.memory_offset});
  else
    emit_value(entry.steps, field);
  program_.insns.swap(program_.note);
}

// The last dereference is the store itself: it alone knows how many bytes to read, and the meaning of a partial fault.
void Compiler::emit_memory(const Argument& argument, const Field& field) {
  Insn insn{.op = Op::store_memory, .offset = field.offset, .immediate = argument.memory_offset};
  if (argument.kind != Kind::string) {
    const std::uint8_t bytes = argument.source_bytes != 0 ? argument.source_bytes : field.size;
    insn.count = static_cast<std::uint16_t>(bytes * elements(argument));
    insn.size = argument.count == 0 ? std::uint8_t{0} : field.size;
  } else if (argument.count == 0) {
    insn.op = Op::store_string;
    insn.count = has_length(argument) ? 1 : 0;
  } else {
    insn.op = Op::store_string_array;
    insn.count = static_cast<std::uint16_t>(argument.count);
  }
  emit(insn);
}

// One after the other, as an argument of eight bytes each.
void Compiler::emit_halves(const Argument& argument, const Field& field) {
  Field half = field;
  half.count = 0;
  const auto emit_half = [&](const std::vector<Step>& steps, bool is_memory, std::uint64_t memory_offset) {
    emit({.op = Op::begin});
    for (const Step& step : steps) emit_step(step);
    if (is_memory)
      emit({.op = Op::store_memory, .count = half.size, .offset = half.offset, .immediate = memory_offset});
    else
      emit_value(steps, half);
    half.offset += half.size;
  };
  emit_half(argument.steps, argument.sink == Sink::memory, argument.memory_offset);
  emit_half(argument.upper->steps, argument.upper->is_memory, argument.upper->memory_offset);
}

// Constant strings go to a pool of the event; the session moves it to its own and adds the pool's place.
void Compiler::emit_text(const Argument& argument, const Field& field) {
  const std::size_t at = program_.text.size();
  program_.text.append(argument.text).push_back('\0');
  emit({.op = Op::store_text,
        .count = static_cast<std::uint16_t>(argument.text.size() + 1),
        .offset = field.offset,
        .immediate = at});
}

// Shifts to the container's top, then down to bit 0: the field remains, with its sign if the type has one.
Status Compiler::emit_shift(const Argument& argument, const Field& field) {
  const unsigned bits = field.size * 8u;
  const unsigned width = argument.bit_width, offset = argument.bit_offset;
  if (width == 0 || width + offset > bits)
    return Error{.code = Code::refused, .text = "the bitfield of '" + argument.name + "' is wider than its container"};
  const std::uint64_t left = bits - width - offset, right = bits - width;
  const std::uint64_t sign = argument.kind == Kind::signed_decimal ? shared::kShiftSigned : 0;
  emit({.op = Op::shift,
        .size = field.size,
        .count = static_cast<std::uint16_t>(elements(argument)),
        .offset = field.offset,
        .immediate = left | right << 8 | sign});
  return ok();
}

// Shifts the bytes that were read to the field's top, then down: what was stored above them does not matter.
void Compiler::emit_extension(const Argument& argument, const Field& field) {
  const std::uint64_t distance = 8u * (field.size - argument.source_bytes);
  const std::uint64_t sign = argument.extends_sign ? shared::kShiftSigned : 0;
  emit({.op = Op::shift,
        .size = field.size,
        .count = 1,
        .offset = field.offset,
        .immediate = distance | distance << 8 | sign});
}

// `begin` clears value and fault, so that an argument never sees the values of an earlier one.
Status Compiler::add(const Argument& argument, const Field& field) {
  if (argument.entry) emit_entry(argument);
  if (!argument.object.empty())
    program_.objects.push_back({argument.object, argument.exported, argument.exported_address});
  if (argument.upper) return emit_halves(argument, field), ok();
  emit({.op = Op::begin});
  if (is_array_of_immediate(argument))
    emit({.op = Op::load_constant});
  else
    for (const Step& step : argument.steps) emit_step(step);
  switch (argument.sink) {
    case Sink::value:
      emit_value(argument.steps, field);
      break;
    case Sink::memory:
      emit_memory(argument, field);
      break;
    case Sink::comm:
      emit({.op = Op::store_comm, .offset = field.offset});
      break;
    case Sink::text:
      emit_text(argument, field);
      break;
  }
  if (argument.source_bytes != 0) emit_extension(argument, field);
  return argument.is_bitfield ? emit_shift(argument, field) : ok();
}

// The agent's counts and the reader's locators are made for 64 elements and 4095 characters.
Status check_argument(const Argument& argument) {
  if (argument.count > kMaxElements) return limit_error("the array '" + argument.name + "' is too long");
  if (argument.text.size() >= shared::kMaxStringBytes)
    return limit_error("the text of '" + argument.name + "' is too long");
  if (!argument.variable.empty())
    return Error{.code = Code::refused, .text = "the variable '" + argument.variable + "' was not looked up"};
  if (!argument.symbol.empty() || argument.address)
    return Error{.code = Code::refused, .text = "the symbol '" + argument.symbol + "' was not looked up"};
  return ok();
}

// Tells each store of a string how many follow, for which the agent keeps room.
void number_strings(std::vector<Insn>& insns) {
  std::uint32_t later = 0;
  for (auto insn = insns.rbegin(); insn != insns.rend(); ++insn) {
    const bool is_array = insn->op == Op::store_string_array;
    if (!is_array && insn->op != Op::store_string && insn->op != Op::store_text && insn->op != Op::store_comm) continue;
    insn->size = static_cast<std::uint8_t>(std::min<std::uint32_t>(later, 255));
    later += is_array ? insn->count : 1;
  }
}

}  // namespace

// No alignment: ftrace's records have none, and the agent stores bytewise.
Result<EventLayout> make_layout(const spec::ProbeSpec& spec) {
  const std::uint32_t head = spec.is_return ? kReturnHead : kEntryHead;
  EventLayout layout;
  layout.group = spec.group;
  layout.event = spec.event;
  layout.is_return = spec.is_return;
  layout.style = spec.style;
  layout.print_format = spec.print_format;
  layout.fixed_bytes = head;
  if (spec.arguments.size() > shared::kMaxArguments) return limit_error("too many arguments");
  for (const Argument& argument : spec.arguments) {
    RETURN_IF_ERROR(check_argument(argument));
    layout.fields.push_back({.name = argument.name,
                             .kind = argument.kind,
                             .size = argument.size,
                             .offset = layout.fixed_bytes,
                             .count = argument.count,
                             .is_text = argument.is_text,
                             .is_wide = argument.is_wide,
                             .declared = argument.declared,
                             .of_entry = spec::wants_entry(argument) || spec::is_of_library_thread(argument)});
    layout.fixed_bytes += argument.size * elements(argument);
    if (layout.fixed_bytes - head > shared::kMaxFixedArguments)
      return limit_error("the arguments are too large for a record");
  }
  return layout;
}

Result<EventProgram> compile(const spec::ProbeSpec& spec) {
  auto layout = make_layout(spec);
  if (!layout) return layout.error();
  EventProgram program;
  program.layout = layout.take();
  Compiler compiler(program);
  for (std::size_t i = 0; i < spec.arguments.size(); ++i) {
    RETURN_IF_ERROR(compiler.add(spec.arguments[i], program.layout.fields[i]));
  }
  compiler.end();
  number_strings(program.insns);
  if (spec::wants_entry(spec)) program.note.push_back({.op = Op::end});
  if (program.noted.fixed_bytes > shared::kMostNoted) return limit_error("too much is wanted of the function's entry");
  return program;
}

}  // namespace uprobe::program
