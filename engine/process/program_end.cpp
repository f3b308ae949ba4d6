// SPDX-License-Identifier: MIT
#include "engine/process/program_end.h"

#include <poll.h>

#include <ctime>

#include "engine/process/processes.h"
#include "engine/shared/process_block.h"

namespace uprobe::control {

bool waits_at_its_end(pid_t pid) {
  const auto block = find_block(pid);
  const auto files = block ? target::ProcessFiles::open(pid) : Result<target::ProcessFiles>(block.error());
  std::uint32_t ends = 0;
  return files && files->read(*block + offsetof(shared::ProcessBlock, ends), &ends, sizeof ends) && ends == 1;
}

// A child stays a zombie, so that its name can still be read. This asks the pidfd and not waitid, which would also report the
// child's stops while the mail service leads it through execve.
bool has_ended(int pidfd, std::chrono::microseconds limit) {
  pollfd poll_for{.fd = pidfd, .events = POLLIN, .revents = 0};
  const timespec timeout{.tv_sec = limit.count() / 1'000'000, .tv_nsec = limit.count() % 1'000'000 * 1000};
  return ::ppoll(&poll_for, 1, &timeout, nullptr) == 1;
}

}  // namespace uprobe::control
