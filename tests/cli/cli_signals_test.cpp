// SPDX-License-Identifier: MIT
// Signals in a traced run, and ending in the same way as the program. All changes of dispositions happen in a child.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "cli/signals.h"
#include "engine/base/fd.h"

namespace uprobe::cli {
namespace {

// The status with which a child that does `act` ends.
template <class Act>
int status_of(Act act) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    act();
    ::_exit(99);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return status;
}

TEST(CliSignals, EndsWithTheCode) {
  for (const int code : {0, 7, 125, 255}) {
    const int status = status_of([&] { end_as({code, 0}); });
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), code);
  }
}

TEST(CliSignals, EndsBySameSignalWithoutACore) {
  for (const int signal : {SIGSEGV, SIGKILL, SIGTERM, SIGINT, SIGABRT, SIGTRAP, SIGPIPE, 40}) {
    const int status = status_of([&] {
      ::signal(signal, SIG_IGN);
      sigset_t all;
      ::sigfillset(&all);
      ::sigprocmask(SIG_BLOCK, &all, nullptr);
      end_as({0, signal});
    });
    ASSERT_TRUE(WIFSIGNALED(status)) << signal;
    EXPECT_EQ(WTERMSIG(status), signal);
    EXPECT_FALSE(WCOREDUMP(status)) << signal;
  }
}

TEST(CliSignals, ASignalThatDoesNotKillStillEnds) {
  const int status = status_of([] { end_as({0, SIGCHLD}); });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGCHLD);
}

// The signal lines of /proc/self/status in a program that was forked and exec'd by `prepare`'s caller.
template <class Prepare>
std::string inherited(Prepare prepare) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(ends[1], 1);
    prepare([] {
      const pid_t program = ::fork();
      if (program == 0) ::execl("/bin/grep", "grep", "Sig[BIC]", "/proc/self/status", nullptr);
      ::waitpid(program, nullptr, 0);
    });
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<std::size_t>(n));
  ::close(ends[0]);
  ::waitpid(pid, nullptr, 0);
  return text;
}

TEST(CliSignals, TheProgramInheritsWhatItWouldWithoutUs) {
  const auto nohup = [] {
    ::signal(SIGHUP, SIG_IGN);
    ::signal(SIGCHLD, SIG_DFL);
    sigset_t one;
    ::sigemptyset(&one);
    ::sigaddset(&one, SIGUSR1);
    ::sigprocmask(SIG_BLOCK, &one, nullptr);
  };
  const std::string without = inherited([&](auto start) {
    nohup();
    start();
  });
  const std::string with = inherited([&](auto start) {
    nohup();
    const Signals signals;
    start();
  });
  EXPECT_NE(without.find("SigIgn"), std::string::npos);
  EXPECT_EQ(with, without);
}

TEST(CliSignals, WhereNoProgramIsOursEachAsksToDetach) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU}) {
    const int status = status_of([number] {
      Signals signals;
      signals.attaching();
      const bool before = signals.detach_requested();
      ::raise(number);
      ::_exit(!before && signals.detach_requested() ? 1 : 2);
    });
    EXPECT_EQ(WEXITSTATUS(status), 1) << number;
  }
}

