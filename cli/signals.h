// SPDX-License-Identifier: MIT
// Signals while a program is traced, and ending as the program ended.
//
// The handlers are installed before the program starts. At exec the kernel resets every caught signal to its default action, an
// ignored one stays ignored, and the mask is never touched: so the program gets exactly what it would have without the tool,
// and none of these signals can kill the tool while it works on the program's memory. Signals that were ignored at the start
// (nohup, background jobs of a script) are ignored in the program too. The program may install a handler later: so once it
// runs, a signal that a process sends to the tool is passed on as well, and has no other effect.
//
//   SIGINT, SIGQUIT   from the terminal: the program gets it as well, so the tool does nothing; a second SIGINT
//                     within 2 s asks to detach
//   SIGTERM, SIGHUP   (and the two above) sent to the tool by a process: passed on to the program
//                     When the program has ended and its children are still traced (--until=last), and where the program is
//                     another process's child (-D), all four ask to detach, except one that was ignored at the start
//   SIGHUP            sent by a process, with --reopen: asks to open the output anew, and nothing else
//   SIGUSR1           sent by a process, with tables of calls or histograms: asks to show them now, and nothing else
//   SIGPIPE           becomes EPIPE
//
// In the tracer of an attached session (launcher.h) no signal may end the process while it holds a program: all four, SIGUSR1,
// SIGUSR2, SIGALRM and SIGXCPU ask to detach, as does the end of the launcher; SIGTSTP and SIGCONT come from a launcher that
// was stopped or continued; SIGXFSZ becomes EFBIG. The program gets none of them.
//
//   SIGCHLD, SIGTTOU  default and ignored once the program runs: the tool must see the program's end even if it was started
//                     with SIGCHLD ignored; a program that takes the terminal for itself (a shell) must not stop the tool's
//                     output
#pragma once

#include <csignal>

namespace uprobe::cli {

// How the tool ends: an exit code, or the signal that killed the program.
struct Outcome {
  int code = 0;
  int signal = 0;  // 0: none
};

// At most one object at a time. The destructor restores all dispositions.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // Passes signals on from now on, and now those that came earlier.
  void child_started(int pid);
  // There is no program for signals, or no longer: it has ended and others are still traced, or it gets its own signals (-D).
  // Each signal asks to detach.
  void no_program();
  // The session attaches and has no child; signals that came earlier count.
  void attaching();
  bool detach_requested() const;
  // From now on SIGHUP of a process asks to open the output anew, and does nothing else. A terminal's has its usual meaning.
  void reopen_at_hangup();
  // Whether that was asked for since the last call.
  bool take_reopen();
  // From now on SIGUSR1 of a process asks to show the tables. After the program has started, which inherits an ignored one.
  void show_at_user_signal();
  // Whether that was asked for since the last call.
  bool take_show();
  bool is_launcher_stopped() const;
  // Waits while the launcher is stopped, unless a detach is requested.
  void wait_for_launcher() const;

  // This process is the tracer of this launcher, whose end asks to detach.
  static void follow_launcher(int launcher);
};

// Whether a signal reached the traced program too: the kernel sends the terminal's to the whole foreground group.
bool came_from_terminal(int signal_code);

// Dies of outcome.signal, without a core file of the tool's own, or exits with outcome.code.
[[noreturn]] void end_as(const Outcome& outcome);

}  // namespace uprobe::cli
