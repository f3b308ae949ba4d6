// SPDX-License-Identifier: MIT
// Names of addresses in records: of code, by the mappings of the process as they were noted while it lived and by the symbols of the
// mapped files, and of data of the probe's own file. A doubtful address gets no name.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/output/symbols.h"
#include "engine/plan/resolve.h"
#include "engine/symbolize/code_maps.h"
#include "engine/symbolize/stack_unwinder.h"

namespace uprobe {

class SessionSymbols final : public format::Symbols {
 public:
  // sites[i] is the place of the event of type i. `maps` must outlive it.
  SessionSymbols(control::CodeMaps& maps, std::vector<plan::Site> sites);

  format::NamedAddress name_of(const trace::EventRecord& record, std::uint64_t address) override;
  format::CodePlace place_of(const trace::EventRecord* record, std::uint64_t address) override;
  std::vector<format::StackFrame> frames_of(const trace::EventRecord& record) override;

 private:
  using File = std::shared_ptr<const elf::ElfFile>;
  struct Known {
    std::uint64_t address = 0, anchor = 0, generation = 0;
    std::uint32_t tid = 0;
    bool valid = false;
    std::string name;
    std::uint64_t distance = 0, size = 0;
  };

  struct KnownCode {
    std::uint64_t address = 0, anchor = 0, generation = 0;
    std::uint32_t tid = 0;
    bool valid = false;
    CodeAt code;
  };

  // The place of the record's own hit; nothing: the record does not contain it.
  std::optional<control::CodeMaps::Anchor> anchor_of(const trace::EventRecord& record) const;
  void look_again(const trace::EventRecord& record);
  std::vector<control::CodeMapping> mapped_at(const trace::EventRecord& record, const control::CodeMaps::Anchor& anchor,
                                              std::uint64_t address);
  void look_up(const trace::EventRecord& record, const control::CodeMaps::Anchor& anchor, Known& known);
  CodeAt code_at(const trace::EventRecord& record, const control::CodeMaps::Anchor& anchor, std::uint64_t address);
  CodeAt find_code(const trace::EventRecord& record, const control::CodeMaps::Anchor& anchor, std::uint64_t address);
  CodeAt code_in(const elf::ElfFile& file, std::uint64_t link_address);
  // The probe's own file moves as a whole, so it needs no mappings. Nothing: the address is not in its code.
  static std::optional<std::uint64_t> address_in_own(const plan::Site& site, const control::CodeMaps::Anchor& anchor,
                                                     std::uint64_t address);
  File file_of(const control::CodeMapping& mapping);
  void make_room();
  static void name_in(const elf::ElfFile& file, std::uint64_t link_address, Known& known);
  // Whether data of the probe's own file has a name there.
  static bool name_data_in_own(const plan::Site& site, const control::CodeMaps::Anchor& anchor, Known& known);
  static void set_name(const elf::Symbol& symbol, std::uint64_t link_address, Known& known);

  control::CodeMaps& maps_;
  std::vector<plan::Site> sites_;
  plan::FileCache files_;
  std::map<std::string, File> by_path_;                    // null: it is not the file that was mapped
  std::uint64_t file_bytes_ = 0, largest_file_ = 0;        // size of these files, and of one of them
  std::map<const elf::ElfFile*, elf::CallFrames> tables_;  // of the files in by_path_
  std::array<Known, 256> recent_;
  std::array<KnownCode, 1024> recent_code_;
};

}  // namespace uprobe
