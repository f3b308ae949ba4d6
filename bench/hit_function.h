// SPDX-License-Identifier: MIT
// The agent's hit function called by hand, without a trap: the cost of a hit for a thread that is already in the agent, and how
// many hits a second the reader can print.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "bench/hit_driver.h"
#include "engine/base/result.h"
#include "engine/program/layout.h"
#include "engine/trace/area.h"

namespace uprobe::bench {

double thread_cpu_seconds();

struct Throughput {
  std::uint64_t hits = 0, recorded = 0, lost = 0, damaged = 0;
  std::uint64_t lines = 0, bytes = 0;  // printed to the file
  double seconds = 0;                  // from the first hit to the last
  double reader_cpu_seconds = 0;       // of the thread that reads, formats and writes
};

// One point with one event in a process block and a session area of this process.
class HitFunction {
 public:
  // `arguments` as in a definition; registers are set so that %di is the address of a string of 16 bytes.
  static Result<HitFunction> make(const std::string& arguments);
  HitFunction(HitFunction&&) noexcept;
  ~HitFunction();

  // A hit of the calling thread; the rings that it fills; and the layout of its record.
  HandHit hit();
  // What the next hits find in %di, %si and %dx.
  void pass(const std::array<std::uint64_t, 3>& values);
  trace::Area& area();
  const program::EventLayout& layout() const;

  // CPU time of a hit, of `count` in a row, with room in the rings throughout.
  double nanoseconds(std::uint64_t count);
  // Hits at an even rate, while another thread prints them to a file as uprobe-run -o does.
  Result<Throughput> run(std::uint64_t hits_per_second, std::chrono::seconds time, const std::string& file);

 private:
  struct Data;
  explicit HitFunction(std::unique_ptr<Data> data);
  std::unique_ptr<Data> data_;
};

}  // namespace uprobe::bench
