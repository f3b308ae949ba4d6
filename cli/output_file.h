// SPDX-License-Identifier: MIT
// Opens the files that the tool writes: traces, histograms, UPROBE_OUTPUT.
//
// The path is walked one name at a time. In a folder that only this user and root can change, every name is their own, and
// links are followed. In a folder that others can change (/tmp, a group's, another user's) they may have prepared a name: links
// are refused there, and an existing file has to be a regular file of this user's with no other name. Pipes, terminals and
// devices that the user names are reached through folders of root's (/dev, /proc/self/fd), and work. New files have mode 0600.
#pragma once

#include <sys/stat.h>

#include <string>

#include "engine/base/fd.h"
#include "engine/base/result.h"

namespace uprobe::cli {

enum class OpenMode {
  truncate,  // an existing file loses its contents
  rewrite,   // the same, and what is written can be read back
  append,
  create,  // fails if the file exists; can be read back
};

// An open file, and how to find its name again.
struct OutputFile {
  Fd file;
  Fd folder;
  std::string name;  // in the folder; empty: reached through a link of the kernel's (/proc/self/fd)
};

// Fails with the error of the last system call, or with Code::refused and the reason. `input`: a file that is being read; it is
// refused, whichever path leads to it, before it is changed.
Result<OutputFile> open_output(const std::string& path, OpenMode mode, const struct stat* input = nullptr);

// Whether the open file is the input; the refusal of it.
bool is_input(int file, const struct stat* input);
Error refused_input(const std::string& path);

// Makes the folder `path`, with mode 0700, or opens one that has nothing in it and that others cannot change.
Result<Fd> open_output_folder(const std::string& path);

// Gives a file that open_output() has created the name `path`. A regular file of this user's with that name is replaced;
// another user's stays, and the rename is refused.
Status rename_output(OutputFile& file, const std::string& path);

// Makes room for a further file of the name that `file` has: gives it the name NAME.1, that one NAME.2, and so on up to
// NAME.(`count` - 1), whose file goes. No link is followed. Refused where one of these names belongs to what is not a regular file
// of this user's, or where NAME belongs to another file than `file`.
Status shift_outputs(const OutputFile& file, unsigned count);
// Creates a file of that name in the same folder, where there must be none.
Result<OutputFile> open_next(const OutputFile& file);

// Removes the name of a file that open_output() has created, if it still belongs to that file.
void remove_output(const OutputFile& file);

}  // namespace uprobe::cli
