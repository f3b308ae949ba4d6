// SPDX-License-Identifier: MIT
#include "engine/target/remote_call_place.h"

#include <elf.h>
#include <sys/auxv.h>

#include <algorithm>
#include <cstddef>

#include "arch/code/remote_call.h"

namespace uprobe::target {

// Over the vDSO's section headers, which no program needs. Every process has the same vDSO: what stood there before is known even
// where code of an earlier tool is left.
Result<RemoteCallPlace> find_remote_call_place(const ProcessFiles& files) {
  const auto maps = files.maps();
  if (!maps) return maps.error();
  const auto vdso = std::find_if(maps->begin(), maps->end(), [](const Mapping& m) { return m.path == "[vdso]"; });
  if (vdso == maps->end())
    return Error{.code = Code::refused, .text = "the program has no vDSO to make system calls in (vdso=0?)"};
  constexpr std::uint64_t kSectionOffset = offsetof(Elf64_Ehdr, e_shoff), kAlignment = 16;
  std::uint64_t offset = 0;
  RETURN_IF_ERROR(files.read(vdso->begin + kSectionOffset, &offset, sizeof offset));
  offset = (offset + kAlignment - 1) / kAlignment * kAlignment;
  if (offset == 0 || offset > vdso->end - vdso->begin || vdso->end - vdso->begin - offset < arch::kRemoteCallBytes)
    return Error{.code = Code::refused, .text = "the program's vDSO has no room to make system calls in"};
  std::vector<std::uint8_t> theirs(offset + arch::kRemoteCallBytes);
  RETURN_IF_ERROR(files.read(vdso->begin, theirs.data(), theirs.size()));
  RemoteCallPlace place{vdso->begin + offset, {theirs.end() - arch::kRemoteCallBytes, theirs.end()}, false};
  const auto* ours = reinterpret_cast<const std::uint8_t*>(::getauxval(AT_SYSINFO_EHDR));
  if (ours == nullptr || !std::equal(theirs.begin(), theirs.end() - arch::kRemoteCallBytes, ours)) return place;
  place.is_left = !std::equal(place.before.begin(), place.before.end(), ours + offset);
  std::copy_n(ours + offset, arch::kRemoteCallBytes, place.before.begin());
  return place;
}

}  // namespace uprobe::target
