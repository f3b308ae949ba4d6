// SPDX-License-Identifier: MIT
#include "engine/pictures/folded.h"

#include "engine/output/values.h"

namespace uprobe::format {

void FoldedFormatter::append(const trace::EventRecord& record, std::string_view comm, Buffer& out) {
  if (record.type >= events_.size()) return;
  stacks_.add(record, comm, events_[record.type]);
  if (stacks_.is_full()) write(out);
}

void FoldedFormatter::write(Buffer& out) {
  for (const auto& [stack, count] : stacks_.sorted()) {
    out.add(stack);
    out.add(" ");
    add_decimal(out, count);
    out.add("\n");
  }
  stacks_.clear();
}

}  // namespace uprobe::format
