// SPDX-License-Identifier: MIT
// This machine's programs as files: ELF's numbers, and where the loader and its libraries are.
#pragma once

#include <elf.h>

#include <array>
#include <cstdint>

namespace uprobe::arch {

inline constexpr char kMachineName[] = "x86-64";
inline constexpr std::uint16_t kElfMachine = EM_X86_64;
// User addresses with five-level paging end here; anything above cannot be loaded.
inline constexpr std::uint64_t kAddressLimit = std::uint64_t{1} << 56;
// The type that .eh_frame may have besides SHT_PROGBITS.
inline constexpr std::uint32_t kUnwindSection = SHT_X86_64_UNWIND;

inline constexpr std::uint32_t kRelative = R_X86_64_RELATIVE, kIrelative = R_X86_64_IRELATIVE, kCopied = R_X86_64_COPY;
// What a relocation puts into its place, as far as that is code.
enum class RelocationKind : std::uint8_t {
  other,
  relative,   // *place = base + addend
  irelative,  // *place = (base + addend)()
  slot,       // of a function that is bound at its first call: until then an address in the linkage table
  symbol,     // the address of a symbol
};
constexpr RelocationKind kind_of_relocation(std::uint32_t type) {
  switch (type) {
    case kRelative:
      return RelocationKind::relative;
    case kIrelative:
      return RelocationKind::irelative;
    case R_X86_64_JUMP_SLOT:
      return RelocationKind::slot;
    case R_X86_64_64:
    case R_X86_64_GLOB_DAT:
      return RelocationKind::symbol;
    default:
      return RelocationKind::other;
  }
}

// glibc's dynamic loader, by the end of its path without a version; and the folders that it looks for libraries in.
inline constexpr char kLoaderName[] = "/ld-linux-x86-64.so";
inline constexpr std::array kLibraryFolders = {
    "/lib/x86_64-linux-gnu/", "/usr/lib/x86_64-linux-gnu/", "/lib64/", "/usr/lib64/", "/lib/", "/usr/lib/"};

}  // namespace uprobe::arch
