// A process one of whose threads waits in the agent, at a hook in its dynamic loader: it executes our system calls.
#pragma once

#include "engine/shared/session_area.h"
#include "engine/target/target.h"

namespace uprobe::control {

// Has the thread that waits at `slot` (in state `working`) execute a command: its result.
Result<std::uint64_t> command_by_mail(shared::MailSlot& slot, const std::array<std::uint64_t, 7>& words);

class MailTarget : public target::Target {
 public:
  // `slot` is in shared memory and belongs to us while its state is `working`.
  MailTarget(target::ProcessFiles files, shared::MailSlot& slot) : files_(std::move(files)), slot_(slot) {}

  pid_t pid() const override { return files_.pid(); }
  Result<std::vector<target::Mapping>> maps() override { return files_.maps(); }
  Status read(Addr from, void* to, std::size_t bytes) override { return files_.read(from, to, bytes); }
  Status write(Addr to, const void* from, std::size_t bytes) override { return files_.write(to, from, bytes); }
  Result<std::int64_t> system_call(long number, const std::array<std::uint64_t, 6>& arguments) override;
  Result<std::uint64_t> call(Addr function) override;

 private:
  target::ProcessFiles files_;
  shared::MailSlot& slot_;
};

}  // namespace uprobe::control
