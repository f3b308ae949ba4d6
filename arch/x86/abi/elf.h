// SPDX-License-Identifier: MIT
// This machine's programs as files: ELF's numbers, and where the loader and its libraries are.
#pragma once

#include <elf.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace uprobe::arch {

inline constexpr char kMachineName[] = "x86-64";
inline constexpr std::uint16_t kElfMachine = EM_X86_64;
// User addresses with five-level paging end here; anything above cannot be loaded.
inline constexpr std::uint64_t kAddressLimit = std::uint64_t{1} << 56;
// The type that .eh_frame may have besides SHT_PROGBITS.
inline constexpr std::uint32_t kUnwindSection = SHT_X86_64_UNWIND;

inline constexpr std::uint32_t kRelative = R_X86_64_RELATIVE, kIrelative = R_X86_64_IRELATIVE, kCopied = R_X86_64_COPY;
inline constexpr std::uint32_t kSymbolAddress = R_X86_64_64;  // *place = symbol + addend
// Words for thread-local data: the number of a module; a place in the module's data; that place's distance from the thread pointer.
inline constexpr std::uint32_t kThreadModule = R_X86_64_DTPMOD64, kThreadPlace = R_X86_64_DTPOFF64,
                               kThreadDistance = R_X86_64_TPOFF64;
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

// The kinds of library that glibc's cache of libraries marks as this machine's (FLAG_ELF_LIBC6, and the machine).
inline constexpr std::uint32_t kCachedLibrary = 0x0303;

// The folders beside a folder of libraries that glibc's loader prefers on this processor, best first: "glibc-hwcaps/x86-64-v3/".
inline std::vector<std::string> preferred_library_folders() {
  std::vector<std::string> folders;
  const bool has_v2 = __builtin_cpu_supports("sse4.2") != 0 && __builtin_cpu_supports("popcnt") != 0;
  const bool has_v3 = has_v2 && __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("bmi2") != 0 &&
                      __builtin_cpu_supports("fma") != 0;
  const bool has_v4 = has_v3 && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                      __builtin_cpu_supports("avx512cd") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
                      __builtin_cpu_supports("avx512vl") != 0;
  if (has_v4) folders.push_back("glibc-hwcaps/x86-64-v4/");
  if (has_v3) folders.push_back("glibc-hwcaps/x86-64-v3/");
  if (has_v2) folders.push_back("glibc-hwcaps/x86-64-v2/");
  return folders;
}

}  // namespace uprobe::arch
