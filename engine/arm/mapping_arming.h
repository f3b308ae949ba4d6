// SPDX-License-Identifier: MIT
// Arms the points of one mapping: decides for each what it needs, finds room, and writes tables and text.
//
//   arm_mapping    the files of the mapping: internal points first, because a probe's breakpoint needs signals in order
//     arm_file       the points of a file that lie in the mapping
//       consider       one point: known already, refused, or put on the list with the window that it may use
//       arm_ifuncs     the same for functions that IFUNCs have chosen
//       place          the list: consumers, slots and bodies (slot_layout.h)
//       publish        the tables first, the text last
#pragma once

#include <memory>
#include <set>
#include <span>
#include <vector>

#include "engine/arm/process_arming.h"
#include "engine/arm/slot_layout.h"
#include "engine/process/text_view.h"

namespace uprobe::control {

class MappingArming {
 public:
  // Both must outlive it. `is_new`: none of the mapping's code has run.
  MappingArming(ProcessArming& process, const target::Mapping& mapping, bool is_new);

  Status arm_mapping();
  // Arms the functions that IFUNCs have chosen since the mapping was looked at.
  Status arm_choices();
  // `jumps` null: breakpoints only.
  Status arm_file(const FilePoints& file, const plan::FileJumps* jumps);

  Addr sentinel() const { return sentinel_; }  // an armed address in the mapping; 0: none
  bool waits() const { return waits_; }        // an IFUNC in the mapping has not chosen yet

 private:
  void look_ahead(std::span<const PlannedPoint> points);
  void begin_file(const FilePoints& file);
  const PlannedPoint* possible(const PlannedPoint& point);
  Status consider(const PlannedPoint& given, const plan::FileJumps* jumps);
  void append(const PlannedPoint& point, std::optional<std::uint32_t> known, const plan::FileJumps* jumps);
  const plan::Window* window_for(const Pending& pending, const plan::FileJumps* jumps, std::string& why);
  const plan::Window* window_before_call(const Pending& pending, std::string& why);
  bool has_original(const Pending& pending, const plan::FileJumps& jumps, const plan::Window& window);
  Status join(const PlannedPoint& point, std::uint32_t known);
  bool join_pending(PlannedPoint& point);
  Status arm_ifuncs(const FilePoints& file);
  Status list_consumers();
  Status list_again();
  Status place();
  Status publish();
  Status write_points();
  ArmedPlace text_of(std::uint32_t index);
  bool no_thread_runs();
  const char* why_not_yet() const;
  const char* against_switch(const Pending& pending, const plan::Window& window);
  // Refuses a point, together with the other exits of its function.
  void refuse(const PlannedPoint& point, const std::string& why);
  // Called before the points of a file are considered one by one, because a function's exits are armed together or not at all.
  void leave_barred_out(std::span<const PlannedPoint> points);
  bool is_wanted(const PlannedConsumer& consumer) const;
  std::vector<shared::Consumer> consumers_of(const PlannedPoint& point) const;
  void add_events(plan::SparseSet& to, const PlannedPoint& point) const;

  ProcessArming& process_;
  ArmState& state_;
  target::Target& target_;
  Block& block_;
  const target::Mapping& mapping_;
  const bool is_new_;
  Addr sentinel_;
  bool waits_ = false;
  // Of the present file:
  const FilePoints* own_ = nullptr;  // its internal points
  std::vector<Pending> pending_;
  std::set<std::uint16_t> incomplete_;  // events of which an exit was refused
  TextView text_;                       // as it was before the first write
  // Implementations that IFUNCs chose, and points that lost consumers: pending points refer to them.
  std::vector<std::unique_ptr<PlannedPoint>> choices_;
};

}  // namespace uprobe::control
