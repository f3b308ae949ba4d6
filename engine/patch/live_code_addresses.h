// SPDX-License-Identifier: MIT
// The code addresses at which threads of a stopped process may continue. None of them may be in the middle of a jump.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/target/target.h"

namespace uprobe::control {

class LiveCodeAddresses {
 public:
  // `maps`: the process's. If the process is not stopped, or cannot be read, it may continue anywhere.
  static LiveCodeAddresses of(target::Target& process, const std::vector<target::Mapping>& maps);

  // Those of one thread alone, which does not run before `seen` has been called. `process` may be a running one. Where the thread
  // handles breakpoints of the tool, it will continue in their copies: addresses after these do not count, and the stack that it was
  // on does, because the agent may be about to return from a handler there.
  static LiveCodeAddresses of_thread(target::Target& process, const std::vector<target::Mapping>& maps,
                                     const target::ThreadPlace& place, const std::function<void()>& seen);

  // Whether [begin, end) contains an instruction pointer, or a word of a stack, such as a return address or part of a signal
  // frame.
  bool has_in(Addr begin, Addr end) const;

 private:
  void add(std::uint64_t word) {
    if (is_code(word)) kept_.push_back(word);
  }
  void read_stack(target::Target& process, const std::vector<target::Mapping>& maps, Addr sp);
  void add_stack();
  bool has_read(Addr sp) const;
  void add_stack_without_traps();
  void read_interrupted_stacks(target::Target& process, const std::vector<target::Mapping>& maps);
  void know_code(const std::vector<target::Mapping>& maps);
  bool is_code(std::uint64_t word) const;

  std::vector<Addr> code_;  // begins and ends of executable mappings, ascending
  std::vector<std::uint64_t> kept_;
  std::vector<std::uint64_t> words_;  // of the stacks of a thread
  std::vector<Addr> read_;            // begins and ends of these
  bool is_known_ = true;
};

}  // namespace uprobe::control
