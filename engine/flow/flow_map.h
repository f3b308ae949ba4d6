// SPDX-License-Identifier: MIT
// A file's bytes with what is known of each: where instructions start and which addresses something names. One bit per byte
// and question, so that a text of 30 MB costs 23 MB and a question costs nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/elf/elf_file.h"
#include "engine/facts/packing.h"

namespace uprobe::plan {

// A set of addresses of one segment. Addresses outside are never in it.
class AddressBits {
 public:
  AddressBits() = default;
  // Not `has_words`: they come by unpack(); until then there is no address in it.
  AddressBits(std::uint64_t begin, std::uint64_t end, bool has_words = true)
      : begin_(begin), end_(has_words ? end : begin), words_(has_words ? word_count(begin, end) : 0), last_(end) {}

  void set(std::uint64_t address) {
    if (holds(address)) words_[(address - begin_) / 64] |= std::uint64_t{1} << (address - begin_) % 64;
  }
  bool test(std::uint64_t address) const {
    return holds(address) && (words_[(address - begin_) / 64] >> (address - begin_) % 64 & 1) != 0;
  }
  // The first one in [from, limit).
  std::optional<std::uint64_t> next(std::uint64_t from, std::uint64_t limit) const;
  // The last one in [from, limit).
  std::optional<std::uint64_t> last(std::uint64_t from, std::uint64_t limit) const;
  // Those of a set of the same segment.
  void add(const AddressBits& others);
  std::size_t bytes() const { return words_.size() * sizeof(std::uint64_t); }
  void pack(facts::Packer& to) const { to.put(words_); }
  // False: they are not of this segment.
  bool unpack(facts::Unpacker& from);

 private:
  static std::size_t word_count(std::uint64_t begin, std::uint64_t end) { return (end - begin + 63) / 64; }
  bool holds(std::uint64_t address) const { return address >= begin_ && address < end_; }

  std::uint64_t begin_ = 0, end_ = 0;
  std::vector<std::uint64_t> words_;
  std::uint64_t last_ = 0;  // the end once there are words
};

struct SegmentMap {
  elf::Segment segment;
  std::span<const std::uint8_t> bytes;
  // By values in code and data that could be addresses, and by what may be code; of segments without code, by the
  // operands relative to the instruction pointer of functions.
  AddressBits named;
  // Of executable segments only.
  AddressBits jumped;   // to, by a direct jump of the same function
  AddressBits entered;  // by jumps and calls from elsewhere, jump tables, unwinding; symbols
  AddressBits starts;   // of instructions, as one after the other they decode from the start of each function
  AddressBits stops;    // starts of those after which control does not go on
  AddressBits padding;  // starts of nops and int3

  bool holds(std::uint64_t address) const {
    return address >= segment.address && address - segment.address < bytes.size();
  }
  // Whether control may arrive at an address of an executable one other than from the instruction before.
  bool is_arrival(std::uint64_t address) const {
    return named.test(address) || jumped.test(address) || entered.test(address);
  }
};

class FlowMap {
 public:
  enum class Bits { clear, none_yet };  // none_yet: unpack() brings them
  explicit FlowMap(const elf::ElfFile& file, Bits bits = Bits::clear);

  SegmentMap* at(std::uint64_t address);
  const SegmentMap* at(std::uint64_t address) const;
  const SegmentMap* code_at(std::uint64_t address) const;  // nullptr if it is not executable

  void name(std::uint64_t address);
  void enter(std::uint64_t address);
  // What another map of the same file knows.
  void add(const FlowMap& other);
  // The file's bytes from a link-time address to the end of its segment.
  std::span<const std::uint8_t> bytes_at(std::uint64_t address) const;
  std::size_t bytes() const;  // of memory
  void pack(facts::Packer& to) const;
  bool unpack(facts::Unpacker& from);  // into a map that knows nothing yet; false: it is another file's

 private:
  std::vector<SegmentMap> segments_;  // by address
};

}  // namespace uprobe::plan
