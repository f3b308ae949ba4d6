// SPDX-License-Identifier: MIT
// Reading fetches. Two oddities are the kernel's: where carets point inside parentheses (strict mode mirrors it, see `blame`),
// and 32-bit truncation of $stackN and of dereference offsets (strict mode mirrors it, otherwise it is refused).
//
// Dereferences nest, so this recurses; a body has at most 63 characters and a level takes 3, which bounds the depth.
#include "engine/spec/fetch.h"

#include <algorithm>
#include <limits>

#include "engine/lex/number.h"
#include "engine/lex/registers.h"
#include "engine/spec/messages.h"
#include "engine/spec/words_2009.h"

namespace uprobe::spec {
namespace {

// The words of a kernel stack of 16 KiB (measured): a larger number is bad, up to it the kind of probe is wrong.
constexpr std::uint64_t kMaxArgumentNumber = 2048;

class FetchParser {
 public:
  FetchParser(const Command& command, std::size_t word, std::size_t offset, std::string_view body,
              const FetchContext& context)
      : command_(command), context_(context), word_(word), offset_(offset), body_(body) {}

  Result<Fetch> parse(std::string_view text);
  std::size_t blame_offset() const { return context_.strict ? kernel_offset_ : 0; }

 private:
  Result<Fetch> parse_as(std::string_view text, const std::string& modern) const;
  Result<Fetch> parse_variable(std::string_view text);
  Result<Fetch> parse_retval(std::string_view text);
  Result<Fetch> parse_stack(std::string_view text);
  Result<Fetch> parse_argument_variable(std::string_view text);
  Result<Fetch> parse_entry(std::string_view text);
  Result<Fetch> at_entry(std::string_view text, std::string_view inside);
  Result<Fetch> parse_register(std::string_view text);
  Result<Fetch> parse_memory(std::string_view text);
  Result<Fetch> parse_symbol(std::string_view text);
  Result<Fetch> parse_immediate(std::string_view text);
  Result<Fetch> parse_text(std::string_view text);
  Result<Fetch> parse_dereference(std::string_view text);
  Result<Fetch> wrap(Fetch inner, bool user, std::int64_t distance, std::string_view at);

  // The column of a mistake `extra` characters into `at`, a part of the body. In strict mode as the kernel counts.
  Error blame(std::string_view at, std::string_view message, int err = EINVAL, std::size_t extra = 0) const {
    const std::size_t true_offset = static_cast<std::size_t>(at.data() - body_.data());
    return command_.blame(word_, offset_ + (context_.strict ? kernel_offset_ : true_offset) + extra, message, err);
  }
  Error with_help(Error error, std::string help) const {
    error.help = std::move(help);
    return error;
  }
  // For input that the kernel accepts by accident: the true column.
  Error blame_junk(std::string_view at, std::string_view message) const {
    return command_.blame(word_, offset_ + static_cast<std::size_t>(at.data() - body_.data()), message);
  }

