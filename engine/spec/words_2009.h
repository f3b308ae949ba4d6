// SPDX-License-Identifier: MIT
// The fetch words of the kprobe tracer of 2009, for definitions read in its style: another spelling of fetches of today.
//
//   aN   the function's Nth argument, from 0      $arg1..$arg6, then $stack1 and on
//   sN   the Nth entry of the stack               $stackN
//   sa   the stack's address                      $stack
//   rv   the return value                         $retval
//   ra   the return address, of a return probe    %ip: the thread has returned
//
// +|-OFFS(WORD), @ADDR, @SYMBOL and %REG are the same today. In any other style these words are names of variables.
#pragma once

#include <string>
#include <string_view>

namespace uprobe::spec {

// Today's word; empty for any other word.
std::string modern_word(std::string_view word);

// Whether the innermost fetch of an argument's body looks like such a word.
bool has_word_2009(std::string_view body);
// The body with that word in today's spelling.
std::string modern_body(std::string_view body);

}  // namespace uprobe::spec
