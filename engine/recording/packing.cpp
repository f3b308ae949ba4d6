// SPDX-License-Identifier: MIT
#include "engine/recording/packing.h"

#include <algorithm>
#include <cstring>

#include "engine/recording/words.h"
#include "engine/shared/session_area.h"

namespace uprobe::recording {

namespace {

using shared::RecordHead;

constexpr std::size_t kWord = sizeof(std::uint64_t), kGroup = 4;
constexpr std::size_t kHeads = sizeof(RecordHead) + sizeof(shared::PayloadHead);
static_assert(kHeads == 5 * kWord);
// A packed record is no larger than the record and the 8 bytes of most(): besides words it has 40 bytes at most.
static_assert(1 + 4 + 3 * kWord + kWord + kPackedWords / kGroup <= kHeads + 8);

template <class T>
T load(const std::uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class T>
char* store(char* at, T value) {
  std::memcpy(at, &value, sizeof value);
  return at + sizeof value;
}

bool is_good_length(std::uint64_t length) {
  return length >= kHeads && length <= shared::kMaxRecord && length % kWord == 0;
}

// Without a branch, since words change as they like: the code of 0, 2, 4 or 8 bytes, of which two bits are enough.
unsigned code_of(std::uint64_t word) {
  return static_cast<unsigned>(word != 0) + static_cast<unsigned>(word >> 16 != 0) +
         static_cast<unsigned>(word >> 32 != 0);
}
std::size_t bytes_of(unsigned code) { return (std::size_t{1} << code) & ~std::size_t{1}; }

// Four words, or the last ones. The number is known to the compiler, so that there is no loop.
template <std::size_t kCount>
char* pack_words(const std::uint8_t* words, std::uint64_t* last, char* to) {
  char* const codes_at = to++;
  unsigned codes = 0;
  const auto pack_one = [&](std::size_t i) {
    const auto word = load<std::uint64_t>(words + i * kWord);
    const std::uint64_t changed = word ^ last[i];
    last[i] = word;
    const unsigned code = code_of(changed);
    store(to, changed);
    to += bytes_of(code);
    codes |= code << 2 * i;
  };
  if constexpr (kCount > 0) pack_one(0);
  if constexpr (kCount > 1) pack_one(1);
  if constexpr (kCount > 2) pack_one(2);
  if constexpr (kCount > 3) pack_one(3);
  *codes_at = static_cast<char>(codes);
  return to;
}

char* pack_group(const std::uint8_t* words, std::size_t count, std::uint64_t* last, char* to) {
  switch (count) {
    case 1:
      return pack_words<1>(words, last, to);
    case 2:
      return pack_words<2>(words, last, to);
    case 3:
      return pack_words<3>(words, last, to);
    default:
      return pack_words<4>(words, last, to);
  }
}

// False: this is none.
bool unpack_group(Parser& parser, std::size_t count, std::uint64_t* last) {
  const unsigned codes = parser.number<std::uint8_t>();
  if (codes >> 2 * count != 0) return false;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string_view taken = parser.take(bytes_of(codes >> 2 * i & 3));
    std::uint64_t changed = 0;
    taken.copy(reinterpret_cast<char*>(&changed), taken.size());
    last[i] ^= changed;
  }
  return parser.is_good();
}

}  // namespace

// Inside of the loop: to call it costs a fifth of it.
[[gnu::always_inline]] inline char* Packer::pack_record(const std::uint8_t* record, char* to) {
  const LastRecords::Head head{load<std::uint32_t>(record), load<std::uint64_t>(record + 2 * kWord),
                               load<std::uint64_t>(record + 3 * kWord), load<std::uint64_t>(record + 4 * kWord)};
  const auto ns = load<std::uint64_t>(record + kWord);
  const std::uint64_t later = ns - last_.ns;
  last_.ns = ns;
  const std::size_t number = head.task % kSlots;
  LastRecords::Slot& slot = last_.slots[number];
  const bool is_known = head == slot.head, is_soon = later >> 32 == 0;
  *to++ = static_cast<char>(number | (is_known ? 0 : kHeadFollows) | (is_soon ? 0 : kTimeFollows));
  if (!is_known) {
    to = store(store(store(store(to, head.length), head.sizes), head.task), head.ip);
    slot.head = head;
  }
  to = is_soon ? store(to, static_cast<std::uint32_t>(later)) : store(to, ns);
  const std::uint8_t* const words = record + kHeads;
  const std::size_t all = (head.length - kHeads) / kWord, packed = std::min(all, kPackedWords);
  for (std::size_t i = 0; i < packed; i += kGroup)
    to = pack_group(words + i * kWord, std::min(kGroup, packed - i), slot.words.data() + i, to);
  if (all == packed) return to;
  const std::size_t rest = (all - packed) * kWord;
  std::memcpy(to, words + packed * kWord, rest);
  return to + rest;
}

char* Packer::pack(std::span<const std::uint8_t> records, std::uint32_t count, char* to) {
  const std::uint8_t *at = records.data(), *const end = at + records.size();
  for (std::uint32_t left = count; left != 0; --left) {
    const auto size = static_cast<std::size_t>(end - at);
    const std::size_t length = size < kHeads ? 0 : load<std::uint32_t>(at);
    if (!is_good_length(length) || length > size) return nullptr;
    to = pack_record(at, to);
    at += length;
  }
  return at == end ? to : nullptr;
}

std::optional<std::span<const std::uint8_t>> Unpacker::next(std::string_view& packed) {
  Parser parser(packed);
  const auto tag = parser.number<std::uint8_t>();
  if ((tag & ~(kSlotBits | kHeadFollows | kTimeFollows)) != 0) return std::nullopt;
  LastRecords::Slot& slot = last_.slots[tag & kSlotBits];
  if ((tag & kHeadFollows) != 0) {
    slot.head.length = parser.number<std::uint32_t>(), slot.head.sizes = parser.number<std::uint64_t>();
    slot.head.task = parser.number<std::uint64_t>(), slot.head.ip = parser.number<std::uint64_t>();
  }
  if (!is_good_length(slot.head.length)) return std::nullopt;
  last_.ns = (tag & kTimeFollows) != 0 ? parser.number<std::uint64_t>() : last_.ns + parser.number<std::uint32_t>();
  const std::size_t all = (slot.head.length - kHeads) / kWord, words = std::min(all, kPackedWords);
  for (std::size_t i = 0; i < words; i += kGroup)
    if (!unpack_group(parser, std::min(kGroup, words - i), slot.words.data() + i)) return std::nullopt;
  const std::string_view rest = parser.take((all - words) * kWord);
  if (!parser.is_good()) return std::nullopt;

  record_.resize(slot.head.length);
  char* to = reinterpret_cast<char*>(record_.data());
  to = store(store(to, std::uint64_t{slot.head.length}), last_.ns);  // without a number
  to = store(store(store(to, slot.head.sizes), slot.head.task), slot.head.ip);
  std::memcpy(to, slot.words.data(), words * kWord);
  rest.copy(to + words * kWord, rest.size());
  packed.remove_prefix(packed.size() - parser.left());
  return record_;
}

}  // namespace uprobe::recording
