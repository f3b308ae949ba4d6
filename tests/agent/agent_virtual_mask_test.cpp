// SPDX-License-Identifier: MIT
// The application's view of its signals, compared with the kernel's: one child makes the calls natively, another through the
// agent, and every answer (result, contents of `old`) has to be the same.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "preload/thread.h"
#include "preload/virtual_mask.h"
#include "tests/agent/agent_in_test.h"

namespace uprobe::test {
namespace {

using shared::KernelSigaction;

constexpr u64 bit(int signal) { return u64{1} << (signal - 1); }
constexpr u64 kOurs = shared::kOurSignals;

// The two calls as a child makes them.
struct Calls {
  std::function<long(u64, u64, u64, u64)> action;    // signal, new, old, bytes
  std::function<long(u64, u64, u64, u64)> procmask;  // how, set, old, bytes
};

// Raw, with all 64 bits of the arguments.
long raw(long number, u64 a, u64 b, u64 c, u64 d) {
  long result = number;
  register u64 r10 asm("r10") = d;
  asm volatile("syscall" : "+a"(result) : "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
  return result;
}

Calls native() {
  return {[](u64 a, u64 b, u64 c, u64 d) { return raw(SYS_rt_sigaction, a, b, c, d); },
          [](u64 a, u64 b, u64 c, u64 d) { return raw(SYS_rt_sigprocmask, a, b, c, d); }};
}

Calls through_agent() {
  return {[](u64 a, u64 b, u64 c, u64 d) { return agent::app_sigaction(*agent::uprobe_block, a, b, c, d); },
          [](u64 a, u64 b, u64 c, u64 d) { return agent::app_sigprocmask(*agent::uprobe_block, a, b, c, d); }};
}

// Runs `script` in a child and returns the text that it appends. "died" if the child did.
std::string in_child(const std::function<void(std::string&)>& script) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    std::string text;
    script(text);
    (void)!::write(ends[1], text.data(), text.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char part[4096];
  for (ssize_t n; (n = ::read(ends[0], part, sizeof part)) > 0;) text.append(part, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status == 0 ? text : text + " died of " + std::to_string(status);
}

using Script = std::function<void(const Calls&, std::string&)>;

void expect_same(const char* what, const Script& script) {
  const std::string expected = in_child([&](std::string& text) { script(native(), text); });
  const std::string got = in_child([&](std::string& text) {
    install_agent_handlers();
    empty_block();
    script(through_agent(), text);
  });
  EXPECT_EQ(got, expected) << what;
}

void note(std::string& text, const char* what, long value) {
  text += std::string(what) + "=" + std::to_string(value) + "\n";
}

void note(std::string& text, const KernelSigaction& action) {
  char line[160];
  std::snprintf(line, sizeof line, "%llx %llx %llx %llx\n", static_cast<unsigned long long>(action.handler),
                static_cast<unsigned long long>(action.flags), static_cast<unsigned long long>(action.restorer),
                static_cast<unsigned long long>(action.mask));
  text += line;
}

void handler(int) {}

// Sets and asks back, for one signal.
void set_and_ask(const Calls& calls, std::string& text, u64 signal, const KernelSigaction& wanted) {
  KernelSigaction old{1, 2, 3, 4};
  note(text, "set", calls.action(signal, word_of(&wanted), word_of(&old), 8));
  note(text, old);
  old = {};
  note(text, "ask", calls.action(signal, 0, word_of(&old), 8));
  note(text, old);
}

TEST(Sigaction, EverySignalWithManyActions) {
  const u64 restorer = word_of(agent::uprobe_restorer);
  const KernelSigaction actions[] = {
      {1, 0, 0, 0},
      {0, 0, 0, 0},
      {word_of(reinterpret_cast<void (*)()>(handler)), SA_SIGINFO | shared::kSaRestorer, restorer, 0},
      {word_of(reinterpret_cast<void (*)()>(handler)), shared::kSaRestorer, restorer, kOurs | bit(SIGUSR1)},
      {word_of(reinterpret_cast<void (*)()>(handler)),
       static_cast<u32>(SA_RESETHAND) | SA_NODEFER | SA_ONSTACK | shared::kSaRestorer, restorer, ~u64{0}},
      {word_of(reinterpret_cast<void (*)()>(handler)), ~u64{0} & ~u64{SA_ONSTACK}, restorer, bit(SIGTRAP)},
  };
  for (u64 signal = 0; signal <= 66; ++signal)
    expect_same(("signal " + std::to_string(signal)).c_str(), [&](const Calls& calls, std::string& text) {
      for (const KernelSigaction& action : actions) set_and_ask(calls, text, signal, action);
    });
}

TEST(Sigaction, BadArguments) {
  const HoleyMemory memory(1);
  const u64 hole = word_of(memory.end()), edge = word_of(memory.end()) - 16;
  for (const u64 signal :
       {u64{SIGUSR1}, u64{SIGTRAP}, u64{SIGSEGV}, u64{SIGBUS}, u64{SIGFPE}, u64{SIGKILL}, u64{0}, u64{65}, ~u64{0}})
    expect_same(std::to_string(signal).c_str(), [&](const Calls& calls, std::string& text) {
      const KernelSigaction action{1, 0, 0, 0};
      KernelSigaction old{};
      note(text, "hole", calls.action(signal, hole, word_of(&old), 8));
      note(text, "edge", calls.action(signal, edge, word_of(&old), 8));
      note(text, "size", calls.action(signal, word_of(&action), word_of(&old), 16));
      note(text, "kernel", calls.action(signal, 0xffffffff81000000, 0, 8));
      note(text, "nothing", calls.action(signal, 0, 0, 8));
      note(text, "old in a hole", calls.action(signal, word_of(&action), hole, 8));
      note(text, "after", calls.action(signal, 0, word_of(&old), 8));
      note(text, old);
    });
}

// The kernel looks at the low 32 bits of an int.
TEST(Sigaction, UpperHalvesOfIntsDoNotMatter) {
  expect_same("action", [](const Calls& calls, std::string& text) {
    const KernelSigaction action{1, 0, 0, bit(SIGTRAP)};
    set_and_ask(calls, text, 0xabcdef0100000000 | SIGTRAP, action);
    set_and_ask(calls, text, 0xabcdef0100000000 | SIGUSR1, action);
  });
  expect_same("procmask", [](const Calls& calls, std::string& text) {
    const u64 set = kOurs;
    u64 old = 0;
    note(text, "set", calls.procmask(0xabcdef0100000000 | SIG_SETMASK, word_of(&set), word_of(&old), 8));
    note(text, "ask", calls.procmask(0, 0, word_of(&old), 8));
    note(text, "old", static_cast<long>(old));
  });
}

TEST(Sigprocmask, SequencesOfCalls) {
  const u64 sets[] = {
      0, kOurs, bit(SIGTRAP), bit(SIGSEGV) | bit(SIGUSR1), ~u64{0}, bit(SIGBUS) | bit(SIGKILL), bit(SIGUSR2)};
  for (u64 seed = 0; seed < 20; ++seed)
    expect_same(std::to_string(seed).c_str(), [&](const Calls& calls, std::string& text) {
      u64 state = seed * 0x9e3779b97f4a7c15ull + 1;
      for (int i = 0; i < 60; ++i) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        const u64 how = state >> 33 & 3, set = sets[(state >> 40) % std::size(sets)];
        u64 old = 0x5555;
        const u64 asked = (state >> 50 & 3) == 0 ? 0 : word_of(&set);
        note(text, "call", calls.procmask(how, asked, word_of(&old), 8));
        note(text, "old", static_cast<long>(old));
      }
    });
}

TEST(Sigprocmask, BadArguments) {
  const HoleyMemory memory(1);
  const u64 hole = word_of(memory.end());
  expect_same("procmask", [&](const Calls& calls, std::string& text) {
    const u64 set = kOurs;
    u64 old = 0;
    for (const u64 how : {u64{SIG_BLOCK}, u64{SIG_UNBLOCK}, u64{SIG_SETMASK}, u64{3}, ~u64{0}}) {
      note(text, "hole", calls.procmask(how, hole, word_of(&old), 8));
      note(text, "skewed", calls.procmask(how, hole - 4, word_of(&old), 8));
      note(text, "size", calls.procmask(how, word_of(&set), word_of(&old), 4));
      note(text, "null", calls.procmask(how, 0, 0, 8));
      note(text, "old in a hole", calls.procmask(how, word_of(&set), hole, 8));
      note(text, "ask", calls.procmask(0, 0, word_of(&old), 8));
      note(text, "old", static_cast<long>(old));
    }
  });
}

// In a handler of SIGSEGV the kernel has SIGSEGV blocked; the classic way on is to unblock it and jump out.
TEST(Sigprocmask, AHandlerMayUnblockItsOwnSignal) {
  expect_same("unblock", [](const Calls& calls, std::string& text) {
    u64 blocked = bit(SIGSEGV);
    raw(SYS_rt_sigprocmask, SIG_BLOCK, word_of(&blocked), 0, 8);  // as the kernel does at the entry of a handler
    u64 old = 0;
    note(text, "ask", calls.procmask(0, 0, word_of(&old), 8));
    note(text, "old", static_cast<long>(old));
    note(text, "unblock", calls.procmask(SIG_UNBLOCK, word_of(&blocked), 0, 8));
    note(text, "really", raw(SYS_rt_sigprocmask, 0, 0, word_of(&old), 8));
    note(text, "old", static_cast<long>(old));
  });
}

TEST(Sigprocmask, OurSignalsStayDeliverableInFact) {
  const std::string really = in_child([](std::string& text) {
    install_agent_handlers();
    empty_block();
    const u64 all = ~u64{0};
    note(text, "set", agent::app_sigprocmask(*agent::uprobe_block, SIG_SETMASK, word_of(&all), 0, 8));
    u64 old = 0;
    raw(SYS_rt_sigprocmask, 0, 0, word_of(&old), 8);
    note(text, "ours", static_cast<long>(old & kOurs));
  });
  EXPECT_EQ(really, "set=0\nours=0\n");
}

TEST(Sigprocmask, ThreadsHaveTheirOwnBeliefAndTheStartIsTheProgramsMask) {
  const std::string text = in_child([](std::string& out) {
    install_agent_handlers();
    shared::ProcessBlock& block = empty_block();
    block.start_blocked = bit(SIGTRAP);
    const u64 set = bit(SIGSEGV);
    agent::app_sigprocmask(block, SIG_SETMASK, word_of(&set), 0, 8);
    std::thread([&] {
      u64 old = 0;
      agent::app_sigprocmask(block, 0, 0, word_of(&old), 8);
      note(out, "another", static_cast<long>(old & kOurs));
    }).join();
    u64 old = 0;
    agent::app_sigprocmask(block, 0, 0, word_of(&old), 8);
    note(out, "this", static_cast<long>(old & kOurs));
  });
  EXPECT_EQ(text, "another=" + std::to_string(bit(SIGTRAP)) + "\nthis=" + std::to_string(bit(SIGSEGV)) + "\n");
}

// More threads than the table has places: virtual masks are lost, nothing else.
TEST(Sigprocmask, AFullTableOfThreads) {
  const std::string text = in_child([](std::string& out) {
    install_agent_handlers();
    shared::ProcessBlock& block = empty_block();
    for (shared::ThreadEntry& thread : agent::threads_of(block)) thread.thread = 1;
    const u64 set = kOurs | bit(SIGUSR1);
    note(out, "set", agent::app_sigprocmask(block, SIG_SETMASK, word_of(&set), 0, 8));
    u64 old = 0;
    note(out, "ask", agent::app_sigprocmask(block, 0, 0, word_of(&old), 8));
    note(out, "old", static_cast<long>(old & ~kOurs));
  });
  EXPECT_EQ(text, "set=0\nask=0\nold=" + std::to_string(bit(SIGUSR1)) + "\n");
}

// A child of vfork has its own dispositions and mask, but the block is its parent's.
TEST(Vfork, TheChildDoesNotDisturbItsParentsTable) {
  const std::string text = in_child([](std::string& out) {
    install_agent_handlers();
    shared::ProcessBlock& block = empty_block();
    agent::thread_id(block, true);
    const KernelSigaction parents{word_of(reinterpret_cast<void (*)()>(handler)), shared::kSaRestorer,
                                  word_of(agent::uprobe_restorer), bit(SIGTRAP)};
    for (const u64 signal : {u64{SIGSEGV}, u64{SIGUSR1}}) agent::app_sigaction(block, signal, word_of(&parents), 0, 8);
    const KernelSigaction childs{0, 0, 0, 0};
    const u64 all = ~u64{0};
    const pid_t child = ::vfork();
    if (child == 0) {
      agent::after_clone(block, 0, {shared::kParentWaits, true});
      for (const u64 signal : {u64{SIGSEGV}, u64{SIGUSR1}}) agent::app_sigaction(block, signal, word_of(&childs), 0, 8);
      agent::app_sigprocmask(block, SIG_SETMASK, word_of(&all), 0, 8);
      ::_exit(0);
    }
    agent::after_clone(block, static_cast<u64>(child), {shared::kParentWaits, true});
    int status = 0;
    ::waitpid(child, &status, 0);
    for (const u64 signal : {u64{SIGSEGV}, u64{SIGUSR1}}) {
      KernelSigaction old{};
      agent::app_sigaction(block, signal, 0, word_of(&old), 8);
      note(out, "same handler", old.handler == parents.handler);
      note(out, "mask", static_cast<long>(old.mask));
    }
    u64 now = 0;
    raw(SYS_rt_sigprocmask, 0, 0, word_of(&now), 8);
    note(out, "blocked in fact", static_cast<long>(now));
  });
  EXPECT_EQ(text, "same handler=1\nmask=16\nsame handler=1\nmask=16\nblocked in fact=0\n");
}

// It is known by its own id, and its parent by its own again.
TEST(Vfork, TheChildHasItsOwnId) {
  const std::string text = in_child([](std::string& out) {
    install_agent_handlers();
    shared::ProcessBlock& block = empty_block();
    block.start_blocked = bit(SIGBUS);
    static volatile bool right = false;
    const pid_t child = ::vfork();
    if (child == 0) {
      agent::after_clone(block, 0, {shared::kParentWaits, true});
      right = agent::thread_id(block, true) == static_cast<u32>(::syscall(SYS_gettid));
      ::_exit(0);
    }
    agent::after_clone(block, static_cast<u64>(child), {shared::kParentWaits, true});
    int status = 0;
    ::waitpid(child, &status, 0);
    note(out, "child", right);
    note(out, "parent", agent::thread_id(block, true) == static_cast<u32>(::gettid()));
    u64 old = 0;
    agent::app_sigprocmask(block, 0, 0, word_of(&old), 8);
    note(out, "blocked", static_cast<long>(old));
  });
  EXPECT_EQ(text, "child=1\nparent=1\nblocked=" + std::to_string(bit(SIGBUS)) + "\n");
}

TEST(Execve, TheSuccessorInheritsWhatTheApplicationSet) {
  const std::string text = in_child([](std::string& out) {
    install_agent_handlers();
    shared::ProcessBlock& block = empty_block();
    const KernelSigaction ignore{1, 0, 0, 0};
    const u64 set = bit(SIGBUS);
    agent::app_sigaction(block, SIGSEGV, word_of(&ignore), 0, 8);
    agent::app_sigprocmask(block, SIG_BLOCK, word_of(&set), 0, 8);
    const auto look = [&] {
      KernelSigaction now{};
      u64 mask = 0;
      raw(SYS_rt_sigaction, SIGSEGV, 0, word_of(&now), 8);
      raw(SYS_rt_sigprocmask, 0, 0, word_of(&mask), 8);
      note(out, "ignored", now.handler == 1);
      note(out, "blocked", static_cast<long>(mask & kOurs));
    };
    agent::show_mask_to_successor(block);
    look();
    agent::take_mask_back(block);
    look();
  });
  EXPECT_EQ(text, "ignored=1\nblocked=64\nignored=0\nblocked=0\n");
}

}  // namespace
}  // namespace uprobe::test
