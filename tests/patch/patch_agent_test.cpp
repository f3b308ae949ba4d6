// SPDX-License-Identifier: MIT
// The same changes in a program that the tool traces, with the agent's handlers and the trampolines of its probes: as many
// hits as calls, whether they came by jump or by breakpoint.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <thread>

#include "engine/patch/patch.h"
#include "engine/process/block.h"
#include "engine/process/processes.h"

namespace uprobe::test {
namespace {

using control::Patch;
using control::Patched;
using namespace std::chrono_literals;

constexpr const char* kFunctions[] = {"whole", "padded", "several", "near"};

// The tool with the program, both ends of its standard streams.
class Traced {
 public:
  Traced() {
    int in[2], out[2], err[2];
    EXPECT_TRUE(::pipe(in) == 0 && ::pipe(out) == 0 && ::pipe(err) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(in[0], 0), ::dup2(out[1], 1), ::dup2(err[1], 2);
      for (int fd = 3; fd < 64; ++fd) ::close(fd);
      start();
    }
    ::close(in[0]), ::close(out[1]), ::close(err[1]);
    in_ = in[1], out_ = ::fdopen(out[0], "r"), err_ = ::fdopen(err[0], "r");
  }
  Traced(const Traced&) = delete;
  Traced& operator=(const Traced&) = delete;
  ~Traced() {
    std::fclose(out_), std::fclose(err_);
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  // Its process; 0 if it never started.
  pid_t program() { return static_cast<pid_t>(next_number()); }
  // Returns when a thread of it has gone on.
  void await_calls() {
    for (const unsigned long before = progress(); progress() < before + 1000;) ::usleep(1000);
  }
  int finish() {
    int status = -1;
    ::close(in_);
    output_ = rest_of(out_), summary_ = rest_of(err_);
    ::waitpid(pid_, &status, 0);
    return status;
  }
  // After finish(): "near 1234" of the program, "uprobes/near PATH:0x1: 1,234 hits" of the tool.
  unsigned long calls(const std::string& function) const { return number_after(output_, function + " "); }
  unsigned long hits(const std::string& function) const {
    const std::size_t line = summary_.find("uprobes/" + function + " ");
    return line == std::string::npos ? 0 : number_after(summary_.substr(line), ": ");
  }
  const std::string& summary() const { return summary_; }

 private:
  [[noreturn]] static void start() {
    ::alarm(120);
    std::vector<std::string> words = {TOOL, "--tier=jump", "-o", "/dev/null"};
    for (const char* const f : kFunctions)
      words.insert(words.end(), {"-p", std::string("p:") + f + " " + CALLED + ":" + f});
    words.insert(words.end(), {"--", CALLED});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(TOOL, argv.data());
    ::_exit(127);
  }
  unsigned long next_number() {
    char line[64] = {};
    return std::fgets(line, sizeof line, out_) != nullptr ? std::strtoul(line, nullptr, 10) : 0;
  }
  unsigned long progress() { return ::write(in_, "?", 1) == 1 ? next_number() : ~0UL; }
  static std::string rest_of(std::FILE* file) {
    std::string text;
    for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
    return text;
  }
  static unsigned long number_after(const std::string& text, const std::string& word) {
    const std::size_t at = text.find(word);
    std::string digits;
    for (std::size_t i = at == std::string::npos ? text.size() : at + word.size(); i < text.size(); ++i) {
      if (text[i] != ',' && !std::isdigit(static_cast<unsigned char>(text[i]))) break;
      if (text[i] != ',') digits += text[i];
    }
    return std::strtoul(digits.c_str(), nullptr, 10);
  }

  pid_t pid_ = 0;
  int in_ = -1;
  std::FILE *out_ = nullptr, *err_ = nullptr;
  std::string output_, summary_;
};

// From each jump of a probe to a breakpoint in its place.
std::vector<Patch> to_breakpoints(const control::Block& block) {
  std::vector<Patch> patches;
  for (std::size_t i = 0; i < block.points().size(); ++i) {
    const shared::Point& point = block.points()[i];
    if (point.jump_bytes == 0 || point.consumer == 0) continue;
    const shared::ArmedText armed = shared::armed_text(point);
    Patch patch{.at = Addr{point.address}, .size = point.jump_bytes};
    std::copy_n(armed.bytes, armed.length, patch.before.begin());
    std::copy_n(block.undo()[i].original, armed.length, patch.after.begin());
    patch.after[0] = 0xcc;
    patches.push_back(patch);
  }
  return patches;
}

std::ptrdiff_t done(const std::vector<Patched>& outcomes) {
  return std::count(outcomes.begin(), outcomes.end(), Patched::done);
}

void change(pid_t pid, Addr block_at) {
  target::RunningTarget target(target::ProcessFiles::open(pid).take());
  control::ProcessSerializer serializer(pid);
  const auto block = control::Block::read(target, block_at);
  ASSERT_TRUE(block);
  const std::vector<Patch> there = to_breakpoints(*block);
  ASSERT_EQ(there.size(), std::size(kFunctions));
  std::vector<Patch> back = there;
  for (Patch& p : back) std::swap(p.before, p.after);
  // The tool, which looks after its text, leaves foreign text alone; a check that has begun ends.
  const std::uint64_t us = static_cast<std::uint64_t>(::getpid());
  ASSERT_TRUE(target.write(block_at + offsetof(shared::ProcessBlock, changer), &us, sizeof us));
  std::this_thread::sleep_for(300ms);
  const auto enough = std::chrono::steady_clock::now() + 20s;
  for (int i = 0; i < 2000 && (i < 10 || std::chrono::steady_clock::now() < enough); ++i) {
    ASSERT_EQ(done(control::patch_running(target, there, serializer)), std::ssize(there)) << "round " << i;
    ASSERT_EQ(done(control::patch_running(target, back, serializer)), std::ssize(back)) << "round " << i;
  }
}

TEST(PatchAgent, AsManyHitsAsCallsWhileJumpsAndBreakpointsTakeTurns) {
  Traced traced;
  const pid_t pid = traced.program();
  ASSERT_NE(pid, 0);
  const auto block = control::find_block(pid);
  ASSERT_TRUE(block);
  change(pid, *block);
  EXPECT_EQ(traced.finish(), 0) << traced.summary();
  for (const char* const f : kFunctions) {
    EXPECT_GT(traced.calls(f), 1000U);
    EXPECT_EQ(traced.hits(f), traced.calls(f)) << f << "\n" << traced.summary();
  }
}

// The probes are taken out of the program while it runs.
TEST(PatchAgent, TheProgramRunsOnWithoutItsProbes) {
  Traced traced;
  const pid_t pid = traced.program();
  ASSERT_NE(pid, 0);
  const auto block = control::find_block(pid);
  ASSERT_TRUE(block);
  traced.await_calls();
  EXPECT_TRUE(control::disarm_waiting(pid, *block));
  traced.await_calls();
  target::RunningTarget target(target::ProcessFiles::open(pid).take());
  const auto after = control::Block::read(target, *block);
  ASSERT_TRUE(after);
  for (std::size_t i = 0; i < after->points().size(); ++i) {
    const shared::Point& point = after->points()[i];
    if (point.consumer == 0) continue;
    std::uint8_t now[5] = {};
    ASSERT_TRUE(target.read(Addr{point.address}, now, std::max<std::size_t>(1, point.jump_bytes)));
    EXPECT_TRUE(std::equal(now, now + point.jump_bytes, after->undo()[i].original));
  }
  EXPECT_EQ(traced.finish(), 0) << traced.summary();
  for (const char* const f : kFunctions) EXPECT_LT(traced.hits(f), traced.calls(f));
}

}  // namespace
}  // namespace uprobe::test
