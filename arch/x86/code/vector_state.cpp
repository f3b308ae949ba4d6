// SPDX-License-Identifier: MIT
#include "arch/code/vector_state.h"

#include <cpuid.h>

namespace uprobe::arch {

// SDM vol. 2, CPUID: leaf 0DH, sub-leaf 2 tells size and place of the AVX component in the standard format of XSAVE.
bool has_ymm() {
  constexpr unsigned kLeaf = 0xd, kAvx = 2, kSize = 256, kPlace = 576;
  unsigned size = 0, place = 0, flags = 0, unused = 0;
  return __builtin_cpu_supports("avx") && __get_cpuid_count(kLeaf, kAvx, &size, &place, &flags, &unused) != 0 &&
         size == kSize && place == kPlace;
}

}  // namespace uprobe::arch
