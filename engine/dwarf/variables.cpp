// SPDX-License-Identifier: MIT
// Variables and the parts of their expressions: name, name->member, name.member, name[N], and so on; *name, and &name.
#include <algorithm>
#include <set>

#include "engine/dwarf/package.h"
#include "engine/dwarf/variable.h"
#include "engine/lex/number.h"
#include "engine/lex/words.h"
#include "engine/spec/fetch.h"

namespace uprobe::dwarf {
namespace {

using spec::Argument;
using spec::Kind;
using spec::Sink;
using spec::StepKind;

bool is_aggregate(int tag) {
  return tag == DW_TAG_structure_type || tag == DW_TAG_union_type || tag == DW_TAG_class_type;
}

bool is_reference(int tag) { return tag == DW_TAG_reference_type || tag == DW_TAG_rvalue_reference_type; }
bool is_pointer(int tag) { return tag == DW_TAG_pointer_type || is_reference(tag); }

bool is_variable(Dwarf_Die& die) {
  const int tag = dwarf_tag(&die);
  return tag == DW_TAG_variable || tag == DW_TAG_formal_parameter;
}

bool is_called(Dwarf_Die& die, std::string_view name) {
  const char* own = dwarf_diename(&die);
  return own != nullptr && name == own;
}

// Where a variable is looked up: at any instruction; at the first of an inlined copy, whose block is the innermost scope; or at the
// exits of a function, which has results then.
enum class Where { anywhere, start_of_copy, exits };

// Walks through one expression.
class Walker {
 public:
  Walker(const DebugInfo::Handles& handles, std::uint64_t address, std::string_view expression)
      : handles_(handles), address_(address), rest_(expression), all_(expression) {
    wants_address_ = rest_.starts_with('&');
    first_star_ = wants_address_ ? 1 : 0;
    rest_.remove_prefix(std::min(rest_.find_first_not_of('*', first_star_), rest_.size()));
    stars_end_ = all_.size() - rest_.size();
  }

  Status start(const Scopes& scopes, Where where);
  Status walk();
  Status follow_stars();
  Status follow_reference(const Argument& argument);
  Status finish(Argument& argument);

 private:
  struct Member {
    Dwarf_Die die;
    std::uint64_t offset;
  };
  Error blame(std::string_view at, const Error& why) const {
    Error error = why;
    error.column = static_cast<int>(at.data() - all_.data());
    return error;
  }
  Error blame(std::string_view at, std::string text, std::string help = {}) const {
    return blame(at, Error{.code = Code::refused, .text = std::move(text), .help = std::move(help)});
  }
  // What is wrong with the whole variable, which the error does not name.
  Error blame_all(Error why) const {
    why.text = "'" + std::string(all_) + "' " + why.text;
    return blame(all_, why);
  }
  std::string_view take_name();
  std::string so_far(std::string_view at) const {
    return std::string(all_.substr(stars_end_, static_cast<std::size_t>(at.data() - all_.data()) - stars_end_));
  }
  Status load_pointer(std::string_view at);
  std::optional<Dwarf_Word> bits_of_member() const;
  Status enter_member(std::string_view at, bool by_pointer);
  Status index(std::string_view at);
  std::vector<Member> find_members(Dwarf_Die aggregate, std::string_view name, int depth) const;
  bool is_in_virtual_base(Dwarf_Die aggregate, std::string_view name, int depth) const;
  std::vector<Member> enter_virtual_base(std::string_view name);
  Status set_bits(Argument& argument);
  Status take_address(Argument& argument);
  Status take_text(const TextParts& parts, Argument& argument);
  Status take_table(Argument& argument);
  Status take_value(Argument& argument);
  Status take_halves(Argument& argument);
  Status count_from_first(Argument& argument) const;

