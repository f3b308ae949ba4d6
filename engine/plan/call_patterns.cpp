#include "engine/plan/call_patterns.h"

#include <fcntl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/base/fd.h"

namespace uprobe::plan {
namespace {

using Bytes = std::span<const std::uint8_t>;

constexpr std::uint32_t kEpollPwait2 = 441;
constexpr std::uint32_t kFollowed[] = {SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_execve,         SYS_execveat,
                                       SYS_prctl,        SYS_seccomp,        SYS_rt_sigsuspend,  SYS_ppoll,
                                       SYS_pselect6,     SYS_epoll_pwait,    kEpollPwait2,       SYS_rt_sigpending,
                                       SYS_sigaltstack,  SYS_clone3,         SYS_rt_sigtimedwait};
constexpr std::uint32_t kClones[] = {SYS_clone, SYS_vfork, SYS_clone3};
constexpr std::uint32_t kNoNumber = 1024;
constexpr std::size_t kWindow = 64;
constexpr std::size_t kChunk = 1 << 20;

std::uint32_t word_at(Bytes code, std::size_t at) {
  std::uint32_t word = 0;
  std::memcpy(&word, code.data() + at, sizeof word);
  return word;
}

// The number that an instruction at code[at] loads, if it is one of the three forms and ends at or before `limit`.
std::optional<NumberLoad> load_at(Bytes code, std::size_t at, std::size_t limit) {
  const std::size_t left = limit - at;
  if (left >= 5 && code[at] == 0xb8) return NumberLoad{at, 5, word_at(code, at + 1)};
  if (left >= 7 && code[at] == 0x48 && code[at + 1] == 0xc7 && code[at + 2] == 0xc0)
    return NumberLoad{at, 7, word_at(code, at + 3)};
  if (left >= 3 && code[at] == 0x6a && code[at + 2] == 0x58 && code[at + 1] < 0x80)
    return NumberLoad{at, 3, code[at + 1]};
  return std::nullopt;
}

bool has_followed_call(Bytes chunk) {
  const std::uint8_t* at = chunk.data();
  const std::uint8_t* end = at + chunk.size();
  while ((at = static_cast<const std::uint8_t*>(::memmem(at, static_cast<std::size_t>(end - at), "\x0f\x05", 2))) !=
         nullptr) {
    const auto load = number_before(chunk, static_cast<std::size_t>(at - chunk.data()));
    if (load && (is_followed_call(load->number) || is_clone_call(load->number))) return true;
    ++at;
  }
  return false;
}

}  // namespace

bool is_followed_call(std::uint32_t number) {
  return std::find(std::begin(kFollowed), std::end(kFollowed), number) != std::end(kFollowed);
}
bool is_clone_call(std::uint32_t number) {
  return std::find(std::begin(kClones), std::end(kClones), number) != std::end(kClones);
}

std::optional<NumberLoad> number_before(Bytes code, std::size_t at) {
  const std::size_t first = at > kWindow ? at - kWindow : 0;
  for (std::size_t position = at; position-- > first;)
    if (const auto load = load_at(code, position, at); load && load->number < kNoNumber) return load;
  return std::nullopt;
}

std::optional<NumberLoad> number_load_ending(Bytes code, std::size_t end) {
  for (const std::size_t length : {std::size_t{3}, std::size_t{5}, std::size_t{7}}) {
    if (end < length) continue;
    const auto load = load_at(code, end - length, end);
    if (load && load->length == length && load->number < kNoNumber) return load;
  }
  return std::nullopt;
}

bool may_have_followed_calls(const std::string& path) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return false;
  std::vector<std::uint8_t> buffer(kChunk);
  std::size_t kept = 0;  // the end of the chunk before: a call may lie across
  for (;;) {
    const ssize_t n = ::read(file.get(), buffer.data() + kept, buffer.size() - kept);
    if (n <= 0) return false;
    const std::size_t size = kept + static_cast<std::size_t>(n);
    if (has_followed_call(Bytes(buffer.data(), size))) return true;
    kept = std::min<std::size_t>(size, kWindow + 2);
    std::memmove(buffer.data(), buffer.data() + size - kept, kept);
  }
}

}  // namespace uprobe::plan
