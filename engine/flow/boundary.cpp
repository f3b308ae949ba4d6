// SPDX-License-Identifier: MIT
#include "engine/flow/boundary.h"

#include <algorithm>
#include <utility>

#include "arch/code/scan.h"
#include "engine/flow/data_in_text.h"
#include "engine/flow/gap.h"

namespace uprobe::plan {
namespace {

constexpr std::uint64_t kLongestFunction = 1u << 20;

Boundary inside(const elf::ElfFile& file, std::uint64_t before) {
  arch::Scanned insn;
  arch::scan(code_bytes(file, before), Addr{before}, insn);
  return {.known = true, .is_start = false, .before = before, .after = before + insn.length};
}

Boundary start(std::uint64_t address) { return {.known = true, .is_start = true, .before = address, .after = address}; }

}  // namespace

Boundaries::Boundaries(std::shared_ptr<const elf::ElfFile> file, FlowCache& flows)
    : file_(std::move(file)), flows_(flows), starts_(file_->known_starts()) {}

// Most places that are probed are the beginnings of functions.
Boundary Boundaries::find(std::uint64_t address) {
  if (code_bytes(*file_, address).empty()) return {};
  if (std::binary_search(starts_.begin(), starts_.end(), address)) return start(address);
  if (is_named_data(address)) return {.reason = "a symbol says that it is data"};
  if (const auto found = find_in_function(address)) return *found;
  const Reach& reach = whole().reach();
  if (const auto around = start_around(*file_, reach, address)) return inside(*file_, *around);
  if (reach.is_start(address)) return start(address);
  const Boundary padding = in_padding(address);
  return padding.known ? padding : in_gap(address);
}

bool Boundaries::is_named_data(std::uint64_t address) {
  const auto& data = named_data();
  const auto after = std::upper_bound(data.begin(), data.end(), address,
                                      [](std::uint64_t a, const elf::Range& range) { return a < range.begin; });
  return after != data.begin() && (after - 1)->holds(address);
}

const std::vector<elf::Range>& Boundaries::named_data() {
  if (!named_data_) named_data_ = elf::data_in_text(*file_);
  return *named_data_;
}

// By the branches of the function alone, as is enough for most instructions.
std::optional<Boundary> Boundaries::find_in_function(std::uint64_t address) {
  const auto function = file_->range_at(address);
  if (!function || function->end - function->begin > kLongestFunction) return std::nullopt;
  if (!std::binary_search(starts_.begin(), starts_.end(), function->begin)) return std::nullopt;
  const Reach& reach = reach_of(*function);
  if (reach.is_start(address) && is_decoded_to(*function, address)) return start(address);
  if (const auto around = start_around(*file_, reach, address)) return inside(*file_, *around);
  return std::nullopt;
}

const Reach& Boundaries::reach_of(const elf::Range& function) {
  if (reach_ && function_ == function) return *reach_;
  function_ = function;
  reach_.emplace(*file_, std::vector<elf::Range>{function});
  for (const elf::Range& data : named_data()) reach_->add_data(data.begin);
  reach_->add(function.begin);
  reach_->run();
  return *reach_;
}

const ProvenCode& Boundaries::whole() {
  if (!whole_) whole_ = std::make_unique<ProvenCode>(flows_.of(file_), named_data());
  return *whole_;
}

// Whether decoding one instruction after the other from the function's beginning leads there as well. Where it does not there
// are data, or instructions that overlap.
bool Boundaries::is_decoded_to(const elf::Range& function, std::uint64_t address) const {
  auto code = code_bytes(*file_, function.begin);
  arch::Scanned insn;
  std::uint64_t at = function.begin;
  while (at < address && arch::scan(code, Addr{at}, insn)) {
    at += insn.length;
    code = code.subspan(insn.length);
  }
  return at == address;
}

// Where nothing but padding lies between code and code. Constants may look like padding.
Boundary Boundaries::in_padding(std::uint64_t address) {
  const Reach& reach = whole().reach();
  const auto before = reach.start_before(address);
  arch::Scanned insn;
  if (!before || !arch::scan(code_bytes(*file_, *before), Addr{*before}, insn)) return {};
  Boundary found;
  const std::uint64_t begin = *before + insn.length;
  std::uint64_t at = begin;
  while (!reach.is_start(at) && arch::scan(code_bytes(*file_, at), Addr{at}, insn) && insn.is_padding) {
    if (at == address) found = start(address);
    if (at < address && address < at + insn.length) found = inside(*file_, at);
    at += insn.length;
  }
  const bool is_used = reach.is_used_as_data(begin, at) || flows_.of(file_).is_named_in(begin, at);
  return reach.is_start(at) && !is_used ? found : Boundary{};
}

// In code of a function that nothing known leads to.
Boundary Boundaries::in_gap(std::uint64_t address) {
  const auto function = file_->range_at(address);
  if (!function || !std::binary_search(starts_.begin(), starts_.end(), function->begin))
    return {.reason = "no known way of the program leads there, it may be data"};
  const Gap gap = gap_at(flows_.of(file_), whole().reach(), *function, address);
  if (gap.reason != nullptr) return {.reason = gap.reason};
  const auto after = std::upper_bound(gap.starts.begin(), gap.starts.end(), address);
  const std::uint64_t before = *(after - 1);
  return before == address ? start(address) : inside(*file_, before);
}

}  // namespace uprobe::plan
