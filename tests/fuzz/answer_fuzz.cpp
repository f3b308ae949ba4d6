// SPDX-License-Identifier: MIT
// Fuzzes the answers of the confined reader of debug information, which an attacker may have taken over: an accepted answer is
// an argument that compiler and verifier accept, or refuse with an error, and an error has no place but a column.
//
// Input: a byte that chooses the question, then the answer.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "engine/program/compile.h"
#include "engine/program/verify.h"
#include "engine/resolve/debug_protocol.h"
#include "engine/spec/parse.h"
#include "tests/fuzz/driver.h"

using namespace uprobe;

namespace {

const std::string kPath = "/a/file";

void require(bool condition) {
  if (!condition) std::abort();
}

void check(const Error& error) {
  require(error.column >= -1 && error.column <= 1 << 16 && error.definition == -1 && error.where.empty());
}

void check(const spec::Argument& argument) {
  auto spec = spec::parse_definition("p:g/e /b/x:0x10 a=%di", {.file_check = nullptr});
  spec::Argument& made = spec->arguments[0];
  made.steps = argument.steps, made.sink = argument.sink, made.memory_offset = argument.memory_offset;
  made.address = argument.address, made.kind = argument.kind, made.size = argument.size, made.count = argument.count;
  made.is_text = argument.is_text, made.is_bitfield = argument.is_bitfield;
  made.is_wide = argument.is_wide, made.upper = argument.upper;
  made.bit_width = argument.bit_width, made.bit_offset = argument.bit_offset;
  const auto program = program::compile(*spec);
  if (!program) return require(!program.error().text.empty());
  if (Status verified = program::verify(*program); !verified) require(!verified.error().text.empty());
}

template <class Taken>
void check_error(const Taken& taken) {
  if (!taken) check(taken.error());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view answer(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (static_cast<Question>(data[0] % 12)) {
    case Question::open:
      check_error(decode_opened(answer, kPath));
      break;
    case Question::line:
      check_error(decode_addresses(answer, kPath));
      break;
    case Question::declaration:
      check_error(decode_declaration(answer, kPath));
      break;
    case Question::prologue:
      check_error(decode_address(answer, kPath));
      break;
    case Question::variable:
    case Question::copys_variable:
    case Question::result: {
      const auto argument = decode_argument(answer, kPath);
      argument ? check(*argument) : check(argument.error());
      break;
    }
    case Question::lines:
    case Question::lines_of_copies:
      check_error(decode_lines(answer, kPath));
      break;
    case Question::variables:
    case Question::copys_variables:
      check_error(decode_variables(answer, kPath));
      break;
    case Question::copies: {
      const auto copies = decode_copies(answer, kPath);
      if (!copies) check(copies.error());
      require(!copies || copies->size() <= dwarf::kMostCopies);
      break;
    }
  }
  return 0;
}

namespace {

std::string begun(Question question, Answer answer) {
  std::string bytes(1, static_cast<char>(question));
  put(bytes, static_cast<std::uint32_t>(answer));
  return bytes;
}

spec::Argument variable(spec::Sink sink, spec::Kind kind, std::uint8_t size, std::vector<spec::Step> steps) {
  spec::Argument argument{.steps = std::move(steps), .sink = sink, .memory_offset = 8, .kind = kind, .size = size};
  return argument;
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  using spec::Kind;
  using spec::Sink;
  using spec::StepKind;
  std::vector<std::string> seeds;
  spec::Argument bits =
      variable(Sink::value, Kind::unsigned_decimal, 4, {{.kind = StepKind::reg, .reg = shared::Reg::di}});
  bits.is_bitfield = true, bits.bit_width = 3, bits.bit_offset = 5;
  spec::Argument text = variable(Sink::memory, Kind::character, 1, {{.kind = StepKind::file_offset, .value = 0x40}});
  text.count = 16, text.is_text = true, text.address = 0x4010;
  const spec::Argument deep = variable(Sink::memory, Kind::string, 4,
                                       {{.kind = StepKind::reg, .reg = shared::Reg::bp},
                                        {.kind = StepKind::dereference, .value = 16},
                                        {.kind = StepKind::add, .value = 4},
                                        {.kind = StepKind::shift_right, .value = 2}});
  const spec::Argument vector = variable(Sink::value, Kind::floating, 8, {{.kind = StepKind::vector, .value = 3}});
  spec::Argument wide =
      variable(Sink::value, Kind::signed_decimal, 8, {{.kind = StepKind::reg, .reg = shared::Reg::di}});
  wide.is_wide = true, wide.count = 2;
  wide.upper = spec::UpperHalf{.steps = {{.kind = StepKind::reg, .reg = shared::Reg::si}}, .is_memory = true};
  for (const spec::Argument& argument : {bits, text, deep, vector, wide}) {
    seeds.push_back(begun(Question::variable, Answer::value));
    put(seeds.back(), argument);
  }
  seeds.push_back(begun(Question::open, Answer::value));
  seeds.push_back(begun(Question::prologue, Answer::value));
  put_long(seeds.back(), 0x401000);
  seeds.push_back(begun(Question::line, Answer::value));
  put_list(seeds.back(), std::vector<std::uint64_t>{0x401000, 0x402000},
           [&](auto one) { put_long(seeds.back(), one); });
  const dwarf::CodeLine line{.file = "a.c", .line = 7};
  seeds.push_back(begun(Question::declaration, Answer::value));
  put(seeds.back(), line);
  seeds.push_back(begun(Question::lines, Answer::value));
  put_list(seeds.back(), std::vector<dwarf::CodeLine>{line, line}, [&](const auto& one) { put(seeds.back(), one); });
  seeds.push_back(begun(Question::variables, Answer::value));
  put_list(seeds.back(), std::vector<dwarf::NamedVariable>{{.name = "n", .type = "int", .problem = ""}},
           [&](const auto& one) { put(seeds.back(), one); });
  seeds.push_back(begun(Question::copies, Answer::value));
  const dwarf::InlinedCopy copy{.address = 0x401000, .number = 0, .problem = ""};
  put_list(seeds.back(), std::vector<dwarf::InlinedCopy>{copy, copy}, [&](const auto& one) { put(seeds.back(), one); });
  seeds.push_back(begun(Question::line, Answer::error));
  put(seeds.back(), Error{.code = Code::not_found, .text = "no such line", .help = "h"});
  return seeds;
}