  const DebugInfo::Handles& handles_;
  std::uint64_t address_;
  std::string_view rest_, all_;
  Dwarf_Die at_{};  // the variable or member named last
  Type type_;
  Location location_;
  bool is_element_ = false;  // of an array: `at_` is the array's
  bool wants_address_ = false;
  std::size_t first_star_ = 0, stars_end_ = 0;
};

std::string_view Walker::take_name() {
  std::size_t end = 0;
  while (end < rest_.size() && (spec::is_letter(rest_[end]) || spec::is_digit(rest_[end]) || rest_[end] == '_')) ++end;
  const std::string_view name = rest_.substr(0, end);
  rest_.remove_prefix(end);
  return name;
}

std::string names_of(const Scopes& scopes) {
  std::string names;
  std::set<std::string_view> seen;
  for (const Dwarf_Die& scope : scopes) {
    Dwarf_Die copy = scope;
    if (dwarf_tag(&copy) == DW_TAG_compile_unit) break;
    each_child(scope, [&](Dwarf_Die& die) {
      const char* name = is_variable(die) ? dwarf_diename(&die) : nullptr;
      if (name != nullptr && seen.insert(name).second) names += (names.empty() ? "" : ", ") + std::string(name);
    });
  }
  return names;
}

// Whether the function has yet to store an argument at its described place; without optimisation, any variable of the frame.
bool is_too_early(const DebugInfo::Handles& handles, Dwarf_Die variable, const Scopes& scopes, std::uint64_t address) {
  auto function = function_of(scopes);
  Dwarf_Addr low = 0;
  if (!function || !is_in_frame(variable) || dwarf_lowpc(&*function, &low) != 0 || address < low) return false;
  if (dwarf_tag(&variable) != DW_TAG_formal_parameter && !has_prologue(*function)) return false;
  return address < end_of_prologue(handles, *function);
}

// A copy stores what it keeps in the frame after it has begun.
bool is_stored_later(Dwarf_Die variable) {
  Dwarf_Attribute attribute;
  Dwarf_Op* expression = nullptr;
  std::size_t length = 0;
  if (dwarf_attr(&variable, DW_AT_location, &attribute) == nullptr || !is_everywhere(attribute)) return false;
  return dwarf_getlocation(&attribute, &expression, &length) == 0 && length != 0 && expression[0].atom == DW_OP_fbreg;
}

// The innermost variable of that name. In one block a definition precedes a declaration.
Status Walker::start(const Scopes& scopes, Where where) {
  const std::string_view name = take_name();
  if (where == Where::exits) {
    auto result = find_go_result(scopes, name);
    if (!result) return blame(name, result.error());
    at_ = result->die, type_ = type_of(at_), location_ = std::move(result->location);
    return ok();
  }
  std::optional<Dwarf_Die> found;
  std::size_t found_depth = 0;
  for (const Dwarf_Die& scope : scopes) {
    each_child(scope, [&](Dwarf_Die& die) {
      if (!is_variable(die) || !is_called(die, name)) return;
      const auto depth = depth_seen_from(die, scope, scopes);
      if (!depth) return;
      if (found && *depth <= found_depth && dwarf_hasattr(&*found, DW_AT_declaration) == 0) return;
      found = die, found_depth = *depth;
    });
    if (found) break;
  }
  if (!found) {
    const std::string names = names_of(scopes);
    std::string help = names.empty() ? "" : "there are: " + names;
    if (name.starts_with("arg") && name.find_first_not_of("0123456789", 3) == std::string_view::npos)
      help = "$arg1 is the first argument" + (help.empty() ? "" : "; of variables " + help);
    return blame(name, "no variable '" + std::string(name) + "' here", help);
  }
  at_ = *found;
  type_ = type_of(at_);
  if (where == Where::start_of_copy && is_stored_later(at_))
    return blame(name, "'" + std::string(name) + "' is not in place yet where the copy begins");
  if (where == Where::anywhere && is_too_early(handles_, at_, scopes, address_))
    return blame(name, "'" + std::string(name) + "' is not in place yet here: this is the function's prologue");
  auto location = location_of(handles_, at_, scopes, address_);
  if (!location) {
    Error error = location.error();
    error.text = "'" + std::string(name) + "' " + error.text;
    return blame(name, error);
  }
  location_ = location.take();
  return ok();
}

Status Walker::load_pointer(std::string_view at) {
  constexpr std::uint64_t kPointer = 8;
  if (Status settled = settle(location_, kPointer); !settled) {
    Error error = settled.error();
    error.text = "'" + so_far(at) + "' " + error.text;
    return blame(all_.substr(stars_end_), error);
  }
  if (location_.in_memory) location_.steps.push_back({.kind = StepKind::dereference, .value = location_.offset});
  location_.in_memory = true;
  location_.offset = 0;
  return ok();
}

Status Walker::walk() {
  while (!rest_.empty()) {
    const std::string_view at = rest_;
    if (location_.steps.size() + 2 > static_cast<std::size_t>(spec::kKernelEndSlot))
      return blame(at, "Dereference is too much nested");
    Status step = ok();
    if (rest_.starts_with("->")) {
      rest_.remove_prefix(2);
      step = enter_member(at, true);
    } else if (rest_.starts_with('.')) {
      rest_.remove_prefix(1);
      step = enter_member(at, false);
    } else if (rest_.starts_with('[')) {
      step = index(at);
    } else {
      return blame(at, "Expected '->', '.' or '['",
                   at.starts_with('/') ? "a type stands after a ':', as :x64, :string" : "");
    }
    if (!step) return step;
  }
  return ok();
}

// As in C: *p->next is the target of p->next.
Status Walker::follow_stars() {
  const std::string_view after = all_.substr(all_.size());
  for (std::size_t i = stars_end_; i > first_star_; --i) {
    const std::string_view at = all_.substr(i - 1);
    if (is_reference(type_.tag)) {
      RETURN_IF_ERROR(load_pointer(after));
      type_ = type_of(type_.die);
    }
    if (!is_pointer(type_.tag)) return blame(at, "'" + std::string(at.substr(1)) + "' is no pointer");
    if (location_.steps.size() + 2 > static_cast<std::size_t>(spec::kKernelEndSlot))
      return blame(at, "Dereference is too much nested");
    RETURN_IF_ERROR(load_pointer(after));
    type_ = type_of(type_.die);
    is_element_ = true;
  }
  return ok();
}

constexpr int kDeepestMember = 8;

// Members of unnamed structs and unions inside count as its own; those of base classes if it has none of that name. More than
// one: the name is ambiguous.
std::vector<Walker::Member> Walker::find_members(Dwarf_Die aggregate, std::string_view name, int depth) const {
  std::vector<Member> own, inherited;
  if (depth > kDeepestMember) return own;
  each_child(aggregate, [&](Dwarf_Die& die) {
    const bool is_base = dwarf_tag(&die) == DW_TAG_inheritance;
    if (!is_base && (dwarf_tag(&die) != DW_TAG_member || is_static_member(die))) return;
    const auto offset = distance_of(die);
    if (!offset) return;
    if (!is_base && is_called(die, name)) return own.push_back({die, *offset});
    const Type inner = type_of(die);
    if (!is_aggregate(inner.tag) || (!is_base && dwarf_diename(&die) != nullptr)) return;
    for (Member member : find_members(inner.die, name, depth + 1)) {
      member.offset += *offset;
      (is_base ? inherited : own).push_back(member);
    }
  });
  return own.empty() ? inherited : own;
}

// Whether the name is a member of a base class whose distance is not fixed.
bool Walker::is_in_virtual_base(Dwarf_Die aggregate, std::string_view name, int depth) const {
  bool found = false;
  each_child(aggregate, [&](Dwarf_Die& die) {
    if (found || depth > kDeepestMember || dwarf_tag(&die) != DW_TAG_inheritance) return;
    const Type base = type_of(die);
    if (!is_aggregate(base.tag)) return;
    const bool is_its_own = !distance_of(die) && !find_members(base.die, name, depth + 1).empty();
    found = is_its_own || is_in_virtual_base(base.die, name, depth + 1);
  });
  return found;
}

// The members of that name in virtual bases, if the object is in memory: the address of the one is where the object's table says. A base
// that is reached in several ways is one object.
std::vector<Walker::Member> Walker::enter_virtual_base(std::string_view name) {
  std::vector<Member> members;
  VirtualBase found{};
  if (!location_.in_memory || !location_.pieces.empty()) return members;
  for (const VirtualBase& base : virtual_bases_of(type_)) {
    const auto in_base = find_members(base.type.die, name, 0);
    if (in_base.empty() || (!members.empty() && base.type.die.addr == found.type.die.addr)) continue;
    members.insert(members.end(), in_base.begin(), in_base.end());
    found = base;
  }
  if (members.size() != 1) return members;
  const std::uint64_t table = std::exchange(location_.offset, 0) + found.table;
  if (table != 0) location_.steps.push_back({.kind = StepKind::add, .value = table});
  location_.steps.push_back({.kind = StepKind::keep});
  location_.steps.push_back({.kind = StepKind::dereference});
  location_.steps.push_back({.kind = StepKind::dereference, .value = 0 - found.before});
  location_.steps.push_back({.kind = StepKind::add_kept});
  return members;
}

Status Walker::enter_member(std::string_view at, bool by_pointer) {
  const bool by_reference = is_reference(type_.tag);  // C++ writes '.' there
  if (by_pointer != is_pointer(type_.tag) && !by_reference)
    return blame(at, "'" + so_far(at) + "' is " + (by_pointer ? "no pointer" : "a pointer"),
                 by_pointer ? "a struct's member is .NAME" : "what it points to has members: ->NAME");
  if (by_pointer || by_reference) {
    RETURN_IF_ERROR(load_pointer(at));
    type_ = type_of(type_.die);
  }
  if (!is_aggregate(type_.tag)) return blame(at, "'" + so_far(at) + "' is no struct or union");
  const std::string_view name = take_name();
  auto members = find_members(type_.die, name, 0);
  if (members.empty()) members = enter_virtual_base(name);
  if (members.size() > 1)
    return blame(name, "member '" + std::string(name) + "' is ambiguous: several base classes have it");
  if (members.empty() && is_in_virtual_base(type_.die, name, 0))
    return blame(name, "member '" + std::string(name) + "' is a virtual base's: each object says where that lies",
                 "a pointer to the base class itself has its members");
  if (members.empty()) {
    const std::string names = members_of(type_);
    return blame(name, "no member '" + std::string(name) + "'", names.empty() ? "" : "there are: " + names);
  }
  at_ = members[0].die;
  type_ = type_of(at_);
  location_.offset += members[0].offset;
  is_element_ = false;
  return ok();
}

Status Walker::index(std::string_view at) {
  const std::size_t close = rest_.find(']');
  std::uint64_t number = 0;
  if (close == std::string_view::npos || spec::read_unsigned(rest_.substr(1, close - 1), 0, number) != 0 ||
      number > INT32_MAX)
    return blame(at.substr(1), "Expected a number and ']'");
  rest_.remove_prefix(close + 1);
  const bool by_pointer = is_pointer(type_.tag);
  if (!by_pointer && type_.tag != DW_TAG_array_type) return blame(at, "it is neither an array nor a pointer");
  if (!by_pointer && has_several_dimensions(type_)) return blame(at, "arrays of several dimensions cannot be indexed");
  if (!by_pointer && number >= elements_of(type_) && elements_of(type_) > 1)
    return blame(at.substr(1), "the array has only " + std::to_string(elements_of(type_)) + " elements");
  if (by_pointer) RETURN_IF_ERROR(load_pointer(at));
  type_ = type_of(type_.die);
  const std::uint64_t bytes = size_of(type_);
  if (bytes == 0 || number * bytes > INT32_MAX) return blame(at, "the size of an element is not known, or too large");
  location_.offset += number * bytes;
  is_element_ = true;
  return ok();
}

// The number of bits of the member named last, if it is a bitfield.
std::optional<Dwarf_Word> Walker::bits_of_member() const {
  return is_element_ ? std::nullopt : number_in(at_, DW_AT_bit_size);
}

// A member of some bits, in a container at the place where one of its type would be.
Status Walker::set_bits(Argument& argument) {
  const auto width = bits_of_member();
  if (!width) return ok();
  if (argument.has_type) return blame(all_, "a bitfield has its own type");
  const std::uint64_t bytes = size_of(type_), bits = 8 * bytes;
  const auto bit = first_bit(at_, *width, bytes);
  const bool is_number = type_.tag == DW_TAG_base_type || type_.tag == DW_TAG_enumeration_type;
  if (bits == 0 || bits > 64 || !bit || !is_number) return blame(all_, "is a bitfield whose place is not understood");
  const std::uint64_t first = *bit % bits;
  if (*width == 0 || *width > bits || first > bits - *width) return blame(all_, "is a bitfield across two containers");
  location_.offset += *bit / bits * bytes;
  argument.is_bitfield = true;
  argument.bit_width = static_cast<std::uint8_t>(*width);
  argument.bit_offset = static_cast<std::uint8_t>(first);
  return ok();
}

// The address of memory, as a number; a reference means its target.
Status Walker::take_address(Argument& argument) {
  if (bits_of_member()) return blame(all_, "a bitfield has no address");
  if (argument.has_type && (argument.count != 0 || argument.kind == Kind::string))
    return blame(all_, "an address is a number; what is there is '" + std::string(all_.substr(1)) + "'");
  if (is_reference(type_.tag)) RETURN_IF_ERROR(load_pointer(all_.substr(all_.size())));
  if (!location_.in_memory) return blame(all_, "'" + std::string(all_.substr(1)) + "' is not in memory here");
  const std::uint64_t distance = std::exchange(location_.offset, 0);
  location_.in_memory = false;
  const bool is_alone = location_.steps.size() == 1 && location_.steps.front().kind == StepKind::file_offset;
  if (is_alone)
    location_.steps.front().value += distance;
  else if (distance != 0)
    location_.steps.push_back({.kind = StepKind::add, .value = distance});
  return ok();
}

// A reference means its target, as in the source; to a struct, which is no value, it is an address.
Status Walker::follow_reference(const Argument& argument) {
  if (!is_reference(type_.tag)) return ok();
  const Type inner = type_of(type_.die);
  const bool is_one_value = inner.tag == DW_TAG_base_type || inner.tag == DW_TAG_enumeration_type;
  const bool wants_more = argument.has_type && (argument.count != 0 || argument.kind == Kind::string);
  const bool is_text = is_aggregate(inner.tag) && parts_of_text(inner).has_value();
  const bool is_whole = inner.tag == DW_TAG_pointer_type || inner.tag == DW_TAG_array_type || is_text;
  if (!is_whole && (!is_one_value || wants_more)) return ok();
  RETURN_IF_ERROR(load_pointer(all_.substr(all_.size())));
  type_ = inner;
  return ok();
}

// The length is kept, then the characters are found.
Status Walker::take_text(const TextParts& parts, Argument& argument) {
  Location length = location_, pointer = location_;
  length.offset += parts.length, pointer.offset += parts.pointer;
  for (Location* one : {&length, &pointer}) {
    if (Status settled = settle(*one, sizeof(std::uint64_t)); !settled) return blame_all(settled.error());
    if (one->in_memory) one->steps.push_back({.kind = StepKind::dereference, .value = one->offset});
  }
  const auto keeps = [](const spec::Step& step) { return step.kind == StepKind::keep; };
  if (std::any_of(pointer.steps.begin(), pointer.steps.end(), keeps)) {  // one value is kept at a time
    const bool is_of_thread = std::any_of(pointer.steps.begin(), pointer.steps.end(),
                                          [](const spec::Step& step) { return step.kind == StepKind::thread_data; });
    return blame(all_, "'" + std::string(all_) + "' is a text " +
                           (is_of_thread ? "of a thread that the library exports" : "in a virtual base"));
  }
  location_ = {.steps = std::move(length.steps), .in_memory = true};
  location_.steps.push_back({.kind = StepKind::length});
  location_.steps.insert(location_.steps.end(), pointer.steps.begin(), pointer.steps.end());
  argument.kind = Kind::string, argument.size = 4;
  return ok();
}

// A number of 16 bytes in several pieces: of each half the place, in a fetch of its own.
Status Walker::take_halves(Argument& argument) {
  Location whole = location_, lower = location_, upper = location_;
  if (location_.pieces.empty() || settle(whole, 2 * sizeof(std::uint64_t))) return ok();
  upper.offset += sizeof(std::uint64_t);
  for (Location* half : {&lower, &upper}) {
    if (Status settled = settle(*half, sizeof(std::uint64_t)); !settled) return blame_all(settled.error());
  }
  const auto is_of_file = [](const spec::Step& step) { return step.kind == StepKind::file_offset; };
  if (std::any_of(upper.steps.begin(), upper.steps.end(), is_of_file))
    return blame(all_, "'" + std::string(all_) + "' is in several places, of which one is the file's");
  location_ = std::move(lower);
  argument.upper = spec::UpperHalf{std::move(upper.steps), upper.in_memory, upper.offset};
  return ok();
}

// The name of an interface's table, which is its first word.
Status Walker::take_table(Argument& argument) {
  argument.kind = Kind::symbol, argument.size = sizeof(std::uint64_t);
  const Status settled = settle(location_, argument.size);
  return settled ? ok() : blame_all(settled.error());
}

Status Walker::take_value(Argument& argument) {
  RETURN_IF_ERROR(follow_reference(argument));
  const bool wants_text = !argument.has_type || (argument.kind == Kind::string && argument.count == 0);
  if (const auto text = wants_text && is_aggregate(type_.tag) ? parts_of_text(type_) : std::nullopt)
    return take_text(*text, argument);
  if (!argument.has_type && has_named_table(type_)) return take_table(argument);
  RETURN_IF_ERROR(set_bits(argument));
  const bool wants_halves = !argument.has_type || (argument.size == sizeof(std::uint64_t) && argument.count == 2);
  if (is_wide_number(type_) && wants_halves) RETURN_IF_ERROR(take_halves(argument));
  const bool is_number = argument.has_type && argument.count == 0 && argument.kind != Kind::string;
  const std::uint64_t bytes = size_of(type_);
  const bool is_whole = is_aggregate(type_.tag) && !argument.has_type;  // set_type() says what to do
  Status typed = is_whole || argument.upper
                     ? ok()
                     : settle(location_, is_number ? std::min<std::uint64_t>(argument.size, bytes) : bytes);
  if (typed) typed = set_type(type_, location_, argument);
  if (!typed) return blame_all(typed.error());
  if (argument.is_bitfield && argument.kind != Kind::signed_decimal) argument.kind = Kind::unsigned_decimal;
  return ok();
}

Status Walker::finish(Argument& argument) {
  RETURN_IF_ERROR(wants_address_ ? take_address(argument) : take_value(argument));
  if (location_.steps.size() >= static_cast<std::size_t>(spec::kKernelEndSlot))
    return blame(all_, "Dereference is too much nested");
  if (location_.offset + 0x80000000ull > 0xffffffffull && location_.steps.front().kind != StepKind::file_offset)
    return blame(all_, "its distance does not fit into 32 bits");
  argument.steps = location_.steps;
  argument.sink = location_.in_memory ? Sink::memory : Sink::value;
  argument.memory_offset = location_.offset;
  return count_from_first(argument);
}

// Data of the file is known by the address of the first; further steps of that kind are counted from it.
Status Walker::count_from_first(Argument& argument) const {
  const bool is_first = argument.steps.front().kind == StepKind::file_offset;
  if (is_first) argument.address = argument.steps.front().value;
  for (spec::Step& step : argument.steps) {
    if (step.kind != StepKind::file_offset) continue;
    if (!is_first) return blame(all_, "'" + std::string(all_) + "' is in several places, of which one is the file's");
    step.value -= *argument.address;
  }
  return ok();
}

}  // namespace

namespace {

// Why a place that has debug information shows no variables: the unit is in another file, which was not found.
Error not_there(const DebugInfo::Handles& handles, std::uint64_t address) {
  Error error{.code = Code::refused, .text = "no variables are known here", .column = 0};
  const auto unit = unit_at(handles, address);
  std::uint8_t type = 0;
  if (!unit || dwarf_cu_info(unit->cu, nullptr, &type, nullptr, nullptr, nullptr, nullptr, nullptr) != 0) return error;
  if (type != DW_UT_skeleton) return error;
  const auto& package = handles.packaged->package;
  error.text += package ? ": " + package->path() + " has not this part of the program"
                        : ": they are in a .dwo file or a package (.dwp) that is not there";
  error.help = "keep the .dwo files where they were made, or PROGRAM.dwp beside the program";
  return error;
}

Status find_in(const DebugInfo::Handles& handles, const Scopes& scopes, Where where, std::uint64_t address,
               Argument& argument) {
  if (scopes.empty()) return not_there(handles, address);
  Walker walker(handles, address, argument.variable);
  RETURN_IF_ERROR(walker.start(scopes, where));
  RETURN_IF_ERROR(walker.walk());
  RETURN_IF_ERROR(walker.follow_stars());
  return walker.finish(argument);
}

// `listed`: the scopes in the order in which their variables are.
std::vector<NamedVariable> variables_in(const DebugInfo::Handles& handles, const Scopes& scopes, const Scopes& listed,
                                        Where where, std::uint64_t address) {
  std::vector<NamedVariable> variables;
  std::set<std::string> seen;
  for (const Dwarf_Die& scope : listed) {
    Dwarf_Die block = scope;
    if (dwarf_tag(&block) == DW_TAG_compile_unit) break;
    each_child(scope, [&](Dwarf_Die& die) {
      const char* name = is_variable(die) ? dwarf_diename(&die) : nullptr;
      if (name == nullptr || !seen.insert(name).second) return;
      Argument argument{.variable = name};
      const Status found = find_in(handles, scopes, where, address, argument);
      variables.push_back({.name = name,
                           .type = name_of(die),
                           .is_parameter = dwarf_tag(&die) == DW_TAG_formal_parameter,
                           .problem = found ? "" : found.error().text});
    });
  }
  return variables;
}

const DebugInfo::Handles::Copy* copy_of(const DebugInfo::Handles& handles, std::uint32_t number) {
  return number < handles.copies.size() ? &handles.copies[number] : nullptr;
}

Where where_in(const DebugInfo::Handles::Copy& copy) {
  return copy.found.is_clone ? Where::anywhere : Where::start_of_copy;
}

}  // namespace

Status DebugInfo::find_variable(std::uint64_t address, Argument& argument) const {
  return find_in(*handles_, scopes_at(*handles_, address), Where::anywhere, address, argument);
}

Status DebugInfo::find_result(std::uint64_t address, Argument& argument) const {
  return find_in(*handles_, scopes_at(*handles_, address), Where::exits, address, argument);
}

std::vector<NamedVariable> DebugInfo::variables_at(std::uint64_t address) const {
  const Scopes scopes = scopes_at(*handles_, address);
  return variables_in(*handles_, scopes, scopes, Where::anywhere, address);
}

Status DebugInfo::find_copys_variable(std::uint32_t copy, Argument& argument) const {
  const auto* known = copy_of(*handles_, copy);
  if (known == nullptr) return Error{.code = Code::refused, .text = "no variables are known here", .column = 0};
  return find_in(*handles_, scopes_of_copy(known->die), where_in(*known), known->found.address, argument);
}

std::vector<NamedVariable> DebugInfo::variables_of_copy(std::uint32_t copy) const {
  const auto* known = copy_of(*handles_, copy);
  if (known == nullptr) return {};
  const Scopes scopes = scopes_of_copy(known->die);
  Scopes listed = scopes;
  if (listed.size() > 1) std::swap(listed[0], listed[1]);  // the function's own order; a copy may have another one
  return variables_in(*handles_, scopes, listed, where_in(*known), known->found.address);
}

}  // namespace uprobe::dwarf
