// SPDX-License-Identifier: MIT
#include "engine/proxy/mapping_query.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "engine/proxy/proxy.h"

namespace uprobe::proxy {
namespace {

constexpr unsigned long kAsk = _IOWR('f', 17, MappingQuery);

// System calls only, in this process or in a proxy.
class Asking : public Order {
 public:
  Asking(std::string maps, std::uint64_t flags, std::uint64_t at, std::size_t most)
      : maps_(std::move(maps)), flags_(flags), at_(at), found_(most) {}

  void carry_out() {
    const long file = ::syscall(SYS_openat, AT_FDCWD, maps_.c_str(), O_RDONLY | O_CLOEXEC, 0);
    error_ = file < 0 ? ESRCH : 0;
    for (; error_ == 0 && count_ < found_.size(); ++steps) error_ = ask(file);
    if (file >= 0) ::syscall(SYS_close, file);
  }
  void carry_out(Place&) override { carry_out(); }

  MappingAnswers answers() {
    found_.resize(count_);
    const bool has_name = count_ == 1 && found_.front().name_bytes != 0;
    const std::size_t most = has_name ? std::min<std::size_t>(found_.front().name_bytes, name_.size()) : 0;
    return {.found = std::move(found_),
            .name = std::string(name_.data(), ::strnlen(name_.data(), most)),
            .has_failed = error_ != 0 && error_ != ENOENT,
            .is_over = error_ == ENOENT};
  }

 private:
  int ask(long file) {
    MappingQuery& query = found_[count_];
    query = {.size = sizeof query, .flags = flags_, .at = at_};
    if (found_.size() == 1)
      query.name_bytes = static_cast<std::uint32_t>(name_.size()),
      query.name = reinterpret_cast<std::uintptr_t>(name_.data());
    if (::syscall(SYS_ioctl, file, kAsk, &query) != 0) return errno;
    at_ = query.end;
    ++count_;
    return 0;
  }

  const std::string maps_;
  const std::uint64_t flags_;
  std::uint64_t at_;
  std::vector<MappingQuery> found_;
  std::size_t count_ = 0;
  std::array<char, PATH_MAX> name_{};
  int error_ = 0;
};

}  // namespace

MappingAnswers ask_mappings(std::optional<Owner> user, const std::string& maps, std::uint64_t flags, std::uint64_t at,
                            std::size_t most) {
  const auto asking = std::make_shared<Asking>(maps, flags, at, most);
  const bool is_barred = user && !may_look_at_others();
  const Outcome outcome = is_barred ? Outcome::silent : user ? carry_out(asking, *user) : Outcome::impossible;
  if (outcome == Outcome::silent) return {.found = {}, .name = {}, .has_failed = true, .is_over = false};
  if (outcome == Outcome::impossible) asking->carry_out();
  return asking->answers();
}

}  // namespace uprobe::proxy
