// SPDX-License-Identifier: MIT
#include "engine/dwarf/handles.h"

#include <algorithm>

#include "arch/abi/dwarf_registers.h"
#include "engine/dwarf/package.h"

namespace uprobe::dwarf {
namespace {

// "GNU C11 12.2.0 -mtune=generic -O2 -g": gcc records its options, clang does not.
bool says_optimised(Dwarf_Die function) {
  Dwarf_Die unit;
  Dwarf_Attribute attribute;
  if (dwarf_diecu(&function, &unit, nullptr, nullptr) == nullptr) return false;
  const char* producer =
      dwarf_attr(&unit, DW_AT_producer, &attribute) == nullptr ? nullptr : dwarf_formstring(&attribute);
  const std::string_view text = producer == nullptr ? "" : producer;
  const std::size_t at = text.rfind(" -O");
  return at != std::string_view::npos && text.substr(at + 3, 1) != "0";
}

// Whether an argument has different places in different parts of the function: then the code is optimised.
bool has_location_lists(const Dwarf_Die& function) {
  bool found = false;
  each_child(function, [&](Dwarf_Die& child) {
    Dwarf_Attribute attribute;
    if (dwarf_tag(&child) != DW_TAG_formal_parameter) return;
    if (dwarf_attr(&child, DW_AT_location, &attribute) == nullptr) return;
    const unsigned form = dwarf_whatform(&attribute);
    found = found || form == DW_FORM_sec_offset || form == DW_FORM_loclistx || form == DW_FORM_data4 ||
            form == DW_FORM_data8;
  });
  return found;
}

bool is_function(int tag) { return tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine; }

// No compiler nests deeper; a file may have any contents.
constexpr int kDeepest = 64;

// The innermost block with the address inside `parent`, whose own code need not contain it: the code of a lambda is described
// inside a type inside the function that makes it.
std::optional<Dwarf_Die> block_inside(const Dwarf_Die& parent, std::uint64_t address, int depth = 0) {
  std::optional<Dwarf_Die> found;
  if (depth == kDeepest) return found;
  each_child(parent, [&](Dwarf_Die& child) {
    if (found) return;
    const int tag = dwarf_tag(&child);
    const bool is_block = is_function(tag) || tag == DW_TAG_lexical_block;
    const bool is_around = is_block || tag == DW_TAG_namespace || tag == DW_TAG_structure_type ||
                           tag == DW_TAG_class_type || tag == DW_TAG_union_type;
    if (is_around) found = block_inside(child, address, depth + 1);
    if (!found && is_block && dwarf_haspc(&child, address) > 0) found = child;
  });
  return found;
}

// The blocks up to the function's own, and the unit: blocks between them belong to other frames.
Scopes scopes_of_nested(Dwarf_Die unit, std::uint64_t address) {
  auto inner = block_inside(unit, address);
  Dwarf_Die* found = nullptr;
  const int count = inner ? dwarf_getscopes_die(&*inner, &found) : 0;
  Scopes scopes;
  for (int i = 0; i < count; ++i) {
    scopes.push_back(found[i]);
    if (dwarf_tag(&found[i]) == DW_TAG_subprogram) break;
  }
  std::free(found);
  if (!scopes.empty()) scopes.push_back(unit);
  return scopes;
}

}  // namespace

Elf* open_image(std::span<const std::uint8_t> bytes) {
  static const unsigned version = elf_version(EV_CURRENT);
  if (version == EV_NONE) return nullptr;
  // For reading (ELF_C_READ).
  auto* image = const_cast<char*>(reinterpret_cast<const char*>(bytes.data()));
  return elf_memory(image, bytes.size());
}

DebugInfo::Handles::Handles() : packaged(std::make_unique<Packaged>()) {}
DebugInfo::Handles::~Handles() = default;

Dwarf_Die whole_unit(const DebugInfo::Handles& handles, Dwarf_Die unit) {
  Dwarf_Die split{};
  std::uint8_t type = 0;
  std::uint64_t id = 0;
  if (dwarf_cu_info(unit.cu, nullptr, &type, nullptr, nullptr, &id, nullptr, nullptr) != 0) return unit;
  if (type != DW_UT_skeleton) return unit;
  open_packaged(handles, unit, id);
  const bool is_known = dwarf_cu_info(unit.cu, nullptr, nullptr, nullptr, &split, nullptr, nullptr, nullptr) == 0;
  return is_known && split.addr != nullptr ? split : unit;
}

const char* declaring_source(Dwarf_Die die) {
  Dwarf_Attribute attribute;
  Dwarf_Word number = 0;
  if (dwarf_formudata(dwarf_attr_integrate(&die, DW_AT_decl_file, &attribute), &number) != 0) return nullptr;
  Dwarf_Die unit;  // of the attribute's: an abstract origin may be in another one
  Dwarf_Files* files = nullptr;
  std::size_t count = 0;
  if (dwarf_cu_die(attribute.cu, &unit, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr) == nullptr)
    return nullptr;
  if (dwarf_getsrcfiles(&unit, &files, &count) != 0 || number >= count) return nullptr;
  return dwarf_filesrc(files, number, nullptr, nullptr);
}

std::optional<Dwarf_Die> unit_at(const DebugInfo::Handles& handles, std::uint64_t address) {
  Dwarf_Die unit;
  Dwarf* debug = handles.debug;
  if (dwarf_addrdie(debug, address, &unit) != nullptr) return whole_unit(handles, unit);
  // .debug_aranges may be missing or incomplete.
  Dwarf_Off at = 0, next = 0;
  std::size_t header = 0;
  for (; dwarf_nextcu(debug, at, &next, &header, nullptr, nullptr, nullptr) == 0; at = next)
    if (dwarf_offdie(debug, at + header, &unit) != nullptr && dwarf_haspc(&unit, address) > 0)
      return whole_unit(handles, unit);
  return {};
}

Scopes scopes_at(const DebugInfo::Handles& handles, std::uint64_t address) {
  auto unit = unit_at(handles, address);
  Dwarf_Die* found = nullptr;
  const int count = unit ? dwarf_getscopes(&*unit, address, &found) : 0;
  Scopes scopes(found, found + std::max(count, 0));
  std::free(found);
  const bool is_known =
      std::any_of(scopes.begin(), scopes.end(), [](Dwarf_Die& die) { return is_function(dwarf_tag(&die)); });
  return is_known || !unit ? scopes : scopes_of_nested(*unit, address);
}

Scopes scopes_of_copy(Dwarf_Die copy) {
  Scopes scopes{copy};
  Dwarf_Attribute attribute;
  Dwarf_Die origin;
  if (dwarf_attr(&copy, DW_AT_abstract_origin, &attribute) == nullptr) return scopes;
  if (dwarf_formref_die(&attribute, &origin) == nullptr) return scopes;
  Dwarf_Die* found = nullptr;
  const int count = dwarf_getscopes_die(&origin, &found);
  scopes.insert(scopes.end(), found, found + std::max(count, 0));
  std::free(found);
  return scopes;
}

// After an inlined function libdw goes on with the blocks around its source.
std::optional<Dwarf_Die> function_of(const Scopes& scopes) {
  Scopes around = scopes;
  for (Dwarf_Die& scope : around) {
    const int tag = dwarf_tag(&scope);
    if (tag == DW_TAG_subprogram) return scope;
    if (tag != DW_TAG_inlined_subroutine) continue;
    Dwarf_Die* found = nullptr;
    const int count = dwarf_getscopes_die(&scope, &found);
    const Scopes physical(found, found + std::max(count, 0));
    std::free(found);
    for (Dwarf_Die outer : physical)
      if (dwarf_tag(&outer) == DW_TAG_subprogram) return outer;
    return {};
  }
  return {};
}

std::optional<std::uint64_t> number_in(Dwarf_Die die, unsigned attribute) {
  Dwarf_Attribute found;
  Dwarf_Word value = 0;
  if (dwarf_attr_integrate(&die, attribute, &found) == nullptr || dwarf_formudata(&found, &value) != 0) return {};
  return value;
}

bool is_everywhere(Dwarf_Attribute& attribute) {
  Dwarf_Op* expression = nullptr;
  std::size_t length = 0;
  Dwarf_Addr base = 0, begin = 0, end = 0;
  const std::ptrdiff_t got = dwarf_getlocations(&attribute, 0, &base, &begin, &end, &expression, &length);
  return got > 0 && begin == 0 && end == ~Dwarf_Addr{0};
}

// Below the frame's top: arguments passed on the stack are above it.
bool is_in_frame(Dwarf_Die variable) {
  Dwarf_Attribute attribute;
  if (dwarf_attr(&variable, DW_AT_location, &attribute) == nullptr || !is_everywhere(attribute)) return false;
  Dwarf_Op* expression = nullptr;
  std::size_t length = 0;
  if (dwarf_getlocation(&attribute, &expression, &length) != 0 || length != 1) return false;
  return expression[0].atom == DW_OP_fbreg && static_cast<Dwarf_Sword>(expression[0].number) < 0;
}

// The compiler counts from the stack pointer, which moves in the prologue: Rust's, and clang without a frame pointer.
bool counts_from_stack_pointer(Dwarf_Die function) {
  Dwarf_Attribute attribute;
  Dwarf_Op* ops = nullptr;
  std::size_t length = 0;
  if (dwarf_attr_integrate(&function, DW_AT_frame_base, &attribute) == nullptr) return false;
  return dwarf_getlocation(&attribute, &ops, &length) == 0 && length == 1 && ops[0].atom == DW_OP_reg0 + arch::kFrameSp;
}

// Whether each argument is at one place of the frame, which optimised code does not do.
bool stores_all_arguments(const Dwarf_Die& function) {
  bool has_any = false, has_other = false;
  each_child(function, [&](Dwarf_Die& child) {
    if (dwarf_tag(&child) != DW_TAG_formal_parameter) return;
    Dwarf_Attribute attribute;
    Dwarf_Op* ops = nullptr;
    std::size_t length = 0;
    const bool is_stored = dwarf_attr(&child, DW_AT_location, &attribute) != nullptr && is_everywhere(attribute) &&
                           dwarf_getlocation(&attribute, &ops, &length) == 0 && length == 1 &&
                           ops[0].atom == DW_OP_fbreg;
    (is_stored ? has_any : has_other) = true;
  });
  return has_any && !has_other;
}

bool has_prologue(const Dwarf_Die& function) {
  if (says_optimised(function)) return false;
  if (counts_from_stack_pointer(function)) return stores_all_arguments(function);
  bool in_frame = false, elsewhere = false;
  each_child(function, [&](Dwarf_Die& child) {
    const int tag = dwarf_tag(&child);
    if (tag != DW_TAG_formal_parameter && tag != DW_TAG_variable) return;
    if (is_in_frame(child))
      in_frame = true;
    else
      elsewhere = elsewhere || tag == DW_TAG_formal_parameter;
  });
  return in_frame && !(elsewhere && has_location_lists(function));
}

// The line table's mark where there is one (clang), else its second row of the function (gcc).
std::uint64_t end_of_prologue(const DebugInfo::Handles& handles, Dwarf_Die function) {
  Dwarf_Addr low = 0, high = 0;
  if (dwarf_lowpc(&function, &low) != 0 || dwarf_highpc(&function, &high) != 0) return 0;
  auto unit = unit_at(handles, low);
  Dwarf_Lines* lines = nullptr;
  std::size_t count = 0;
  if (!unit || dwarf_getsrclines(&*unit, &lines, &count) != 0) return low;
  std::uint64_t second = low;
  for (std::size_t i = 0; i < count; ++i) {
    Dwarf_Line* line = dwarf_onesrcline(lines, i);
    Dwarf_Addr address = 0;
    bool is_end = false, is_mark = false;
    if (dwarf_lineaddr(line, &address) != 0 || address <= low || address >= high) continue;
    if (dwarf_lineendsequence(line, &is_end) != 0 || is_end) continue;
    if (dwarf_lineprologueend(line, &is_mark) == 0 && is_mark) return address;
    if (second == low) second = address;
  }
  return second;
}

}  // namespace uprobe::dwarf
