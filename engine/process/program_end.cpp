// SPDX-License-Identifier: MIT
#include "engine/process/program_end.h"

#include "engine/process/processes.h"
#include "engine/shared/process_block.h"

namespace uprobe::control {

bool waits_at_its_end(pid_t pid) {
  const auto block = find_block(pid);
  const auto files = block ? target::ProcessFiles::open(pid) : Result<target::ProcessFiles>(block.error());
  std::uint32_t ends = 0;
  return files && files->read(*block + offsetof(shared::ProcessBlock, ends), &ends, sizeof ends) && ends == 1;
}

}  // namespace uprobe::control
