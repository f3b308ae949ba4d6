// SPDX-License-Identifier: MIT
// A definition, parsed: "p:G/E PATH:PLACE [NAME=]FETCH[:TYPE] ..." as data. parse.h decides the meaning of the words;
// engine/resolve finds out whether the file and the symbol exist.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/shared/layout.h"

namespace uprobe::spec {

// How a value prints: u decimal, s signed decimal, x 0x hex, character 'c', string "...", symbol function+0x4,
// floating 1.5.
enum class Kind : std::uint8_t { unsigned_decimal, signed_decimal, hex, character, string, symbol, floating };

// Whether so many elements of that kind and size can be one number of 16 bytes.
constexpr bool can_be_wide(Kind kind, unsigned size, unsigned count) {
  return size == 8 && count == 2 &&
         (kind == Kind::unsigned_decimal || kind == Kind::signed_decimal || kind == Kind::hex);
}

// How a record prints.
enum class Style : std::uint8_t {
  event,         // (0xIP) a=0x1, as uprobe events do
  kprobes_2009,  // function: @function+4 0x1, as the first kprobe tracer did
  function,      // caller->function(a=1), as function-based events do; the first argument is the return address
};

// One step of a fetch. The first step of an argument is a source of the working value, the others change it.
enum class StepKind : std::uint8_t {
  reg,           // %reg, $stack, $retval
  constant,      // \IMM, @ADDR (followed by the store's own dereference)
  file_offset,   // @+OFF
  dereference,   // value = *(u64*)(value + offset)
  add,           // variables alone: value += `value`
  shift_right,   // variables and markers alone: the value without its lowest `value` bits
  entry,         // the argument's EntryFetch, from the function's entry
  latency,       // nanoseconds since the entry
  self_time,     // the same without those of other probed calls inside the call
  object,        // @OBJECT:SYMBOL: memory of another mapped file; `value` is the link-time address there
  thread,        // $nspid: the number of the thread in its own PID namespace
  vector,        // %xmmN, %ymmN: as many bytes as the argument has; `value` is the register's number
  add_register,  // markers alone: value += register `reg` << `value`
  // Variables alone:
  thread_pointer,      // a thread's own variables lie at a distance from it
  keep,                // the value is kept
  add_kept,            // value += what was kept
  length,              // the value is the length of the argument's string, whose address another source begins
  add_thread_pointer,  // the value is a distance from it
  thread_data,         // the value is the number of a module, and becomes the place of the thread's own data of it
};

struct Step {
  StepKind kind = StepKind::constant;
  shared::Reg reg = shared::kReturnRegister;
  std::uint64_t value = 0;  // constant; @+OFF's OFF; the offset of dereference and add (two's complement)
};

// entry(FETCH): a fetch that is made where the function begins, for an argument of its return.
struct EntryFetch {
  std::vector<Step> steps;
  bool is_memory = false;  // `size` bytes at memory_offset from the value; else the value itself
  std::uint64_t memory_offset = 0;
  std::uint8_t size = 8;
};

// What the argument stores: the value itself, or memory at `memory_offset` from it.
enum class Sink : std::uint8_t { value, memory, comm, text };

// The upper eight bytes of a number of 16 whose halves are in two places.
struct UpperHalf {
  std::vector<Step> steps;
  bool is_memory = false;  // as in EntryFetch
  std::uint64_t memory_offset = 0;
};

struct Argument {
  std::string name;
  std::string body;  // the fetch as written, with its type: what a listing prints after NAME=
  std::vector<Step> steps;
  std::optional<EntryFetch> entry;  // the first step is StepKind::entry
  // @SYMBOL: the first step is a file_offset, whose value is the distance from this symbol; empty: none, or already looked up.
  std::string symbol;
  std::optional<std::uint64_t> address;  // the same for a link-time address
  // @OBJECT:SYMBOL: the first step is an object's, whose value is the distance from `symbol` until that is looked up. First as
  // written, then the file's path.
  std::string object;
  // Of a library, looked up: the program may have a copy of this symbol, which the library has at link-time address
  // `exported_address`.
  std::string exported;
  std::uint64_t exported_address = 0;
  int object_column = 0;
  int symbol_column = 0;
  // The name of a variable, "p->next->len", before it is looked up; empty: none, or already looked up.
  std::string variable;
  bool has_type = false;           // one was written
  bool is_text = false;            // an array of characters that prints up to its first NUL
  bool is_wide = false;            // two elements of eight bytes, the lower one first, that are one number
  std::optional<UpperHalf> upper;  // of a wide one in two places; the rest is its lower half
  std::string declared;            // of a function event: the type as written; else empty
  Sink sink = Sink::value;
  std::uint64_t memory_offset = 0;
  std::string text;  // Sink::text: the characters
  Kind kind = Kind::hex;
  std::uint8_t size = 8;    // bytes of an element; strings: 4 (the locator)
  std::uint32_t count = 0;  // 0: scalar
  bool is_bitfield = false;
  std::uint8_t bit_width = 0;
  std::uint8_t bit_offset = 0;
  // Of a marker's argument: so many bytes are read, fewer than `size`, and extended to it; 0: as many.
  std::uint8_t source_bytes = 0;
  bool extends_sign = false;    // by their sign, else by zeros
  bool is_user_string = false;  // ustring: only the type's identity differs
  int column = 0;               // of the argument's word in the definition
};

// A symbol and the distance from it, found in the file.
struct FoundSymbol {
  std::uint64_t offset = 0;   // in the file
  std::uint64_t address = 0;  // link time
  bool is_ifunc = false;      // the function is chosen when the program runs: the place is the resolver's
};

// PATH:OFFSET, PATH:SYMBOL[+-OFFS], PATH:SOURCE:LINE, ADDRESS in the object of -x, jit:NAME, [PATH:]sdt:PROVIDER:NAME, or
// [PATH:]mark:GROUP:NAME
struct Place {
  std::string path;
  std::string symbol;  // empty: `offset` is a file offset
  bool is_generated =
      false;  // `symbol` names functions, or is a pattern of their names, that the program generates as it runs
  std::uint64_t offset = 0;  // file offset, or with a symbol the signed distance from it
  bool is_address = false;   // `offset` is a link-time address that is not yet looked up
  std::string source;        // file:line in place of a symbol, or function:line; empty: none
  int line = 0;
  // Of sdt:PROVIDER:NAME and mark:GROUP:NAME, or patterns of them, until the places are looked up; else empty.
  std::string provider, marker;
  bool is_mark = false;      // mark:GROUP:NAME: a marker with a format (library/uprobe/marker.h)
  bool names_object = true;  // false: the path is that of -x or of the program to run
  std::string program;       // that path in any case: its libraries may be named without a path
  std::optional<std::uint64_t> reference_counter;
  std::optional<FoundSymbol> found;  // set when the symbol is looked up
  int path_column = 0;
  int place_column = 0;                 // of the character after the ':' (of the word, if it names no object)
  std::uint64_t device = 0, inode = 0;  // of the file when it was defined; 0: not looked at
};

// An argument of a marker's definition, which waits for the marker's notes: "fd=$arg1", "+8($arg2):u32".
struct WrittenArgument {
  std::string text;
  int column = 0;
};

// "malloc(size)", if no function has this name: a function, and its arguments by names.
struct NamedParameters {
  std::string function;
  std::vector<Argument> arguments;
};

struct ProbeSpec {
  std::string definition;  // the words as given, joined by single blanks, no comment: columns count in it
  bool is_bare = false;    // a place without "p" or "r" (bare.h): its event is called as the function
  std::optional<NamedParameters> parameters;  // of a bare place: what it means if its symbol does not exist
  bool is_return = false;
  bool sums_calls = false;   // of a summary: each call is counted and timed, and none is recorded
  bool needs_entry = false;  // of a return: an entry record is wanted, whether or not an argument has a value from it
  std::string group = "uprobes";
  std::string event;  // never empty: an automatic name is made while parsing
  bool has_automatic_name = false;
  Style style = Style::event;
  std::string print_format;  // of a mark whose arguments are all recorded, and nothing else: how it prints
  Place place;
  std::vector<Argument> arguments;
  std::vector<WrittenArgument> written;  // of a marker, instead of `arguments`
};

// "$vars", "$params": each variable at the place, or each parameter of its function, as an argument.
inline bool is_group_of_variables(std::string_view variable) { return variable == "$vars" || variable == "$params"; }

constexpr bool is_time(StepKind kind) { return kind == StepKind::latency || kind == StepKind::self_time; }

// Whether the argument's value may be missing for lack of an entry record.
inline bool wants_entry(const Argument& argument) {
  if (argument.steps.empty()) return false;
  return argument.steps[0].kind == StepKind::entry || is_time(argument.steps[0].kind);
}
// Whether the argument's value may be missing where the thread has no data of a library, or where that is not known.
inline bool is_of_library_thread(const Argument& argument) {
  for (const Step& step : argument.steps)
    if (step.kind == StepKind::add_thread_pointer || step.kind == StepKind::thread_data) return true;
  return false;
}
inline bool wants_entry(const ProbeSpec& spec) {
  if (spec.needs_entry) return true;
  for (const Argument& argument : spec.arguments)
    if (wants_entry(argument)) return true;
  return false;
}

// Gives an error its place in the definition.
inline Error at_column(const ProbeSpec& spec, int column, Error error) {
  error.where = spec.definition;
  error.column = column;
  return error;
}

}  // namespace uprobe::spec
