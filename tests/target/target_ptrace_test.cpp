// SPDX-License-Identifier: MIT
// Programs started under ptrace: they see nothing of it. And programs that cannot be started or end early.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "engine/base/start_line.h"
#include "engine/target/ptrace_target.h"

namespace uprobe::target {
namespace {

Result<std::unique_ptr<PtraceTarget>> start(const std::vector<std::string>& words, const LaunchHooks& hooks = {}) {
  std::vector<std::string> argv = {SUBJECT};
  argv.insert(argv.end(), words.begin(), words.end());
  return PtraceTarget::launch(SUBJECT, argv, hooks);
}

int exit_status(pid_t pid) {
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int run(const std::vector<std::string>& words, const LaunchHooks& hooks = {}) {
  auto target = start(words, hooks);
  if (!target) return -1000;
  const pid_t pid = (*target)->pid();
  EXPECT_TRUE((*target)->system_call(SYS_getpid, {}));
  EXPECT_TRUE((*target)->release());
  return exit_status(pid);
}

TEST(Launch, ArgumentsAndEnvironmentAreTheCallers) {
  EXPECT_EQ(run({"arguments", "", "three"}), 4);
  ::setenv("TARGET_TEST", "kept", 1);
  EXPECT_EQ(run({"environment"}), 42);
}

TEST(Launch, TheMaskIsTheChilds) {
  const LaunchHooks hooks{.in_child = [] {
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    sigaddset(&mask, SIGTRAP);
    sigprocmask(SIG_SETMASK, &mask, nullptr);
  }};
  EXPECT_EQ(run({"mask"}, hooks), 1 + 4);
  EXPECT_EQ(run({"mask"}), 0);
}

TEST(Launch, TheMaskCanBeChanged) {
  auto target = start({"mask"});
  ASSERT_TRUE(target);
  const pid_t pid = (*target)->pid();
  EXPECT_EQ((*target)->signal_mask(), 0U);
  ASSERT_TRUE((*target)->set_signal_mask(1ull << (SIGTERM - 1)));
  ASSERT_TRUE((*target)->release());
  EXPECT_EQ(exit_status(pid), 2);
}

TEST(Launch, SystemCallsHaveTheKernelsResults) {
  auto target = start({"wait"});
  ASSERT_TRUE(target);
  EXPECT_EQ(*(*target)->system_call(SYS_getpid, {}), (*target)->pid());
  EXPECT_EQ(*(*target)->system_call(SYS_close, {12345, 0, 0, 0, 0, 0}), -EBADF);
  EXPECT_EQ(*(*target)->system_call(100'000, {}), -ENOSYS);
  const auto page =
      map_memory(**target, Addr{0}, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, "a page");
  ASSERT_TRUE(page);
  const char text[] = "through /proc";
  char back[sizeof text] = {};
  ASSERT_TRUE((*target)->write(*page, text, sizeof text));
  ASSERT_TRUE((*target)->read(*page, back, sizeof back));
  EXPECT_STREQ(back, text);
  EXPECT_FALSE((*target)->read(*page + 4090, back, sizeof back)) << "whole or error";
  EXPECT_FALSE((*target)->read(Addr{0}, back, 1));
  EXPECT_FALSE(map_memory(**target, Addr{0}, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, "nothing"));
}

TEST(Launch, NothingOfTheProgramHasRunAndRegistersAreAsTheyWere) {
  auto target = start({"arguments"});
  ASSERT_TRUE(target);
  user_regs_struct before{}, after{};
  const pid_t pid = (*target)->pid();
  ASSERT_EQ(::ptrace(PTRACE_GETREGS, pid, nullptr, &before), 0);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE((*target)->system_call(SYS_getppid, {}));
  ASSERT_EQ(::ptrace(PTRACE_GETREGS, pid, nullptr, &after), 0);
  EXPECT_EQ(before.rip, after.rip) << "between two calls it stands at its return path";
  EXPECT_EQ(before.rsp, after.rsp);
  ASSERT_TRUE((*target)->release());
  EXPECT_EQ(exit_status(pid), 2);
}

TEST(Launch, ASignalThatComesDuringTheLaunchIsDeliveredOnce) {
  const LaunchHooks hooks{.in_child = [] {
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    sigprocmask(SIG_SETMASK, &mask, nullptr);
  }};
  auto target = start({"signal"}, hooks);
  ASSERT_TRUE(target);
  const pid_t pid = (*target)->pid();
  ASSERT_EQ(::kill(pid, SIGUSR1), 0);
  ASSERT_TRUE((*target)->system_call(SYS_getpid, {}));
  ASSERT_TRUE((*target)->release());
  EXPECT_EQ(exit_status(pid), 42);
}

TEST(Launch, ATerminatingSignalWaitsForTheRelease) {
  auto target = start({"wait"});
  ASSERT_TRUE(target);
  const pid_t pid = (*target)->pid();
  ASSERT_EQ(::kill(pid, SIGTERM), 0);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE((*target)->system_call(SYS_getpid, {}));
  ASSERT_TRUE((*target)->release());
  EXPECT_EQ(exit_status(pid), -SIGTERM);
}

TEST(Launch, EachCallOfAListHasItsResult) {
  auto target = start({"arguments"});
  ASSERT_TRUE(target);
  const auto scratch = (*target)->scratch();
  ASSERT_TRUE(scratch);
  ASSERT_TRUE((*target)->write(*scratch, SUBJECT, sizeof SUBJECT));
  constexpr auto kHere = static_cast<std::uint64_t>(AT_FDCWD);
  std::vector<SystemCall> calls = {{SYS_getpid, {}},
                                   {SYS_openat, {kHere, scratch->value, O_RDONLY}},
                                   map_call(Addr{}, 4096, PROT_READ, MAP_PRIVATE),
                                   {SYS_close, {12345}},
                                   {100'000, {}}};
  calls[2].takes = 4, calls[2].from = 1;
  calls.resize(2 * ListedCalls::kMost, {SYS_getppid, {}});
  for (int i = 0; i < 2; ++i) calls.push_back({.number = SYS_close, .arguments = {}, .takes = 0, .from = 1});
  ASSERT_TRUE((*target)->system_calls(calls));
  EXPECT_EQ(calls[0].result, (*target)->pid());
  EXPECT_GT(calls[1].result, 2);
  EXPECT_EQ(calls[3].result, -EBADF);
  EXPECT_EQ(calls[4].result, -ENOSYS);
  EXPECT_EQ(calls[5].result, ::getpid());
  EXPECT_EQ(calls[calls.size() - 2].result, 0);
  EXPECT_EQ(calls[calls.size() - 1].result, -EBADF);
  char magic[4] = {};
  const auto place = mapped_by(calls[2], "the program's file");
  ASSERT_TRUE(place);
  EXPECT_TRUE((*target)->read(*place, magic, sizeof magic));
  EXPECT_EQ(std::memcmp(magic, "\177ELF", 4), 0);
  const auto maps = (*target)->maps();
  ASSERT_TRUE(maps);
  EXPECT_NE(mapping_at(*maps, *place), nullptr) << "the mappings are those after the list";
  ASSERT_TRUE((*target)->release());
  EXPECT_EQ(exit_status((*target)->pid()), 2);
}

// The signal that ends a list may come from elsewhere too.
// EPERM of the tool's own calls says that it may not trace.
TEST(FailedInTarget, IsNoFailureOfTheToolsOwn) {
  SystemCall refused = map_call({}, 4096, PROT_READ, MAP_PRIVATE);
  refused.result = -EPERM;
  const auto mapped = mapped_by(refused, "the agent");
  ASSERT_FALSE(mapped);
  EXPECT_EQ(mapped.error().text, "mmap of the agent in the target: Operation not permitted");
  EXPECT_EQ(mapped.error().err, 0);
}

TEST(Launch, ASignalThatEndsNoListIsDeliveredOnce) {
  const LaunchHooks hooks{.in_child = [] {
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, ListedCalls::kEnd);
    sigprocmask(SIG_SETMASK, &mask, nullptr);
  }};
  auto target = start({"urgent"}, hooks);
  ASSERT_TRUE(target);
  const pid_t pid = (*target)->pid();
  std::vector<SystemCall> calls(8, {SYS_getppid, {}});
  ASSERT_TRUE((*target)->system_calls(calls));
  ASSERT_EQ(::kill(pid, ListedCalls::kEnd), 0);
  for (SystemCall& call : calls) call.result = 0;
  ASSERT_TRUE((*target)->system_calls(calls));
  for (const SystemCall& call : calls) EXPECT_EQ(call.result, ::getpid());
  ASSERT_TRUE((*target)->release());
  EXPECT_EQ(exit_status(pid), 42);
}

TEST(Launch, ProgramsThatCannotBeStarted) {
  const auto code_of = [](const std::string& path) {
    auto target = PtraceTarget::launch(path, {path}, {});
    EXPECT_FALSE(target) << path;
    return target ? Code::usage : target.error().code;
  };
  EXPECT_EQ(code_of("/nowhere/at/all"), Code::not_found);
  EXPECT_EQ(code_of("/etc/passwd/x"), Code::not_found);
  EXPECT_EQ(code_of("/etc"), Code::not_executable);
  const std::string text = testing::TempDir() + "target-no-program";
  std::ofstream(text) << "no program\n";
  ::chmod(text.c_str(), 0755);
  EXPECT_EQ(code_of(text), Code::not_executable);
  ::unlink(text.c_str());
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "no child is left";
}

TEST(Launch, AProgramThatIsKilledDuringTheLaunch) {
  auto target = start({"wait"});
  ASSERT_TRUE(target);
  ASSERT_EQ(::kill((*target)->pid(), SIGKILL), 0);
  EXPECT_FALSE((*target)->system_call(SYS_getpid, {}));
  EXPECT_FALSE((*target)->system_call(SYS_getpid, {}));
  EXPECT_FALSE((*target)->release());
  char byte = 0;
  EXPECT_FALSE((*target)->read(Addr{0x400000}, &byte, 1));
}

TEST(Launch, AProgramThatDiesBeforeItsExec) {
  const auto target = start({"wait"}, {.in_child = [] { ::raise(SIGKILL); }});
  ASSERT_FALSE(target);
  EXPECT_EQ(target.error().code, Code::killed);
}

TEST(Launch, AnErrorDuringTheLaunchEndsIt) {
  const auto target =
      start({"wait"}, {.in_parent = [] { return Status(Error{.code = Code::limit, .text = "no room"}); }});
  ASSERT_FALSE(target);
  EXPECT_EQ(target.error().text, "no room");
  EXPECT_EQ(::waitpid(-1, nullptr, __WALL), -1) << "the child has ended and was taken";
}

TEST(Launch, AChangeDuringTheLaunchIsNotInherited) {
  ::setenv("TARGET_TEST", "kept", 1);
  const auto change = [] { return ::setenv("TARGET_TEST", "other", 1) == 0 ? ok() : Status(Error{.text = "setenv"}); };
  EXPECT_EQ(run({"environment"}, {.in_parent = change}), 42);
}

TEST(Launch, ATargetThatIsNotReleasedIsKilled) {
  pid_t pid = 0;
  {
    auto target = start({"wait"});
    ASSERT_TRUE(target);
    pid = (*target)->pid();
  }
  EXPECT_EQ(::kill(pid, 0), -1);
}

// A process that waits to become the program, and its parent, which exits as it does (128 more after a signal).
struct Waiting {
  Fd line;
  pid_t pid = 0, parent = 0;
};

[[noreturn]] void wait_on(int line, const char* word) {
  send_number(line, ::getpid());
  send_number(line, 0);
  const auto order = await_order(line);
  if (!order) ::_exit(98);
  if (order->path.empty()) ::_exit(order->code);
  ::execl(order->path.c_str(), SUBJECT, word, nullptr);
  ::_exit(99);
}

Waiting begin_waiting(const char* word) {
  auto ends = make_start_line();
  Waiting waiting;
  waiting.parent = ::fork();
  if (waiting.parent == 0) {
    (*ends)[0].reset();
    const pid_t pid = ::fork();
    if (pid == 0) wait_on((*ends)[1].get(), word);
    (*ends)[1].reset();
    const int status = exit_status(pid);
    ::_exit(status < 0 ? 128 - status : status);
  }
  waiting.line = std::move((*ends)[0]);
  waiting.pid = *await_number(waiting.line.get());
  return waiting;
}

TEST(LaunchWaiting, ItBecomesTheProgramOfItsOwnParent) {
  const Waiting waiting = begin_waiting("environment");
  ::setenv("TARGET_TEST", "kept", 1);
  const Waiting other = begin_waiting("environment");
  for (const Waiting* one : {&waiting, &other}) {
    auto target = PtraceTarget::launch_waiting(one->pid, one->line.get(), SUBJECT);
    ASSERT_TRUE(target);
    EXPECT_EQ((*target)->pid(), one->pid);
    EXPECT_EQ(*(*target)->system_call(SYS_getppid, {}), one->parent);
    EXPECT_TRUE((*target)->release());
  }
  EXPECT_EQ(exit_status(other.parent), 42);
  exit_status(waiting.parent);
}

TEST(LaunchWaiting, ItIsEndedWithACode) {
  const Waiting waiting = begin_waiting("environment");
  auto target = PtraceTarget::launch_waiting(waiting.pid, waiting.line.get(), SUBJECT);
  ASSERT_TRUE(target);
  (*target)->end(77);
  EXPECT_EQ(exit_status(waiting.parent), 77);
}

TEST(LaunchWaiting, ItIsStoppedMeanwhile) {
  const Waiting waiting = begin_waiting("environment");
  ::kill(waiting.pid, SIGSTOP);
  const pid_t continues = ::fork();
  if (continues == 0) {
    ::usleep(100'000);
    ::kill(waiting.pid, SIGCONT);
    ::_exit(0);
  }
  auto target = PtraceTarget::launch_waiting(waiting.pid, waiting.line.get(), SUBJECT);
  ASSERT_TRUE(target);
  EXPECT_TRUE((*target)->release());
  exit_status(waiting.parent), exit_status(continues);
}

TEST(LaunchWaiting, WhatCannotBeStartedHasEnded) {
  const Waiting waiting = begin_waiting("environment");
  auto target = PtraceTarget::launch_waiting(waiting.pid, waiting.line.get(), "/nowhere");
  ASSERT_FALSE(target);
  EXPECT_EQ(target.error().code, Code::killed);
  EXPECT_EQ(exit_status(waiting.parent), 99);
}

TEST(LaunchWaiting, OneThatIsKilledBefore) {
  const Waiting waiting = begin_waiting("environment");
  ::kill(waiting.pid, SIGKILL);
  EXPECT_EQ(exit_status(waiting.parent), 128 + SIGKILL);
  auto target = PtraceTarget::launch_waiting(waiting.pid, waiting.line.get(), SUBJECT);
  ASSERT_FALSE(target);
  EXPECT_EQ(target.error().code, Code::killed);
}

// A child that stops itself and then becomes the subject, with SIGUSR1 blocked.
pid_t about_to_exec(const char* what) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    sigprocmask(SIG_SETMASK, &mask, nullptr);
    ::raise(SIGSTOP);
    ::execl(SUBJECT, SUBJECT, what, "more", nullptr);
    ::_exit(99);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, WUNTRACED), pid);
  return pid;
}

// Takes it over at its PTRACE_EVENT_EXEC.
void lead_to_exec(pid_t pid) {
  int status = 0;
  EXPECT_EQ(::ptrace(PTRACE_SEIZE, pid, nullptr, PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD), 0);
  ::kill(pid, SIGCONT);
  for (;;) {
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    if (!WIFSTOPPED(status) || status >> 8 == (SIGTRAP | PTRACE_EVENT_EXEC << 8)) return;
    ::ptrace(PTRACE_CONT, pid, nullptr, status >> 16 == 0 ? WSTOPSIG(status) : 0);
  }
}

pid_t stopped_at_exec(const char* what) {
  const pid_t pid = about_to_exec(what);
  lead_to_exec(pid);
  return pid;
}

TEST(Adopt, TheProgramGoesOnAfterTheRelease) {
  const pid_t pid = stopped_at_exec("arguments");
  auto target = PtraceTarget::adopt(pid);
  ASSERT_TRUE(target) << target.error().text;
  EXPECT_EQ(*(*target)->system_call(SYS_getpid, {}), pid);
  ASSERT_TRUE((*target)->release());
  EXPECT_EQ(exit_status(pid), 3);
}

TEST(Adopt, ATargetThatIsNotReleasedIsLetGo) {
  const pid_t pid = stopped_at_exec("arguments");
  { ASSERT_TRUE(PtraceTarget::adopt(pid)); }
  EXPECT_EQ(exit_status(pid), 3);
}

// Makes system calls in a tracee until it is killed; a byte through the pipe says that it has begun.
[[noreturn]] void trace_for_ever(pid_t pid, int ready, bool (*work)(PtraceTarget&)) {
  lead_to_exec(pid);
  const auto target = PtraceTarget::adopt(pid);
  if (!target || ::write(ready, "x", 1) != 1) ::_exit(1);
  while (work(**target)) {
  }
  ::_exit(1);
}

std::vector<SystemCall> calls_of_getpid(std::size_t count) { return std::vector<SystemCall>(count, {SYS_getpid, {}}); }

bool makes_a_call(PtraceTarget& target) { return bool(target.system_call(SYS_getpid, {})); }
bool makes_a_list(PtraceTarget& target) {
  auto calls = calls_of_getpid(8);
  return bool(target.system_calls(calls));
}

// Kills the tracer of a program that does nothing but `work`, at any moment of it.
void kill_tracers(bool (*work)(PtraceTarget&)) {
  std::srand(1);
  for (int round = 0; round < 40; ++round) {
    const pid_t pid = about_to_exec("mask");
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t tracer = ::fork();
    if (tracer == 0) trace_for_ever(pid, ready[1], work);
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    ::usleep(static_cast<useconds_t>(std::rand() % 300));
    ::kill(tracer, SIGKILL);
    EXPECT_EQ(exit_status(tracer), -SIGKILL);
    EXPECT_EQ(exit_status(pid), 1) << "registers or mask are not its own, round " << round;
    for (const int fd : ready) ::close(fd);
  }
}

TEST(Adopt, TheProgramSurvivesTheDeathOfItsTracer) { kill_tracers(makes_a_call); }
TEST(Adopt, TheProgramSurvivesTheDeathOfItsTracerInAList) { kill_tracers(makes_a_list); }

TEST(Adopt, NothingIsLeftInTheProgram) {
  const pid_t pid = stopped_at_exec("wait");
  auto files = ProcessFiles::open(pid);
  ASSERT_TRUE(files);
  const auto pages = [&] {
    std::string all;
    const auto maps = files->maps();
    EXPECT_TRUE(maps);
    for (const Mapping& m : *maps) {
      if (m.path != "[vdso]" && m.path != "[stack]") continue;
      std::string bytes(m.end - m.begin, '\0');
      EXPECT_TRUE(files->read(m.begin, bytes.data(), bytes.size()));
      all += bytes;
    }
    return all;
  };
  const std::string before = pages();
  auto target = PtraceTarget::adopt(pid);
  ASSERT_TRUE(target);
  EXPECT_TRUE(makes_a_call(**target));
  EXPECT_TRUE(makes_a_list(**target));
  EXPECT_NE(pages(), before);
  ::kill(pid, SIGSTOP);  // it stands where it is let go, and does not write to its stack
  ASSERT_TRUE((*target)->release());
  EXPECT_TRUE(pages() == before);
  ::kill(pid, SIGKILL);
  EXPECT_EQ(exit_status(pid), -SIGKILL);
}

TEST(Adopt, AProcessThatIsNoTraceeIsAnError) { EXPECT_FALSE(PtraceTarget::adopt(::getppid())); }

TEST(RunningTarget, CanBeReadButMakesNoCalls) {
  auto files = ProcessFiles::open(::getpid());
  ASSERT_TRUE(files);
  RunningTarget target(files.take());
  const int value = 77;
  int back = 0;
  EXPECT_TRUE(target.read(Addr{reinterpret_cast<std::uintptr_t>(&value)}, &back, sizeof back));
  EXPECT_EQ(back, 77);
  EXPECT_FALSE(target.system_call(SYS_getpid, {}));
  EXPECT_FALSE(target.call(Addr{0}));
  EXPECT_FALSE(ProcessFiles::open(0x7ffffff0));
}

}  // namespace
}  // namespace uprobe::target
