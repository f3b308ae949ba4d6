// SPDX-License-Identifier: MIT
// A flight recorder for a program of one's own: the newest hits of its probes and marks (uprobe/marker.h) stay in memory, and become a
// recording for `uprobe-run --replay` on request, or when the program dies.
//
//   int main() {
//     auto recorder = libuprobe::Recorder::start({.definitions = {"mark:shop:*"}}, "/var/tmp/shop.rec");
//     if (!recorder) std::cerr << recorder.error().message() << '\n';   // the program goes on without it
//     serve();
//   }
//
//   $ ./shop
//   Segmentation fault
//   $ uprobe-run --replay=/var/tmp/shop.rec
//
// The hits are kept by uprobe-run, which the library starts as it does for a session of a process with itself (uprobe/session.h: no child
// for wait(), no signal, one thread, three descriptors): so they are safe whatever the program does to its own memory, and there is
// nothing to do at its death, in no signal handler, on no stack. SIGSEGV, abort(), SIGKILL, the OOM killer, _exit() and execve
// are all the same to it: the file is written whenever the process ends without stop() or the destructor. If a signal handler of the
// program's own ends it, that is its end. If uprobe-run itself is killed, the hits are lost, and the program goes on.
//
// Build: as with uprobe/session.h.
//
// The functions throw only if memory or threads run out. A Recorder may be used from any thread, one call at a time, and not in a signal
// handler: no function here is async-signal-safe. In a forked child every call fails, and the destructor does nothing. What
// children hit is recorded as well, under their process ids, until the process that made the Recorder ends; their own deaths
// write nothing. A process has one Recorder, or one Session with itself, at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "session.h"

namespace libuprobe {

class Recorder {
 public:
  // Options::definitions: what is recorded, of this program and its libraries; paths, also that of the file, may be relative to the
  // present working folder. The probes are in place when this returns; the process has been stopped for some milliseconds.
  //
  // `file` gets the recording at the process's death. It is made here (mode 0600), so that nothing of the path matters later; it must
  // not be there, or be empty. It stays, empty, if the process ends by stop() or the destructor.
  //
  // `bytes`: of hits that are kept, 64 KiB to 1 GiB, in the memory of uprobe-run. A hit takes 40 bytes, its values and its strings. The
  // oldest are dropped first, in pieces of an eighth of that at most.
  //
  // An Error: a definition is bad, the file cannot be made or has something in it, uprobe-run cannot be run, or another tool has the
  // process. Nothing is probed then.
  static Result<Recorder> start(const Options& options, const std::string& file, std::uint64_t bytes = 16u << 20);
  // Every call on a recorder that was moved away fails.
  Recorder(Recorder&&) noexcept;
  Recorder& operator=(Recorder&&) noexcept;
  ~Recorder();

  // Writes what is kept to another file, which must not be there or be empty, and goes on. Returns the number of hits in it. Hits of
  // the last 50 ms may be missing. An Error: the file cannot be made, written, or has something in it; or the recorder has stopped.
  Result<std::uint64_t> dump(const std::string& file);

  // Changes while it records; see Session.
  Status add(const std::string& definition);
  Status remove(const std::string& event);
  Status disable(const std::string& event);
  Status enable(const std::string& event);
  // The counts of all probes. Counts::lost: hits that found the rings full (Options::buffer_bytes), not those that were dropped as the
  // oldest.
  std::vector<Counts> counts() const;

  // Removes the probes for good, and drops the hits. The program goes on, and its end writes nothing.
  void stop();

 private:
  explicit Recorder(std::unique_ptr<Tracer> tracer);
  std::unique_ptr<Tracer> tracer_;
};

}  // namespace libuprobe
