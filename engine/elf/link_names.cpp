// SPDX-License-Identifier: MIT
#include "engine/elf/link_names.h"

namespace uprobe::elf {
namespace {

constexpr std::size_t kMostNeeded = 1024;        // real programs need some hundred libraries at most
constexpr std::uint64_t kLongestName = 1 << 14;  // of a list of folders

}  // namespace

LinkNames link_names(const Image& image) {
  LinkNames names;
  const auto table = image.dynamic(DT_STRTAB), bytes = image.dynamic(DT_STRSZ);
  if (!table || !bytes) return names;
  const BytesView texts = image.bytes_at(*table).slice(0, *bytes);
  const auto text = [&](std::optional<std::uint64_t> at) {
    return at ? std::string(texts.text(*at, kLongestName).value_or(std::string_view())) : std::string();
  };
  for (const std::uint64_t at : image.all_dynamic(DT_NEEDED))
    if (std::string name = text(at); !name.empty() && names.needed.size() < kMostNeeded)
      names.needed.push_back(std::move(name));
  names.soname = text(image.dynamic(DT_SONAME));
  names.rpath = text(image.dynamic(DT_RPATH));
  names.runpath = text(image.dynamic(DT_RUNPATH));
  return names;
}

}  // namespace uprobe::elf
