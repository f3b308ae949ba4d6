// SPDX-License-Identifier: MIT
#include "engine/elf/rseq_sections.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <tuple>

#include "arch/abi/rseq.h"
#include "engine/elf/image.h"
#include "engine/elf/relocations.h"
#include "engine/facts/kept_facts.h"

namespace uprobe::elf {
namespace {

// struct rseq_cs: u32 version, u32 flags, u64 start_ip, u64 post_commit_offset, u64 abort_ip; aligned to its size.
constexpr std::uint64_t kStart = 8, kLength = 16, kAbort = 24, kSize = 32;
constexpr std::uint64_t kMostFlags = 7;  // RSEQ_CS_FLAG_NO_RESTART_ON_*
// The kernel requires this before every abort handler, so that an attacker cannot choose where the jump leads.
constexpr auto kSignature =
    std::bit_cast<std::array<std::uint8_t, sizeof shared::kRseqSignature>>(shared::kRseqSignature);

// The addresses after the signature's occurrences in code, sorted: all abort handlers, and rarely other places.
std::vector<std::uint64_t> signed_places(const Image& image) {
  std::vector<std::uint64_t> found;
  std::uint64_t left = 2 * image.bytes().size();  // segments may show the same bytes, but not that often
  for (const Segment& segment : image.segments()) {
    if (!segment.executable || segment.file_bytes > left) continue;
    left -= segment.file_bytes;
    const auto code = image.bytes().slice(segment.offset, segment.file_bytes).span();
    const std::uint8_t* at = code.data();
    const std::uint8_t* const end = at + code.size();
    while ((at = static_cast<const std::uint8_t*>(
                ::memmem(at, static_cast<std::size_t>(end - at), kSignature.data(), sizeof kSignature))) != nullptr) {
      at += sizeof kSignature;
      if (at == end) break;
      found.push_back(segment.address + static_cast<std::uint64_t>(at - code.data()));
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

class Descriptors {
 public:
  Descriptors(const ElfFile& file, const Image& image) : file_(file), image_(image), relocated_(relocations_of(file)) {
    std::erase_if(relocated_, [](const Relocation& relocation) { return relocation.type != kRelative; });
    const std::vector<Relocation> symbols = own_symbols_of(file);
    relocated_.insert(relocated_.end(), symbols.begin(), symbols.end());
    const auto before = [](const Relocation& a, const Relocation& b) { return a.place < b.place; };
    std::stable_sort(relocated_.begin(), relocated_.end(), before);
    packed_ = packed_places_of(file, kStart * 2, kStart);
  }

  void add(std::uint64_t place) {
    if (const RseqSection section = section_at(place); is_of_code(section)) found_.push_back(section);
  }

  void add_section(const Section& section) {
    for (std::uint64_t at = 0;
         at + kSize <= section.header.sh_size && image_.bytes().holds(section.header.sh_offset + at, 1); at += kSize)
      add(section.header.sh_addr + at);
  }

  // Every aligned place in the file's data whose last word points to an abort handler.
  void add_by_aborts(const std::vector<std::uint64_t>& aborts) {
    for (const Relocation& relocation : relocated_)
      if (relocation.place >= kAbort && std::binary_search(aborts.begin(), aborts.end(), relocation.addend))
        add(relocation.place - kAbort);
    std::uint64_t left = 2 * image_.bytes().size();
    for (const Segment& segment : image_.segments()) {
      if (segment.file_bytes > left) return;
      left -= segment.file_bytes;
      add_of_segment(segment, aborts);
    }
  }

  // Whether the signature before `abort` belongs to an instruction that loads it, and to no handler.
  bool is_loaded_number(std::uint64_t abort) const {
    return arch::loads_number(image_.bytes_at(abort - sizeof kSignature - 1).read<std::uint8_t>(0).value_or(0));
  }

  // Descriptors that the program makes at run time: it is unknown which part of the function with the abort handler they name,
  // or of the function to which the handler jumps.
  void add_without_descriptor(const std::vector<std::uint64_t>& aborts) {
    std::vector<std::uint64_t> known;
    known.reserve(found_.size());
    for (const RseqSection& section : found_) known.push_back(section.abort);
    std::sort(known.begin(), known.end());
    for (const std::uint64_t abort : aborts)
      if (!std::binary_search(known.begin(), known.end(), abort) && !is_loaded_number(abort)) add_functions_of(abort);
  }

  // Every place of the file's data that has the shape of a descriptor. In a file that may be loaded anywhere its addresses are
  // relocated.
  void add_by_shape() {
    if (image_.is_position_independent()) {
      for (const Relocation& relocation : relocated_) add_if_relocated(relocation.place);
      for (const std::uint64_t place : packed_) add_if_relocated(place);
      return;
    }
    std::uint64_t left = 2 * image_.bytes().size();
    for (const Segment& segment : image_.segments()) {
      if (segment.file_bytes > left) return;
      left -= segment.file_bytes;
      const BytesView bytes = image_.bytes().slice(segment.offset, segment.file_bytes);
      for (std::uint64_t at = -segment.address % kSize; at + kSize <= segment.file_bytes; at += kSize)
        if (may_begin(bytes, at)) add_if_shaped(segment.address + at);
    }
  }

  // Of those with the same code and abort handler the one that is known best.
  std::vector<RseqSection> take() {
    const auto key = [](const RseqSection& s) {
      return std::tuple(s.code.begin, s.code.end, s.abort, s.is_likeness, !s.is_exact);
    };
    std::sort(found_.begin(), found_.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
    const auto is_same = [](const RseqSection& a, const RseqSection& b) {
      return a.code == b.code && a.abort == b.abort;
    };
    found_.erase(std::unique(found_.begin(), found_.end(), is_same), found_.end());
    return std::move(found_);
  }

 private:
  RseqSection section_at(std::uint64_t place) const {
    RseqSection section;
    section.code.begin = word(place + kStart);
    section.code.end = section.code.begin + word(place + kLength);
    section.abort = word(place + kAbort);
    return section;
  }

  bool is_of_code(const RseqSection& section) const {
    return image_.executable_at(section.code.begin) != nullptr && section.code.end > section.code.begin &&
           image_.executable_at(section.code.end - 1) != nullptr && image_.executable_at(section.abort) != nullptr;
  }

  void add_functions_of(std::uint64_t abort) {
    const auto add_function = [&](std::uint64_t address) {
      if (const auto range = file_.range_at(address)) found_.push_back({*range, abort, false});
    };
    add_function(abort);
    if (const auto target = arch::jump_target(image_.bytes_at(abort).span(), abort)) add_function(*target);
  }

  // `start`: where the second word of a descriptor may be.
  void add_if_relocated(std::uint64_t start) {
    if (start % kSize == kStart && is_relocated(start - kStart + kAbort)) add_if_shaped(start - kStart);
  }

  static bool is_head(std::uint64_t word) { return (word & UINT32_MAX) == 0 && word >> 32 <= kMostFlags; }

  // What of add_if_shaped() the bytes of a segment show at once, since a descriptor's head and length are not relocated.
  static bool may_begin(const BytesView& bytes, std::uint64_t at) {
    return is_head(bytes.read<std::uint64_t>(at).value_or(1)) &&
           bytes.read<std::uint64_t>(at + kLength).value_or(0) != 0;
  }

  // What the kernel asks of a descriptor (kernel/rseq.c), and that its numbers are none of the file's addresses. Tables of
  // functions with a number between two of them look the same, but that a function has no signature before it.
  void add_if_shaped(std::uint64_t place) {
    const std::uint64_t length = word(place + kLength);
    if (!is_head(word(place)) || is_relocated(place) || is_relocated(place + kLength)) return;
    RseqSection section = section_at(place);
    if (!is_of_code(section) || (!image_.is_position_independent() && image_.executable_at(length) != nullptr)) return;
    if (section.abort >= section.code.begin && section.abort < section.code.end) return;
    if (image_.executable_at(section.code.begin) != image_.executable_at(section.code.end - 1)) return;
    section.is_likeness = true;
    if (has_room_for_signature(section.abort)) found_.push_back(section);
  }

  bool has_room_for_signature(std::uint64_t abort) const {
    constexpr std::uint64_t kLooked = 7,
                            kAligned = 16;  // an opcode and a signature; where compilers let functions begin
    const Segment* segment = image_.executable_at(abort);
    if (abort - segment->address < sizeof kSignature) return false;
    if (abort % kAligned != 0 || abort - segment->address < kLooked) return true;
    const auto range = file_.range_at(abort);
    const bool is_function = range && range->begin == abort;
    return !is_function || !arch::ends_in_padding(image_.bytes_at(abort - kLooked).slice(0, kLooked).span());
  }

  void add_of_segment(const Segment& segment, const std::vector<std::uint64_t>& aborts) {
    const auto bytes = image_.bytes().slice(segment.offset, segment.file_bytes).span();
    for (std::uint64_t at = -segment.address & 7U; at + 8 <= bytes.size(); at += 8) {
      std::uint64_t word;
      std::memcpy(&word, bytes.data() + at, sizeof word);
      if (word < aborts.front() || word > aborts.back() || segment.address + at < kAbort) continue;
      if (std::binary_search(aborts.begin(), aborts.end(), word)) add(segment.address + at - kAbort);
    }
  }

  const Relocation* relocation_at(std::uint64_t place) const {
    const auto before = [](const Relocation& relocation, std::uint64_t at) { return relocation.place < at; };
    const auto found = std::lower_bound(relocated_.begin(), relocated_.end(), place, before);
    return found != relocated_.end() && found->place == place ? &*found : nullptr;
  }
  bool is_relocated(std::uint64_t place) const {
    return relocation_at(place) != nullptr || std::binary_search(packed_.begin(), packed_.end(), place);
  }

  // A word of the running program, at link-time addresses.
  std::uint64_t word(std::uint64_t place) const {
    const Relocation* relocation = relocation_at(place);
    if (relocation != nullptr) return relocation->addend;
    return image_.bytes_at(place).read<std::uint64_t>(0).value_or(0);
  }

  const ElfFile& file_;
  const Image& image_;
  std::vector<Relocation> relocated_;  // by address
  std::vector<std::uint64_t> packed_;  // of the words that may belong to a descriptor's addresses; sorted
  std::vector<RseqSection> found_;
};

}  // namespace

namespace {

std::vector<RseqSection> look_for_sections(const ElfFile& file) {
  const Result<Image> image = Image::parse(BytesView(file.bytes()));
  if (!image) return {};
  const Section* section = image->find_section(SHT_PROGBITS, "__rseq_cs");
  const std::vector<std::uint64_t> aborts = signed_places(*image);
  Descriptors descriptors(file, *image);
  if (section != nullptr) descriptors.add_section(*section);
  if (!aborts.empty()) descriptors.add_by_aborts(aborts);
  descriptors.add_without_descriptor(aborts);
  descriptors.add_by_shape();
  return descriptors.take();
}

struct SequencesForm {
  using Facts = std::vector<RseqSection>;
  static constexpr std::uint64_t kExact = 1, kLikeness = 2;

  static void pack(facts::Packer& to, const Facts& sections) {
    to.put(sections.size());
    for (const RseqSection& one : sections)
      for (const std::uint64_t number :
           {one.code.begin, one.code.end, one.abort, (one.is_exact ? kExact : 0) | (one.is_likeness ? kLikeness : 0)})
        to.put(number);
  }
  static std::optional<Facts> unpack(facts::Unpacker& from) {
    Facts sections;
    std::uint64_t left = 0;
    if (!from.take(left)) return std::nullopt;
    for (; left != 0; --left) {
      RseqSection one;
      std::uint64_t is = 0;
      if (!from.take(one.code.begin) || !from.take(one.code.end) || !from.take(one.abort) || !from.take(is))
        return std::nullopt;
      one.is_exact = (is & kExact) != 0, one.is_likeness = (is & kLikeness) != 0;
      sections.push_back(one);
    }
    return sections;
  }
};

}  // namespace

std::vector<RseqSection> rseq_sections(const ElfFile& file) {
  return facts::kept_or_found<SequencesForm>(file.facts_key(), "sequences", [&] { return look_for_sections(file); });
}

}  // namespace uprobe::elf
