// SPDX-License-Identifier: MIT
// Fuzzes /proc's files about a process, parts of which (paths, names) the process chooses: lists of mappings, the line of its
// state; and the map and the dump of generated code, all of which it writes.
#include <algorithm>
#include <cstdlib>

#include "engine/generated/jit_dump.h"
#include "engine/generated/perf_map.h"
#include "engine/target/maps.h"
#include "engine/target/process_stat.h"
#include "tests/fuzz/driver.h"

namespace {

using namespace uprobe;
using namespace uprobe::target;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_maps(std::string_view text) {
  std::vector<Mapping> maps = parse_maps(text);
  require(maps.size() <= static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1);
  for (const Mapping& m : maps) require(m.path.find('\n') == std::string::npos && m.path.size() <= text.size());
  // The kernel's lists are sorted; the rest of the tool relies on that.
  std::sort(maps.begin(), maps.end(), [](const Mapping& a, const Mapping& b) { return a.begin < b.begin; });
  for (const Mapping& m : maps) {
    const Mapping* found = mapping_at(maps, m.begin);
    require(found == nullptr || (found->begin <= m.begin && m.begin < found->end));
  }
  for (const Addr place : free_places_near(maps, Addr{0x400000}, Addr{0x500000}, 65536)) {
    const auto overlaps = [&](const Mapping& m) {
      return m.begin < m.end && m.begin.value < 0x7ffffffff000 && m.begin < place + 65536 && place < m.end;
    };
    require(std::none_of(maps.begin(), maps.end(), overlaps));
  }
}

void check_map_of_code(std::string_view line) {
  const auto function = control::parse_perf_map_line(line);
  if (!function) return;
  require(function->address != 0 && function->bytes != 0 && function->address + function->bytes < 1ULL << 47);
  require(!function->name.empty() && function->name.size() < line.size());
}

bool is_code(std::uint64_t address, std::uint64_t bytes) {
  return address != 0 && bytes != 0 && address < 1ULL << 47 && bytes < 1ULL << 47 && address + bytes < 1ULL << 47;
}

void check_dump_of_code(std::string_view text) {
  if (const auto header = control::parse_jit_header(text)) require(*header >= 40 && *header <= 4096);
  const auto record = control::parse_jit_record(text);
  if (!record) return;
  require(record->bytes >= 16);
  if (record->made) {
    require(is_code(record->made->address, record->made->bytes));
    require(!record->made->name.empty() &&
            record->made->name.size() < std::min<std::size_t>(text.size(), record->bytes));
  }
  if (record->moved)
    require(is_code(record->moved->from, record->moved->bytes) && is_code(record->moved->to, record->moved->bytes));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_maps(text);
  check_map_of_code(text);
  check_dump_of_code(text);
  if (const auto stat = parse_stat(text)) {
    require(stat->name.size() < text.size());
    (void)is_kernel_thread(*stat);
    (void)has_ended(*stat);
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  const std::string made(
      "\0\0\0\0\x3d\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\1\0\0\0\0\x10\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\x10\0\0\0\0\0\0\0"
      "\7\0\0\0\0\0\0\0name\0",
      61);
  const std::string moved = std::string("\1\0\0\0\x40\0\0\0", 8) + made.substr(8, 32) + made.substr(24, 24);
  const std::string header = std::string("DTiJ\1\0\0\0\x28\0\0\0", 12) + std::string(28, '\0');
  return {
      made,
      moved,
      header,
      "00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/dbus daemon\n"
      "00651000-00652000 rw-s 00051000 08:02 173521      /tmp/a (deleted)\n"
      "00e03000-00e24000 rw-p 00000000 00:00 0           [heap]\n"
      "7f0000000000-7f0000021000 ---p 00000000 00:00 0 \n"
      "7fffb2c0d000-7fffb2c2e000 rw-p 00000000 00:00 0   [stack]\n"
      "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n",
      "1234 (a) b) (c) S 1 1234 1234 0 -1 4194560 107 0 0 0 0 0 0 0 20 0 3 0 8312 2461696 120 18446744073709551615\n",
      "7f0000001000 20 LazyCompile:*f /a b.js:1:13",
      "0x7f0000001000 0x20 int Main.work(int)",
      "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0\n",
  };
}
