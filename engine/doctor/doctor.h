// SPDX-License-Identifier: MIT
// What this machine, and this user on it, allow: the findings of `uprobe-run --doctor`.
//
// Nothing is changed, and no process is stopped: what cannot be read is tried on a child of the tool. A finding is about one
// moment; what it says is for people, and may come from a hostile process (its name, its paths), so printing has to escape it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace uprobe {

enum class Verdict {
  good,
  limited,  // something works less well, or only in part
  bad,      // the tool cannot do it
};

struct Finding {
  Verdict verdict = Verdict::good;
  std::string subject;  // "attaching"
  std::string text;     // one sentence: how it is
  std::string advice;   // what to do about it; empty: nothing
};

// Starting programs, attaching, seccomp, restartable sequences, user namespaces, debug information, the kernel's uprobes.
std::vector<Finding> examine_machine();

// Whether a process can be attached to, and what is special about it. The first finding is the verdict. `trusts_filters`: as for
// check_attachable().
std::vector<Finding> examine_process(pid_t pid, bool trusts_filters);

// The rules of ptrace for processes that the tool has not started (Documentation/admin-guide/LSM/Yama.rst; ptrace(2)).
struct PtraceRules {
  std::string yama_scope;  // the digit of kernel.yama.ptrace_scope; empty: there is no Yama
  bool is_root = false;
  bool may_trace_all = false;         // CAP_SYS_PTRACE
  bool is_in_user_namespace = false;  // not the first one: capabilities hold in it alone
};
Finding judge_attaching(const PtraceRules& rules);

}  // namespace uprobe
