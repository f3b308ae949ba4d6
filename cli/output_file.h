// SPDX-License-Identifier: MIT
// Opening the files that the tool writes: traces, histograms, UPROBE_OUTPUT.
//
// A path is walked one name at a time. In a folder that only this user and root can change every name is what they have made it, and
// links are followed. In a folder that others can change (/tmp, a group's, another user's) a name may have been prepared by them:
// links are refused there, and an existing file has to be a regular one of this user's with one name only. Pipes, terminals and
// devices that the user names are reached through folders of root's (/dev, /proc/self/fd) and work. What is created has mode 0600.
#pragma once

#include <string>

#include "engine/base/fd.h"
#include "engine/base/result.h"

namespace uprobe::cli {

enum class OpenMode {
  truncate,  // an existing file loses what it has
  append,
  create,  // there must be none
};

// A file that has been opened, and how it is found again.
struct OutputFile {
  Fd file;
  Fd folder;
  std::string name;  // in the folder; empty: reached through a link of the kernel's (/proc/self/fd)
};

// The errors of the last system call, as they are, or Code::refused with the reason.
Result<OutputFile> open_output(const std::string& path, OpenMode mode);

// Gives a file that open_output() has created the name `path`. A regular file of this user's that has that name goes; another user's
// stays, and the new name is refused.
Status rename_output(OutputFile& file, const std::string& path);

// Removes the name of a file that open_output() has created, if it is still that file's.
void remove_output(const OutputFile& file);

}  // namespace uprobe::cli
