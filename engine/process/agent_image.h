// SPDX-License-Identifier: MIT
// The parts of libuprobe.so that the tool needs: its segments and its header.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/base/fd.h"
#include "engine/base/result.h"
#include "engine/elf/elf_file.h"
#include "engine/process/fd_transfer.h"
#include "engine/shared/agent_header.h"
#include "engine/target/target.h"

namespace uprobe::control {

// An agent in a process: a copy of its header, and its addresses.
struct MappedAgent {
  shared::AgentHeader header;
  Addr at;    // of the header
  Addr base;  // of the first segment

  Addr place(std::int32_t distance) const {
    return at + static_cast<std::uint64_t>(static_cast<std::int64_t>(distance));
  }
};

// Code::damaged where a header is not that of an agent of this version; `where` names the place for the message.
Error other_abi(std::uint32_t version, const std::string& where);
Status check_agent(const shared::AgentHeader& header, const std::string& where);

class AgentImage {
 public:
  // Code::not_found, or Code::damaged when the file is not an agent of this version.
  static Result<AgentImage> open(const std::string& path);

  std::uint64_t span() const { return span_; }  // the address space that its segments need

  // Maps the segments into the target: from the path, or from a sealed copy in memory where the target cannot open the path
  // (chroot, noexec file system). Returns the base address; on an error nothing stays mapped.
  Result<Addr> map_into(target::Target& target, Addr scratch, std::size_t scratch_bytes) const;
  // The same inside a reservation of span() at `base`, which stays.
  Status map_at(target::Target& target, Addr scratch, std::size_t scratch_bytes, Addr base) const;
  // The steps of that, for a caller that makes all calls at once. The file: the one from which the image was read; its parts, from
  // the path; the calls for data that is in no file; and the writing of zeros after the file's end, when all is mapped.
  Result<Fd> same_file() const;
  FileParts parts_at(Addr base, int file) const;
  std::vector<target::SystemCall> data_calls(Addr base) const;
  Status write_zeros(target::Target& target, Addr base) const;
  MappedAgent mapped_at(Addr base) const { return {header_, base + header_address_, base}; }

 private:
  struct Segment {
    std::uint64_t address, offset, file_bytes, memory_bytes;
    int protection;
  };
  Result<Fd> sealed_copy() const;
  Result<int> open_path_in(target::Target& target, Addr scratch, std::size_t scratch_bytes) const;
  Status map_from(target::Target& target, Addr scratch, std::size_t scratch_bytes, Addr base, bool by_path) const;
  void unmap_from(target::Target& target, Addr base) const;

  std::string path_;
  std::shared_ptr<const elf::ElfFile> file_;
  std::vector<Segment> segments_;
  std::uint64_t span_ = 0;
  shared::AgentHeader header_{};
  std::uint64_t header_address_ = 0;
};

}  // namespace uprobe::control
