// SPDX-License-Identifier: MIT
// A page of the kernel's ring buffer, as trace.dat has it (kernel/trace/ring_buffer.c, `header_page` and `header_event` of tracefs):
//
//   page    [ u64 time of the first record | u64 bytes of the records, and flags | records ]
//   record  [ u32: 5 bits type, 27 bits nanoseconds since the record before | bytes ]      of 4 to 112 bytes: type = bytes / 4
//           [ the same, type 0 | u32 bytes, this word included | bytes ]                   of more
//           [ u32: type 30, 27 low bits of the nanoseconds | u32 the higher bits ]         a longer time, before a record
//
// A record's bytes are padded to 4. A page on which records were lost before its first one has their number after its last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace uprobe::format {

class RingPage {
 public:
  // Larger than the kernel's, so that a record with 64 KiB of strings fits.
  static constexpr std::size_t kBytes = 128 * 1024, kHeadBytes = 16, kMostRecord = 65536;

  bool is_empty() const { return bytes_.empty(); }
  // False: the page is full, or the record is older than the one before it; it begins the next page.
  bool add(std::uint64_t ns, std::string_view record);
  // The bytes of the page up to its last record. `lost`: so many records are missing before its first one.
  std::string_view finish(std::uint64_t lost = 0);
  void clear() { bytes_.clear(); }

 private:
  template <class T>
  void put(T value);

  std::string bytes_;
  std::uint64_t last_ = 0;
};

}  // namespace uprobe::format
