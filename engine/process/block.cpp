// SPDX-License-Identifier: MIT
#include "engine/process/block.h"

#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/process/block_check.h"
#include "engine/shared/future_jump.h"
#include "engine/shared/trampoline.h"

namespace uprobe::control {
namespace {

using shared::Consumer;
using shared::Point;
using shared::ProcessBlock;
using shared::Undo;

// Includes room for points that are added later.
std::size_t capacity_for(std::size_t points) {
  return std::bit_ceil(std::clamp<std::size_t>(2 * points + 256, 2048, kMostPoints));
}

// The layout of the tables; there are twice as many consumers as points.
ProcessBlock lay_out(const BlockNeeds& needs) {
  const std::size_t capacity = capacity_for(needs.points);
  ProcessBlock head{};
  head.magic = shared::kBlockMagic;
  head.abi_version = shared::kAbiVersion;
  head.point_capacity = head.undo_capacity = static_cast<std::uint32_t>(capacity);
  head.consumer_capacity = static_cast<std::uint32_t>(2 * capacity);
  head.hash_bits = static_cast<std::uint32_t>(std::countr_zero(2 * capacity));
  std::uint32_t at = (sizeof(ProcessBlock) + 63) / 64 * 64;
  const auto table = [&at](std::size_t bytes) { return std::exchange(at, at + static_cast<std::uint32_t>(bytes)); };
  head.point_offset = table(capacity * sizeof(Point));
  head.undo_offset = table(capacity * sizeof(Undo));
  head.consumer_offset = table(2 * capacity * sizeof(Consumer));
  head.hash_offset = table(2 * capacity * sizeof(std::uint32_t));
  head.code_file_offset = table(shared::kCodeFiles * sizeof(shared::CodeFile));
  if (needs.unwinds) head.unwind_offset = table(shared::kUnwindRows * sizeof(shared::UnwindRow));
  head.thread_offset = table(shared::kThreadEntries * sizeof(shared::ThreadEntry));
  head.block_bytes = (at + 4095) / 4096 * 4096;
  return head;
}

template <class T>
Status read_table(target::Target& target, Addr at, std::vector<T>& table, std::size_t count) {
  table.resize(count);
  return count == 0 ? ok() : target.read(at, table.data(), count * sizeof(T));
}

template <class T>
Status write_table(target::Target& target, Addr at, const std::vector<T>& table, std::size_t first) {
  if (first == table.size()) return ok();
  return target.write(at + first * sizeof(T), table.data() + first, (table.size() - first) * sizeof(T));
}

Undo undo_of(const NewPoint& added) {
  Undo undo{};
  undo.address = added.address.value;
  undo.length = added.prefix_window != 0 ? 0 : std::max(1U, added.jump_bytes);
  undo.state = added.prefix_window != 0 ? 0 : 1;
  std::memcpy(undo.original, added.insn.data(), std::min(added.insn.size(), sizeof undo.original));
  return undo;
}

// Lets the body of a jump record again when its only consumer is the event for which, by the slot, the body was made.
Status ask_body(target::Target& target, const Point& point, std::uint16_t event) {
  const bool is_armed = point.state == static_cast<std::uint32_t>(shared::PointState::armed);
  if (!is_armed || !shared::has_thunk(point) || point.role != static_cast<std::uint32_t>(shared::PointRole::probe))
    return ok();
  const Addr word{point.copy - shared::kCopyAfterThunk + offsetof(shared::SlotHead, event)};
  std::uint32_t now = 0;
  RETURN_IF_ERROR(target.read(word, &now, sizeof now));
  if (static_cast<std::uint16_t>(now) != event || now == shared::kAskAgent) return ok();
  return target.write(word + shared::kEventMark, &shared::kNowRecord, 1);
}

Error full() { return Error{.code = Code::limit, .text = "too many probe points in one process"}; }

bool same(const Consumer& a, const Consumer& b) {
  return a.session == b.session && a.event == b.event && a.kind == b.kind && a.distance == b.distance &&
         a.lead == b.lead && a.restored == b.restored;
}

void take_following(Point& point, Undo& undo, const std::vector<std::uint8_t>& bytes) {
  point.following_bytes = static_cast<std::uint8_t>(std::min<std::size_t>(bytes.size(), shared::kMostFollowing));
  std::copy_n(bytes.begin(), point.following_bytes, undo.original + 1);
}

void take_copy(Point& point, const NewPoint& from) {
  point.copy = from.copy.value;
  point.copy_bytes = from.copy_bytes;
  point.insn_bytes = static_cast<std::uint8_t>(from.insn.size());
  point.code_bytes = static_cast<std::uint8_t>(from.code_bytes);
  point.following_varies = from.following_varies;
  point.mark_count = static_cast<std::uint8_t>(from.mark_count);
  point.jump_to = from.jump_to.value;
  point.jump_bytes = static_cast<std::uint8_t>(from.jump_bytes);
  point.prefix_window = static_cast<std::uint8_t>(from.prefix_window);
}

}  // namespace

std::size_t Block::ListHash::operator()(const Consumer& c) const {
  constexpr std::uint64_t kSpread = 0x9e3779b97f4a7c15;
  const std::uint64_t which = std::uint64_t{c.event} << 48 ^ std::uint64_t{c.kind} << 40 ^
                              std::uint64_t{c.session} << 32 ^ static_cast<std::uint32_t>(c.distance);
  return ((which * kSpread) ^ c.next ^ std::uint64_t{c.lead} << 32 ^ c.restored) * kSpread;
}

bool Block::SameList::operator()(const Consumer& a, const Consumer& b) const { return same(a, b) && a.next == b.next; }

Status ask_agent(target::Target& target, Addr copy) {
  const Addr slot = copy - shared::kCopyAfterThunk;
  return target.write(slot + offsetof(shared::SlotHead, event) + shared::kEventMark, &shared::kNowAskAgent, 1);
}

std::uint64_t Block::bytes_for(const BlockNeeds& needs) { return lay_out(needs).block_bytes; }

Result<Block> Block::create(target::Target& target, Addr at, const BlockNeeds& needs) {
  Block block(at);
  *block.head_ = lay_out(needs);
  block.head_->pid = static_cast<std::uint32_t>(target.pid());
  block.hash_.assign(std::size_t{1} << block.head_->hash_bits, 0);
  RETURN_IF_ERROR(block.write_head(target));
  return block;
}

Result<Block> Block::read(target::Target& target, Addr at, std::size_t most_points) {
  Block block(at);
  RETURN_IF_ERROR(target.read(at, block.head_.get(), sizeof *block.head_));
  const ProcessBlock& h = *block.head_;
  RETURN_IF_ERROR(check_head(h, most_points));
  RETURN_IF_ERROR(read_table(target, at + h.point_offset, block.points_, h.point_count));
  RETURN_IF_ERROR(read_table(target, at + h.undo_offset, block.undo_, h.undo_count));
  RETURN_IF_ERROR(read_table(target, at + h.consumer_offset, block.consumers_, h.consumer_count));
  RETURN_IF_ERROR(read_table(target, at + h.hash_offset, block.hash_, std::size_t{1} << h.hash_bits));
  RETURN_IF_ERROR(read_table(target, at + h.code_file_offset, block.code_files_, h.code_file_count));
  const BlockTables tables{block.points_, block.undo_, block.consumers_, block.code_files_, block.hash_};
  RETURN_IF_ERROR(check_tables(h, tables));
  block.written_consumers_ = block.consumers_.size();
  for (std::uint32_t i = 0; i < block.points_.size(); ++i) block.by_address_[block.points_[i].address] = i;
  return block;
}

Result<std::uint64_t> Block::read_stamp(target::Target& target, Addr at) {
  std::uint64_t magic = 0, stamp = 0;
  RETURN_IF_ERROR(target.read(at, &magic, sizeof magic));
  if (magic != shared::kBlockMagic) return Error{.code = Code::damaged, .text = "there is no process block"};
  RETURN_IF_ERROR(target.read(at + offsetof(ProcessBlock, stamp), &stamp, sizeof stamp));
  return stamp;
}

// When all ranges are in use the last one grows, so that the agent checks too much rather than too little.
void Block::note_jumps(Addr begin, Addr end) {
  for (shared::JumpRange& range : head_->jump_ranges) {
    if (range.begin == begin.value && range.end == end.value) return;
    if (range.end != 0 && &range != std::end(head_->jump_ranges) - 1) continue;
    range.begin = range.end == 0 ? begin.value : std::min(range.begin, begin.value);
    range.end = std::max(range.end, end.value);
    return;
  }
}

Status Block::renew(target::Target& target) {
  if (::getrandom(&head_->stamp, sizeof head_->stamp, 0) != sizeof head_->stamp)
    return system_error("getrandom", errno);
  return target.write(at_ + offsetof(ProcessBlock, stamp), &head_->stamp, sizeof head_->stamp);
}

bool Block::knows_code(const shared::CodeFile& file) const {
  return std::any_of(code_files_.begin(), code_files_.end(), [&](const shared::CodeFile& known) {
    return known.begin == file.begin && known.end == file.end && known.unwind_header == file.unwind_header;
  });
}

// A free entry is empty: the agent, which may be reading, finds no address in it.
Status Block::note_code(target::Target& target, const shared::CodeFile& file) {
  const auto write = [&](std::size_t i) {
    return target.write(at_ + head_->code_file_offset + i * sizeof file, &code_files_[i], sizeof file);
  };
  for (std::size_t i = 0; i < code_files_.size(); ++i) {
    shared::CodeFile& old = code_files_[i];
    if (old.end <= file.begin || file.end <= old.begin) continue;
    old = {};
    RETURN_IF_ERROR(write(i));
  }
  auto free =
      std::find_if(code_files_.begin(), code_files_.end(), [](const shared::CodeFile& f) { return f.end == 0; });
  if (free == code_files_.end()) {
    if (code_files_.size() == shared::kCodeFiles) return ok();
    free = code_files_.insert(free, shared::CodeFile{});
  }
  *free = file;
  RETURN_IF_ERROR(write(static_cast<std::size_t>(free - code_files_.begin())));
  head_->code_file_count = static_cast<std::uint32_t>(code_files_.size());
  ++head_->code_changes;
  return write_head(target);
}

bool Block::has_room(std::size_t points) const { return points_.size() + points <= head_->point_capacity; }

std::optional<std::uint32_t> Block::find(Addr address) const {
  const auto found = by_address_.find(address.value);
  if (found == by_address_.end()) return std::nullopt;
  return found->second;
}

std::vector<std::uint32_t> Block::points_in(Addr begin, Addr end) const {
  std::vector<std::uint32_t> found;
  if (end < begin) return found;
  const auto last = by_address_.lower_bound(end.value);
  for (auto at = by_address_.lower_bound(begin.value); at != last; ++at) found.push_back(at->second);
  return found;
}

std::uint32_t Block::leads_to(std::uint32_t point) const {
  const Point& place = points_[point];
  return place.prefix_window == 0 ? point : find(Addr{place.address - place.prefix_window}).value_or(point);
}

std::optional<std::uint32_t> Block::after_prefix_window(std::uint32_t prefix_window) const {
  const Addr begin{points_[prefix_window].address};
  for (const std::uint32_t i : points_in(begin + 1, begin + shared::kJumpBytes))
    if (points_[i].prefix_window != 0 && points_[i].address - points_[i].prefix_window == begin.value) return i;
  return std::nullopt;
}

// Enters new lists. An existing list never changes.
void Block::know_lists() {
  for (; known_consumers_ < consumers_.size(); ++known_consumers_)
    lists_.try_emplace(consumers_[known_consumers_], static_cast<std::uint32_t>(known_consumers_ + 1));
}

Result<std::uint32_t> Block::list_for(const std::vector<Consumer>& consumers, bool is_known) {
  // The longest end that already exists as a list, found from the last consumer on.
  std::uint32_t tail = 0;
  std::size_t shared = 0;
  if (is_known) know_lists();
  for (; is_known && shared < consumers.size(); ++shared) {
    Consumer head = consumers[consumers.size() - 1 - shared];
    head.next = tail;
    const auto list = lists_.find(head);
    if (list == lists_.end()) break;
    tail = list->second;
  }
  const std::span<const Consumer> more(consumers.data(), consumers.size() - shared);
  if (consumers_.size() + more.size() > head_->consumer_capacity)
    return Error{.code = Code::limit, .text = "too many probes in one process"};
  return chain(more, tail);
}

Status Block::add(target::Target& target, const std::vector<NewPoint>& points) {
  if (!has_room(points.size())) return full();
  const std::size_t first_point = points_.size();
  for (const NewPoint& added : points) {
    Point point{};
    point.address = added.address.value;
    point.file_bias = added.file_bias;
    point.state = static_cast<std::uint32_t>(shared::PointState::armed);
    point.role = static_cast<std::uint32_t>(added.role);
    take_copy(point, added);
    point.consumer = added.consumers;
    by_address_.insert_or_assign(by_address_.end(), point.address, static_cast<std::uint32_t>(points_.size()));
    undo_.push_back(undo_of(added));
    take_following(point, undo_.back(), added.following);
    points_.push_back(point);
  }
  RETURN_IF_ERROR(write_consumers(target));
  RETURN_IF_ERROR(write_table(target, at_ + head_->undo_offset, undo_, first_point));
  RETURN_IF_ERROR(write_table(target, at_ + head_->point_offset, points_, first_point));
  head_->point_count = head_->undo_count = static_cast<std::uint32_t>(points_.size());
  RETURN_IF_ERROR(write_head(target));
  return write_hash(target, first_point);
}

// Appends consumers that continue with the list at consumer `tail` - 1; returns the index + 1 of the first.
std::uint32_t Block::chain(std::span<const Consumer> consumers, std::uint32_t tail) {
  const auto first = static_cast<std::uint32_t>(consumers_.size() + 1);
  for (std::size_t i = 0; i < consumers.size(); ++i) {
    consumers_.push_back(consumers[i]);
    const bool is_last = i + 1 == consumers.size();
    consumers_.back().next = is_last ? tail : static_cast<std::uint32_t>(consumers_.size() + 1);
  }
  return consumers.empty() ? tail : first;
}

bool Block::has(std::uint32_t point, const std::vector<Consumer>& consumers) const {
  const std::vector<Consumer> list = list_of(point);
  return std::all_of(consumers.begin(), consumers.end(), [&](const Consumer& wanted) {
    return std::any_of(list.begin(), list.end(), [&](const Consumer& has) { return same(wanted, has); });
  });
}

Status Block::want(target::Target& target, std::uint32_t point, const std::vector<Consumer>& consumers) {
  std::vector<Consumer> list = list_of(point);
  for (const Consumer& wanted : consumers)
    if (std::none_of(list.begin(), list.end(), [&](const Consumer& has) { return same(wanted, has); }))
      list.push_back(wanted);
  std::stable_sort(list.begin(), list.end(), [](const Consumer& a, const Consumer& b) { return a.event > b.event; });
  const auto head = list_for(list, true);
  if (!head) return head.error();
  RETURN_IF_ERROR(publish_consumers(target));
  points_[point].consumer = *head;
  const Point& wanted = points_[point];
  if (shared::has_thunk(wanted)) RETURN_IF_ERROR(ask_agent(target, Addr{wanted.copy}));
  return set_state(target, point, static_cast<shared::PointState>(points_[point].state));
}

Status Block::keep_only(target::Target& target, std::uint32_t index, const std::vector<Consumer>& consumers) {
  const auto head = list_for(consumers, true);
  if (!head) return head.error();
  RETURN_IF_ERROR(publish_consumers(target));
  points_[index].consumer = *head;
  const Addr word = point_at(index) + offsetof(Point, consumer);
  RETURN_IF_ERROR(target.write(word, &points_[index].consumer, sizeof(Point::consumer)));
  const bool is_plain =
      consumers.size() == 1 && consumers[0].kind == static_cast<std::uint8_t>(shared::ConsumerKind::entry);
  return is_plain ? ask_body(target, points_[index], consumers[0].event) : ok();
}

std::vector<Consumer> Block::list_of(std::uint32_t point) const {
  std::vector<Consumer> list;
  for (std::uint32_t next = points_[point].consumer; next != 0 && next <= consumers_.size();) {
    list.push_back(consumers_[next - 1]);
    next = list.size() <= consumers_.size() ? list.back().next : 0;
  }
  return list;
}

// The caller writes their number, which is in the head.
Status Block::write_consumers(target::Target& target) {
  RETURN_IF_ERROR(write_table(target, at_ + head_->consumer_offset, consumers_, written_consumers_));
  written_consumers_ = consumers_.size();
  head_->consumer_count = static_cast<std::uint32_t>(consumers_.size());
  return ok();
}

Status Block::publish_consumers(target::Target& target) {
  if (written_consumers_ == consumers_.size()) return ok();
  RETURN_IF_ERROR(write_consumers(target));
  return write_head(target);
}

// Entries are only ever added: writing the whole table again, with the same words at the old places, disturbs no reader.
Status Block::write_hash(target::Target& target, std::size_t first_point) {
  const std::uint32_t mask = (1u << head_->hash_bits) - 1;
  std::vector<std::uint32_t> changed;
  for (std::size_t i = first_point; i < points_.size(); ++i) {
    std::uint32_t slot = shared::hash_slot(points_[i].address, head_->hash_bits);
    std::uint32_t steps = 0;
    for (; hash_[slot] != 0 && steps <= mask; ++steps) slot = (slot + 1) & mask;
    if (hash_[slot] != 0) return Error{.code = Code::damaged, .text = "the process block in the target is damaged"};
    hash_[slot] = static_cast<std::uint32_t>(i + 1);
    changed.push_back(slot);
  }
  const Addr table = at_ + head_->hash_offset;
  if (changed.size() > 64) return target.write(table, hash_.data(), hash_.size() * sizeof(std::uint32_t));
  for (const std::uint32_t slot : changed)
    RETURN_IF_ERROR(target.write(table + slot * sizeof(std::uint32_t), &hash_[slot], sizeof hash_[slot]));
  return ok();
}

Status Block::set_state(target::Target& target, std::uint32_t point, shared::PointState state) {
  return set_states(target, {&point, 1}, state);
}

// Writes each run of neighbouring points at once.
Status Block::set_states(target::Target& target, std::span<const std::uint32_t> points, shared::PointState state) {
  for (const std::uint32_t point : points) {
    points_[point].state = static_cast<std::uint32_t>(state);
    undo_[point].state = state == shared::PointState::armed && points_[point].prefix_window == 0 ? 1 : 0;
  }
  for (std::size_t i = 0, run = 1; i < points.size(); i += run) {
    const std::uint32_t first = points[i];
    for (run = 1; i + run < points.size() && points[i + run] == first + run;) ++run;
    const Addr undo_at = at_ + head_->undo_offset + first * sizeof(Undo);
    RETURN_IF_ERROR(target.write(point_at(first), &points_[first], run * sizeof(Point)));
    RETURN_IF_ERROR(target.write(undo_at, &undo_[first], run * sizeof(Undo)));
  }
  return ok();
}

// `bytes`: the present ones. Those under the point's own jump are not original bytes, so the known ones are kept for the
// restore.
Status Block::set_following(target::Target& target, std::uint32_t point, std::vector<std::uint8_t> bytes) {
  const std::size_t own = std::min<std::size_t>(shared::armed_text(points_[point]).length - 1, bytes.size());
  std::copy_n(undo_[point].original + 1, own, bytes.begin());
  take_following(points_[point], undo_[point], bytes);
  return set_state(target, point, static_cast<shared::PointState>(points_[point].state));
}

Status Block::add_varying(target::Target& target, std::uint32_t point, std::uint16_t bits) {
  std::uint16_t& varies = points_[point].following_varies;
  varies = static_cast<std::uint16_t>(varies | bits);
  return target.write(point_at(point) + offsetof(Point, following_varies), &varies, sizeof varies);
}

Status Block::set_points(target::Target& target, std::vector<Change> changes) {
  if (changes.empty()) return ok();
  // Another file may be mapped there now, so none of the old facts about the points is certain.
  RETURN_IF_ERROR(publish_consumers(target));
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.point < b.point; });
  std::vector<std::uint32_t> changed;
  for (const auto& [point, with] : changes) {
    points_[point].consumer = with->consumers;
    points_[point].file_bias = with->file_bias;
    points_[point].role = static_cast<std::uint32_t>(with->role);
    take_copy(points_[point], *with);
    undo_[point] = undo_of(*with);
    take_following(points_[point], undo_[point], with->following);
    changed.push_back(point);
  }
  return set_states(target, changed, shared::PointState::armed);
}

