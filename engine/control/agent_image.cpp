#include "engine/control/agent_image.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/base/fd.h"
#include "engine/control/passed_file.h"
#include "engine/elf/elf_file.h"

namespace uprobe::control {
namespace {

constexpr std::uint64_t kPage = 4096;
std::uint64_t page_down(std::uint64_t n) { return n / kPage * kPage; }
std::uint64_t page_up(std::uint64_t n) { return page_down(n + kPage - 1); }

Error not_an_agent(const std::string& path) {
  return Error{.code = Code::damaged, .text = "not an agent of this version", .where = path};
}

}  // namespace

bool is_our_agent(const shared::AgentHeader& header) {
  return header.magic == shared::kAgentMagic && header.abi_version == shared::kAbiVersion &&
         header.header_bytes == sizeof header;
}

Result<AgentImage> AgentImage::open(const std::string& path) {
  auto file = elf::ElfFile::open(path);
  if (!file) return file.error();
  AgentImage image;
  image.path_ = path;
  image.identity_ = file->identity();
  image.bytes_.assign(file->bytes().begin(), file->bytes().end());
  for (const elf::Segment& s : file->segments()) {
    // Every segment of the agent is readable.
    const int protection = PROT_READ | (s.writable ? PROT_WRITE : 0) | (s.executable ? PROT_EXEC : 0);
    image.segments_.push_back({s.address, s.offset, s.file_bytes, s.memory_bytes, protection});
    image.span_ = std::max(image.span_, page_up(s.address + s.memory_bytes));
  }
  const auto symbol = file->find_any("uprobe_agent");
  const auto offset = symbol ? file->offset_of_address(symbol->address) : std::nullopt;
  if (!offset || *offset + sizeof image.header_ > image.bytes_.size()) return not_an_agent(path);
  std::memcpy(&image.header_, image.bytes_.data() + *offset, sizeof image.header_);
  image.header_address_ = symbol->address;
  if (!is_our_agent(image.header_)) return not_an_agent(path);
  return image;
}

// An anonymous file of the target's.
Status AgentImage::fill(pid_t pid, int fd) const {
  const std::string link = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  Fd file(::open(link.c_str(), O_RDWR | O_CLOEXEC));
  if (!file) return system_error("open " + link, errno);
  const int error = write_all(file.get(), bytes_.data(), bytes_.size());
  return error == 0 ? ok() : system_error("writing the agent to an anonymous file", error);
}

// Under another root the same path may be another file.
Status AgentImage::compare(pid_t pid, int fd) const {
  struct stat status {};
  const std::string link = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  if (::stat(link.c_str(), &status) != 0) return system_error("stat " + link, errno);
  return elf::Identity{status.st_dev, status.st_ino} == identity_ ? ok() : not_an_agent(path_);
}

Result<int> AgentImage::open_in(target::Target& target, Addr scratch, std::size_t scratch_bytes, bool anonymous) const {
  const std::string name = anonymous ? "libuprobe.so" : path_;
  if (name.size() + 1 > scratch_bytes) return Error{.code = Code::limit, .text = "path too long", .where = path_};
  if (Status s = target.write(scratch, name.c_str(), name.size() + 1); !s) return s.error();
  constexpr auto kHere = static_cast<std::uint64_t>(static_cast<std::int64_t>(AT_FDCWD));
  auto fd = anonymous ? target.system_call(SYS_memfd_create, {scratch.value, MFD_CLOEXEC, 0, 0, 0, 0})
                      : target.system_call(SYS_openat, {kHere, scratch.value, O_RDONLY | O_CLOEXEC, 0, 0, 0});
  if (!fd) return fd.error();
  if (*fd < 0) return system_error("opening the agent in the target", static_cast<int>(-*fd));
  const Status filled =
      anonymous ? fill(target.pid(), static_cast<int>(*fd)) : compare(target.pid(), static_cast<int>(*fd));
  if (filled) return static_cast<int>(*fd);
  close_in(target, static_cast<int>(*fd));
  return filled.error();
}

Status AgentImage::map_segment(target::Target& target, Addr base, const Segment& s, int fd) const {
  const std::uint64_t begin = page_down(s.address), skew = s.address - begin;
  const std::uint64_t file_end = page_up(s.address + s.file_bytes), memory_end = page_up(s.address + s.memory_bytes);
  auto made = target::map_memory(target, base + begin, file_end - begin, s.protection, MAP_PRIVATE | MAP_FIXED, fd,
                                 s.offset - skew, "the agent");
  if (!made) return made.error();
  if (s.memory_bytes > s.file_bytes && (s.protection & PROT_WRITE) != 0) {
    const std::string zeros(file_end - (s.address + s.file_bytes), '\0');
    if (Status cleared = target.write(base + s.address + s.file_bytes, zeros.data(), zeros.size()); !cleared)
      return cleared;
  }
  if (memory_end == file_end) return ok();
  auto bss = target::map_memory(target, base + file_end, memory_end - file_end, s.protection,
                                MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0, "the agent's data");
  if (!bss) return bss.error();
  return ok();
}

Result<Addr> AgentImage::map_into(target::Target& target, Addr scratch, std::size_t scratch_bytes) const {
  auto base =
      target::map_memory(target, Addr{0}, span_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, "the agent's place");
  if (!base) return base.error();
  Status done = ok();
  for (const bool anonymous : {false, true}) {
    auto fd = open_in(target, scratch, scratch_bytes, anonymous);
    if (!fd) {
      done = fd.error();
      continue;
    }
    done = ok();
    for (const Segment& segment : segments_)
      if (done) done = map_segment(target, *base, segment, *fd);
    close_in(target, *fd);
    if (done) return *base;
  }
  unmap_from(target, *base);
  return done.error();
}

void AgentImage::unmap_from(target::Target& target, Addr base) const {
  static_cast<void>(target.system_call(SYS_munmap, {base.value, span_, 0, 0, 0, 0}));
}

}  // namespace uprobe::control
