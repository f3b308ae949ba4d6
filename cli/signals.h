// SPDX-License-Identifier: MIT
// Signals while a program is traced, and ending as the program ended.
//
// The handlers are installed before the program starts. The kernel gives every caught signal its default action at
// exec, an ignored one stays ignored, and the mask is never touched: so the program gets exactly what it would have
// without us, and there is no moment in which one of these could kill the tool while it works on the program's memory.
// What was ignored at the start (nohup, background jobs of a script) the program finds ignored. It may have a handler of its own for it
// later: so once it runs, what a process sends to the tool is passed on as well, and nothing else is done about it.
//
//   SIGINT, SIGQUIT   from the terminal: the program gets it as well, so nothing is to be done; a second SIGINT
//                     within 2 s asks to detach
//   SIGTERM, SIGHUP   (and the two above) sent to the tool by a process: passed on to the program
//                     When the program has ended and its children are still traced (--until=last), and where it is another's
//                     child (-D), all four ask to detach, but for one that was ignored at the start
//   SIGPIPE           becomes EPIPE
//
// In the engine of an attached session (launcher.h) no signal may end us while we hold a program: all four, SIGUSR1, SIGUSR2, SIGALRM
// and SIGXCPU ask to detach, as does the end of the launcher; SIGTSTP and SIGCONT come from the launcher, which has stopped and goes
// on; SIGXFSZ becomes EFBIG. The program gets none of them.
//
//   SIGCHLD, SIGTTOU  default and ignored once the program runs: its end must be seen even if we were started with
//                     SIGCHLD ignored; a program that takes the terminal for itself (a shell) must not stop our output
#pragma once

#include <csignal>

namespace uprobe::cli {

// How the tool ends: an exit code, or the signal that killed the program.
struct Outcome {
  int code = 0;
  int signal = 0;  // 0: none
};

// One at a time. Puts everything back when it goes.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // Signals are passed on from now on; those that came earlier are passed on now.
  void child_started(int pid);
  // There is none that signals are passed on to, or not any more: it has ended and others are still traced, or it gets its own (-D). Each
  // signal asks to detach.
  void no_program();
  // There is no program of ours; signals that came earlier count.
  void attaching();
  bool detach_requested() const;
  // Waits while the launcher is stopped, unless it is to be detached.
  void wait_for_launcher() const;

  // This process is the engine of this launcher: its end asks to detach.
  static void follow_launcher(int launcher);
};

// Whether a signal reached the traced program too: the kernel sends the terminal's to the whole foreground group.
bool came_from_terminal(int signal_code);

// Dies of outcome.signal, without a core file of our own, or exits with outcome.code.
[[noreturn]] void end_as(const Outcome& outcome);

}  // namespace uprobe::cli
