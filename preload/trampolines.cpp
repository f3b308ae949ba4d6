// Faults inside trampolines: see engine/shared/trampoline.h.
#include "preload/trampolines.h"

#include "engine/shared/trampoline.h"

namespace uprobe::agent {
namespace {

using shared::TrampolineHead;

bool is_head(u64 at, u64 island) {
  if (at < island) return false;
  const auto* head = reinterpret_cast<const TrampolineHead*>(at);
  return head->mark == (shared::kTrampolineMagic ^ at);
}

// Null: the address is in no trampoline of this island.
const TrampolineHead* head_of(u64 ip, u64 island) {
  u64 at = ip & ~u64{shared::kTrampolineUnit - 1};
  for (u32 steps = 0; steps <= shared::kMaxTrampolineBytes / shared::kTrampolineUnit; ++steps) {
    if (at < island) return nullptr;
    if (is_head(at, island)) {
      const auto* head = reinterpret_cast<const TrampolineHead*>(at);
      return ip - at < head->bytes ? head : nullptr;
    }
    at -= shared::kTrampolineUnit;
  }
  return nullptr;
}

}  // namespace

u64 trampoline_fixup(const ProcessBlock& block, u64 ip) {
  for (u32 i = 0; i < block.island_count && i < shared::kMaxIslands; ++i) {
    const shared::Island& island = block.islands[i];
    if (ip - island.base >= island.used) continue;
    const TrampolineHead* head = head_of(ip, island.base);
    if (head == nullptr) return 0;
    const u64 start = reinterpret_cast<u64>(head);
    for (const shared::TrampolineFault& fault : head->faults)
      if (fault.insn != 0 && start + fault.insn == ip) return start + fault.fixup;
    return 0;
  }
  return 0;
}

}  // namespace uprobe::agent
