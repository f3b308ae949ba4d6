// SPDX-License-Identifier: MIT
// The state of one Armer::arm(). Internal to the armer's files.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "engine/arm/armer.h"
#include "engine/arm/slot_layout.h"
#include "engine/patch/live_code_addresses.h"
#include "engine/patch/single_threaded_start.h"
#include "engine/process/text_view.h"

namespace uprobe::control {

// The mapped file as stat sees it: the device and inode in /proc/PID/maps are not stat's on every file system.
std::optional<FileVersion> mapped_version(pid_t pid, const target::Mapping& m);

// Whether it is another file, or has changed since it was read.
bool has_changed(const FilePoints& file, const FileVersion& now);

// A text that is to be armed.
struct ArmedPlace {
  Addr at;
  shared::ArmedText armed;
  shared::PointRole role;
};

struct Armer::Work {
  target::Target& target;
  Block& block;
  const std::vector<target::Mapping>& maps;
  const Changed& range;                        // as reported by the process
  std::vector<Pending> pending;                // of the present file
  std::set<std::uint16_t> incomplete;          // events of which an exit in this file was refused
  std::unordered_set<std::uint64_t> standing;  // armed addresses in the mappings looked at
  std::vector<KnownMapping> before;            // mappings as of the last look
  std::vector<KnownMapping> untouched;         // those of them that did not change, by address
  std::map<Addr, KnownMapping> looked_at;      // looked at again; a mapping without a file always is
  Addr sentinel;                               // an armed address in the present mapping
  std::vector<ArmedPlace> texts;               // of a stopped process, written after everything else
  bool waits = false;                          // an IFUNC in the mapping has not chosen yet
  bool is_new = false;                         // the mapping is new: none of its code has run
  bool unbound = false;                        // `waits` in any mapping
  bool is_live = false;                        // add() to a running program
  bool has_barred = false;                     // some code must not be probed, see reason_barred
  std::string refusal;                         // the first reason_barred
  std::string agent;                           // path of the agent's file
  bool changed = false;
  // Computed when needed: is_single_threaded_at_start; whether the program's handlers return through an internal point; whether
  // unwinders find the stubs.
  std::optional<bool> quiet, follows_returns, finds_stubs;

  std::optional<LiveCodeAddresses> kept;  // of a stopped process

  TextView text;  // of the present file, as it was before the first write

  Work(target::Target& in, Block& its_block, const std::vector<target::Mapping>& its_maps, const Changed& reported)
      : target(in), block(its_block), maps(its_maps), range(reported), text(in) {
    if (const auto* m = target::mapping_at(maps, Addr{block.head().agent_base})) agent = m->path;
    for (const shared::BarredCode& barred : block.head().barred) has_barred = has_barred || barred.abort != 0;
  }
  // Whether it is the program's code, not the agent's.
  bool is_armable(const target::Mapping& m) const { return can_be_armed(m) && (agent.empty() || m.path != agent); }
  void begin_file() {
    pending.clear();
    incomplete.clear();
    text = TextView(target);
  }
  void stands(const shared::Point& point) {
    sentinel = Addr{point.address - point.prefix_window};
    standing.insert({point.address, sentinel.value});
    if (point.jump_bytes == shared::kShortJumpBytes) standing.insert(point.jump_to);
  }
  bool stands_soon(Addr at) const { return standing.count(at.value) != 0; }
  // Call before the first change of the block.
  Status change() { return std::exchange(changed, true) ? ok() : block.renew(target); }
  // Call before anything is armed in the mapping.
  bool is_just_mapped(const target::Mapping& m) const;
  // Whether no thread executes the code of the present mapping.
  bool no_thread_runs() {
    if (!is_new && !quiet) quiet = !target.is_held() && is_single_threaded_at_start(target, block.address());
    return is_new || *quiet;
  }
  // Whether no thread executes the window after its first instruction, nor will come back there, as long as the process is
  // stopped. (Not for a short jump: its long jump stays in the padding, and the text would not become the file's again.)
  bool no_thread_is_inside(const plan::Window& window, Addr begin) {
    using plan::WindowKind;
    if (!target.is_held() || window.kind == WindowKind::prefix_window || window.kind == WindowKind::short_jump)
      return false;
    if (window.kind == WindowKind::one) return true;
    if (!kept) kept = LiveCodeAddresses::of(target, maps);
    return !kept->has_in(begin + 1, begin + window.length);
  }
  std::vector<KnownMapping> all_known() {
    for (const KnownMapping& known : untouched) looked_at[known.begin] = known;
    std::vector<KnownMapping> all;
    for (const auto& [begin, known] : looked_at) all.push_back(known);
    return all;
  }
};

// Why nothing may be probed in [begin, end) of the mapping; null: it may be probed. See barring.cpp.
const char* reason_barred(const Armer::Work& work, const target::Mapping& m, Addr begin, Addr end);
// The same for a point. Internal points are never in a restartable sequence.
const char* reason_barred(const Armer::Work& work, const PlannedPoint& point, const target::Mapping& m);

}  // namespace uprobe::control
