// SPDX-License-Identifier: MIT
#include "engine/process/text_view.h"

#include <cstring>

namespace uprobe::control {

Status TextView::read(Addr from, void* to, std::size_t bytes) {
  const std::uint64_t skip = from.value % kPage;
  const Addr page = from - skip;
  if (bytes > kPage - skip) return target_->read(from, to, bytes);
  if (!has_page_ || page != page_) {
    has_page_ = bool(target_->read(page, bytes_.data(), kPage));
    page_ = page;
    if (!has_page_) return target_->read(from, to, bytes);
  }
  std::memcpy(to, bytes_.data() + skip, bytes);
  return ok();
}

}  // namespace uprobe::control
