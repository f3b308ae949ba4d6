// SPDX-License-Identifier: MIT
#include "engine/process/block_check.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/shared/trampoline.h"

namespace uprobe::control {
namespace {

using shared::Consumer;
using shared::Point;
using shared::ProcessBlock;
using shared::Undo;

constexpr std::uint64_t kUserEnd = std::uint64_t{1} << 47;  // the end of user addresses
constexpr std::uint32_t kMostBytes = 1U << 30;
constexpr std::uint32_t kMostInstruction = 15;
constexpr std::uint32_t kMostCopyBytes = 1024;   // per copy; the tool's own have less than half of it
constexpr std::uint64_t kMostWalked = 1U << 24;  // consumers in the lists of all points together

Status wrong(const char* what) {
  return Error{.code = Code::damaged, .text = std::string("the process block in the target is damaged (") + what + ")"};
}

// Whether the table lies in the block, after the head.
bool fits(const ProcessBlock& h, std::uint64_t offset, std::uint64_t count, std::uint64_t size) {
  return offset >= sizeof(ProcessBlock) && offset % alignof(std::uint32_t) == 0 &&
         offset + count * size <= h.block_bytes;
}

bool is_address(std::uint64_t address) { return address != 0 && address < kUserEnd; }
bool is_range(std::uint64_t begin, std::uint64_t bytes) { return begin < kUserEnd && bytes <= kUserEnd - begin; }

bool is_island(const shared::Island& i) { return i.base != 0 && is_range(i.base, i.bytes) && i.used <= i.bytes; }

bool has_sane_counts(const ProcessBlock& h, std::size_t most_points) {
  return h.block_bytes <= kMostBytes && h.point_capacity <= most_points && h.point_count <= h.point_capacity &&
         h.undo_count == h.point_count && h.undo_count <= h.undo_capacity && h.undo_capacity <= most_points &&
         h.consumer_capacity <= 2 * most_points && h.consumer_count <= h.consumer_capacity && h.hash_bits >= 4 &&
         (1ULL << std::min(h.hash_bits, 63U)) <= 2 * most_points && (1U << h.hash_bits) / 2 >= h.point_capacity &&
         h.session_count <= shared::kMaxSessions && h.code_file_count <= shared::kCodeFiles &&
         h.island_count <= shared::kMaxIslands;
}

bool has_tables_inside(const ProcessBlock& h) {
  return fits(h, h.point_offset, h.point_capacity, sizeof(Point)) &&
         fits(h, h.undo_offset, h.undo_capacity, sizeof(Undo)) &&
         fits(h, h.thread_offset, shared::kThreadEntries, sizeof(shared::ThreadEntry)) &&
         fits(h, h.consumer_offset, h.consumer_capacity, sizeof(Consumer)) &&
         (h.unwind_offset == 0 || fits(h, h.unwind_offset, shared::kUnwindRows, sizeof(shared::UnwindRow))) &&
         fits(h, h.code_file_offset, shared::kCodeFiles, sizeof(shared::CodeFile)) &&
         fits(h, h.hash_offset, std::uint64_t{1} << h.hash_bits, sizeof(std::uint32_t));
}

// ---- points

bool has_sane_lengths(const Point& p) {
  const bool is_jump_length =
      p.jump_bytes == 0 || p.jump_bytes == shared::kShortJumpBytes || p.jump_bytes == shared::kJumpBytes;
  return is_jump_length && p.following_bytes <= shared::kMostFollowing && p.insn_bytes <= kMostInstruction &&
         p.copy_bytes <= kMostCopyBytes && p.prefix_window < shared::kJumpBytes;
}

bool has_sane_addresses(const Point& p) {
  const bool has_copy = p.copy > shared::kCopyAfterThunk && p.copy < kUserEnd - kMostCopyBytes;
  return is_address(p.address) && (p.copy == 0 || has_copy) && p.jump_to < kUserEnd &&
         (p.jump_bytes == 0) == (p.jump_to == 0);
}

bool has_sane_names(const ProcessBlock& h, const Point& p) {
  return p.state >= static_cast<std::uint32_t>(shared::PointState::armed) &&
         p.state <= static_cast<std::uint32_t>(shared::PointState::watched) &&
         p.role <= static_cast<std::uint32_t>(shared::PointRole::quick_call) && p.consumer <= h.consumer_count;
}

// The `length` of a restored entry has no meaning.
bool belongs_to(const Undo& undo, const Point& p) {
  return undo.address == p.address && undo.length <= sizeof undo.original && undo.state <= 1;
}

bool is_consumer(const ProcessBlock& h, const Consumer& c) {
  return c.session < shared::kMaxSessions && c.kind <= static_cast<std::uint8_t>(shared::ConsumerKind::note) &&
         c.next <= h.consumer_count;
}

// ---- lists of consumers

// For each consumer, by index + 1, the length of the list that begins with it; empty where a list has a cycle.
std::vector<std::uint32_t> lengths_of(std::span<const Consumer> consumers) {
  constexpr std::uint32_t kOpen = ~0U;
  std::vector<std::uint32_t> lengths(consumers.size() + 1, 0), way;
  for (std::uint32_t first = 1; first < lengths.size(); ++first) {
    std::uint32_t at = first;
    for (; at != 0 && lengths[at] == 0; at = consumers[at - 1].next) {
      lengths[at] = kOpen;
      way.push_back(at);
    }
    if (lengths[at] == kOpen) return {};
    for (std::uint32_t length = lengths[at]; !way.empty(); way.pop_back()) lengths[way.back()] = ++length;
  }
  return lengths;
}

bool has_sane_lists(const BlockTables& tables) {
  const std::vector<std::uint32_t> lengths = lengths_of(tables.consumers);
  std::uint64_t all = 0;
  for (const Point& p : tables.points) all += lengths.empty() ? 0 : lengths[p.consumer];
  return !lengths.empty() && all <= kMostWalked;
}

bool is_code_file(const shared::CodeFile& f) {
  return f.begin <= f.end && f.end <= kUserEnd && f.unwind_header < kUserEnd;
}

bool is_barred_code(const shared::BarredCode& b) {
  return b.begin <= b.end && b.step <= static_cast<std::uint32_t>(shared::BarredStep::process) &&
         (b.abort == 0) == (b.step == 0);
}

}  // namespace

Status check_head(const ProcessBlock& h, std::size_t most_points) {
  if (h.magic != shared::kBlockMagic || h.abi_version != shared::kAbiVersion) return wrong("its magic or version");
  if (!has_sane_counts(h, most_points)) return wrong("its counts");
  if (!has_tables_inside(h)) return wrong("its tables");
  if (!std::all_of(h.islands, h.islands + h.island_count, is_island)) return wrong("its islands");
  if (!std::all_of(std::begin(h.barred), std::end(h.barred), is_barred_code)) return wrong("its barred code");
  return ok();
}

Status check_tables(const ProcessBlock& h, const BlockTables& tables) {
  const auto is_sane = [&](const Consumer& c) { return is_consumer(h, c); };
  if (!std::all_of(tables.consumers.begin(), tables.consumers.end(), is_sane)) return wrong("a consumer");
  for (std::size_t i = 0; i < tables.points.size(); ++i) {
    const Point& p = tables.points[i];
    if (!has_sane_names(h, p) || !has_sane_addresses(p)) return wrong("a point");
    if (!has_sane_lengths(p)) return wrong("a length");
    if (!belongs_to(tables.undo[i], p)) return wrong("the original bytes of a point");
  }
  if (!has_sane_lists(tables)) return wrong("a list of consumers");
  if (!std::all_of(tables.code_files.begin(), tables.code_files.end(), is_code_file)) return wrong("a code file");
  const auto is_index = [&](std::uint32_t entry) { return entry <= h.point_count; };
  if (!std::all_of(tables.hash.begin(), tables.hash.end(), is_index)) return wrong("its hash");
  return ok();
}

}  // namespace uprobe::control
