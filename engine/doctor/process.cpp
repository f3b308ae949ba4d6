// SPDX-License-Identifier: MIT
// One process. See doctor.h.
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "engine/attach/attach.h"
#include "engine/base/process_paths.h"
#include "engine/base/procfs.h"
#include "engine/doctor/doctor.h"
#include "engine/inject/seccomp.h"
#include "engine/target/attachable.h"
#include "engine/target/thread_change.h"

namespace uprobe {
namespace {

// PTRACE_SEIZE stops no thread, and the kernel ends the tracing when the child ends (ptrace(2)). 0, or an errno.
int try_seizing(pid_t pid) {
  const pid_t child = ::fork();
  if (child < 0) return errno;
  if (child == 0) ::_exit(target::seize(pid, 0, std::chrono::seconds(2)));
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return EPERM;
  return WEXITSTATUS(status);
}

Finding refusal(const std::string& subject, const Error& error) {
  return {Verdict::bad, subject, "cannot be attached to: " + error.text, error.help};
}

void add_peculiarities(pid_t pid, const std::string& subject, std::vector<Finding>& findings) {
  if (const ProcessProgram program = program_of(pid); program.is_replaced)
    findings.push_back({Verdict::limited, subject,
                        "its program was replaced or removed after it started: " + program.name,
                        "name the running file by its path under /proc/" + std::to_string(pid) + "/map_files"});
  std::string kinds;
  for (const std::string_view kind : procfs::foreign_namespaces(pid))
    kinds.append(kinds.empty() ? "" : ", ").append(kind);
  if (!kinds.empty())
    findings.push_back({Verdict::good, subject, "is in other namespaces: " + kinds,
                        "its files are those below /proc/" + std::to_string(pid) + "/root"});
}

}  // namespace

std::vector<Finding> examine_process(pid_t pid, bool trusts_filters) {
  const std::string subject = procfs::called(pid);
  if (const pid_t owner = control::owner_of(pid); owner != 0)
    return {
        {Verdict::good, subject,
         "is traced by uprobe-run, process " + std::to_string(control::known_as(owner)) + ", which further tools join",
         ""}};
  if (const Status checked = target::check_attachable(pid, trusts_filters); !checked)
    return {refusal(subject, checked.error())};
  if (const int error = try_seizing(pid); error != 0) return {refusal(subject, target::explain_refusal(pid, error))};
  const auto filters = control::foretell(pid, trusts_filters);
  if (!filters) return {refusal(subject, filters.error())};
  std::vector<Finding> findings = {{Verdict::good, subject, "can be attached to", ""}};
  if (!filters->empty()) findings.push_back({Verdict::limited, subject, *filters, ""});
  add_peculiarities(pid, subject, findings);
  return findings;
}

}  // namespace uprobe