Status Block::begin_anew(target::Target& target) {
  for (Point& point : points_) point.consumer = 0;
  RETURN_IF_ERROR(write_table(target, at_ + head_->point_offset, points_, 0));
  consumers_.clear();
  lists_.clear();
  known_consumers_ = 0;
  written_consumers_ = 0;
  head_->consumer_count = 0;
  for (shared::MappedObject& object : head_->objects) object = {};
  for (shared::BarredCode& barred : head_->barred) barred = {};
  RETURN_IF_ERROR(write_head(target));
  std::fill(hash_.begin(), hash_.end(), 0);
  RETURN_IF_ERROR(write_table(target, at_ + head_->hash_offset, hash_, 0));
  return write_hash(target, 0);
}

// Threads in a hit never use a half-written entry: each write is complete before the next.
Status Block::set_object(target::Target& target, std::size_t index, const shared::MappedObject& object) {
  const Addr at = at_ + offsetof(ProcessBlock, objects) + index * sizeof object;
  const Addr sentinel_at = at + offsetof(shared::MappedObject, sentinel_at);
  shared::MappedObject cleared = object;
  cleared.sentinel_at = 0;
  RETURN_IF_ERROR(target.write(sentinel_at, &cleared.sentinel_at, sizeof cleared.sentinel_at));
  RETURN_IF_ERROR(target.write(at, &cleared, sizeof cleared));
  head_->objects[index] = object;
  return object.sentinel_at == 0 ? ok() : target.write(sentinel_at, &object.sentinel_at, sizeof object.sentinel_at);
}

