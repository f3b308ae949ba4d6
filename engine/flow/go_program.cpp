// SPDX-License-Identifier: MIT
#include "engine/flow/go_program.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>
#include <string_view>

#include "arch/code/go_patterns.h"

namespace uprobe::plan {
namespace {

// Of these a new thread has an fs base of its own from its first instruction (CLONE_SETTLS), and none uses the
// words after it.
constexpr unsigned kFirstVersion = 19, kLastVersion = 26;

bool is_made_by_go(const elf::Image& image) {
  const auto sections = image.sections();
  return std::any_of(sections.begin(), sections.end(), [](const elf::Section& section) {
    return section.name == ".gopclntab" || section.name == ".note.go.buildid";
  });
}

// A number of seven bits a byte, the lowest first, and a string of so many bytes (debug/buildinfo).
std::optional<std::string_view> text_at(std::span<const std::uint8_t> bytes, std::uint64_t offset) {
  constexpr std::uint8_t kMore = 128;
  std::uint64_t length = 0;
  for (unsigned shift = 0; shift < 28; shift += 7) {
    if (offset >= bytes.size()) return std::nullopt;
    const std::uint8_t byte = bytes[offset++];
    length |= std::uint64_t{byte & 0x7fU} << shift;
    if ((byte & kMore) != 0) continue;
    if (length > bytes.size() - offset) return std::nullopt;
    return std::string_view(reinterpret_cast<const char*>(bytes.data()) + offset, length);
  }
  return std::nullopt;
}

// "go1.19.8", "go1.22.0 X:none"; nothing for a version that was no release.
std::optional<unsigned> minor_version(std::string_view version) {
  constexpr std::string_view kGo1 = "go1.";
  if (!version.starts_with(kGo1)) return std::nullopt;
  version.remove_prefix(kGo1.size());
  unsigned minor = 0;
  const auto [end, error] = std::from_chars(version.data(), version.data() + version.size(), minor);
  if (error != std::errc() || end == version.data()) return std::nullopt;
  return minor;
}

// .go.buildinfo: a mark of 14 bytes, the size of a pointer, flags, and from byte 32 on the version.
bool is_known_version(const elf::Image& image) {
  constexpr std::string_view kMark("\xff Go buildinf:", 14);
  constexpr std::uint64_t kFlags = 15, kText = 32;
  constexpr std::uint8_t kIsInPlace = 2;
  const std::span<const std::uint8_t> info = image.section_bytes(".go.buildinfo").span();
  if (info.size() <= kText || !std::equal(kMark.begin(), kMark.end(), reinterpret_cast<const char*>(info.data())))
    return false;
  if ((info[kFlags] & kIsInPlace) == 0) return false;
  const auto minor = minor_version(text_at(info, kText).value_or(""));
  return minor && *minor >= kFirstVersion && *minor <= kLastVersion;
}

arch::Bytes code_at(const elf::Image& image, std::uint64_t address) {
  return image.executable_at(address) == nullptr ? arch::Bytes() : image.bytes_at(address).span();
}

// The kernel enters Go's own first instruction: nothing else has run that could have set up threads.
bool begins_by_itself(const elf::Image& image) {
  if (image.is_position_independent() || !image.interpreter().empty()) return false;
  const Addr target = arch::go_entry_target(code_at(image, image.entry()), Addr{image.entry()});
  return target.value != 0 && arch::is_go_entry(code_at(image, target.value));
}

}  // namespace

GoProgram go_program_of(const elf::Image& image) {
  if (!is_made_by_go(image)) return GoProgram::none;
  if (!begins_by_itself(image)) return GoProgram::with_libc;
  return is_known_version(image) ? GoProgram::plain : GoProgram::other_version;
}

}  // namespace uprobe::plan
