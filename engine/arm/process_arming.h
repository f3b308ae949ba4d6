// SPDX-License-Identifier: MIT
// A process whose points are being armed: what its mappings share, found out when it is needed. Internal to this folder.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "engine/arm/arm_state.h"
#include "engine/patch/live_code_addresses.h"
#include "engine/plan/window.h"
#include "engine/process/block.h"
#include "engine/target/target.h"

namespace uprobe::control {

// Addresses whose contents may have changed.
struct Changed {
  Addr begin, end;
};

// Whether the mapping is code of a file and private to the process: a write to a shared mapping would change the file.
bool can_be_armed(const target::Mapping& mapping);

// A text that is to be armed.
struct ArmedPlace {
  Addr at;
  shared::ArmedText armed;
  shared::PointRole role;
};

// Has the agent ask at every library hook, where the session wants more of libraries than their code: data that is mapped after it, or
// IFUNCs. Comes before the look at the mappings: a library that is at its hook is in them.
Status hear_all_hooks(ArmState& state, target::Target& target, Block& block);

class ProcessArming {
 public:
  enum class How {
    at_stop,  // the target is stopped, or one of its threads waits for the tool
    live,     // points are added while the program runs
  };
  // All must outlive it. `maps`: the target's; `reported`: where the process says that its mappings changed.
  ProcessArming(ArmState& its_state, target::Target& in, Block& its_block, const std::vector<target::Mapping>& its_maps,
                const Changed& reported, How how);

  // Whether it is the program's code, not the agent's.
  bool is_armable(const target::Mapping& m) const { return can_be_armed(m) && (agent_.empty() || m.path != agent_); }
  // Whether all of it is new: none of its code has run.
  bool is_just_mapped(const target::Mapping& m) const;

  // Call before the first change of the block.
  Status change();
  bool is_changed() const { return is_changed_; }

  // The file that is mapped there, as it was at the first question.
  const std::optional<FileVersion>& version_of(const target::Mapping& m) { return versions_.of(m); }
  // Whether the process has one thread, which executes none of the program's code.
  bool is_quiet();
  // Whether no thread executes the window after its first instruction, nor will come back there, as long as the process is
  // stopped. (Not for a short jump: its long jump stays in the padding, and the text would not become the file's again.)
  bool no_thread_is_inside(const plan::Window& window, Addr begin);
  // Whether the program's signal handlers return through an internal point: in a libc that is mapped, or in the glibc that its
  // loader will bring.
  bool follows_returns();
  // Whether unwinders can get through a stub: because ld.so knows the agent, or because there are points where unwinders look
  // for objects.
  bool finds_stubs();

  // The agent replaces a return address in this code by a stub only if unwinders get through the stub.
  Status note_code(const target::Mapping& m);
  // For good, because code that was bound to the library goes on using it.
  Status forbid_stubs(const target::Mapping& m);
  // Where the process maps the files whose data events read. Comes before the arming of points that read them.
  Status note_objects();
  // Counts the semaphores of markers up or down, wherever the process maps their files. Leaves what is cached of the mappings
  // valid.
  Status count_semaphores();
  // Makes the agent ask again when a library has been relocated.
  Status note_unbound(bool is_unbound);
  // At which library hooks the agent of a new program need not ask: see ProcessBlock::quiet_hooks.
  Status note_quiet_hooks();
  // Makes the islands of a new program, which will be needed in any case, by one list of calls.
  Status make_room();
  // Makes room for probes that are added later, before the program can forbid executable memory. Later mappings are mostly near
  // those of the beginning. Where no room can be made such probes will be refused.
  Status keep_room();

  // The process has found that the bytes after a probed instruction have changed. They are noted as they are now. If the program
  // has changed the instruction itself, the point is disarmed.
  Status look_at_following(std::uint32_t place);

  // The addresses that are armed in the mappings looked at. Returns that of the text, which is a window's beginning.
  Addr stands(const shared::Point& point);
  void stands(Addr at) { standing_.insert(at.value); }
  bool has_standing(Addr at) const { return standing_.count(at.value) != 0; }
  void expect_standing(std::size_t more) { standing_.reserve(standing_.size() + more); }

  // Texts of a stopped process, or of a program that has not begun, wait for write_texts(), which writes all in the least time, internal
  // points first: if the tool were killed in between, the threads would run on with some of them.
  Status arm(const std::vector<ArmedPlace>& texts, bool no_thread_runs);
  Status write_texts();

  // A point in this process is refused, so its events are armed in part.
  void refuse(const PlannedPoint& point, const std::string& why);
  const std::string& refusal() const { return refusal_; }  // the first one of points that are added live; empty: none

  ArmState& state;
  target::Target& target;
  Block& block;
  const std::vector<target::Mapping>& maps;
  const Changed& range;  // as reported by the process
  const bool is_live;

 private:
  std::vector<Addr> wanted_semaphores() const;
  bool loader_shows_code();

  MappedVersions versions_{target.pid()};
  std::unordered_set<std::uint64_t> standing_;
  std::vector<ArmedPlace> texts_;  // of a stopped process, written after everything else
  std::string refusal_;
  std::string agent_;  // path of the agent's file
  bool is_changed_ = false;
  std::optional<bool> is_quiet_, follows_returns_, finds_stubs_;
  std::optional<LiveCodeAddresses> kept_;  // of a stopped process
};

}  // namespace uprobe::control
