// SPDX-License-Identifier: MIT
// An event program: the instructions by which the agent builds the payload of an event at each hit.
//
//   fetch arguments --engine/program/compile--> Insn[] in the plan --preload/interpret, or a body--> payload in a ring
//
//   payload   [ PayloadHead | fixed part: one place for each argument | dynamic data, in argument order ]
//
// A program is a straight list of instructions, without branches. The machine has one working value and one fault flag:
//
//   begin              value = 0, fault = no                                 (starts each argument)
//   load_register r    value = register r
//   load_constant      value = immediate
//   load_file_offset   value = (address of the point - its file offset) + immediate          (@+OFF)
//   load_object        value = immediate in object `count` of the process block (@OBJECT:SYMBOL); not mapped: value = 0,
//                      fault = yes
//   dereference        value = *(u64*)(value + immediate); not wholly readable: value = 0, fault = yes
//   add                value += immediate
//   add_register r     value += register r << count
//   shift_right        value >>= immediate & 63, unsigned                  (the upper part of a register)
//   load_thread_pointer value = the thread pointer; not known: value = 0, fault = yes
//   add_thread_pointer value += the thread pointer; if the value is no distance below it: value = 0, fault = yes, and the record says
//                      that something is missing
//   find_thread_data   value = where the thread has the thread-local data of module `value`; not known: the same
//   keep               the value is kept; another source, or what changes the value, may follow
//   add_kept           value += what was kept
//   store_value        the low `size` bytes of value go to payload[offset]  (0 if fault)
//   store_memory       `count` bytes at value + immediate go to payload[offset]; from the first unreadable byte on: 0. Of an
//                      array (`size` != 0) each element by itself: elements after an unreadable page are read
//   store_string       the NUL-terminated string at value + immediate becomes dynamic data, its locator goes to
//                      payload[offset]; unreadable: a fault. Too long: cut; in strict sessions a fault. With `count` 1 it
//                      has no NUL, but as many bytes as the kept value says
//   store_string_array the same for each of `count` pointers that follow each other at value + immediate
//   store_text         `count` bytes (NUL included) at text[immediate] of the session become dynamic data (`\"abc"`)
//                      or are cut
//   store_comm         the task's name becomes dynamic data
//   shift              `count` elements of `size` bytes at payload[offset]: each <<= (immediate & 0xff), then
//                      >>= (immediate >> 8 & 0xff), unsigned, or signed if immediate >> 16 is 1    (bitfields)
//   load_entry         value = the `size` bytes at `offset` of the entry record; missing: value = 0, fault = yes, and the
//   record
//                      says so
//   load_latency       value = nanoseconds since the entry; missing: the same
//   load_self          value = these nanoseconds without those of the probed calls inside the call; not known: the same
//   load_thread        value = the number of the thread in its own PID namespace
//   store_vector       the lowest `count` bytes of vector register `size` go to payload[offset]
//   end                the payload is complete
//
// A register, or a whole word of memory, that holds the address of a return stub (return_stub.h) is replaced by the return
// address for which the stub stands.
//
// An entry record is the payload of a program of its own, without dynamic data.
//
// A locator is ftrace's __data_loc: u32 = length (NUL included) << 16 | offset from the start of the payload; a fault is
// length 0. A string that was cut has no NUL (string_data.h). The tool verifies each program (program/verify.cpp); agents read it
// from the plan, which no process can write.
#pragma once

#include "engine/shared/layout.h"

namespace uprobe::shared {

enum class Op : u8 {
  end,
  begin,
  load_register,
  load_constant,
  load_file_offset,
  dereference,
  store_value,
  store_memory,
  store_string,
  store_string_array,
  store_text,
  store_comm,
  shift,
  load_entry,
  load_latency,
  store_vector,
  add,
  shift_right,
  load_object,
  load_thread,
  load_self,
  add_register,
  load_thread_pointer,
  keep,
  add_kept,
  add_thread_pointer,
  find_thread_data,
};
inline constexpr u8 kOpCount = 27;
inline constexpr u64 kShiftSigned = u64{1} << 16;

struct Insn {
  Op op;
  u8 size;  // store_value, shift, load_entry: bytes of an element (1, 2, 4, 8); store_memory: the same, or 0;
      // load_register, add_register: the Reg; store_vector: the register's number; store_string, store_string_array,
      // store_text, store_comm: how many strings follow, 255 at most
  u16 count;      // store_memory, store_vector: bytes; store_string_array, shift: elements; store_text: bytes;
                  // load_object: index into ProcessBlock::objects; add_register: 0..3;
                  // store_string: 1: its length was kept
  u32 offset;     // place in the payload; load_entry: in the entry record
  u64 immediate;  // two's complement where it is an offset; load_object: link-time address
};
static_assert(sizeof(Insn) == 16);

// Of store_memory: whether it stores whole words, which may be addresses.
constexpr bool is_of_words(const Insn& insn) {
  return insn.count % 8 == 0 && (insn.size == 8 || (insn.size == 0 && insn.count == 8));
}

// The common part of ftrace's raw record (the fields `common_*` of every format file) and the first field of an entry event.
struct PayloadHead {
  u16 type;  // the event's id: its index in the session's event table
  u8 flags;  // these three: in a ring as in task_number.h
  u8 preempt_count;
  i32 pid;  // thread id
  u64 ip;   // __probe_ip; of a return event __probe_func
};
static_assert(sizeof(PayloadHead) == 16);

// The same, and the second field of a return event.
struct ReturnHead {
  PayloadHead common;
  u64 return_ip;  // __probe_ret_ip
};
static_assert(sizeof(ReturnHead) == 24);

// The largest entry record: an unused PayloadHead, then six words.
inline constexpr u32 kNotedWords = 6, kMostNoted = sizeof(PayloadHead) + 8 * kNotedWords;

}  // namespace uprobe::shared