  const Command& command_;
  const FetchContext& context_;
  std::size_t word_, offset_;
  std::string_view body_;
  std::size_t kernel_offset_ = 0;
};

Fetch register_fetch(shared::Reg reg) { return Fetch{.steps = {Step{.kind = StepKind::reg, .reg = reg}}}; }

Result<Fetch> FetchParser::parse(std::string_view text) {
  if (text.empty()) return blame(text, message::kBadFetch);
  switch (text[0]) {
    case '$':
      return parse_variable(text);
    case '%':
      return parse_register(text);
    case '@':
      return parse_memory(text);
    case '+':
    case '-':
      return parse_dereference(text);
    case '\\':
      return parse_immediate(text);
    case '*':
    case '&':
      return context_.strict ? Result<Fetch>(blame(text, message::kBadFetch)) : Fetch{.yield = Yield::variable};
    case '(':
      return blame(text, message::kNoBtf, EOPNOTSUPP);
    default:
      break;
  }
  if (const std::string modern = context_.words_2009 ? modern_word(text) : ""; !modern.empty())
    return parse_as(text, modern);
  if (!context_.strict && text.starts_with("entry(")) return parse_entry(text);
  if (!is_letter(text[0]) && text[0] != '_')
    return with_help(blame(text, message::kBadFetch),
                     "a value is %di, $arg1, +8(%di), a constant \\5 or a variable; a condition follows ' if '");
  if (!context_.strict) return Fetch{.yield = Yield::variable};
  const bool is_register = find_register(text, RegisterNames::extended).has_value();
  return with_help(blame(text, message::kNoBtf),
                   is_register ? "did you mean '%" + std::string(text) + "'?"
                               : "uprobe events know no variables; use %di, +8(%di) and the like");
}

// Another spelling; mistakes are reported at the original word.
Result<Fetch> FetchParser::parse_as(std::string_view text, const std::string& modern) const {
  if (text == "ra" && !context_.is_return) return blame(text, message::kReturnAddressOnProbe);
  if (text[0] == 'a' && (context_.is_return || !context_.is_function_entry))
    return with_help(blame(text, message::kNotEntry), "past its first instruction a function's arguments may be gone");
  const auto at = offset_ + static_cast<std::size_t>(text.data() - body_.data());
  auto fetch = FetchParser(command_, word_, at, modern, context_).parse(modern);
  if (fetch) fetch->has_word_2009 = true;
  return fetch;
}

// What other tools call it, or a register; empty: neither.
std::string meant_variable(std::string_view name, bool is_return) {
  if (find_register(name, RegisterNames::extended)) return "%" + std::string(name);
  if (is_return) return name == "return" || name == "ret" || name == "rv" || name == "result" ? "$retval" : "";
  if (name == "args" || name == "parms" || name == "$parms") return "$params";
  if (name.size() == 1 && name[0] >= '1' && name[0] <= '6') return "$arg" + std::string(name);
  return name == "locals" || name == "$vars" || name == "$locals" ? "$vars" : "";
}

// Help for what each line shows already, and for a variable of the program; empty: neither.
std::string without_dollar(std::string_view name) {
  static constexpr std::array<std::string_view, 9> kInEachLine = {"pid",          "tid",   "cpu", "time", "timestamp",
                                                                  "timestamp_ns", "nsecs", "ts",  "task"};
  if (std::find(kInEachLine.begin(), kInEachLine.end(), name) != kInEachLine.end())
    return "each line shows it; conditions know it as common_pid, cpu and comm";
  if (name == "bt" || name == "stack" || name == "ustack" || name == "backtrace")
    return "--trigger=stacktrace shows the stack";
  if (name == "duration" || name == "elapsed") return "did you mean '$latency'? It is known at a return, -r";
  const bool is_name = !name.empty() && is_letter(name[0]) && std::all_of(name.begin(), name.end(), [](char c) {
    return is_letter(c) || is_digit(c) || c == '_';
  });
  const bool is_own = name == "latency" || name == "self" || name.starts_with("arg") || name.starts_with("entry");
  return is_name && !is_own ? "did you mean '" + std::string(name) + "'? A variable of the program has no '$' before it"
                            : "";
}

// $retval and $stack are prefixes; the others have to be whole words.
Result<Fetch> FetchParser::parse_variable(std::string_view text) {
  const std::string_view name = text.substr(1);
  if (name.starts_with("retval")) return parse_retval(text);
  if (name.starts_with("stack")) return parse_stack(text);
  if (name == "comm" || name == "COMM") return Fetch{.yield = Yield::comm};
  if (name.starts_with("arg") && (context_.strict || name != "args")) return parse_argument_variable(text);
  if (!context_.strict && name == "latency") {
    if (!context_.is_return) return blame(text, message::kLatencyOnProbe);
    return Fetch{.steps = {{.kind = StepKind::latency}}};
  }
  if (!context_.strict && name == "self") {
    if (!context_.is_return) return blame(text, message::kSelfOnProbe);
    return Fetch{.steps = {{.kind = StepKind::self_time}}};
  }
  if (!context_.strict && name == "nspid") return Fetch{.steps = {{.kind = StepKind::thread}}};
  if (!context_.strict && is_group_of_variables(text)) return Fetch{.yield = Yield::variable};
  if (!context_.strict && name.starts_with("entry_arg")) return at_entry(text, text.substr(7));
  if (const std::string meant = context_.strict ? "" : meant_variable(name, context_.is_return); !meant.empty())
    return with_help(blame(text, message::kBadVariable), "did you mean '" + meant + "'?");
  if (const std::string own = context_.strict ? "" : without_dollar(name); !own.empty())
    return with_help(blame(text, message::kBadVariable), own);
  return with_help(blame(text, message::kBadVariable),
                   context_.strict ? "variables are $stack $stackN $retval $comm $arg1..$arg6"
                   : context_.is_return
                       ? "variables are $stack $stackN $retval $comm $nspid $latency $self $entry_arg1..$entry_arg6"
                       : "variables are $stack $stackN $retval $comm $nspid $arg1..$arg6 $vars $params");
}

// entry(FETCH)
Result<Fetch> FetchParser::parse_entry(std::string_view text) {
  constexpr std::size_t kOpen = 6;
  const std::string_view inside = text.substr(kOpen);
  const std::size_t close = inside.rfind(')');
  if (close == std::string_view::npos) return blame(inside, message::kBraceOpen, EINVAL, inside.size());
  if (close + 1 != inside.size()) return blame_junk(inside.substr(close + 1), message::kAfterBrace);
  return at_entry(text, inside.substr(0, close));
}

// The fetch `inside`, made where the function begins; "arg1" is $arg1.
Result<Fetch> FetchParser::at_entry(std::string_view text, std::string_view inside) {
  if (!context_.is_return) return blame(text, message::kEntryOnProbe);
  const FetchContext context{.words_2009 = context_.words_2009, .is_return = false, .is_function_entry = true};
  FetchParser parser(command_, word_, offset_, body_, context);
  const bool is_argument = text[0] == '$';
  auto inner = is_argument ? parser.parse_argument_variable(body_.substr(
                                 static_cast<std::size_t>(inside.data() - body_.data()) - 1, inside.size() + 1))
                           : parser.parse(inside);
  if (!inner) return inner;
  const bool is_memory = inner->yield == Yield::memory || inner->yield == Yield::user_memory;
  if (!inner->symbol.empty() || (!is_memory && inner->yield != Yield::value))
    return blame_junk(inside, message::kEntrySame);
  // Of a vector register the entry record keeps one number.
  Fetch fetch{.steps = {{.kind = StepKind::entry}}, .register_bytes = std::min<std::uint8_t>(inner->register_bytes, 8)};
  fetch.has_word_2009 = inner->has_word_2009;
  fetch.entry =
      EntryFetch{.steps = std::move(inner->steps), .is_memory = is_memory, .memory_offset = inner->memory_offset};
  return fetch;
}

// The kernel accepts any text that starts with $retval.
Result<Fetch> FetchParser::parse_retval(std::string_view text) {
  constexpr std::size_t kLength = 7;
  if (!context_.is_return)
    return with_help(blame(text, message::kRetvalOnProbe), "only a return probe (r:...) has a return value");
  if (!context_.strict && text.size() > kLength) return blame_junk(text.substr(kLength), message::kAfterVariable);
  Fetch fetch = register_fetch(shared::kReturnRegister);
  fetch.is_retval = true;
  return fetch;
}

// A stack word is a value, not memory: all 8 bytes are read, whatever the type.
Result<Fetch> FetchParser::parse_stack(std::string_view text) {
  const std::string_view number = text.substr(6);
  if (number.empty()) return register_fetch(shared::Reg::sp);
  std::uint64_t index = 0;
  if (!is_digit(number[0]) || read_unsigned(number, 10, index) != 0) return blame(text, message::kBadVariable);
  if (index > std::numeric_limits<std::uint32_t>::max()) {
    if (!context_.strict) return blame_junk(number, message::kStackIndexTooBig);
    index = static_cast<std::uint32_t>(index);
  }
  Fetch fetch = register_fetch(shared::Reg::sp);
  fetch.steps.push_back({.kind = StepKind::dereference, .value = index * 8});
  return fetch;
}

// The kernel knows $argN for its own functions only. Here it is another name of the register, checked in the kernel's order.
Result<Fetch> FetchParser::parse_argument_variable(std::string_view text) {
  std::uint64_t number = 0;
  if (read_unsigned(text.substr(4), 10, number) != 0) return blame(text, message::kBadVariable);
  if (number == 0 || number > kMaxArgumentNumber)
    return with_help(blame(text, message::kBadArgumentNumber), "$arg1 is the first argument");
  if (context_.strict) return blame(text, message::kNotEntry);
  if (context_.is_return || !context_.is_function_entry)
    return with_help(blame(text, message::kNotEntry), "past its first instruction a function's arguments may be gone");
  const auto reg = argument_register(number);
  if (!reg)
    return with_help(blame(text, message::kBadArgumentNumber),
                     "only the first six integer arguments are in registers; the 7th is $stack1");
  return register_fetch(*reg);
}

Result<Fetch> FetchParser::parse_register(std::string_view text) {
  if (const auto vector = find_vector(text.substr(1)); vector && !context_.strict)
    return Fetch{.steps = {{.kind = StepKind::vector, .value = vector->number}}, .register_bytes = vector->bytes};
  const RegisterNames names = context_.strict ? RegisterNames::kernel : RegisterNames::extended;
  const auto found = find_register(text.substr(1), names);
  if (!found) return with_help(blame(text, message::kBadRegister), register_help(text.substr(1), names));
  Fetch fetch = register_fetch(found->reg);
  fetch.register_bytes = found->bytes;
  return fetch;
}

// @ADDR and @+OFF. In the kernel a source and a dereference: two instructions.
Result<Fetch> FetchParser::parse_memory(std::string_view text) {
  const std::string_view rest = text.substr(1);
  Step source{.kind = StepKind::constant};
  if (!context_.strict && rest.find(':') != std::string_view::npos) return parse_symbol(text);
  if (!rest.empty() && is_digit(rest[0])) {
    if (const int err = read_unsigned(rest, 0, source.value)) return blame(text, message::kBadMemory, err);
  } else if (rest.starts_with('+')) {
    std::int64_t distance = 0;
    if (const int err = read_signed(rest.substr(1), 0, distance)) return blame(text, message::kBadFileOffset, err);
    source = {.kind = StepKind::file_offset, .value = static_cast<std::uint64_t>(distance)};
  } else {
    return parse_symbol(text);
  }
  return Fetch{.yield = Yield::memory, .steps = {source}, .slot = 1};
}

// @SYMBOL, @SYMBOL+OFFS, @SYMBOL-OFFS: a symbol of the probed file; @OBJECT:SYMBOL...: of another file.
Result<Fetch> FetchParser::parse_symbol(std::string_view text) {
  std::string_view rest = text.substr(1);
  const std::size_t colon = context_.strict ? std::string_view::npos : rest.find(':');
  const std::string_view object = colon == std::string_view::npos ? std::string_view() : rest.substr(0, colon);
  if (!object.empty()) rest.remove_prefix(colon + 1);
  if (context_.strict || rest.empty() || rest[0] == '-') return blame(text, message::kSymbolFetch);
  const std::size_t sign = distance_start(rest);
  std::int64_t distance = 0;
  if (sign != rest.size() && read_signed(rest.substr(sign + 1), 0, distance) != 0)
    return blame_junk(rest.substr(sign + 1), message::kBadSymbolOffset);
  if (sign != rest.size() && rest[sign] == '-') distance = -distance;
  Fetch fetch{.yield = Yield::memory, .slot = 1};
  fetch.steps = {{.kind = object.empty() ? StepKind::file_offset : StepKind::object,
                  .value = static_cast<std::uint64_t>(distance)}};
  fetch.object = std::string(object);
  fetch.object_offset = static_cast<std::size_t>(text.data() + 1 - body_.data());
  fetch.symbol = std::string(rest.substr(0, sign));
  fetch.symbol_offset = static_cast<std::size_t>(rest.data() - body_.data());
  return fetch;
}

// Without a sign the whole unsigned range, with a sign the signed range.
Result<Fetch> FetchParser::parse_immediate(std::string_view text) {
  std::string_view number = text.substr(1);
  if (number.starts_with('"')) return parse_text(text);
  std::uint64_t value = 0;
  int err = EINVAL;
  if (!number.empty() && is_digit(number[0])) {
    err = read_unsigned(number, 0, value);
  } else if (number.starts_with('-') || number.starts_with('+')) {
    if (number[0] == '+') number.remove_prefix(1);
    std::int64_t with_sign = 0;
    err = read_signed(number, 0, with_sign);
    value = static_cast<std::uint64_t>(with_sign);
  }
  if (err != 0) return blame(text, message::kBadImmediate, err, 1);
  return Fetch{.yield = Yield::immediate, .steps = {Step{.kind = StepKind::constant, .value = value}}};
}

// The text between the first and the last quote: quotes inside need no escape.
Result<Fetch> FetchParser::parse_text(std::string_view text) {
  const std::string_view quoted = text.substr(2);
  if (!quoted.ends_with('"'))
    return with_help(blame(text, message::kStringOpen, EINVAL, 2 + quoted.size()),
                     "a string ends at a blank, ':' or '#'; it cannot contain them");
  return Fetch{.yield = Yield::text, .text = std::string(quoted.substr(0, quoted.size() - 1))};
}

// +OFF(f) and -OFF(f). The closing parenthesis is the last one of the text.
Result<Fetch> FetchParser::parse_dereference(std::string_view text) {
  const bool user = text.size() > 1 && text[1] == 'u';
  const bool minus = text[0] == '-';
  const std::size_t open = text.find('(');
  if (open == std::string_view::npos) return blame(text, message::kNeedBrace);
  // The offset as the kernel reads it: without one leading '+', and with the '-' before a 'u' moved after it.
  std::string number(text.substr(user ? 2 : 1, open - (user ? 2 : 1)));
  if (minus) number.insert(0, 1, '-');
  std::int64_t distance = 0;
  if (const int err = read_signed(number, 0, distance)) return blame(text, message::kBadDereference, err);
  const std::string_view inside = text.substr(open + 1);
  // The kernel counts the parenthesis and, unless its text of the number starts with '-', the '+' that it skipped; never the
  // 'u'.
  kernel_offset_ += number.size() + 1 + (number.starts_with('-') ? 0 : 1);
  const std::size_t close = inside.rfind(')');
  if (close == std::string_view::npos) return blame(inside, message::kBraceOpen, EINVAL, inside.size());
  if (!context_.strict && close + 1 != inside.size()) {
    const std::string_view junk = inside.substr(close + 1);
    return with_help(blame_junk(junk, message::kAfterBrace),
                     junk[0] == '[' ? "an array needs a type: ':u8" + std::string(junk) + "'" : "");
  }
  if (!context_.strict && distance != static_cast<std::int32_t>(distance))
    return blame_junk(text, message::kDereferenceTooBig);

  const std::size_t here = kernel_offset_;
  auto inner = parse(inside.substr(0, close));
  if (!inner) return inner;
  kernel_offset_ = here;
  return wrap(inner.take(), user, static_cast<std::int32_t>(distance), inside);
}

// The address of a value becomes an address from which the next address is loaded.
Result<Fetch> FetchParser::wrap(Fetch inner, bool user, std::int64_t distance, std::string_view at) {
  if (inner.yield == Yield::variable)
    return with_help(blame_junk(at, message::kVariableInside), "what a variable points to is NAME->MEMBER or NAME[N]");
  if (inner.yield == Yield::comm || inner.yield == Yield::text) return blame(at, message::kCommDereference);
  const bool notes_vector = inner.entry && inner.entry->steps.front().kind == StepKind::vector;
  if (is_vector(inner) || notes_vector)
    return with_help(blame(at, message::kVectorAddress), "an address is in a general register: %di, %ax, %r8");
  if (inner.register_bytes != 8)
    return with_help(blame(at, message::kPartOfAddress), "an address has 64 bits: %di, not %edi");
  if (inner.slot + 1 == kKernelEndSlot) return blame(at, message::kTooDeep);
  if (inner.yield == Yield::memory || inner.yield == Yield::user_memory)
    inner.steps.push_back({.kind = StepKind::dereference, .value = inner.memory_offset});
  inner.slot += 1;
  inner.yield = user ? Yield::user_memory : Yield::memory;
  inner.memory_offset = static_cast<std::uint64_t>(distance);
  return inner;
}

}  // namespace

Result<Fetch> parse_fetch(const Command& command, std::size_t word, std::size_t offset, std::string_view fetch,
                          const FetchContext& context) {
  FetchParser parser(command, word, offset, fetch, context);
  auto result = parser.parse(fetch);
  if (result) result->blame_offset = parser.blame_offset();
  return result;
}

}  // namespace uprobe::spec
