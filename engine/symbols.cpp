#include "engine/symbols.h"

#include <algorithm>
#include <cstring>
#include <tuple>

namespace uprobe {
namespace {

using control::CodeMapping;
using control::CodeMaps;

constexpr std::size_t kFunctionOffset = 8;  // of __probe_ip, or __probe_func, in the payload

// Of several names of one function the one without leading underscores, then the shortest.
bool is_better(const elf::Symbol& a, const elf::Symbol& b) {
  const auto rank = [](const elf::Symbol& s) {
    return std::tuple(s.is_label, std::min(s.name.find_first_not_of('_'), s.name.size()), s.name.size());
  };
  return rank(a) < rank(b);
}

// The nearest symbol at or before the address, if it covers it.
const elf::Symbol* function_around(const elf::ElfFile& file, std::uint64_t address) {
  const auto functions = file.functions();
  auto at = std::upper_bound(functions.begin(), functions.end(), address,
                             [](std::uint64_t a, const elf::Symbol& s) { return a < s.address; });
  const elf::Symbol* best = nullptr;
  const std::uint64_t start = at == functions.begin() ? 0 : (at - 1)->address;
  for (; at != functions.begin() && (at - 1)->address == start; --at) {
    const elf::Symbol& symbol = *(at - 1);
    const bool covers = address == start || address - start < symbol.size;
    if (covers && (best == nullptr || is_better(symbol, *best))) best = &symbol;
  }
  return best;
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

// The probe's own file moves as a whole, so that its names need no mappings.
void SessionSymbols::look_up(const trace::EventRecord& record, const CodeMaps::Anchor& anchor, Known& known) {
  const plan::Site& site = sites_[record.type];
  const std::uint64_t link_address = known.address - anchor.address + site.address;
  const auto own_offset = site.is_ifunc ? std::nullopt : site.file->offset_of_address(link_address);
  if (own_offset && site.file->is_executable_offset(*own_offset)) return name_in(*site.file, link_address, known);
  if (site.is_ifunc) return;
  const std::vector<CodeMapping> found = mapped_at(record, anchor, known.address);
  if (found.size() != 1) return;
  const File file = file_of(found[0]);
  const auto address = file ? file->address_of_offset(found[0].offset_of(known.address)) : std::nullopt;
  if (address) name_in(*file, *address, known);
}

format::CodePlace SessionSymbols::place_of(const trace::EventRecord* record, std::uint64_t address) {
  const auto anchor = record == nullptr ? std::nullopt : anchor_of(*record);
  const std::vector<CodeMapping> found = anchor ? mapped_at(*record, *anchor, address) : maps_.anywhere(address);
  if (found.size() != 1) return {};
  format::CodePlace place{.name = {}, .path = found[0].path, .offset = found[0].offset_of(address)};
  const File file = file_of(found[0]);
  const auto link_address = file ? file->address_of_offset(place.offset) : std::nullopt;
  if (!link_address) return place;
  Known known;
  name_in(*file, *link_address, known);
  place.name = known.name, place.distance = known.distance, place.size = known.size;
  return place;
}

// What lies at the path now, if that is what was mapped. (Its device has another number in maps on some file systems.)
SessionSymbols::File SessionSymbols::file_of(const CodeMapping& mapping) {
  const auto [at, is_new] = by_path_.try_emplace(mapping.path);
  if (is_new)
    if (auto file = files_.open(mapping.path)) at->second = file.take();
  return at->second && at->second->identity().inode == mapping.inode ? at->second : nullptr;
}

void SessionSymbols::name_in(const elf::ElfFile& file, std::uint64_t link_address, Known& known) {
  const elf::Symbol* symbol = function_around(file, link_address);
  if (symbol == nullptr) return;
  known.name = symbol->name;
  known.distance = link_address - symbol->address;
  known.size = symbol->size;
}

}  // namespace uprobe
