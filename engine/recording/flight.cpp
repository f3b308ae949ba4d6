// SPDX-License-Identifier: MIT
#include "engine/recording/flight.h"

#include <algorithm>
#include <cstring>

#include "engine/recording/recorder.h"

namespace uprobe::recording {
namespace {

constexpr std::size_t kMostChunk = std::size_t{256} << 10,
                      kChunks = 8;  // so many at least, so that little is dropped at a time
constexpr std::size_t kMostComm = 64;

std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

std::string_view text_of(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

// Events in the order in which they come: a recording has their layouts before their hits.
std::uint16_t Flight::number_of(std::uint16_t type, const program::EventLayout& layout) {
  if (numbers_.size() <= type) numbers_.resize(type + std::size_t{1});
  if (numbers_[type] == 0) {
    events_.push_back(layout);
    numbers_[type] = static_cast<std::uint16_t>(events_.size());
  }
  return static_cast<std::uint16_t>(numbers_[type] - 1);
}

void Flight::drop_oldest() {
  while (bytes_ > limit_ && chunks_.size() > 1) {
    bytes_ -= chunks_.front().bytes.size();
    kept_ -= chunks_.front().hits, dropped_ += chunks_.front().hits;
    chunks_.pop_front();
  }
}

void Flight::take(const trace::EventRecord& record, const program::EventLayout& layout, std::string_view comm) {
  const std::lock_guard lock(lock_);
  const Head head{.ns = record.ns,
                  .tid = record.tid,
                  .pid = record.pid,
                  .payload_bytes = static_cast<std::uint32_t>(record.payload.size()),
                  .stack_bytes = static_cast<std::uint32_t>(record.stack.size()),
                  .cpu = record.cpu,
                  .event = number_of(record.type, layout),
                  .flags = record.flags,
                  .comm_bytes = static_cast<std::uint16_t>(std::min(comm.size(), kMostComm))};
  const std::size_t bytes = sizeof head + head.payload_bytes + head.stack_bytes + head.comm_bytes;
  if (chunks_.empty() || chunks_.back().bytes.size() + bytes > std::min(kMostChunk, limit_ / kChunks))
    chunks_.emplace_back();
  Chunk& chunk = chunks_.back();
  chunk.bytes.append(reinterpret_cast<const char*>(&head), sizeof head);
  chunk.bytes.append(text_of(record.payload)).append(text_of(record.stack)).append(comm, 0, head.comm_bytes);
  ++chunk.hits, ++kept_;
  bytes_ += bytes;
  drop_oldest();
}

std::string Flight::whole(std::span<const format::Total> totals) const {
  const std::lock_guard lock(lock_);
  Recorder recorder(format::Options{.escape_control = true});
  for (const program::EventLayout& event : events_) recorder.add(event);
  format::Buffer out;
  recorder.header(out);
  recorder.clocks(trace::ClockReader(false).read(), out);
  for (const Chunk& chunk : chunks_)
    for (std::string_view left = chunk.bytes; left.size() >= sizeof(Head);) {
      Head head;
      std::memcpy(&head, left.data(), sizeof head);
      left.remove_prefix(sizeof head);
      const auto next = [&](std::size_t bytes) {
        const std::string_view part = left.substr(0, bytes);
        left.remove_prefix(part.size());
        return part;
      };
      trace::EventRecord record{
          .ns = head.ns, .tid = head.tid, .pid = head.pid, .cpu = head.cpu, .type = head.event, .flags = head.flags};
      record.payload = bytes_of(next(head.payload_bytes));
      record.stack = bytes_of(next(head.stack_bytes));
      recorder.append(record, next(head.comm_bytes), out);
    }
  recorder.end(totals, out);
  recorder.flush(out);
  return std::string(out.view());
}

std::uint64_t Flight::kept() const {
  const std::lock_guard lock(lock_);
  return kept_;
}

std::uint64_t Flight::dropped() const {
  const std::lock_guard lock(lock_);
  return dropped_;
}

}  // namespace uprobe::recording