Status Block::set_semaphore(target::Target& target, std::size_t index, const shared::Semaphore& semaphore) {
  head_->semaphores[index] = semaphore;
  const Addr at = at_ + offsetof(ProcessBlock, semaphores) + index * sizeof semaphore;
  RETURN_IF_ERROR(target.write(at, &semaphore, sizeof semaphore));
  if (index < head_->semaphore_count) return ok();
  head_->semaphore_count = static_cast<std::uint32_t>(index + 1);
  return target.write(at_ + offsetof(ProcessBlock, semaphore_count), &head_->semaphore_count,
                      sizeof head_->semaphore_count);
}

Status Block::write_head(target::Target& target) { return target.write(at_, head_.get(), shared::kToolOwnedBytes); }

Status Block::write_agent_part(target::Target& target) {
  constexpr std::size_t kFirst = shared::kToolOwnedBytes;
  return target.write(at_ + kFirst, reinterpret_cast<const char*>(head_.get()) + kFirst, sizeof *head_ - kFirst);
}

bool is_block(target::Target& target, Addr at) {
  std::uint64_t magic = 0;
  return target.read(at + offsetof(ProcessBlock, magic), &magic, sizeof magic) && magic == shared::kBlockMagic;
}

bool has_armed_text(target::Target& target, const Block& block, const shared::Point& point) {
  if (point.prefix_window != 0) {
    const auto leading = block.find(Addr{point.address - point.prefix_window});
    return leading && shared::is_prefix_window(block.points()[*leading]) &&
           has_armed_text(target, block, block.points()[*leading]);
  }
  const shared::ArmedText armed = shared::armed_text(point);
  std::uint8_t now[shared::kJumpBytes] = {};
  if (!target.read(Addr{point.address}, now, armed.length)) return false;
  if (std::equal(now, now + armed.length, armed.bytes)) return true;
  const auto index = block.find(Addr{point.address});
  return index && shared::is_future_jump(point, block.undo()[*index], now);
}

}  // namespace uprobe::control
