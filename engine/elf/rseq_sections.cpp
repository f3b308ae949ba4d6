// SPDX-License-Identifier: MIT
#include "engine/elf/rseq_sections.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <unordered_map>

#include "arch/abi/rseq.h"
#include "engine/elf/image.h"
#include "engine/elf/relocations.h"

namespace uprobe::elf {
namespace {

// struct rseq_cs: u32 version, u32 flags, u64 start_ip, u64 post_commit_offset, u64 abort_ip; aligned to its size.
constexpr std::uint64_t kStart = 8, kLength = 16, kAbort = 24, kSize = 32;
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
  Descriptors(const ElfFile& file, const Image& image) : image_(image) {
    for (const Relocation& relocation : relocations_of(file))
      if (relocation.type == kRelative) relocated_[relocation.place] = relocation.addend;
  }

  void add(std::uint64_t place) {
    RseqSection section;
    section.code.begin = word(place + kStart);
    section.code.end = section.code.begin + word(place + kLength);
    section.abort = word(place + kAbort);
    const bool is_code = image_.executable_at(section.code.begin) != nullptr && section.code.end > section.code.begin &&
                         image_.executable_at(section.code.end - 1) != nullptr;
    if (is_code && image_.executable_at(section.abort) != nullptr) found_.push_back(section);
  }

  void add_section(const Section& section) {
    for (std::uint64_t at = 0;
         at + kSize <= section.header.sh_size && image_.bytes().holds(section.header.sh_offset + at, 1); at += kSize)
      add(section.header.sh_addr + at);
  }

  // Every aligned place in the file's data whose last word points to an abort handler.
  void add_by_aborts(const std::vector<std::uint64_t>& aborts) {
    for (const auto& [place, value] : relocated_)
      if (place >= kAbort && std::binary_search(aborts.begin(), aborts.end(), value)) add(place - kAbort);
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
  void add_without_descriptor(const ElfFile& file, std::uint64_t abort) {
    const auto is_its = [abort](const RseqSection& section) { return section.abort == abort; };
    if (std::any_of(found_.begin(), found_.end(), is_its) || is_loaded_number(abort)) return;
    const auto add_function = [&](std::uint64_t address) {
      if (const auto range = file.range_at(address)) found_.push_back({*range, abort, false});
    };
    add_function(abort);
    if (const auto target = arch::jump_target(image_.bytes_at(abort).span(), abort)) add_function(*target);
  }

  std::vector<RseqSection> take() {
    const auto before = [](const RseqSection& a, const RseqSection& b) { return a.code.begin < b.code.begin; };
    std::sort(found_.begin(), found_.end(), before);
    found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
    return std::move(found_);
  }

 private:
  void add_of_segment(const Segment& segment, const std::vector<std::uint64_t>& aborts) {
    const auto bytes = image_.bytes().slice(segment.offset, segment.file_bytes).span();
    for (std::uint64_t at = -segment.address & 7U; at + 8 <= bytes.size(); at += 8) {
      std::uint64_t word;
      std::memcpy(&word, bytes.data() + at, sizeof word);
      if (word < aborts.front() || word > aborts.back() || segment.address + at < kAbort) continue;
      if (std::binary_search(aborts.begin(), aborts.end(), word)) add(segment.address + at - kAbort);
    }
  }

  // A word of the running program, at link-time addresses.
  std::uint64_t word(std::uint64_t place) const {
    const auto relocated = relocated_.find(place);
    if (relocated != relocated_.end()) return relocated->second;
    return image_.bytes_at(place).read<std::uint64_t>(0).value_or(0);
  }

  const Image& image_;
  std::unordered_map<std::uint64_t, std::uint64_t> relocated_;
  std::vector<RseqSection> found_;
};

}  // namespace

std::vector<RseqSection> rseq_sections(const ElfFile& file) {
  const Result<Image> image = Image::parse(BytesView(file.bytes()));
  if (!image) return {};
  const Section* section = image->find_section(SHT_PROGBITS, "__rseq_cs");
  const std::vector<std::uint64_t> aborts = signed_places(*image);
  // Checked before the relocations, which few files need.
  if (section == nullptr && aborts.empty()) return {};
  Descriptors descriptors(file, *image);
  if (section != nullptr) descriptors.add_section(*section);
  if (!aborts.empty()) descriptors.add_by_aborts(aborts);
  for (const std::uint64_t abort : aborts) descriptors.add_without_descriptor(file, abort);
  return descriptors.take();
}

}  // namespace uprobe::elf
