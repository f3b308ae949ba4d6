// SPDX-License-Identifier: MIT
#include "engine/inject/preloaded.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "engine/mailbox/futex.h"

namespace uprobe::control {
namespace {

using shared::Bootstrap;

Error senseless(std::string what) { return Error{.code = Code::damaged, .text = std::move(what)}; }

// The agent claims its process id, so this checks that the process has the page at the address in it.
Status check_owner(const target::ProcessFiles& files, int page, std::uint64_t address) {
  struct stat status {};
  if (::fstat(page, &status) != 0) return system_error("fstat", errno);
  const auto maps = files.maps();
  if (!maps) return maps.error();
  const bool there = std::any_of(maps->begin(), maps->end(), [&](const target::Mapping& m) {
    return m.begin.value == address && m.shared && m.inode == status.st_ino;
  });
  return there ? ok() : senseless("process " + std::to_string(files.pid()) + " does not have the page of its agent");
}

// The beginning of the object that is mapped at `inside`.
Result<Addr> object_at(const target::ProcessFiles& files, Addr inside) {
  const auto maps = files.maps();
  if (!maps) return maps.error();
  const target::Mapping* here = target::mapping_at(*maps, inside);
  if (here == nullptr || !here->is_file()) return senseless("the agent's header is not in a mapped file");
  const auto first =
      std::find_if(maps->begin(), maps->end(), [&](const target::Mapping& m) { return m.path == here->path; });
  return first->begin;
}

}  // namespace

// Reads and writes whole words, because both sides use them at once.
Status Preloaded::PageLine::read(std::size_t offset, void* to, std::size_t bytes) {
  const auto* from =
      reinterpret_cast<const std::uint32_t*>(reinterpret_cast<const std::uint8_t*>(&page_.slot) + offset);
  auto* words = static_cast<std::uint32_t*>(to);
  for (std::size_t i = 0; i < bytes / sizeof *from; ++i) words[i] = __atomic_load_n(from + i, __ATOMIC_SEQ_CST);
  return ok();
}

Status Preloaded::PageLine::write(std::size_t offset, const void* from, std::size_t bytes) {
  auto* to = reinterpret_cast<std::uint32_t*>(reinterpret_cast<std::uint8_t*>(&page_.slot) + offset);
  const auto* words = static_cast<const std::uint32_t*>(from);
  for (std::size_t i = 0; i < bytes / sizeof *to; ++i) __atomic_store_n(to + i, words[i], __ATOMIC_SEQ_CST);
  return ok();
}

void Preloaded::PageLine::wake() {
  __atomic_fetch_add(&page_.wake, 1, __ATOMIC_RELEASE);
  futex_wake(page_.wake);
}

std::uint32_t Preloaded::PageLine::rung() { return __atomic_load_n(&page_.bell, __ATOMIC_ACQUIRE); }

void Preloaded::PageLine::wait(std::uint32_t rung, std::chrono::nanoseconds limit) {
  futex_wait(page_.bell, rung, limit);
}

Preloaded::Preloaded(Fd page, Bootstrap* shared)
    : page_(std::move(page)), shared_(shared), line_(*shared), thread_(line_), blocked_(shared->blocked) {
  heartbeat_.emplace(shared->heartbeat);
}

Preloaded::~Preloaded() { finish(false); }

Result<std::unique_ptr<Preloaded>> Preloaded::open(Fd page) {
  struct stat status {};
  if (::fstat(page.get(), &status) != 0 || status.st_size != shared::kBootstrapBytes)
    return senseless("not the page of a preloaded agent");
  void* at = ::mmap(nullptr, shared::kBootstrapBytes, PROT_READ | PROT_WRITE, MAP_SHARED, page.get(), 0);
  if (at == MAP_FAILED) return system_error("mmap of the agent's page", errno);
  auto* shared = static_cast<Bootstrap*>(at);
  const std::uint64_t magic = shared->magic;
  const std::uint32_t version = shared->abi_version;
  if (magic != shared::kBootstrapMagic || version != shared::kAbiVersion) {
    ::munmap(at, shared::kBootstrapBytes);
    if (magic != shared::kBootstrapMagic) return senseless("not the page of a preloaded agent");
    return other_abi(version, "libuprobe.so");
  }
  std::unique_ptr<Preloaded> program(new Preloaded(std::move(page), shared));
  if (!program->thread_.has_request() || !program->thread_.begin())
    return Error{.code = Code::killed, .text = "the program has given up waiting"};
  RETURN_IF_ERROR(program->find_process());
  return program;
}

Status Preloaded::find_process() {
  // Yama lets a process write only its descendants' memory, unless the other one permits it. Without Yama this call fails.
  const auto us = static_cast<std::uint64_t>(::getpid());
  RETURN_IF_ERROR(thread_.command({SYS_prctl, PR_SET_PTRACER, us, 0, 0, 0, 0}));
  const auto pid = static_cast<pid_t>(shared_->pid);
  const Fd handle(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!handle) return system_error("pidfd_open", errno);
  auto files = target::ProcessFiles::open(pid);
  if (!files) return files.error();
  RETURN_IF_ERROR(check_owner(*files, page_.get(), shared_->address));
  if (::syscall(SYS_pidfd_send_signal, handle.get(), 0, nullptr, 0) != 0) return senseless("the program has ended");
  agent_.at = Addr{shared_->agent};
  RETURN_IF_ERROR(files->read(agent_.at, &agent_.header, sizeof agent_.header));
  RETURN_IF_ERROR(check_agent(agent_.header, "libuprobe.so"));
  auto base = object_at(*files, agent_.at);
  if (!base) return base.error();
  agent_.base = *base;
  files_.emplace(files.take());
  target_.emplace(*files_, thread_);
  return ok();
}

Result<Block> Preloaded::load(const trace::Area& area, const BlockNeeds& needs) {
  return install_agent(*target_, agent_, area, needs, blocked_);
}

bool Preloaded::finish(bool armed) {
  if (shared_ == nullptr) return false;
  shared_->slot.result = armed ? 0 : 1;
  const bool waited = thread_.finish();
  heartbeat_.reset();
  ::munmap(shared_, shared::kBootstrapBytes);
  shared_ = nullptr;
  return waited;
}

bool Preloaded::is_deserted() const { return ::fcntl(page_.get(), F_ADD_SEALS, F_SEAL_WRITE) == 0; }

}  // namespace uprobe::control
