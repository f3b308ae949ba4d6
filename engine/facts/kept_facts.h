// SPDX-License-Identifier: MIT
// What was found out about files is kept from run to run, in $XDG_CACHE_HOME/uprobe-run (~/.cache/uprobe-run): where control can arrive in a
// file, where it makes system calls, its restartable sequences. Whatever is wrong with an entry, it counts as not being there.
//
// A wrong entry would let the tool patch the middle of an instruction. So an entry is one of
// - the file's own bytes: its name is a number of all of them, and of the build of this code (its build id, ELF's NT_GNU_BUILD_ID), made
//   with a secret of the folder's (content_key.h), so that no other file with that number can be made;
// - this user: the folder and the entry are the effective user's and no other one may look into them or write there;
// - a whole one: it comes by rename(2), and its bytes have a number as well.
// What file may have entries is the caller's decision: not one that another user can write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "engine/facts/content_key.h"
#include "engine/facts/packing.h"

namespace uprobe::facts {

// Facts are kept from now on; before, each is found out anew. Call it before there are other threads. Without the two variables, or where
// this code has no build id, nothing is kept.
void keep_facts();
// The same, in a folder; empty: nothing is kept any more. For tests.
void keep_facts_in(const std::string& folder);

// The key of a file's bytes; nothing: nothing is kept. `variant`: other facts hold for the same bytes.
std::optional<ContentKey> key_of_file(std::span<const std::uint8_t> bytes, std::uint64_t variant);

// Bytes that were read.
struct Bytes {
  std::unique_ptr<std::uint8_t[]> data;
  std::size_t size = 0;
  std::span<const std::uint8_t> span() const { return {data.get(), size}; }
};

// `kind` tells facts of one file apart: a word of letters.
std::optional<Bytes> find(const ContentKey& file, std::string_view kind);
// All entries together take kMostKept bytes at most: those go that were used last before all others.
void keep(const ContentKey& file, std::string_view kind, std::span<const std::uint8_t> facts);

// What is kept of a file, or else what `look` finds, which is kept then. No `file`: it is only looked. `Form` has the type Facts, and says
// what they are as bytes: static void pack(Packer&, const Facts&) and static std::optional<Facts> unpack(Unpacker&).
template <class Form, class Look>
typename Form::Facts kept_or_found(const std::optional<ContentKey>& file, std::string_view kind, const Look& look) {
  if (const auto bytes = file ? find(*file, kind) : std::nullopt) {
    Unpacker from(bytes->span());
    auto facts = Form::unpack(from);
    if (facts && from.is_done()) return std::move(*facts);
  }
  typename Form::Facts facts = look();
  if (!file) return facts;
  Packer to;
  Form::pack(to, facts);
  keep(*file, kind, to.bytes());
  return facts;
}

inline constexpr std::uint64_t kMostEntry = std::uint64_t{96} << 20, kMostKept = std::uint64_t{256} << 20;

}  // namespace uprobe::facts
