// SPDX-License-Identifier: MIT
// The records of a hits entry: as in a ring (engine/shared/session_area.h), with nanoseconds as times. Whatever the bytes are, a
// record that is found is one with a payload inside of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "engine/shared/session_area.h"

namespace uprobe::recording {

struct RawRecord {
  shared::RecordHead head;
  std::span<const std::uint8_t> bytes;  // of all of it

  std::uint16_t type() const {
    std::uint16_t type = 0;
    std::memcpy(&type, bytes.data() + sizeof head, sizeof type);
    return type;
  }
  std::span<const std::uint8_t> payload() const { return bytes.subspan(sizeof head, head.payload_bytes); }
  // Empty: it has none.
  std::span<const std::uint8_t> stack() const {
    const std::size_t begin = (sizeof head + std::size_t{head.payload_bytes} + 7) / 8 * 8;
    const bool has_one = (head.flags & shared::kRecordStack) != 0 && begin < bytes.size();
    return has_one ? bytes.subspan(begin) : std::span<const std::uint8_t>();
  }
};

// Nothing: the bytes do not begin with a record.
inline std::optional<RawRecord> first_record(std::span<const std::uint8_t> bytes) {
  RawRecord record{};
  if (bytes.size() < sizeof record.head) return std::nullopt;
  std::memcpy(&record.head, bytes.data(), sizeof record.head);
  const std::uint32_t payload = record.head.payload_bytes;
  if (record.head.length > bytes.size() || payload < sizeof(shared::PayloadHead) || payload > shared::kMostPayload ||
      record.head.length < sizeof record.head + payload)
    return std::nullopt;
  record.bytes = bytes.first(record.head.length);
  return record;
}

// Of records that the reader of the rings has checked.
template <class Work>
void each_checked(std::span<const std::uint8_t> bytes, const Work& work) {
  const std::uint8_t *at = bytes.data(), *const end = at + bytes.size();
  for (std::uint32_t length = 0; at < end; at += length) {
    std::memcpy(&length, at + offsetof(shared::RecordHead, length), sizeof length);
    work(at);
  }
}

}  // namespace uprobe::recording
