// SPDX-License-Identifier: MIT
#include "engine/process/agent_image.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/base/fd.h"
#include "engine/elf/elf_file.h"
#include "engine/process/fd_transfer.h"

namespace uprobe::control {
namespace {

constexpr std::uint64_t kPage = 4096;
std::uint64_t page_down(std::uint64_t n) { return n / kPage * kPage; }
std::uint64_t page_up(std::uint64_t n) { return page_down(n + kPage - 1); }

Error not_an_agent(const std::string& path) {
  return Error{.code = Code::damaged, .text = "is not an agent of uprobe-run", .where = path};
}

Error changed(const std::string& path) {
  return Error{.code = Code::damaged, .text = "was replaced by another file after uprobe-run started", .where = path};
}

}  // namespace

Error other_abi(std::uint32_t version, const std::string& where) {
  return Error{.code = Code::damaged,
               .text = "the agent has ABI version " + std::to_string(version) + " and uprobe-run has " +
                       std::to_string(shared::kAbiVersion) + ": install both from the same build",
               .where = where};
}

Status check_agent(const shared::AgentHeader& header, const std::string& where) {
  if (header.magic != shared::kAgentMagic) return not_an_agent(where);
  if (header.abi_version == shared::kAbiVersion && header.header_bytes == sizeof header) return ok();
  return other_abi(header.abi_version, where);
}

Result<AgentImage> AgentImage::open(const std::string& path) {
  auto opened = elf::ElfFile::open(path);
  if (!opened) return opened.error();
  AgentImage image;
  image.path_ = path;
  image.file_ = std::make_shared<const elf::ElfFile>(opened.take());
  const elf::ElfFile* const file = image.file_.get();
  for (const elf::Segment& s : file->segments()) {
    // Every segment of the agent is readable.
    const int protection = PROT_READ | (s.writable ? PROT_WRITE : 0) | (s.executable ? PROT_EXEC : 0);
    image.segments_.push_back({s.address, s.offset, s.file_bytes, s.memory_bytes, protection});
    image.span_ = std::max(image.span_, page_up(s.address + s.memory_bytes));
  }
  const auto symbol = file->find_any("uprobe_agent");
  const auto offset = symbol ? file->offset_of_address(symbol->address) : std::nullopt;
  if (!offset || *offset + sizeof image.header_ > file->bytes().size()) return not_an_agent(path);
  std::memcpy(&image.header_, file->bytes().data() + *offset, sizeof image.header_);
  image.header_address_ = symbol->address;
  RETURN_IF_ERROR(check_agent(image.header_, path));
  return image;
}

// The file from which the bytes were read. Another file may have its name by now.
Result<Fd> AgentImage::same_file() const {
  Fd file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) return system_error("open " + path_, errno);
  return elf::Identity{status.st_dev, status.st_ino} == file_->identity() ? Result<Fd>(std::move(file))
                                                                          : changed(path_);
}

// Sealed: no process that has it open can write to it.
Result<Fd> AgentImage::sealed_copy() const {
  constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  Fd file(::memfd_create("libuprobe.so", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return system_error("memfd_create", errno);
  const int error = write_all(file.get(), file_->bytes().data(), file_->bytes().size());
  if (error != 0) return system_error("writing the agent to a file in memory", error);
  if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) return system_error("sealing a file in memory", errno);
  return file;
}

Result<int> AgentImage::open_path_in(target::Target& target, Addr scratch, std::size_t scratch_bytes) const {
  if (path_.size() + 1 > scratch_bytes) return Error{.code = Code::limit, .text = "path too long", .where = path_};
  RETURN_IF_ERROR(target.write(scratch, path_.c_str(), path_.size() + 1));
  constexpr auto kHere = static_cast<std::uint64_t>(static_cast<std::int64_t>(AT_FDCWD));
  auto number = target.system_call(SYS_openat, {kHere, scratch.value, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0, 0, 0});
  if (!number) return number.error();
  if (*number < 0) return target::failed_in_target("opening the agent", *number);
  return static_cast<int>(*number);
}

FileParts AgentImage::parts_at(Addr base, int file) const {
  FileParts parts{.fd = file, .path = path_, .sharing = MAP_PRIVATE, .parts = {}};
  for (const Segment& s : segments_) {
    const std::uint64_t begin = page_down(s.address), bytes = page_up(s.address + s.file_bytes) - begin;
    parts.parts.push_back({base + begin, bytes, s.protection, s.offset - (s.address - begin)});
  }
  return parts;
}

std::vector<target::SystemCall> AgentImage::data_calls(Addr base) const {
  std::vector<target::SystemCall> calls;
  for (const Segment& s : segments_) {
    const std::uint64_t file_end = page_up(s.address + s.file_bytes), end = page_up(s.address + s.memory_bytes);
    if (end != file_end)
      calls.push_back(
          target::map_call(base + file_end, end - file_end, s.protection, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS));
  }
  return calls;
}

Status AgentImage::write_zeros(target::Target& target, Addr base) const {
  for (const Segment& s : segments_) {
    if (s.memory_bytes <= s.file_bytes || (s.protection & PROT_WRITE) == 0) continue;
    const std::uint64_t end = s.address + s.file_bytes;
    const std::string zeros(page_up(end) - end, '\0');
    RETURN_IF_ERROR(target.write(base + end, zeros.data(), zeros.size()));
  }
  return ok();
}

Status AgentImage::map_from(target::Target& target, Addr scratch, std::size_t scratch_bytes, Addr base,
                            bool by_path) const {
  auto file = by_path ? same_file() : sealed_copy();
  if (!file) return file.error();
  auto number = by_path ? open_path_in(target, scratch, scratch_bytes) : pass_file(target, scratch, file->get());
  if (!number) return number.error();
  const FileParts parts = parts_at(base, file->get());
  Status done = map_parts(target, parts, *number, "the agent");
  if (done) done = check_mapped(target, ranges_of(parts), file->get());
  close_in(target, *number, file->get());
  RETURN_IF_ERROR(done);
  std::vector<target::SystemCall> data = data_calls(base);
  RETURN_IF_ERROR(target.system_calls(data));
  for (const target::SystemCall& call : data)
    if (auto made = target::mapped_by(call, "the agent's data"); !made) return made.error();
  return write_zeros(target, base);
}

Status AgentImage::map_at(target::Target& target, Addr scratch, std::size_t scratch_bytes, Addr base) const {
  const bool has_path = shares_our_view(target.pid());
  if (has_path && map_from(target, scratch, scratch_bytes, base, true)) return ok();
  return map_from(target, scratch, scratch_bytes, base, false);
}

Result<Addr> AgentImage::map_into(target::Target& target, Addr scratch, std::size_t scratch_bytes) const {
  auto base = target::map_memory(target, Addr{0}, span_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0,
                                 "address space for the agent");
  if (!base) return base.error();
  const Status done = map_at(target, scratch, scratch_bytes, *base);
  if (done) return *base;
  unmap_from(target, *base);
  return done.error();
}

void AgentImage::unmap_from(target::Target& target, Addr base) const {
  static_cast<void>(target.system_call(SYS_munmap, {base.value, span_, 0, 0, 0, 0}));
}

}  // namespace uprobe::control
