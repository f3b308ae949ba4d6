// SPDX-License-Identifier: MIT
#include "engine/symbolize/symbols.h"

#include <sys/auxv.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <tuple>

#include "engine/base/fd.h"
#include "engine/base/text.h"

namespace uprobe {
namespace {

using control::CodeMapping;
using control::CodeMaps;

// Targets may map any files: the files that were asked for are kept as long as they are few, besides the largest one (node and browsers
// are one file of 100 MB and more: their tables would be read anew for each record).
bool is_too_much(std::size_t files, std::uint64_t bytes) {
  constexpr std::size_t kMostFiles = 4096;
  constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;
  return files >= kMostFiles || bytes > kMostBytes;
}

constexpr std::size_t kFunctionOffset = 8;  // of __probe_ip, or __probe_func, in the payload

// Of several names of one function, one of the file itself, then one without leading underscores, then the shortest.
bool is_better(const elf::Symbol& a, const elf::Symbol& b) {
  const auto rank = [](const elf::Symbol& s) {
    return std::tuple(s.is_label, s.is_of_debug_file, std::min(s.name.find_first_not_of('_'), s.name.size()),
                      s.name.size());
  };
  return rank(a) < rank(b);
}

// The nearest of these at or before the address, if it covers it. They are sorted by address.
const elf::Symbol* symbol_around(std::span<const elf::Symbol> symbols, std::uint64_t address) {
  auto at = std::upper_bound(symbols.begin(), symbols.end(), address,
                             [](std::uint64_t a, const elf::Symbol& s) { return a < s.address; });
  const elf::Symbol* best = nullptr;
  const std::uint64_t start = at == symbols.begin() ? 0 : (at - 1)->address;
  for (; at != symbols.begin() && (at - 1)->address == start; --at) {
    const elf::Symbol& symbol = *(at - 1);
    const bool covers = address == start || address - start < symbol.size;
    if (covers && (best == nullptr || is_better(symbol, *best))) best = &symbol;
  }
  return best;
}

// The comma outside of all brackets: generic types have commas inside.
std::size_t end_of_type(std::string_view types) {
  int depth = 0;
  for (std::size_t at = 0; at < types.size(); ++at) {
    if (types[at] == ',' && depth == 0) return at;
    if (types[at] == '[' || types[at] == '(' || types[at] == '{') ++depth;
    if (types[at] == ']' || types[at] == ')' || types[at] == '}') --depth;
  }
  return types.size();
}

// Go's table of the methods that a type has for an interface, "go:itab.*os.PathError,error" ("go.itab." until 1.19): the type. Empty:
// it is none.
std::string_view type_of_go_table(std::string_view symbol) {
  constexpr std::string_view kBegin = "go:itab.", kOldBegin = "go.itab.";
  if (!symbol.starts_with(kBegin) && !symbol.starts_with(kOldBegin)) return {};
  symbol.remove_prefix(kBegin.size());
  return symbol.substr(0, end_of_type(symbol));
}

// A file may hold any bytes as its id.
std::string build_id_of(const elf::ElfFile& file) {
  constexpr std::size_t kMostBytes = 32;
  const auto id = file.build_id();
  return hex_digits(id.first(std::min(id.size(), kMostBytes)));
}

// The kernel gives the same one to all processes.
std::shared_ptr<const elf::ElfFile> own_vdso() {
  constexpr std::size_t kMostBytes = 1 << 20;
  const auto begin = Addr{::getauxval(AT_SYSINFO_EHDR)};
  const auto text = read_file("/proc/self/maps");
  if (begin.value == 0 || !text) return nullptr;
  const auto maps = target::parse_maps(*text);
  const target::Mapping* mapping = target::mapping_at(maps, begin);
  if (mapping == nullptr || mapping->end.value - begin.value > kMostBytes) return nullptr;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(begin.value);
  auto file = elf::ElfFile::parse(std::string(control::kVdso), {bytes, mapping->end.value - begin.value});
  return file ? std::make_shared<const elf::ElfFile>(file.take()) : nullptr;
}

}  // namespace

SessionSymbols::SessionSymbols(CodeMaps& maps, std::vector<plan::Site> sites) : maps_(maps), sites_(std::move(sites)) {}

std::optional<CodeMaps::Anchor> SessionSymbols::anchor_of(const trace::EventRecord& record) const {
  if (record.type >= sites_.size() || record.payload.size() < kFunctionOffset + 8) return std::nullopt;
  const plan::Site& site = sites_[record.type];
  CodeMaps::Anchor anchor{.offset = site.offset, .inode = site.file->identity().inode};
  std::memcpy(&anchor.address, record.payload.data() + kFunctionOffset, sizeof anchor.address);
  return anchor;
}

// Reads the mappings again before a name is given: the code may have been replaced by generated code.
void SessionSymbols::look_again(const trace::EventRecord& record) {
  maps_.note_since(static_cast<pid_t>(record.tid), record.ns);
}

std::vector<CodeMapping> SessionSymbols::mapped_at(const trace::EventRecord& record, const CodeMaps::Anchor& anchor,
                                                   std::uint64_t address) {
  const auto pid = static_cast<pid_t>(record.tid);
  std::vector<CodeMapping> found = maps_.at(pid, anchor, address);
  if (!found.empty()) return found;
  maps_.note(pid);
  return maps_.at(pid, anchor, address);
}

format::NamedAddress SessionSymbols::name_of(const trace::EventRecord& record, std::uint64_t address) {
  const auto found = anchor_of(record);
  if (!found) return {};
  const CodeMaps::Anchor anchor = *found;
  make_room();
  look_again(record);
  Known& known = recent_[(address ^ address >> 8) % recent_.size()];
  const std::uint64_t generation = maps_.generation();
  const bool is_known = known.valid && known.address == address && known.anchor == anchor.address &&
                        known.tid == record.tid && known.generation == generation;
  if (!is_known) {
    known = {.address = address, .anchor = anchor.address, .generation = generation, .tid = record.tid, .valid = true};
    look_up(record, anchor, known);
  }
  return {known.name, known.distance, known.size};
}

std::optional<std::uint64_t> SessionSymbols::address_in_own(const plan::Site& site, const CodeMaps::Anchor& anchor,
                                                            std::uint64_t address) {
  const std::uint64_t link_address = address - anchor.address + site.address;
  const auto offset = site.is_ifunc ? std::nullopt : site.file->offset_of_address(link_address);
  return offset && site.file->is_executable_offset(*offset) ? std::optional(link_address) : std::nullopt;
}

void SessionSymbols::look_up(const trace::EventRecord& record, const CodeMaps::Anchor& anchor, Known& known) {
  const plan::Site& site = sites_[record.type];
  if (const auto own = address_in_own(site, anchor, known.address)) return name_in(*site.file, *own, known);
  if (site.is_ifunc || name_data_in_own(site, anchor, known)) return;
  const std::vector<CodeMapping> found = mapped_at(record, anchor, known.address);
  if (found.size() != 1) return;
  const File file = file_of(found[0]);
  const auto address = file ? file->address_of_offset(found[0].offset_of(known.address)) : std::nullopt;
  if (address) name_in(*file, *address, known);
}

CodeAt SessionSymbols::code_in(const elf::ElfFile& file, std::uint64_t link_address) {
  const auto at = tables_.try_emplace(&file, file.bytes()).first;
  return {.is_code = true, .file = &file, .tables = &at->second, .link_address = link_address};
}

CodeAt SessionSymbols::find_code(const trace::EventRecord& record, const CodeMaps::Anchor& anchor,
                                 std::uint64_t address) {
  const plan::Site& site = sites_[record.type];
  if (const auto own = address_in_own(site, anchor, address)) return code_in(*site.file, *own);
  const std::vector<CodeMapping> found = mapped_at(record, anchor, address);
  const File file = found.size() == 1 ? file_of(found[0]) : nullptr;
  const auto link_address = file ? file->address_of_offset(found[0].offset_of(address)) : std::nullopt;
  if (link_address) return code_in(*file, *link_address);
  return {.is_code = maps_.has_code(static_cast<pid_t>(record.tid), anchor, address)};
}

CodeAt SessionSymbols::code_at(const trace::EventRecord& record, const CodeMaps::Anchor& anchor,
                               std::uint64_t address) {
  KnownCode& known = recent_code_[(address ^ address >> 10) % recent_code_.size()];
  const std::uint64_t generation = maps_.generation();
  if (!known.valid || known.address != address || known.anchor != anchor.address || known.tid != record.tid ||
      known.generation != generation)
    known = {.address = address,
             .anchor = anchor.address,
             .generation = generation,
             .tid = record.tid,
             .valid = true,
             .code = find_code(record, anchor, address)};
  return known.code;
}

std::vector<format::StackFrame> SessionSymbols::frames_of(const trace::EventRecord& record) {
  const auto stack = trace::parse_stack(record.stack);
  const auto anchor = anchor_of(record);
  if (!stack || !anchor) return format::linked_frames(record);
  make_room();
  look_again(record);
  return unwind(*stack, [&](std::uint64_t address) { return code_at(record, *anchor, address); });
}

format::CodePlace SessionSymbols::place_of(const trace::EventRecord* record, std::uint64_t address) {
  make_room();
  const auto anchor = record == nullptr ? std::nullopt : anchor_of(*record);
  const std::vector<CodeMapping> found = anchor ? mapped_at(*record, *anchor, address) : maps_.anywhere(address);
  if (found.size() != 1) return {};
  format::CodePlace place{.name = {}, .path = found[0].path, .offset = found[0].offset_of(address)};
  const File file = file_of(found[0]);
  if (file) place.build_id = build_id_of(*file);
  const auto link_address = file ? file->address_of_offset(place.offset) : std::nullopt;
  if (!link_address) return place;
  Known known;
  name_in(*file, *link_address, known);
  place.name = known.name, place.distance = known.distance, place.size = known.size;
  return place;
}

// The file at the path, if it is still the one that was mapped. (On some file systems its device has another number in maps.)
SessionSymbols::File SessionSymbols::file_of(const CodeMapping& mapping) {
  const auto known = by_path_.find(mapping.path);
  if (known == by_path_.end() && is_too_much(by_path_.size(), file_bytes_ - largest_file_)) return nullptr;
  const auto [at, is_new] = by_path_.try_emplace(mapping.path);
  if (is_new && mapping.path == control::kVdso) at->second = own_vdso();
  if (is_new && !at->second)
    if (auto file = files_.open(mapping.path, elf::NamedBy::target)) at->second = file.take();
  if (is_new && at->second) {
    const std::uint64_t bytes = at->second->bytes().size();
    file_bytes_ += bytes, largest_file_ = std::max(largest_file_, bytes);
  }
  return at->second && at->second->identity().inode == mapping.inode ? at->second : nullptr;
}

// Called before a record is processed, because files found for one record must stay until its end.
void SessionSymbols::make_room() {
  if (!is_too_much(by_path_.size(), file_bytes_ - largest_file_)) return;
  recent_code_.fill({});
  tables_.clear();
  by_path_.clear();
  file_bytes_ = largest_file_ = 0;
}

void SessionSymbols::name_in(const elf::ElfFile& file, std::uint64_t link_address, Known& known) {
  const elf::Symbol* symbol = symbol_around(file.named_functions(), link_address);
  if (symbol != nullptr) set_name(*symbol, link_address, known);
}

// The file moves as a whole, and where its data is there is nothing else.
bool SessionSymbols::name_data_in_own(const plan::Site& site, const CodeMaps::Anchor& anchor, Known& known) {
  const std::uint64_t link_address = known.address - anchor.address + site.address;
  const auto holds = [&](const elf::Segment& s) { return link_address - s.address < s.memory_bytes; };
  if (std::ranges::none_of(site.file->segments(), holds)) return false;  // before the symbols are read for it
  const elf::Symbol* symbol = symbol_around(site.file->data_symbols(), link_address);
  if (symbol == nullptr) return false;
  set_name(*symbol, link_address, known);
  const std::string_view type = known.distance == 0 ? type_of_go_table(symbol->name) : std::string_view();
  if (!type.empty()) known.name = type, known.distance = format::kStandsAlone;
  return true;
}

void SessionSymbols::set_name(const elf::Symbol& symbol, std::uint64_t link_address, Known& known) {
  known.name = symbol.name;
  known.distance = link_address - symbol.address;
  known.size = symbol.size;
}

}  // namespace uprobe
