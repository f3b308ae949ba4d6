// SPDX-License-Identifier: MIT
// Damaged programs: the planners of jumps and of exits answer for every place of any file, in bounded time, and their choices
// keep their own rules.
#include <cstdlib>

#include "engine/base/fd.h"
#include "engine/flow/boundary.h"
#include "engine/flow/flow.h"
#include "engine/plan/exits.h"
#include "engine/plan/window.h"
#include "tests/fuzz/driver.h"

namespace {

using namespace uprobe;
using plan::WindowKind;

void require(bool holds) {
  if (!holds) std::abort();
}

// What the window displaces can be made to run elsewhere, or stays near what it names.
void check_copy(arch::Bytes code, Addr from) {
  const auto copy = arch::displace_window(code, from, from);
  require(copy || copy.error().text.find("out of reach") != std::string::npos);
}

void check_window(const plan::FileFlow& flow, const plan::Window& window) {
  require(window.text().empty() == window.is_jump());
  if (!window.is_jump()) return;
  require(window.code_length <= window.length && window.instructions > 0);
  require((window.kind == WindowKind::prefix_window) == (window.prefix_window != 0) &&
          window.prefix_window < plan::kJumpBytes);
  const std::size_t room = window.prefix_window + window.length;
  require(room >= (window.kind == WindowKind::short_jump ? plan::kShortJumpBytes : plan::kJumpBytes));
  require(!flow.has_arrival(window.begin() + 1, window.address + window.length));
  const auto code = flow.bytes_at(window.address);
  require(code.size() >= window.code_length);
  check_copy(code.first(window.code_length), Addr{window.address});
  if (window.prefix_window != 0)
    check_copy(flow.bytes_at(window.begin()).first(window.prefix_window), Addr{window.begin()});
  if (window.kind == WindowKind::short_jump)
    require(!flow.has_arrival(window.padding, window.padding + plan::kJumpBytes));
}

void check_exits(const plan::FileFlow& flow, const Result<std::vector<plan::Exit>>& exits) {
  require(exits ? !exits->empty() : !exits.error().text.empty());
  for (std::size_t i = 0; exits && i < exits->size(); ++i) {
    const plan::Exit& exit = (*exits)[i];
    require(flow.is_start(exit.address) && exit.pops >= 8);
    require(i == 0 || (*exits)[i - 1].address < exit.address);
  }
}

void check_boundary(const plan::Boundary& boundary, std::uint64_t address) {
  if (!boundary.known) require(!boundary.is_start);
  if (boundary.known && !boundary.is_start) require(boundary.before < address && address < boundary.after);
}

// For places in and around the functions, and for random ones.
void check_boundaries(const std::shared_ptr<const elf::ElfFile>& file, const plan::FileFlow& flow) {
  plan::FlowCache flows;
  plan::Boundaries boundaries(file, flows);
  std::size_t places = 0;
  for (const plan::SweptFunction& function : flow.functions())
    for (std::uint64_t at = function.range.begin - 4; at != function.range.end + 4 && places < 500; ++at, ++places)
      check_boundary(boundaries.find(at), at);
  for (const elf::Segment& segment : file->segments())
    for (std::uint64_t at = segment.address; at < segment.address + segment.file_bytes && places < 1000;
         at += 7, ++places)
      check_boundary(boundaries.find(at), at);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Result<elf::ElfFile> parsed = elf::ElfFile::parse("input", std::vector<std::uint8_t>(data, data + size));
  if (!parsed) return 0;
  const auto file = std::make_shared<const elf::ElfFile>(parsed.take());
  const plan::FileFlow flow(*file);
  plan::WindowClaims claims;
  std::size_t places = 0;
  for (const plan::SweptFunction& function : flow.functions())
    for (std::uint64_t at = function.range.begin; at < function.range.end && places < 2000; at += 3, ++places) {
      const plan::Window window = plan::plan_window(flow, at, claims);
      check_window(flow, window);
      claims.take(window);
    }
  const plan::FunctionEntries entries(flow);
  for (const plan::SweptFunction& function : flow.functions())
    if (places++ < 4000) check_exits(flow, plan::exits_of(flow, entries, function.range.begin));
  check_boundaries(file, flow);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  for (const char* name :
       {"windows_library", "windows_fixed", "windows_packed", "exits_library", "exits_stripped", "places_library",
        "places_fixed", "flow_gcc_O2_pic.so", "flow_gcc_Os_fixed.so", "flow_clang_O2_pic.so"}) {
    auto text = read_file(std::string(UPROBE_PLAN_FIXTURES) + "/" + name);
    if (text) seeds.push_back(text.take());
  }
  return seeds;
}
