// SPDX-License-Identifier: MIT
// Rust's manglings as text, whole, cut and hostile.
#include <gtest/gtest.h>

#include "engine/elf/elf_file.h"
#include "engine/names/demangle.h"
#include "engine/names/demangle_rust.h"

namespace uprobe::elf {
namespace {

// As rustc 1.95 made them, and as rustfilt prints them.
constexpr std::pair<const char*, const char*> kV0[] = {
    {"_RNvCs2ndz2m94zur_4demo4main", "demo::main"},
    {"_RINvNtCs2ndz2m94zur_4demo4shop3arrKj3_EB4_", "demo::shop::arr::<3>"},
    {"_RINvNtCs2ndz2m94zur_4demo4shop3maxdEB4_", "demo::shop::max::<f64>"},
    {"_RNCNvCs2ndz2m94zur_4demo4main0B3_", "demo::main::{closure#0}"},
    {"_RNvMs_NtCs2ndz2m94zur_4demo4shopINtB4_4CartThReEE4sizeB6_", "<demo::shop::Cart<(u8, &str)>>::size"},
    {"_RNSNvYNCNvCs2ndz2m94zur_4demo4main0INtNtNtCsgEmfK2I1SDS_4core3ops8function6FnOnceTlEE9call_once6vtableB8_",
     "<demo::main::{closure#0} as core::ops::function::FnOnce<(i32,)>>::call_once::{shim:vtable#0}"},
    {"_RNvNtCslNYArtu3iFV_5alloc5boxed14box_new_uninit", "alloc::boxed::box_new_uninit"},
};

constexpr std::pair<const char*, const char*> kLegacy[] = {
    {"_ZN4demo4main17h38e95565b6f46d0eE", "demo::main"},
    {"_ZN4demo4main28_$u7b$$u7b$closure$u7d$$u7d$17h9cc6dfa1d05f8d8eE", "demo::main::{{closure}}"},
    {"_ZN4demo4shop13Cart$LT$T$GT$4size17hde1f4d569f6289e2E", "demo::shop::Cart<T>::size"},
};

TEST(RustNames, NewerMangling) {
  for (const auto& [symbol, text] : kV0) {
    EXPECT_EQ(demangle_rust_v0(symbol).value_or("-"), text);
    EXPECT_EQ(demangle(symbol), text);
  }
}

TEST(RustNames, OlderMangling) {
  for (const auto& [symbol, text] : kLegacy) {
    EXPECT_EQ(demangle_rust_legacy(symbol).value_or("-"), text);
    EXPECT_EQ(demangle(symbol), text);
  }
  EXPECT_EQ(demangle_rust_legacy("_ZN41_$LT$demo..Cart$u20$as$u20$demo..Shop$GT$3add17he907612301c9378bE.llvm.12"),
            "<demo::Cart as demo::Shop>::add");
}

TEST(RustNames, NamesOfCppAreNot) {
  for (const char* symbol : {"_ZN4shop4Cart3addEi", "_ZN4demo4main17h38e95565b6f46d0gE", "_Z4mainv", "_ZN",
                             "_ZN17h0123456789abcdefE", "main", ""})
    EXPECT_FALSE(demangle_rust_legacy(symbol)) << symbol;
}

TEST(RustNames, CutOnesFail) {
  for (const auto& [symbol, text] : kV0)
    for (std::size_t bytes = 0; bytes < std::string(symbol).size(); ++bytes)
      static_cast<void>(demangle_rust_v0(std::string(symbol).substr(0, bytes)));
  EXPECT_FALSE(demangle_rust_v0("_RNvC4demo"));
}

TEST(RustNames, HostileOnesAreBounded) {
  std::string nested = "_R";
  for (int i = 0; i < 10000; ++i) nested += "Nv";
  EXPECT_FALSE(demangle_rust_v0(nested));
  // Each back reference repeats all before it.
  std::string doubled = "_RINvC1a1bTll";
  for (int i = 0; i < 40; ++i) doubled += "TB7_B7_E";
  EXPECT_FALSE(demangle_rust_v0(doubled + "EE").value_or("").size() > (1u << 15));
  for (const char* symbol :
       {"_RB_", "_RB0_", "_RNvB_1a", "_RNvC4demo99999999999999999999a", "_RINvC1a1bKj_E", "_RINvC1a1bFG9_EuE"})
    static_cast<void>(demangle_rust_v0(symbol));
}

TEST(RustNames, AreAlsoSpokenWithoutTheirTypes) {
  const char* symbol = "_RNvMs_NtCs2ndz2m94zur_4demo4shopINtB4_4CartThReEE4sizeB6_";
  const SpokenNames names = spoken_names(symbol, demangle(symbol));
  for (const char* name :
       {"demo::shop::Cart::size", "demo::shop::Cart<(u8,&str)>::size", "<demo::shop::Cart<(u8,&str)>>::size"})
    EXPECT_NE(std::find(names.accepted.begin(), names.accepted.end(), name), names.accepted.end()) << name;
}

}  // namespace
}  // namespace uprobe::elf
