// SPDX-License-Identifier: MIT
// The process block of one target, edited from outside: a local copy of its tables, and writes that keep the target's tables
// equal to it. Everything that is read from a target is checked before it is used.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/process/block_check.h"
#include "engine/shared/process_block.h"
#include "engine/target/target.h"

namespace uprobe::control {

// A point that is to be added.
struct NewPoint {
  Addr address;
  Addr copy;
  std::uint32_t copy_bytes = 0;
  std::uint32_t mark_count = 0;     // after the copy
  std::uint32_t code_bytes = 0;     // the size of all displaced instructions
  Addr jump_to;                     // see Point
  std::uint32_t jump_bytes = 0;     // 0: a breakpoint
  std::uint32_t prefix_window = 0;  // see Point
  std::uint64_t file_bias = 0;
  shared::PointRole role = shared::PointRole::probe;
  std::vector<std::uint8_t> insn;       // the original bytes at the address, which a disarm restores
  std::vector<std::uint8_t> following;  // the bytes after its first byte, as far as they are known
  std::uint16_t following_varies = 0;   // see Point
  std::uint32_t consumers = 0;          // from Block::list_for
};

// Makes the body of the jump with this copy leave all further hits to the agent.
Status ask_agent(target::Target& target, Addr copy);

// What a block is to have room for. It is private memory of the program, which may have little.
struct BlockNeeds {
  std::size_t points;    // about so many, and as many consumers
  bool unwinds = false;  // what the agent finds in unwind tables
};

class Block {
 public:
  // The address space that a block needs.
  static std::uint64_t bytes_for(const BlockNeeds& needs);
  // Lays an empty block out in zeroed memory of the target.
  static Result<Block> create(target::Target& target, Addr at, const BlockNeeds& needs);
  // Reads the block of a process (a forked child has its parent's). Code::damaged when it is inconsistent, or has room for more points
  // than `most_points`.
  static Result<Block> read(target::Target& target, Addr at, std::size_t most_points = kMostPoints);

  // The stamp of the block at `at`. Equal stamps mean equal contents.
  static Result<std::uint64_t> read_stamp(target::Target& target, Addr at);

  Addr address() const { return at_; }
  std::uint64_t stamp() const { return head_->stamp; }
  shared::ProcessBlock& head() { return *head_; }
  const shared::ProcessBlock& head() const { return *head_; }
  const std::vector<shared::Point>& points() const { return points_; }
  const std::vector<shared::Undo>& undo() const { return undo_; }

  bool has_room(std::size_t points) const;
  Addr point_at(std::size_t index) const { return at_ + head_->point_offset + index * sizeof(shared::Point); }
  std::optional<std::uint32_t> find(Addr address) const;
  // None where the end is before the beginning, which a process may claim about its mappings.
  std::vector<std::uint32_t> points_in(Addr begin, Addr end) const;
  // The point whose text leads to a point: the point itself, or the one at which its prefix window begins.
  std::uint32_t leads_to(std::uint32_t point) const;
  // The point to which a prefix window leads; nothing: it does not lead to one any more.
  std::optional<std::uint32_t> after_prefix_window(std::uint32_t prefix_window) const;

