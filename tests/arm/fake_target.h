// SPDX-License-Identifier: MIT
// A process that exists only in memory: mappings, bytes, and a record of all accesses to it.
#pragma once

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/elf/elf_file.h"
#include "engine/target/target.h"

namespace uprobe::test {

using target::Mapping;

class FakeTarget : public target::Target {
 public:
  struct Write {
    Addr at;
    std::vector<std::uint8_t> bytes;
  };
  std::vector<Write> writes;
  std::vector<Addr> reads;
  std::vector<long> calls;
  std::function<void(const Write&)> on_write;  // called before each write

  // The id of a real process: files are looked up through /proc/PID/root.
  pid_t pid() const override { return ::getpid(); }
  Result<std::vector<Mapping>> maps() override { return maps_; }

  void map(Mapping mapping, const std::vector<std::uint8_t>& contents = {}) {
    std::vector<std::uint8_t>& bytes = memory_[mapping.begin.value];
    bytes = contents;
    bytes.resize(mapping.end - mapping.begin);
    maps_.insert(std::upper_bound(maps_.begin(), maps_.end(), mapping,
                                  [](const Mapping& a, const Mapping& b) { return a.begin < b.begin; }),
                 std::move(mapping));
  }
  void unmap(Addr begin) {
    memory_.erase(begin.value);
    std::erase_if(maps_, [begin](const Mapping& m) { return m.begin == begin; });
  }
  void map_anonymous(Addr begin, std::uint64_t bytes, const std::string& name = "") {
    Mapping m;
    m.begin = begin, m.end = begin + bytes, m.readable = m.writable = true, m.path = name;
    map(m);
  }
  // The code segment of a file as a loader maps it, link address 0 at `base`; returns where it went.
  Mapping map_code(const elf::ElfFile& file, Addr base) {
    for (const elf::Segment& s : file.segments()) {
      if (!s.executable) continue;
      Mapping m;
      const std::uint64_t skew = s.address % 4096;
      m.begin = base + (s.address - skew);
      m.end = m.begin + (skew + s.file_bytes + 4095) / 4096 * 4096;
      m.readable = m.executable = true;
      m.offset = s.offset - skew;
      m.inode = file.identity().inode;
      m.path = file.path();
      const auto bytes =
          file.bytes().subspan(m.offset, std::min<std::uint64_t>(m.end - m.begin, file.bytes().size() - m.offset));
      map(m, {bytes.begin(), bytes.end()});
      return m;
    }
    return {};
  }

  Status read(Addr from, void* to, std::size_t bytes) override {
    reads.push_back(from);
    std::uint8_t* at = find(from, bytes);
    if (at == nullptr) return system_error("read of the target's memory", EIO);
    std::memcpy(to, at, bytes);
    return ok();
  }
  Status write(Addr to, const void* from, std::size_t bytes) override {
    std::uint8_t* at = find(to, bytes);
    if (at == nullptr) return system_error("write to the target's memory", EIO);
    const auto* source = static_cast<const std::uint8_t*>(from);
    writes.push_back({to, {source, source + bytes}});
    if (on_write) on_write(writes.back());
    std::memcpy(at, from, bytes);
    return ok();
  }
  template <class T>
  T get(Addr at) {
    T value{};
    static_cast<void>(read(at, &value, sizeof value));
    return value;
  }

  Result<std::int64_t> system_call(long number, const std::array<std::uint64_t, 6>& a) override {
    calls.push_back(number);
    if (number != SYS_mmap) return std::int64_t{-ENOSYS};
    if (a[0] == 0 || (a[3] & MAP_FIXED_NOREPLACE) == 0) return std::int64_t{-EINVAL};
    for (const Mapping& m : maps_)
      if (a[0] < m.end.value && m.begin.value < a[0] + a[1]) return std::int64_t{-EEXIST};
    Mapping m;
    m.begin = Addr{a[0]}, m.end = m.begin + a[1];
    m.readable = (a[2] & PROT_READ) != 0, m.writable = (a[2] & PROT_WRITE) != 0, m.executable = (a[2] & PROT_EXEC) != 0;
    map(m);
    return static_cast<std::int64_t>(a[0]);
  }

 private:
  std::uint8_t* find(Addr at, std::size_t bytes) {
    auto next = memory_.upper_bound(at.value);
    if (next == memory_.begin()) return nullptr;
    auto& [begin, contents] = *--next;
    const std::uint64_t skip = at.value - begin;
    return skip <= contents.size() && bytes <= contents.size() - skip ? contents.data() + skip : nullptr;
  }

  std::vector<Mapping> maps_;
  std::map<std::uint64_t, std::vector<std::uint8_t>> memory_;
};

}  // namespace uprobe::test
