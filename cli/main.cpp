// uprobe-run: runs a program and prints its hits. Everything is in run.cpp; only this file and signals.cpp end the
// process.
#include <fcntl.h>
#include <unistd.h>

#include "cli/helper.h"
#include "cli/run.h"
#include "cli/session_engine.h"

namespace {

// A standard stream that the caller closed would be the next descriptor of the engine's, and our messages would go
// there (it may be the program's memory). Closed again by exec: the program finds it as the caller left it.
void fill_closed_streams() {
  int fd = -1;
  do fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO) ::close(fd);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace uprobe::cli;
  fill_closed_streams();
  if (is_helper_call(argc, argv)) return run_helper(argv);
  SessionEngine engine;
  end_as(run_cli(std::vector<std::string>(argv, argv + argc), engine, Streams{}));
}
