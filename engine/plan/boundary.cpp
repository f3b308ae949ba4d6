#include "engine/plan/boundary.h"

#include <algorithm>
#include <utility>

#include "arch/x86/code/scan.h"

namespace uprobe::plan {
namespace {

constexpr std::uint64_t kLongestFunction = 1u << 20;

Boundary inside(const elf::ElfFile& file, std::uint64_t before) {
  x86::Scanned insn;
  x86::scan(code_bytes(file, before), Addr{before}, insn);
  return {.known = true, .is_start = false, .before = before, .after = before + insn.length};
}

Boundary start(std::uint64_t address) { return {.known = true, .is_start = true, .before = address, .after = address}; }

}  // namespace

Boundaries::Boundaries(std::shared_ptr<const elf::ElfFile> file, FlowCache& flows)
    : file_(std::move(file)), flows_(flows), starts_(file_->known_starts()) {}

Boundary Boundaries::find(std::uint64_t address) {
  if (code_bytes(*file_, address).empty()) return {};
  if (const auto found = find_in_function(address)) return *found;
  const Reach& reach = whole().reach();
  if (const auto around = start_around(*file_, reach, address)) return inside(*file_, *around);
  return reach.is_start(address) ? start(address) : in_padding(address);
}

// By the branches of the function alone, as is enough for most instructions.
std::optional<Boundary> Boundaries::find_in_function(std::uint64_t address) {
  const auto function = file_->range_at(address);
  if (!function || function->end - function->begin > kLongestFunction) return std::nullopt;
  if (!std::binary_search(starts_.begin(), starts_.end(), function->begin)) return std::nullopt;
  const Reach& reach = reach_of(*function);
  if (const auto around = start_around(*file_, reach, address)) return inside(*file_, *around);
  if (!reach.is_start(address) || !is_decoded_to(*function, address)) return std::nullopt;
  return start(address);
}

const Reach& Boundaries::reach_of(const elf::Range& function) {
  if (reach_ && function_ == function) return *reach_;
  function_ = function;
  reach_.emplace(*file_, std::vector<elf::Range>{function});
  reach_->add(function.begin);
  reach_->run();
  return *reach_;
}

const ProvenCode& Boundaries::whole() {
  if (!whole_) whole_ = std::make_unique<ProvenCode>(flows_.of(file_));
  return *whole_;
}

// Whether decoding one instruction after the other from the function's beginning leads there as well. Where it does not there
// are data, or instructions that overlap.
bool Boundaries::is_decoded_to(const elf::Range& function, std::uint64_t address) const {
  auto code = code_bytes(*file_, function.begin);
  x86::Scanned insn;
  std::uint64_t at = function.begin;
  while (at < address && x86::scan(code, Addr{at}, insn)) {
    at += insn.length;
    code = code.subspan(insn.length);
  }
  return at == address;
}

// Where nothing but padding lies between code and code.
Boundary Boundaries::in_padding(std::uint64_t address) {
  const Reach& reach = whole().reach();
  const auto before = reach.start_before(address);
  x86::Scanned insn;
  if (!before || !x86::scan(code_bytes(*file_, *before), Addr{*before}, insn)) return {};
  Boundary found;
  std::uint64_t at = *before + insn.length;
  while (!reach.is_start(at) && x86::scan(code_bytes(*file_, at), Addr{at}, insn) && insn.is_padding) {
    if (at == address) found = start(address);
    if (at < address && address < at + insn.length) found = inside(*file_, at);
    at += insn.length;
  }
  return reach.is_start(at) ? found : Boundary{};
}

}  // namespace uprobe::plan