  // Where mapped code has its unwind information. An entry replaces all that was known about any part of [begin, end); when the
  // table is full nothing is added, and the agent treats unknown code with care.
  bool knows_code(const shared::CodeFile& file) const;
  Status note_code(target::Target& target, const shared::CodeFile& file);
  // Sets the address of object `index`.
  Status set_object(target::Target& target, std::size_t index, const shared::MappedObject& object);
  // Sets entry `index` of the semaphores, kSemaphores at most.
  Status set_semaphore(target::Target& target, std::size_t index, const shared::Semaphore& semaphore);
  // Notes that there will be jumps in [begin, end); the caller writes the head.
  void note_jumps(Addr begin, Addr end);
  // Call before a change: gives the block a new stamp.
  Status renew(target::Target& target);
  // Makes a list of consumers, newest first (`next` is set here). For a known point it uses an existing list again, or the end
  // of one, if that is the same: libraries that take turns at an address, and probes that come and go, must not use up the
  // table. The list is written to the target together with the point. Code::limit when there is no room.
  Result<std::uint32_t> list_for(const std::vector<shared::Consumer>& consumers, bool is_known);
  // Publishes points: tables first, the hash last. Does not touch the text. Code::limit when the block is full; nothing has
  // changed then.
  Status add(target::Target& target, const std::vector<NewPoint>& points);
  // Whether a published point already has all of these consumers; want() adds them, newest first. Used when a probe wants the
  // place of an internal point, or a function that an IFUNC chose.
  bool has(std::uint32_t point, const std::vector<shared::Consumer>& consumers) const;
  Status want(target::Target& target, std::uint32_t point, const std::vector<shared::Consumer>& consumers);
  // Keeps only these consumers, a part of the present ones; the others need not be recorded any more. If the one event is left
  // for which a jump's body was made, the body records by itself again.
  Status keep_only(target::Target& target, std::uint32_t point, const std::vector<shared::Consumer>& consumers);
  // Newest first.
  std::vector<shared::Consumer> list_of(std::uint32_t point) const;
  // Changes published points and their undo entries.
  Status set_state(target::Target& target, std::uint32_t point, shared::PointState state);
  Status set_states(target::Target& target, std::span<const std::uint32_t> points, shared::PointState state);
  Status set_following(target::Target& target, std::uint32_t point, std::vector<std::uint8_t> bytes);
  // The bytes after the point that a neighbour's jump is about to change, in the bits of Point::following_varies; others stay.
  Status add_varying(target::Target& target, std::uint32_t point, std::uint16_t bits);
  struct Change {
    std::uint32_t point;
    const NewPoint* with;
  };
  Status set_points(target::Target& target, std::vector<Change> changes);
  Status set_point(target::Target& target, std::uint32_t point, const NewPoint& with) {
    return set_points(target, {{point, &with}});
  }
  // For a new session, perhaps after a tool that was killed while it wrote: no point has a consumer, all points are in the
  // hash. Only while no thread is in a hit.
  Status begin_anew(target::Target& target);
  // Writes the tool's part of the head (sessions, islands, counts) to the target.
  Status write_head(target::Target& target);
  // Writes the agent's part (flags, dispositions). Only before the agent runs.
  Status write_agent_part(target::Target& target);

 private:
  // Hashes a consumer together with the list after it.
  struct ListHash {
    std::size_t operator()(const shared::Consumer& consumer) const;
  };
  struct SameList {
    bool operator()(const shared::Consumer& a, const shared::Consumer& b) const;
  };

  Block(Addr at) : at_(at) {}
  Status write_consumers(target::Target& target);
  Status publish_consumers(target::Target& target);
  void know_lists();
  std::uint32_t chain(std::span<const shared::Consumer> consumers, std::uint32_t tail);
  Status write_hash(target::Target& target, std::size_t first_point);

  Addr at_;
  std::unique_ptr<shared::ProcessBlock> head_ = std::make_unique<shared::ProcessBlock>();  // too large for a stack
  std::vector<shared::Point> points_;
  std::vector<shared::Consumer> consumers_;
  std::size_t written_consumers_ = 0;
  std::unordered_map<shared::Consumer, std::uint32_t, ListHash, SameList>
      lists_;                        // to the index + 1 of its first consumer
  std::size_t known_consumers_ = 0;  // so many consumers are in `lists_`
  std::vector<shared::CodeFile> code_files_;
  std::vector<shared::Undo> undo_;
  std::vector<std::uint32_t> hash_;
  std::map<std::uint64_t, std::uint32_t> by_address_;
};

// Whether there is a process block at `at`.
bool is_block(target::Target& target, Addr at);

// Whether the text of a point, or of the prefix window that leads to it, is what the tool has written.
bool has_armed_text(target::Target& target, const Block& block, const shared::Point& point);

}  // namespace uprobe::control
