// SPDX-License-Identifier: MIT
// A session over this process, for tests that cause hits by hand.
#pragma once

#include <optional>

#include "engine/trace/area.h"
#include "tests/agent/agent_in_test.h"

namespace uprobe::test {

// One event, given by its program.
class OneEvent {
 public:
  OneEvent(std::vector<shared::Insn> insns, u32 fixed_bytes, u32 cpu_rings, u32 claimed_rings, u64 ring_bytes,
           std::vector<shared::Test> filter = {}, std::string text = {},
           std::vector<program::TriggerProgram> triggers = {}, const std::vector<program::HistogramPlan>& plans = {}) {
    program_.filter = std::move(filter), program_.text = std::move(text);
    program_.layout.fixed_bytes = fixed_bytes;
    program_.insns = std::move(insns);
    trace::AreaSpec spec{.events = {&program_},
                         .ring_bytes = ring_bytes,
                         .ring_count = cpu_rings + claimed_rings,
                         .cpu_ring_count = cpu_rings};
    for (const program::HistogramPlan& plan : plans) {
      triggers.push_back({.kind = shared::TriggerKind::histogram, .target = static_cast<u32>(spec.histograms.size())});
      spec.histograms.push_back({.plan = plan});
    }
    spec.triggers = triggers;
    if (!triggers.empty()) spec.switches = {{.trigger_count = static_cast<u32>(triggers.size())}};
    area_.emplace(trace::Area::create_private(spec).take());
    area_->set_state(shared::SessionState::recording);
  }
  trace::Area& area() { return *area_; }
  shared::Event& event() { return area_->event(0); }
  shared::EventCounts& counts() { return area_->live(0).counts(0); }
  agent::AreaHeader* header() { return static_cast<agent::AreaHeader*>(area_->base()); }
  u64 records(u32 ring) { return area_->ring(ring).commit & 0xffffffff; }
  u64 records_from(u32 first, u32 end) {
    u64 sum = 0;
    for (u32 i = first; i < end; ++i) sum += records(i);
    return sum;
  }

  void hit(shared::Registers registers, bool no_rseq = false) {
    const shared::Point point{};
    thread_local const u32 tid = static_cast<u32>(::gettid());
    agent::record_event({agent::uprobe_block, &point, &registers, tid, true, no_rseq}, header(), 0);
  }

 private:
  program::EventProgram program_;
  std::optional<trace::Area> area_;
};

}  // namespace uprobe::test
