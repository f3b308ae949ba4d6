// SPDX-License-Identifier: MIT
#include "engine/base/limits.h"

#include <signal.h>
#include <sys/resource.h>

#include <initializer_list>

namespace uprobe {

void raise_own_limits() {
  ::signal(SIGXFSZ, SIG_IGN);
  for (const auto resource : {RLIMIT_FSIZE, RLIMIT_CPU, RLIMIT_NOFILE}) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0) continue;
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(resource, &limit);
  }
}

}  // namespace uprobe
