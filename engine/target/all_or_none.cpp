// SPDX-License-Identifier: MIT
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <vector>

#include "arch/code/finishing_code.h"
#include "engine/base/procfs.h"
#include "engine/target/seccomp.h"
#include "engine/target/stopped_process.h"
#include "engine/target/thread_change.h"

namespace uprobe::target {
namespace {

using Thread = StoppedProcess::Thread;

constexpr std::uint64_t kEverySignal = ~std::uint64_t{0};
constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kCodeBytes = (arch::kFinishingBytes + 15) / 16 * 16;

Error not_here(const char* why) { return Error{.code = Code::refused, .text = why}; }

std::uint64_t protection_of(const Mapping& m) {
  return (m.readable ? PROT_READ : 0U) | (m.writable ? PROT_WRITE : 0U) | (m.executable ? PROT_EXEC : 0U);
}

std::uint64_t in_pages(std::uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

class AllOrNone {
 public:
  AllOrNone(StoppedProcess& process, std::span<const MemoryPiece> pieces) : process_(process), pieces_(pieces) {}

  Status run() {
    RETURN_IF_ERROR(may_be_done());
    RETURN_IF_ERROR(list_bytes());
    if (bytes_.empty()) return ok();
    RETURN_IF_ERROR(list_mappings());
    Status made = place();
    if (made) made = redirect();
    if (made) made = write();
    close_text();
    lead_home();
    unmap();
    return made;
  }

 private:
  Status may_be_done() const {
    const pid_t pid = process_.pid();
    if (process_.threads().empty()) return process_ended();
    if (std::ranges::any_of(process_.threads(), [pid](const Thread& t) { return is_filtered(pid, t.tid); }))
      return not_here("it has a seccomp filter");
    // What is locked would be copied as a whole once it is writable (mm/mprotect.c).
    const auto status = procfs::read(pid, "status");
    const auto locked = status ? procfs::field(*status, "VmLck") : std::nullopt;
    return locked && locked->ends_with(" 0 kB") ? ok() : Status(not_here("it has locked memory"));
  }

  Status list_bytes() {
    for (const MemoryPiece& piece : pieces_) {
      std::vector<std::uint8_t> now(piece.bytes.size());
      RETURN_IF_ERROR(process_.read(piece.at, now.data(), now.size()));
      for (std::size_t i = 0; i < now.size(); ++i)
        if (now[i] != piece.bytes[i]) bytes_.push_back({(piece.at + i).value, piece.bytes[i]});
    }
    return ok();
  }

  Status list_mappings() {
    const auto maps = process_.maps();
    if (!maps) return maps.error();
    for (const arch::ListedByte& byte : bytes_) {
      const Mapping* const m = mapping_at(*maps, Addr{byte.at});
      if (m == nullptr || m->shared || !m->readable) return not_here("its text is not in private memory");
      if (!mappings_.empty() && mappings_.back().begin == m->begin.value) continue;
      mappings_.push_back({m->begin.value, m->end - m->begin, protection_of(*m)});
    }
    return ok();
  }

  Result<Addr> map(std::uint64_t bytes, int protection) {
    return map_memory(process_, Addr{}, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, "a list of writes");
  }
  std::uint64_t list_bytes_all() const {
    return in_pages(sizeof(arch::UnfinishedWrites) + bytes_.size() * sizeof(arch::ListedByte) +
                    mappings_.size() * sizeof(arch::ListedMapping));
  }
  std::uint64_t code_bytes_all() const { return in_pages(process_.threads().size() * kCodeBytes); }

  Status place() {
    const auto list = map(list_bytes_all(), PROT_READ | PROT_WRITE);
    if (!list) return list.error();
    list_ = *list;
    const auto code = map(code_bytes_all(), PROT_READ | PROT_EXEC);
    if (!code) return code.error();
    code_ = *code;
    RETURN_IF_ERROR(process_.bring_home());
    return write_list();
  }
  Status write_list() {
    const Addr mappings = list_ + sizeof(arch::UnfinishedWrites);
    const Addr bytes = mappings + mappings_.size() * sizeof(arch::ListedMapping);
    const arch::UnfinishedWrites head{.bytes = 0,
                                      .threads = static_cast<std::uint32_t>(process_.threads().size()),
                                      .mappings = static_cast<std::uint32_t>(mappings_.size()),
                                      .reserved = 0,
                                      .mapping_list = mappings.value,
                                      .byte_list = bytes.value};
    RETURN_IF_ERROR(process_.write(list_, &head, sizeof head));
    RETURN_IF_ERROR(process_.write(mappings, mappings_.data(), mappings_.size() * sizeof(arch::ListedMapping)));
    return process_.write(bytes, bytes_.data(), bytes_.size() * sizeof(arch::ListedByte));
  }

  // The way home restores the mask as well: the registers first.
  Status redirect() {
    Addr code = code_;
    own_.reserve(process_.threads().size());
    for (Thread thread : std::vector<Thread>(process_.threads())) {
      leave_sequence(process_, thread.tid, thread.registers);
      const auto bytes = arch::make_finishing_code(list_.value, way_home(thread.registers, thread.mask));
      RETURN_IF_ERROR(process_.write(code, bytes.data(), bytes.size()));
      own_.push_back(thread);
      arch::ThreadRegisters r = thread.registers;
      arch::set_instruction_pointer(r, code.value);
      arch::forget_call(r);
      arch::clear_modes(r);
      RETURN_IF_ERROR(process_.set_registers(thread.tid, r));
      RETURN_IF_ERROR(process_.set_mask(thread.tid, kEverySignal));
      code = code + kCodeBytes;
    }
    return open_text();
  }
  // The call's own way home leads to where the thread was led.
  Status open_text() {
    for (const arch::ListedMapping& m : mappings_) {
      is_open_ = true;
      const auto done = process_.system_call(SYS_mprotect, {m.begin, m.bytes, m.protection | PROT_WRITE, 0, 0, 0});
      if (!done) return done.error();
      if (*done != 0) return not_here("it does not allow its text to be writable");
    }
    return process_.bring_home();
  }

  Status count(std::uint32_t bytes) {
    return process_.write(list_ + offsetof(arch::UnfinishedWrites, bytes), &bytes, sizeof bytes);
  }
  Status write() {
    RETURN_IF_ERROR(count(static_cast<std::uint32_t>(bytes_.size())));
    const Status written = process_.Target::write_all(pieces_);
    const Status done = count(0);
    return written ? done : written;
  }

  void close_text() {
    if (!is_open_) return;
    for (const arch::ListedMapping& m : mappings_)
      static_cast<void>(process_.system_call(SYS_mprotect, {m.begin, m.bytes, m.protection, 0, 0, 0}));
    static_cast<void>(process_.bring_home());
  }
  // The mask first, as before.
  void lead_home() {
    for (const Thread& thread : own_) {
      static_cast<void>(process_.set_mask(thread.tid, thread.mask));
      static_cast<void>(process_.set_registers(thread.tid, thread.registers));
    }
  }
  void unmap() {
    for (const auto& [at, bytes] : {std::pair(list_, list_bytes_all()), {code_, code_bytes_all()}})
      if (at) static_cast<void>(process_.system_call(SYS_munmap, {at.value, bytes, 0, 0, 0, 0}));
  }

  StoppedProcess& process_;
  std::span<const MemoryPiece> pieces_;
  std::vector<arch::ListedByte> bytes_;
  std::vector<arch::ListedMapping> mappings_;
  std::vector<Thread> own_;  // what the threads that are led elsewhere go back to
  Addr list_, code_;
  bool is_open_ = false;
};

}  // namespace

Status write_all_or_none(StoppedProcess& process, std::span<const MemoryPiece> pieces) {
  return AllOrNone(process, pieces).run();
}

}  // namespace uprobe::target
