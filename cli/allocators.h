// SPDX-License-Identifier: MIT
// The functions that --leak follows: C's, and the forms of C++'s new and delete. A block may be given out by one and taken back by any
// other.
//
// What calls another one of the family (reallocarray: realloc; strdup: malloc) needs no row. The forms of C++ in a C++ library of the
// system call C's; they matter where the program, or a preloaded allocator, has its own.
#pragma once

#include <array>
#include <string_view>

namespace uprobe::cli {

// What a function of the family does: as definitions of an event of its name, before and after the place.
struct Allocator {
  const char* name;
  const char* at_entry;   // null: its entry is not looked at
  const char* at_return;  // null: the same
  bool is_needed =
      false;  // its refusal is that of the option; the others, and functions that do not exist, are left out
};

// The first form of C++'s: where it is in no object, or in the C++ library, none of them matters.
inline constexpr std::string_view kNew = "_Znwm";
// Begins to throw: the `new` that calls it does not return.
inline constexpr std::string_view kThrows = "__cxa_allocate_exception";

inline constexpr const char *kOfFirst = "key=$retval size=entry($arg1)", *kTaken = "key=$arg1";

inline constexpr std::array kAllocators = {
    Allocator{"malloc", nullptr, kOfFirst, true},
    Allocator{"free", kTaken, nullptr, true},
    Allocator{"calloc", nullptr, "key=$retval size=entry($arg2) count=entry($arg1)", true},
    Allocator{"realloc", "moved=$arg1", "key=$retval size=entry($arg2)", true},
    Allocator{"memalign", "", "key=$retval size=entry($arg2)"},
    Allocator{"aligned_alloc", "", "key=$retval size=entry($arg2)"},
    Allocator{"posix_memalign", "", "key=+0(entry($arg1)) size=entry($arg3) failed=$retval:s32"},
    Allocator{"valloc", "", kOfFirst},
    Allocator{"pvalloc", "", kOfFirst},
    Allocator{"execve", "", ""},
    Allocator{"_Znwm", "", kOfFirst},
    Allocator{"_Znam", "", kOfFirst},
    Allocator{"_ZnwmRKSt9nothrow_t", "", kOfFirst},
    Allocator{"_ZnamRKSt9nothrow_t", "", kOfFirst},
    Allocator{"_ZnwmSt11align_val_t", "", kOfFirst},
    Allocator{"_ZnamSt11align_val_t", "", kOfFirst},
    Allocator{"_ZnwmSt11align_val_tRKSt9nothrow_t", "", kOfFirst},
    Allocator{"_ZnamSt11align_val_tRKSt9nothrow_t", "", kOfFirst},
    Allocator{"_ZdlPv", kTaken, nullptr},
    Allocator{"_ZdaPv", kTaken, nullptr},
    Allocator{"_ZdlPvm", kTaken, nullptr},
    Allocator{"_ZdaPvm", kTaken, nullptr},
    Allocator{"_ZdlPvRKSt9nothrow_t", kTaken, nullptr},
    Allocator{"_ZdaPvRKSt9nothrow_t", kTaken, nullptr},
    Allocator{"_ZdlPvSt11align_val_t", kTaken, nullptr},
    Allocator{"_ZdaPvSt11align_val_t", kTaken, nullptr},
    Allocator{"_ZdlPvmSt11align_val_t", kTaken, nullptr},
    Allocator{"_ZdaPvmSt11align_val_t", kTaken, nullptr},
    Allocator{"_ZdlPvSt11align_val_tRKSt9nothrow_t", kTaken, nullptr},
    Allocator{"_ZdaPvSt11align_val_tRKSt9nothrow_t", kTaken, nullptr},
    Allocator{"__cxa_allocate_exception", "", nullptr},
};

constexpr bool is_of_cpp(std::string_view name) { return name.starts_with("_Z") || name == kThrows; }

}  // namespace uprobe::cli
