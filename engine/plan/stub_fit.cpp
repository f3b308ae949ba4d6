// SPDX-License-Identifier: MIT
#include "engine/plan/stub_fit.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "arch/code/scan.h"
#include "arch/code/stack_use.h"
#include "engine/base/text.h"
#include "engine/plan/tracked_stack.h"

namespace uprobe::plan {
namespace {

// Follows the stack pointer from the function's entry on, by all direct branches within it.
class ReturnAddressReader {
 public:
  ReturnAddressReader(const FileFlow& flow, const elf::Range& range) : flow_(flow), range_(range) {}

  // The instruction that reads the return address, or takes the address of where it is.
  std::optional<std::uint64_t> find() {
    pending_.push_back({range_.begin, kStackAtEntry});
    while (!pending_.empty()) {
      const auto [at, stack] = pending_.back();
      pending_.pop_back();
      if (const auto found = follow(at, stack)) return found;
    }
    return std::nullopt;
  }

 private:
  std::optional<std::uint64_t> follow(std::uint64_t at, TrackedStack stack) {
    arch::Scanned insn;
    while (range_.holds(at) && seen_.emplace(at, true).second) {
      const auto code = flow_.bytes_at(at);
      if (!arch::scan(code, Addr{at}, insn)) return std::nullopt;
      const auto use = arch::stack_use(code.first(insn.length));
      if (!use) return std::nullopt;
      if (use->reads && is_return_address(*use->reads, stack)) return at;
      stack = stack_after(*use, stack);
      const bool is_branch = insn.leads == arch::Leads::jump || insn.leads == arch::Leads::jump_if;
      if (is_branch) pending_.push_back({insn.target, stack});
      if (!insn.falls_through) return std::nullopt;
      at += insn.length;
    }
    return std::nullopt;
  }

  const FileFlow& flow_;
  elf::Range range_;
  std::map<std::uint64_t, bool> seen_;
  std::vector<std::pair<std::uint64_t, TrackedStack>> pending_;
};

// The C library's that keep their return address to go there, once more perhaps: a stub can be gone to as often as wanted.
bool only_goes_there(std::string_view symbol) {
  constexpr std::array<std::string_view, 8> kNames = {"setjmp",      "_setjmp",    "__setjmp",    "sigsetjmp",
                                                      "__sigsetjmp", "getcontext", "swapcontext", "vfork"};
  return std::find(kNames.begin(), kNames.end(), symbol.substr(0, symbol.find('@'))) != kNames.end();
}

// Virtual machines and collectors of garbage that know the frames on a stack by their return addresses, those of their own C
// functions among them; by what their files export: OCaml, V8, HotSpot, .NET (CoreCLR, NativeAOT), Mono, native images of Java, Dart.
bool knows_return_addresses(const elf::ElfFile& file) {
  constexpr std::array kNames = {"caml_frametable",    "_ZN2v82V810GetVersionEv",     "gHotSpotVMStructs",
                                 "coreclr_initialize", "DotNetRuntimeDebugHeader",    "mono_jit_init",
                                 "__svm_version_info", "_kDartVmSnapshotInstructions"};
  return std::any_of(kNames.begin(), kNames.end(), [&](const char* name) { return file.find_any(name).has_value(); });
}

}  // namespace

std::string reason_against_stub(const FileFlow& flow, const Site& site) {
  if (flow.is_go()) return "is code of Go, which moves stacks and knows every return address on them";
  if (knows_return_addresses(*site.file))
    return "belongs to a virtual machine that knows the return addresses on its stacks";
  if (site.address == site.file->entry()) return "is where the program begins: it has no caller";
  if (site.symbol.find(".cold") != std::string::npos) return "is a part of another function: no code calls it";
  const SweptFunction* function = site.is_ifunc ? nullptr : flow.swept_at(site.address);
  const bool is_framed = function != nullptr && function->trouble != FlowTrouble::no_unwind;
  if (is_framed && (function->range.begin != site.address || !function->begins_at_call))
    return "is entered by no call, as its unwind information says";
  const auto range = site.file->range_at(site.address);
  if (site.is_ifunc || !range || range->begin != site.address || only_goes_there(site.symbol)) return {};
  const auto reader = ReturnAddressReader(flow, *range).find();
  if (!reader) return {};
  return "reads its own return address, at " + hex(site.file->offset_of_address(*reader).value_or(*reader));
}

}  // namespace uprobe::plan
