// SPDX-License-Identifier: MIT
#include "engine/patch/single_threaded_start.h"

#include <algorithm>
#include <iterator>
#include <memory>

#include "engine/process/processes.h"
#include "engine/shared/process_block.h"

namespace uprobe::control {

bool is_single_threaded_at_start(target::Target& target, Addr block) {
  const auto head = std::make_unique<shared::ProcessBlock>();
  if (threads_of(target.pid()).size() != 1 || !target.read(block, head.get(), sizeof *head)) return false;
  // Neither SIG_DFL, 0, nor SIG_IGN, 1.
  const auto has_handler = [](const auto& action) { return action.handler > 1; };
  return shared::borrowers(head->own_rseq) == 0 && (head->flags & shared::kBlockAttached) == 0 &&
         std::none_of(std::begin(head->actions), std::end(head->actions), has_handler) &&
         std::none_of(std::begin(head->others), std::end(head->others), has_handler);
}

}  // namespace uprobe::control
