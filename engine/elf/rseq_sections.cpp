#include "engine/elf/rseq_sections.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>

#include "engine/elf/image.h"
#include "engine/elf/relocations.h"

namespace uprobe::elf {
namespace {

// struct rseq_cs: u32 version, u32 flags, u64 start_ip, u64 post_commit_offset, u64 abort_ip; aligned to its size.
constexpr std::uint64_t kStart = 8, kLength = 16, kAbort = 24, kSize = 32;
// ud1 with the signature as displacement: what stands before every abort handler, so that no jump can be made to lead to
// chosen code (glibc's bits/rseq.h).
constexpr std::uint8_t kSignature[] = {0x0f, 0xb9, 0x3d, 0x53, 0x30, 0x05, 0x53};

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

  // Every aligned place in the data whose last word leads to an abort handler.
  void add_by_signature() {
    const auto bytes = image_.bytes().span();
    std::vector<std::uint64_t> aborts;
    for (auto at = bytes.begin();; ++at) {
      at = std::search(at, bytes.end(), std::begin(kSignature), std::end(kSignature));
      if (at == bytes.end()) break;
      const auto behind = static_cast<std::uint64_t>(at - bytes.begin()) + sizeof kSignature;
      if (const auto address = image_.address_of_offset(behind)) aborts.push_back(*address);
    }
    if (aborts.empty()) return;
    std::sort(aborts.begin(), aborts.end());
    std::uint64_t left = 2 * bytes.size();  // segments may show the same bytes, but not that often
    for (const Segment& segment : image_.segments()) {
      if (segment.file_bytes > left) return;
      left -= segment.file_bytes;
      add_of_segment(segment, aborts);
    }
  }

  std::vector<RseqSection> take() {
    const auto before = [](const RseqSection& a, const RseqSection& b) { return a.code.begin < b.code.begin; };
    std::sort(found_.begin(), found_.end(), before);
    found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
    return std::move(found_);
  }

 private:
  void add_of_segment(const Segment& segment, const std::vector<std::uint64_t>& aborts) {
    const std::uint64_t end = segment.address + segment.file_bytes;
    for (std::uint64_t at = segment.address + (-segment.address & (kSize - 1)); at + kSize <= end; at += kSize)
      if (std::binary_search(aborts.begin(), aborts.end(), word(at + kAbort))) add(at);
  }

  // As the running program sees it, at link-time addresses.
  std::uint64_t word(std::uint64_t place) const {
    const auto relocated = relocated_.find(place);
    if (relocated != relocated_.end()) return relocated->second;
    return image_.bytes_at(place).read<std::uint64_t>(0).value_or(0);
  }

  const Image& image_;
  std::unordered_map<std::uint64_t, std::uint64_t> relocated_;
  std::vector<RseqSection> found_;
};

// Both kinds of file: looked at before the relocations, which few files need.
bool may_have_sections(const Image& image, const Section* section) {
  if (section != nullptr) return true;
  if (!image.sections().empty()) return false;
  const auto bytes = image.bytes().span();
  return std::search(bytes.begin(), bytes.end(), std::begin(kSignature), std::end(kSignature)) != bytes.end();
}

}  // namespace

std::vector<RseqSection> rseq_sections(const ElfFile& file) {
  const Result<Image> image = Image::parse(BytesView(file.bytes()));
  if (!image) return {};
  const Section* section = image->find_section(SHT_PROGBITS, "__rseq_cs");
  if (!may_have_sections(*image, section)) return {};
  Descriptors descriptors(file, *image);
  if (section != nullptr)
    descriptors.add_section(*section);
  else
    descriptors.add_by_signature();
  return descriptors.take();
}

}  // namespace uprobe::elf
