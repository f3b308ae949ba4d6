// SPDX-License-Identifier: MIT
// Probes in code that programs generate as they run. Their functions are known by the map that each program writes (perf_map.h), or
// by its dump where there is no map (jit_dump.h); they are looked at ten times a second, and a function that matches a definition gets a hardware breakpoint, for which
// all threads of its process are stopped for a moment.
//
// A function loses its probe when the memory at its beginning has other bytes than when it got it, or the map names another
// function there: the code was moved, freed or changed. Until that is seen the agent compares the bytes at each hit, and
// records none of other code. The program's memory is not changed, so nothing has to be put back.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/arm/armer.h"
#include "engine/base/notes.h"
#include "engine/generated/hardware_breakpoint.h"
#include "engine/generated/jit_dump.h"
#include "engine/generated/perf_map.h"
#include "engine/trace/area.h"

namespace uprobe::control {

class GeneratedCode {
 public:
  // All must outlive it. `blocks`: the addresses where the session's process blocks may be.
  GeneratedCode(const trace::Area& area, Armer& armer, const ProbeSet& probes, const std::set<Addr>& blocks)
      : area_(area), armer_(armer), probes_(probes), blocks_(blocks) {}

  // Looks at the processes of the session in turn, at most ten times a second and for at most a tenth of the time.
  void step();
  // The same now: a process has come, or a definition.
  void look_now();
  // The process leaves the session: it gets no breakpoints any more, before its agent stops handling them.
  void let_go(pid_t pid);
  void end();

  // What the user should be told.
  Notes notes() const;

 private:
  struct Function {
    std::uint64_t bytes = 0;
    std::string name;
    std::vector<std::uint16_t> events;
    unsigned order = 0;  // of its line in the map
    unsigned tries = 0;
  };
  struct Place {
    std::string name;
    std::vector<std::uint16_t> events;
    std::vector<std::uint8_t> code;
    HardwareBreakpoint breakpoint;
  };
  struct Process {
    explicit Process(pid_t of) : pid(of), map(of), dump(of) {}
    pid_t pid;
    ino_t entry = 0;  // of its folder in /proc: another process with the same id has another one
    PerfMap map;
    JitDump dump;
    std::map<Addr, Function> functions;  // that match a definition
    std::map<Addr, Place> places;        // that have a breakpoint
    unsigned lines = 0;
    bool has_left = false;
  };

  static std::uint64_t bytes_of(const Function& function);
  bool notice_wishes();
  void sort_anew(Process& process);
  void look_at_all(std::chrono::milliseconds limit);
  void find_processes();
  std::uint64_t bytes_kept() const;
  void look(Process& process);
  void learn(Process& process, const GeneratedFunction& function);
  void move(Process& process, const MovedFunction& moved);
  std::vector<std::uint16_t> wanted_by(std::string_view name);
  void drop_lost(Process& process);
  std::vector<Addr> open_functions(Process& process);
  std::vector<Addr> choose(Process& process);
  void place_all(Process& process, const std::vector<Addr>& chosen);
  Status place_one(target::StoppedProcess& held, Process& process, Addr at);
  void give_up(Process& process, Addr at, const std::string& why);
  void leave_out(const std::string& name);

  const trace::Area& area_;
  Armer& armer_;
  const ProbeSet& probes_;
  const std::set<Addr>& blocks_;
  std::map<pid_t, Process> processes_;
  std::vector<GeneratedWish> wishes_;  // as of the last look
  std::set<std::string> literal_;      // of the wishes those that a function has as its name: they are no patterns
  std::set<std::string> left_out_;     // functions for which no breakpoint was left
  bool are_more_left_out_ = false;
  pid_t last_ = 0;                  // the process that was looked at last
  std::uint64_t unread_ = 0;        // bytes of maps that may yet be read in this look
  std::uint64_t room_ = 0;          // bytes that further functions may take, of all processes
  std::uint64_t not_kept_ = 0;      // functions for which there was no room
  std::uint64_t lost_ = 0;          // places that lost their code
  std::uint64_t without_code_ = 0;  // functions that never had any
  Notes notes_;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace uprobe::control
