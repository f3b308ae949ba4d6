// SPDX-License-Identifier: MIT
// Packages of split debug information (.dwp), of DWARF 5 (section 7.3.5) and of GNU's extension of DWARF 4. libdw before 0.191 knows
// none: a unit is taken out as the file (.dwo) that it was before. Internal to this folder.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/regular_file.h"
#include "engine/dwarf/handles.h"
#include "engine/elf/bytes_view.h"

namespace uprobe::dwarf {

// The sections of which a unit has a part; `types` in version 2 alone, the two lists in version 5.
enum class Share : std::uint8_t { info, types, abbrev, line, loc, loclists, str_offsets, macinfo, macro, rnglists };
inline constexpr std::size_t kShares = 10;

// One of a package's two indexes: units, or type units, by their signatures.
class UnitIndex {
 public:
  struct Range {
    std::uint32_t offset = 0, bytes = 0;
  };
  using Row = std::array<std::optional<Range>, kShares>;

  // Nothing: it is damaged.
  static std::optional<UnitIndex> read(elf::BytesView section);
  std::optional<Row> find(std::uint64_t signature) const;
  std::vector<std::uint64_t> signatures() const;
  std::uint32_t units() const { return units_; }
  std::optional<Row> row(std::uint32_t number) const;  // counted from 0
  unsigned version() const { return version_; }

 private:
  elf::BytesView bytes_;
  unsigned version_ = 0;
  std::uint32_t columns_ = 0, units_ = 0, slots_ = 0;
  std::uint64_t rows_at_ = 0;                     // the table of offsets; that of sizes follows it
  std::vector<std::optional<Share>> parts_ = {};  // by column
};

class Package {
 public:
  // The one that belongs to a file with debug information; nothing: there is none that can be read.
  static std::optional<Package> find(const elf::ElfFile& file, const std::string& debug_file);
  static std::optional<Package> parse(const std::string& path, elf::FileBytes bytes);

  // The unit as a file of its own, with its strings alone, and the type units that were in the same file. Nothing: the package has
  // none of this id, or it is damaged, or larger than `most`.
  std::optional<std::string> unit(std::uint64_t id, std::uint64_t most) const;

  const std::string& path() const { return path_; }
  const UnitIndex& units() const { return *units_; }

 private:
  elf::BytesView part(const UnitIndex::Row& row, Share which) const;
  bool add_types(const UnitIndex::Row& of, std::uint64_t most, std::string& info, std::string& types) const;

  Package(std::string path, elf::FileBytes bytes) : path_(std::move(path)), bytes_(std::move(bytes)) {}

  std::string path_;
  elf::FileBytes bytes_;
  std::unique_ptr<Elf, DebugInfo::Handles::End> elf_;
  std::array<elf::BytesView, kShares> sections_;
  elf::BytesView strings_;
  std::optional<UnitIndex> units_, types_;
  std::multimap<std::uint32_t, std::uint32_t> types_by_abbrev_;  // rows of `types_`
};

// What has been taken out of a package for libdw.
struct Packaged {
  bool is_looked_for = false;
  std::optional<Package> package;
  std::map<std::uint64_t, bool> units;  // by id: whether libdw has it
};

// Gives libdw the unit for which a skeleton stands, if a package has it.
void open_packaged(const DebugInfo::Handles& handles, Dwarf_Die skeleton, std::uint64_t id);

}  // namespace uprobe::dwarf
