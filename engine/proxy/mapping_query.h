// SPDX-License-Identifier: MIT
// PROCMAP_QUERY: single mappings of a process, without the text of all (Linux 6.11, include/uapi/linux/fs.h and fs/proc/task_mmu.c). Another
// user's process may hold the lock that the kernel asks for, so a proxy asks about it (proxy.h).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/proxy/foreign.h"

namespace uprobe::proxy {

// struct procmap_query, which older headers do not have.
struct MappingQuery {
  std::uint64_t size, flags, at;
  std::uint64_t begin, end, vma_flags, page_bytes, offset, inode;
  std::uint32_t major, minor, name_bytes, build_id_bytes;
  std::uint64_t name, build_id;
};
// Of a mapping; the third one says which mappings count, too, the others only that.
inline constexpr std::uint64_t kMappingReadable = 1, kMappingWritable = 2, kMappingExecutable = 4, kMappingShared = 8;
inline constexpr std::uint64_t kMappingOrNext = 16, kMappingOfFile = 32;

struct MappingAnswers {
  std::vector<MappingQuery> found;
  std::string name;  // of a single one
  bool has_failed;   // the kernel does not answer such questions, or this process does not answer
  bool is_over;      // there are no further ones
};
// Mappings from an address on, `most` of them at most. `maps` is the path of a file /proc/PID/maps. user: of the process (foreign.h).
MappingAnswers ask_mappings(std::optional<Owner> user, const std::string& maps, std::uint64_t flags, std::uint64_t at,
                            std::size_t most);

}  // namespace uprobe::proxy
