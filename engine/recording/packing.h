// SPDX-License-Identifier: MIT
// Records of a ring in fewer bytes: what a record has in common with the record before it of the same event is left out. Most of
// what a recorder's work costs is the bytes of the file, so this saves more than it costs.
//
//   record   u8 tag: 3 bits slot, 8 a head follows, 16 the time follows; others 0
//            | if a head follows: u32 length, u64 sizes (payload_bytes, cpu, flags), u64 task (type, flags, thread), u64 ip
//            | u64 time, or u32 nanoseconds since the record before it in the block
//            | for each four of the first kPackedWords words after the ip: u8, 2 bits of each word, which say that 0, 2, 4 or 8 of
//              its low bytes follow; these bytes, xor those of the record before it in the slot
//            | the further words as they are
//
// Both sides know a record of each slot, with zeros in the beginning of a block. The slot is the event's number modulo kSlots.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace uprobe::recording {

inline constexpr std::size_t kPackedWords = 12, kSlots = 8;
inline constexpr std::uint8_t kSlotBits = 7, kHeadFollows = 8, kTimeFollows = 16;

// The last records of a block, as far as later ones refer to them.
struct LastRecords {
  struct Head {
    std::uint32_t length = 0;
    std::uint64_t sizes = 0, task = 0, ip = 0;
    bool operator==(const Head&) const = default;
  };
  struct Slot {
    Head head;
    std::array<std::uint64_t, kPackedWords> words{};
  };
  std::array<Slot, kSlots> slots{};
  std::uint64_t ns = 0;
};

class Packer {
 public:
  void begin_block() { last_ = {}; }
  // At most so many bytes, of `count` records, and of what is written after the end.
  static std::size_t most(std::size_t bytes, std::uint32_t count) { return bytes + std::size_t{8} * count + 8; }
  // Returns the end. Null: these are not so many records one after the other, and the block cannot go on.
  char* pack(std::span<const std::uint8_t> records, std::uint32_t count, char* to);

 private:
  char* pack_record(const std::uint8_t* record, char* to);

  LastRecords last_;
};

// Reads what anybody may have written.
class Unpacker {
 public:
  void begin_block() { last_ = {}; }
  // The first of the records, as in a ring, which it takes off the front; valid until the next call. Nothing: it is none.
  std::optional<std::span<const std::uint8_t>> next(std::string_view& packed);

 private:
  LastRecords last_;
  std::vector<std::uint8_t> record_;
};

}  // namespace uprobe::recording
