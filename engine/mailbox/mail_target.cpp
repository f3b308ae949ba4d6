// SPDX-License-Identifier: MIT
#include "engine/mailbox/mail_target.h"

namespace uprobe::control {

Result<std::int64_t> MailTarget::system_call(long number, const std::array<std::uint64_t, 6>& a) {
  auto result = thread_.command({static_cast<std::uint64_t>(number), a[0], a[1], a[2], a[3], a[4], a[5]});
  if (!result) return result.error();
  return static_cast<std::int64_t>(*result);
}

Result<std::uint64_t> MailTarget::call(Addr function) {
  return thread_.command({shared::kCallFunction, function.value, 0, 0, 0, 0, 0});
}

}  // namespace uprobe::control
