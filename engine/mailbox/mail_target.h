// SPDX-License-Identifier: MIT
// A process of which one thread waits in the agent, called from the dynamic loader's notification point: it executes the tool's
// system calls.
#pragma once

#include "engine/mailbox/conversation.h"
#include "engine/target/target.h"

namespace uprobe::control {

class MailTarget : public target::Target {
 public:
  // Both arguments must outlive it.
  MailTarget(const target::ProcessFiles& files, Conversation& thread) : files_(files), thread_(thread) {}

  pid_t pid() const override { return files_.pid(); }
  Result<std::vector<target::Mapping>> maps() override { return files_.maps(); }
  Result<std::optional<target::Mapping>> mapping_at(Addr address) override { return files_.mapping_at(address); }
  Status read(Addr from, void* to, std::size_t bytes) override { return files_.read(from, to, bytes); }
  Status read_all(std::span<const target::ReadPiece> pieces) override { return files_.read_all(pieces); }
  Status write(Addr to, const void* from, std::size_t bytes) override { return files_.write(to, from, bytes); }
  Status write_all(std::span<const target::MemoryPiece> pieces) override { return files_.write_all(pieces); }
  Result<std::int64_t> system_call(long number, const std::array<std::uint64_t, 6>& arguments) override;
  Result<std::uint64_t> call(Addr function) override;

 private:
  const target::ProcessFiles& files_;
  Conversation& thread_;
};

}  // namespace uprobe::control
