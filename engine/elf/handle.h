// SPDX-License-Identifier: MIT
// libelf's view of the file: only this class opens a libelf handle, and all readers of tables use it. libelf checks every index
// and offset against the table that it is given, and the table against the file; the callers bound the rest (counts, the length
// of names, the number of tables).
#pragma once

#include <gelf.h>

#include <climits>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/base/result.h"
#include "engine/elf/bytes_view.h"

namespace uprobe::elf {

// Views the bytes, which must outlive it and which libelf only reads. Not for several threads at a time: a request for data
// links it into the handle.
class Handle {
 public:
  Handle() = default;
  // The bytes begin with a whole ELF64 header of this machine's byte order and the current version.
  static Result<Handle> open(BytesView bytes);

  Elf* get() const { return elf_.get(); }
  // Part of the file as a table of this type; nullptr if it is not wholly inside. A table that is not aligned for its
  // type is copied, hence callers bound how many bytes they ask for.
  Elf_Data* chunk(std::uint64_t offset, std::uint64_t size, Elf_Type type) const;
  // The bytes of a section; nullptr if they are not wholly inside the file.
  Elf_Data* section_data(std::uint64_t index) const;

 private:
  struct End {
    void operator()(Elf* elf) const { elf_end(elf); }
  };
  std::vector<std::uint8_t> without_sections_;  // stands in for a file whose section table cannot be shown to libelf
  std::unique_ptr<Elf, End> elf_;
};

// An entry of a table by gelf_getsym and its kin; nothing if there is no table or no such entry.
template <class T>
std::optional<T> entry_of(T* (*get)(Elf_Data*, int, T*), Elf_Data* table, std::uint64_t index) {
  T value;
  if (table == nullptr || index > INT_MAX || get(table, static_cast<int>(index), &value) == nullptr)
    return std::nullopt;
  return value;
}

inline BytesView bytes_of(const Elf_Data* data) {
  if (data == nullptr || data->d_buf == nullptr) return {};
  return BytesView({static_cast<const std::uint8_t*>(data->d_buf), data->d_size});
}

}  // namespace uprobe::elf
