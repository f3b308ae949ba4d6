// SPDX-License-Identifier: MIT
// Fuzzes triggers, with their filters and histograms: an accepted one makes sense to the agent, and the printed form of a
// histogram reads as the same again.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/program/compile.h"
#include "engine/program/trigger.h"
#include "engine/spec/parse.h"
#include "tests/fuzz/driver.h"

using namespace uprobe;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void require_place(const Error& error) {
  require(!error.text.empty());
  require(error.column <= static_cast<int>(error.where.size()) + 1);
}

const program::EventLayout& layout() {
  static const program::EventLayout made =
      program::compile(
          *spec::parse_definition("p:g/e /b/x:0x10 n=%di:s32 q=%si:u64 s=+0(%dx):string a=+0(%cx):u8[4] c=%al:char",
                                  {.file_check = nullptr}))
          .take()
          .layout;
  return made;
}

void check(const program::HistogramPlan& plan) {
  require(!plan.keys.empty() && plan.keys.size() <= shared::kMaxHistogramKeys);
  require(!plan.values.empty() && plan.values.size() <= 1 + shared::kMaxHistogramValues);
  require(plan.key_bytes != 0 && plan.key_bytes <= shared::kMaxHistogramKey);
  require(plan.bits >= shared::kMinHistogramBits && plan.bits <= shared::kMaxHistogramBits);
  for (const program::HistogramSort& sort : plan.sorts) require(sort.field < plan.values.size() + plan.keys.size());
  for (const program::HistogramWord& key : plan.keys) require(key.field.key_offset < plan.key_bytes);
  // A sort by a bucketed key prints as in the kernel, in a form that cannot be read.
  program::HistogramPlan unsorted = plan;
  unsorted.sorts = {{}}, unsorted.filter.clear(), unsorted.is_paused = false;
  const std::string text = unsorted.text(), again = text.substr(0, text.rfind(" ["));
  const auto read = program::parse_histogram(again, again.find(':') + 1, again.size(), layout());
  require(bool(read));
  require(read->text() == text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto spec = program::parse_trigger(text);
  if (!spec) return require_place(spec.error()), 0;
  if (shared::changes_program(spec->kind))
    require(spec->action.error_number <= 4095 && spec->action.target < shared::Reg::ip);
  if (spec->kind == shared::TriggerKind::delay)
    require(spec->action.value != 0 && spec->action.value <= shared::kMostDelay);
  if (spec->kind == shared::TriggerKind::send_signal) require(spec->action.value >= 1 && spec->action.value <= 64);
  require(spec->attributes_at <= spec->attributes_end && spec->attributes_end <= size);
  if (spec->kind == shared::TriggerKind::histogram) {
    const auto plan = program::parse_histogram(text, spec->attributes_at, spec->attributes_end, layout());
    if (plan)
      check(*plan);
    else
      require_place(plan.error());
  }
  const auto condition = program::compile_condition(*spec, text, layout(), {.id = 1, .cpus = 4});
  if (!condition) require_place(condition.error());
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {
      "hist:keys=n,s.hex:vals=q,hitcount.percent:sort=q.descending,n:size=512:nohitcount if n > 3 && s ~ \"x*\"",
      "hist:key=cpu,common_pid.execname:values=n.graph:sort=hitcount.ascending:pause",
      "hist keys=q.buckets=0x10:sort=q:size=100",
      "hist:keys=q.log2,common_stacktrace,__probe_ip.sym-offset",
      "hist:keys=stacktrace:name=x:clock=y:ts=q:onmax(n).save(q):cont:clear",
      "stacktrace:3 if q & 1",
      "traceoff if (n == 1 || s == \"text\") && !(q >= 7)",
      "enable_event:g:e:3 if n < 0",
      "return=-1,errno=ENOSPC:3 if n == 4",
      "set %di=0xfff if q & 1",
      "set $retval=-1:2",
      "delay=10ms if s ~ \"x*\"",
      "signal=STOP:1",
  };
}
