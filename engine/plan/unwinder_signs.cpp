#include "engine/plan/unwinder_signs.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <string_view>

#include "engine/base/fd.h"

namespace uprobe::plan {
namespace {

bool contains(std::string_view text, std::string_view name) {
  const auto found = std::search(text.begin(), text.end(), std::boyer_moore_searcher(name.begin(), name.end()));
  return found != text.end();
}

}  // namespace

bool may_unwind_by_itself(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat about {};
  if (!file || ::fstat(file.get(), &about) != 0 || about.st_size <= 0) return false;
  const auto size = static_cast<std::size_t>(about.st_size);
  void* const bytes = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (bytes == MAP_FAILED) return false;
  const std::string_view text(static_cast<const char*>(bytes), size);
  const bool found = contains(text, "dl_iterate_phdr") && !contains(text, "_Unwind_");
  ::munmap(bytes, size);
  return found;
}

}  // namespace uprobe::plan