TEST(CliSignals, TheEngineWaitsWhileItsFrontIsStopped) {
  const int status = status_of([] {
    Signals signals;
    signals.attaching();
    ::raise(SIGXFSZ);
    signals.wait_for_launcher();
    ::raise(SIGTSTP);
    const pid_t waker = ::fork();
    if (waker == 0) {
      ::usleep(50'000);
      ::kill(::getppid(), SIGCONT);
      ::_exit(6);
    }
    signals.wait_for_launcher();
    int ended = 0;
    const bool waited = ::waitpid(waker, &ended, 0) == waker && WEXITSTATUS(ended) == 6;
    ::raise(SIGTSTP);
    ::raise(SIGTERM);
    signals.wait_for_launcher();
    ::_exit(waited && signals.detach_requested() ? 1 : 2);
  });
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

// In a child: a program that sleeps is started, `act` gets its PID; the signal that ended the program is the exit code.
template <class Act>
int program_signal(Act act) {
  const int status = status_of([&] {
    Signals signals;
    const pid_t program = ::fork();
    if (program == 0) ::execl("/bin/sleep", "sleep", "1000", nullptr);
    act(signals, program);
    int ended = 0;
    ::waitpid(program, &ended, 0);
    ::_exit(WIFSIGNALED(ended) ? WTERMSIG(ended) : 98);
  });
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(CliSignals, WhatIsSentToUsIsPassedOn) {
  for (const int signal : {SIGTERM, SIGHUP, SIGINT, SIGQUIT})
    EXPECT_EQ(program_signal([&](Signals& signals, pid_t program) {
                signals.child_started(program);
                ::kill(::getpid(), signal);
              }),
              signal);
}

TEST(CliSignals, WhatCameTooEarlyIsPassedOnLater) {
  EXPECT_EQ(program_signal([](Signals& signals, pid_t program) {
              ::kill(::getpid(), SIGTERM);
              signals.child_started(program);
            }),
            SIGTERM);
}

TEST(CliSignals, SigpipeIsSwallowed) {
  EXPECT_EQ(program_signal([](Signals& signals, pid_t program) {
              signals.child_started(program);
              ::kill(::getpid(), SIGPIPE);
              ::kill(program, SIGKILL);
            }),
            SIGKILL);
}

TEST(CliSignals, TheForkedChildBeforeExecDiesAsItWould) {
  const int status = status_of([] {
    const Signals signals;
    const pid_t program = ::fork();
    if (program == 0) {
      ::raise(SIGTERM);
      ::_exit(0);
    }
    int ended = 0;
    ::waitpid(program, &ended, 0);
    ::_exit(WIFSIGNALED(ended) ? WTERMSIG(ended) : 98);
  });
  EXPECT_EQ(WEXITSTATUS(status), SIGTERM);
}

TEST(CliSignals, TwoInterruptsDetach) {
  const int status = status_of([] {
    ::signal(SIGINT, SIG_DFL);
    Signals signals;
    ::raise(SIGINT);
    const bool after_one = signals.detach_requested();
    ::raise(SIGINT);
    ::_exit(!after_one && signals.detach_requested() ? 1 : 2);
  });
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

TEST(CliSignals, WhenTheProgramHasEndedEachAsksToDetach) {
  for (const auto& [number, is_ignored] :
       {std::pair{SIGINT, false}, {SIGTERM, false}, {SIGHUP, false}, {SIGHUP, true}}) {
    const int status = status_of([number, is_ignored] {
      ::signal(number, is_ignored ? SIG_IGN : SIG_DFL);
      const pid_t program = ::fork();
      if (program == 0) ::_exit(0);
      Signals signals;
      signals.child_started(program);
      signals.no_program();
      const bool before = signals.detach_requested();
      ::raise(number);
      ::_exit(!before && signals.detach_requested() != is_ignored ? 1 : 2);
    });
    EXPECT_EQ(WEXITSTATUS(status), 1) << number << is_ignored;
  }
}

TEST(CliSignals, IgnoredAtTheStartStaysIgnored) {
  const int status = status_of([] {
    ::signal(SIGINT, SIG_IGN);
    Signals signals;
    ::raise(SIGINT);
    ::raise(SIGINT);
    ::_exit(signals.detach_requested() ? 2 : 1);
  });
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

TEST(CliSignals, EverythingIsPutBack) {
  const int status = status_of([] {
    ::signal(SIGTERM, SIG_DFL);
    ::signal(SIGCHLD, SIG_IGN);
    {
      Signals signals;
      signals.child_started(::getpid());
    }
    struct sigaction term, child, tty;
    ::sigaction(SIGTERM, nullptr, &term);
    ::sigaction(SIGCHLD, nullptr, &child);
    ::sigaction(SIGTTOU, nullptr, &tty);
    ::_exit(term.sa_handler == SIG_DFL && child.sa_handler == SIG_IGN && tty.sa_handler == SIG_DFL ? 1 : 2);
  });
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

// A real terminal: ^C typed into it must not be passed on, since the program has got it already.
TEST(CliSignals, TheTerminalsInterruptIsNotPassedOn) {
  int master = -1;
  const pid_t pid = ::forkpty(&master, nullptr, nullptr, nullptr);
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    Signals signals;
    const pid_t program = ::fork();
    if (program == 0) {
      // Out of the foreground group: a signal that arrives now was passed on.
      ::setpgid(0, 0);
      ::signal(SIGINT, SIG_DFL);
      for (;;) ::pause();
    }
    ::setpgid(program, program);
    signals.child_started(program);
    static_cast<void>(!::write(1, "r", 1));
    while (!signals.detach_requested()) ::usleep(1000);
    const bool alive = ::waitpid(program, nullptr, WNOHANG) == 0;
    ::kill(program, SIGKILL);
    ::_exit(alive ? 1 : 2);
  }
  const Fd terminal(master);
  char ready = 0;
  ASSERT_EQ(::read(master, &ready, 1), 1);
  ASSERT_EQ(::write(master, "\x03", 1), 1);
  // The two must arrive one by one: equal signals that wait merge into one. The echo "^C" of the first is the sign.
  char echo[2];
  std::size_t seen = 0;
  while (seen < 2 && ::read(master, echo, 1) == 1) ++seen;
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    static_cast<void>(!::write(master, "\x03", 1));
    ::usleep(2000);
  }
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

}  // namespace
}  // namespace uprobe::cli
