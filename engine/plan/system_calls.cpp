#include "engine/plan/system_calls.h"

#include <sys/syscall.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "arch/x86/code/relocate.h"

namespace uprobe::plan {
namespace {

using Bytes = std::span<const std::uint8_t>;

constexpr std::uint8_t kSyscall[] = {0x0f, 0x05};
constexpr std::uint32_t kEpollPwait2 = 441;
constexpr std::uint8_t kMoveToEax = 0xb8;  // mov $imm32, %eax
constexpr std::uint32_t kNumbers[] = {SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_execve,      SYS_execveat,    SYS_prctl,  SYS_seccomp,
                                      SYS_rt_sigsuspend, SYS_ppoll,         SYS_pselect6,    SYS_epoll_pwait, kEpollPwait2};

constexpr std::uint32_t kCloneNumbers[] = {SYS_clone, SYS_vfork, SYS_clone3};

template <std::size_t N>
bool is_one_of(const std::uint32_t (&numbers)[N], std::uint32_t number) {
  return std::find(std::begin(numbers), std::end(numbers), number) != std::end(numbers);
}

// Walks one function; adds its interesting sites.
void scan_function(Bytes code, std::uint64_t begin, std::uint64_t offset, bool any,
                   std::vector<SystemCallSite>& sites) {
  std::uint32_t number = ~0u;
  for (std::size_t at = 0; at < code.size();) {
    const Bytes rest = code.subspan(at);
    const auto insn = x86::decode(rest, Addr{begin + at});
    if (!insn) return;
    if (rest[0] == kMoveToEax && insn->length == 5) std::memcpy(&number, &rest[1], sizeof number);
    if (insn->is_call) number = ~0u;
    const bool is_syscall = insn->length == 2 && std::equal(std::begin(kSyscall), std::end(kSyscall), rest.begin());
    if (is_syscall && (any || is_one_of(kNumbers, number))) sites.push_back({offset + at, shared::PointRole::system_call});
    if (is_syscall && is_one_of(kCloneNumbers, number)) sites.push_back({offset + at + 2, shared::PointRole::clone_return});
    at += insn->length;
  }
}

// The function that contains an address. Hand-written ones (vfork in musl) have a symbol without a size: they are taken to go
// on a little behind the address.
std::optional<elf::Range> function_at(const elf::ElfFile& file, std::uint64_t address) {
  constexpr std::uint64_t kLongest = 128, kBehind = 16;
  if (const auto range = file.range_at(address)) return range;
  const auto functions = file.functions();
  const auto next = std::upper_bound(functions.begin(), functions.end(), address,
                                     [](std::uint64_t a, const elf::Symbol& s) { return a < s.address; });
  if (next == functions.begin() || address - (next - 1)->address > kLongest) return std::nullopt;
  return elf::Range{(next - 1)->address, address + kBehind};
}

// Link-time addresses of the functions that contain the bytes of a syscall instruction.
std::vector<elf::Range> functions_with_syscalls(const elf::ElfFile& file) {
  std::vector<elf::Range> found;
  for (const elf::Segment& s : file.segments()) {
    if (!s.executable || s.offset > file.bytes().size()) continue;
    const Bytes code = file.bytes().subspan(s.offset, std::min<std::uint64_t>(s.file_bytes, file.bytes().size() - s.offset));
    for (auto at = code.begin();; ++at) {
      at = std::search(at, code.end(), std::begin(kSyscall), std::end(kSyscall));
      if (at == code.end()) break;
      const auto range = function_at(file, s.address + static_cast<std::uint64_t>(at - code.begin()));
      if (range && (found.empty() || found.back().begin != range->begin)) found.push_back(*range);
    }
  }
  return found;
}

}  // namespace

bool has_system_calls(const elf::ElfFile& file) {
  return file.find_any("sigaction").has_value() || file.find_any("_dl_debug_state").has_value();
}

std::vector<SystemCallSite> system_call_sites(const elf::ElfFile& file) {
  const auto generic = file.find_any("syscall");
  std::vector<SystemCallSite> sites;
  for (const elf::Range& range : functions_with_syscalls(file)) {
    const auto offset = file.offset_of_address(range.begin);
    if (!offset || *offset >= file.bytes().size()) continue;
    const Bytes code = file.bytes().subspan(*offset, std::min(range.end - range.begin, file.bytes().size() - *offset));
    scan_function(code, range.begin, *offset, generic && generic->address == range.begin, sites);
  }
  return sites;
}

}  // namespace uprobe::plan
