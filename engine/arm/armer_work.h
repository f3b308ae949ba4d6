// SPDX-License-Identifier: MIT
// One Armer::arm() under way. Internal to the armer's files.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "engine/arm/armer.h"
#include "engine/arm/live_code_addresses.h"
#include "engine/arm/single_threaded_start.h"
#include "engine/arm/slot_layout.h"
#include "engine/process/text_view.h"

namespace uprobe::control {

// The file behind a mapping, as stat sees it from here: the numbers in maps are not stat's on every file system.
std::optional<FileVersion> file_behind(pid_t pid, const target::Mapping& m);

// Whether it is another file, or not as it was when it was read.
bool has_changed(const FilePoints& file, const FileVersion& now);

// What is to stand somewhere.
struct ArmedPlace {
  Addr at;
  shared::ArmedText armed;
  shared::PointRole role;
};

struct Armer::Work {
  target::Target& target;
  Block& block;
  const std::vector<target::Mapping>& maps;
  const Changed& range;                        // what the process has reported
  std::vector<Pending> pending;                // in the file under way
  std::set<std::uint16_t> incomplete;          // events of which it lacks an exit
  std::unordered_set<std::uint64_t> standing;  // armed places in the mappings looked at
  std::vector<KnownMapping> before;            // what was looked at the last time
  std::vector<KnownMapping> untouched;         // of these, by address
  std::map<Addr, KnownMapping> looked_at;      // anew; one that is no file's never is the same again
  Addr sentinel;                               // an armed place in the mapping under way
  std::vector<ArmedPlace> texts;               // of a held process, written when everything else is
  bool waits = false;                          // an IFUNC in it has not chosen yet
  bool is_new = false;                         // it has just been mapped: nothing of it has run
  bool unbound = false;                        // in any mapping
  bool is_live = false;                        // add() to a program that runs
  bool has_barred = false;                     // code that is not probed, see reason_barred
  std::string refusal;                         // the first one of that
  std::string agent;                           // its file
  bool changed = false;
  // Found out when it matters: see is_single_threaded_at_start; whether the application's handlers come back through a point of ours; whether
  // unwinders find the stubs.
  std::optional<bool> quiet, follows_returns, finds_stubs;

  std::optional<LiveCodeAddresses> kept;  // of a held process

  TextView text;  // of the file under way, as it was before anything of it was written

  Work(target::Target& in, Block& its_block, const std::vector<target::Mapping>& its_maps, const Changed& reported)
      : target(in), block(its_block), maps(its_maps), range(reported), text(in) {
    if (const auto* m = target::mapping_at(maps, Addr{block.head().agent_base})) agent = m->path;
    for (const shared::BarredCode& barred : block.head().barred) has_barred = has_barred || barred.abort != 0;
  }
  // The program's own code: none of the agent's.
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
  // Comes before the first change of the block.
  Status change() { return std::exchange(changed, true) ? ok() : block.renew(target); }
  // Comes before anything is armed in the mapping.
  bool is_just_mapped(const target::Mapping& m) const;
  // Whether nobody executes the code of the mapping under way.
  bool nobody_runs() {
    if (!is_new && !quiet) quiet = !target.is_held() && is_single_threaded_at_start(target, block.address());
    return is_new || *quiet;
  }
  // The same of what lies behind the beginning of a window, for as long as the process is held. (The long jump of a short one stays
  // in the padding, and the text would not be the file's again.)
  bool nobody_is_inside(const plan::Window& window, Addr begin) {
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

// Why nothing may be probed in [begin, end) of the mapping; null: it may. See barring.cpp.
const char* reason_barred(const Armer::Work& work, const target::Mapping& m, Addr begin, Addr end);
// The same of a point. What the agent needs for itself is in no sequence.
const char* reason_barred(const Armer::Work& work, const PlannedPoint& point, const target::Mapping& m);

}  // namespace uprobe::control
