// SPDX-License-Identifier: MIT
// The rings of `uprobe-run --export-rings=PATH`, for programs that read the hits of a session by themselves: layout, protocol,
// and functions that read a ring. C99 (with the atomic builtins of GCC and Clang) and C++; Linux x86-64.
//
// A reader connects to the socket, shows that it may inspect the tool, and gets the memory of the rings, for reading, with a
// description of each event. It maps the memory and reads at its own pace, from a position that only it knows. Neither the tool
// nor the traced programs wait for it, or notice it: what it has not read when the ring has come around is overwritten, and the
// reader counts it as lost. docs/ring.md has a picture and two readers to begin with.
//
// The file of a part (all processes of one trust domain write it, and each can write anything into it at any time):
//
//   [ ... | counts of each event | ... | rings: struct uprobe_ring[ring_count] | ... ][ data of ring 0 ][ data of ring 1 ] ...
//           counts_offset                rings_offset                                 data_offset
//
// The first `cpu_ring_count` rings are CPU rings: the threads on CPU N write ring N, inside of rseq sections. The others are
// claimed by one thread at a time: by threads without rseq, and for records that find the ring of their CPU full. A reader reads
// all of them. The pages of data come when they are first written; a reader that reads beyond `commit` allocates pages for
// nothing.
//
// Who writes a word, and when:
//
//   commit  a traced thread, by one 8-byte store with release semantics, after the record's bytes. It is the end of the last
//           record (upper half, in units of 8 bytes modulo 2^32) and the number of records (lower half, modulo 2^32). The unit P
//           of a ring is at data[P * 8 % ring_bytes]: a record may go on at the beginning of the data.
//   tail    the tool: how far its own reader has read. Writers have all room up to tail + ring_bytes.
//   stamp   a traced thread, before it builds a record: the least time that the record, and each later one, can have.
//   owner   of a claimed ring: not 0 while a thread builds a record there.
//   begun   of a CPU ring: one more than commit's number of records while a thread builds a record there.
//
// Which bytes are valid. A writer that has seen `commit` = C builds its record from C on, in `record_most` bytes at most, and not
// beyond tail + ring_bytes; then it publishes the record by a larger `commit`. Stores become visible to all CPUs in their order.
// So a reader that has copied from P on loads `tail` and `commit` after an acquire fence, and has what was published, and nothing
// newer, if
//
//   C + record_most <= P + ring_bytes   or   tail <= P
//
// Else a writer may have come around, and the reader drops the copy.
//
// Where it has dropped something, or was too far behind from the start, it goes on at C, the one place that is certainly the
// beginning of a record; the numbers of records say how many it has lost. What the tool's own reader has read stays readable
// until a writer comes around. A reader that does not look at a ring for so long that 2^32 records come counts 2^32 too few as
// lost.
//
// Order. Within a ring records are sorted by `tsc`, up to the few ticks by which the counters of two CPUs may differ. A reader
// that merges rings takes a time `now`, then loads of each ring in this order: begun (or owner), stamp, commit; then it reads the
// rings up to these commits. Later records are not earlier than the least of: stamp, where the ring is being written; now, where
// it is not.
//
// Trust. A traced process can write anything into a ring: lengths, numbers, times, counts. So copy first and check then, as
// uprobe_ring_take() does, and check every locator of a payload against payload_bytes.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"  // C has no others
extern "C" {
#endif

// Of the messages and of the memory. A tool of another version says so and closes the connection.
#define UPROBE_RING_VERSION 1u
#define UPROBE_RING_MAGIC 0x676e7275u  // "urng"

// ---- The memory ----

struct uprobe_ring {
  uint64_t commit;
  uint64_t stamp;
  uint32_t owner;
  uint32_t begun;
  uint64_t lost;  // hits that could not be recorded on this CPU
  uint32_t reserved0[24];
  uint32_t tail;  // in units of 8 bytes, modulo 2^32
  uint32_t reserved1[31];
};

// A record: this head, then payload_bytes of payload, padded to 8 bytes; with UPROBE_RING_STACK the stack after that.
struct uprobe_ring_record {
  uint32_t length;  // of all, in bytes; a multiple of 8
  uint32_t number;  // of the record in its ring, from 0, modulo 2^32
  uint64_t tsc;     // struct uprobe_ring_session has the clock
  uint32_t payload_bytes;
  uint16_t cpu;
  uint16_t flags;
};

// Of `flags`. COMM_LATER: the 16 bytes of each $comm are empty, because the agent did not ask for the thread's name. JUDGE_LATER:
// the event's filter needs that name; the tool's reader judges the hit, and may drop it.
#define UPROBE_RING_NO_CLOCK 1u  // the counter could not be read: tsc is 0
#define UPROBE_RING_COMM_LATER 2u
#define UPROBE_RING_NO_ENTRY 4u  // the values of the function's entry are missing, and 0
#define UPROBE_RING_JUDGE_LATER 8u
#define UPROBE_RING_STACK 16u      // a struct uprobe_ring_stack follows
#define UPROBE_RING_TASK_NAME 32u  // no hit: the name of a thread, see struct uprobe_ring_payload

// The payload begins with it. The fields of a hit are in the event's format. That of a string is a locator, u32 = bytes (with the
// NUL) << 16 | offset from the beginning of the payload; 0 bytes: it could not be read; without a NUL: it was cut.
//
// The thread: let P be flags | preempt_count << 8 | (pid >> 22 & 63) << 16. Where P is 0 and pid is not negative, pid is the
// thread's number as the tool sees it. Else it is in another PID namespace: its number there is pid & 0x3fffff, and P is the
// number of its process, or of an ancestor where pid is negative, as the tool sees it.
//
// With UPROBE_RING_TASK_NAME the 16 bytes after it are the name of the thread (if there are none, the name has changed and is not
// known), `type` is 1 if the thread has just begun, and `ip` is the number of its process (0: not known).
struct uprobe_ring_payload {
  uint16_t type;  // number of the event
  uint8_t flags;
  uint8_t preempt_count;
  int32_t pid;
  uint64_t ip;
};

// After UPROBE_RING_STACK_BYTES: u64[frames], the address of the hit and the return addresses; u64[frames], the places where
// these lie; copy_bytes of the stack.
struct uprobe_ring_stack {
  uint32_t frames;
  uint32_t copy_bytes;
  uint64_t copy_begin;  // the address from which they were copied
};
#define UPROBE_RING_STACK_BYTES 152u  // with the registers that follow

// Hits of an event that are in no ring. Of a session they are the sums over all parts.
struct uprobe_ring_counts {
  uint64_t lost_full;  // the rings had no room
  uint64_t lost_too_big;
  uint64_t lost_busy;  // every ring was claimed
  uint64_t missed;     // returns that could not be followed; no hits
  uint64_t unavailable;
  uint64_t disabled;  // while the event was off
  uint64_t entries;
  uint64_t self_unknown;
  uint64_t reserved[24];
};

// ---- The socket ----
//
// The socket is of the type SOCK_SEQPACKET. Each message begins with a struct uprobe_ring_message. The reader sends a greeting
// within five seconds. The tool sends the session, then each part, then each event; parts and events that come later follow as
// they come (a record of a new event can be there a moment before its description). Messages of an unknown kind are to be left
// out.
//
// The pass proves that the reader may inspect the tool, as the kernel decides it (ptrace access, read mode): it is the 32
// characters after "/memfd:uprobe-pass:" in a link of /proc/PID/fd, PID being the tool's (SO_PEERCRED of the connected socket;
// let it be of your own user before you trust it).
//
// A reader that wants to sleep sends UPROBE_RING_WAKE_AT, looks at the rings once more, and waits for the socket. When a ring has
// got so many bytes since the last time that the tool woke this reader (at first: since the session began), the tool sends
// UPROBE_RING_FILLED. One request at a time. The tool looks each time that its own reader does: 50 milliseconds apart as a rule,
// and not while its own output is blocked, so a reader sleeps with a limit.
//
// UPROBE_RING_END: nothing more is written; what is in the rings can be read as long as it is mapped. The same holds where the
// connection ends without it, except that programs may still write if the tool was killed.

#define UPROBE_RING_GREETING 1u  // reader -> tool
#define UPROBE_RING_WAKE_AT 2u   // reader -> tool
#define UPROBE_RING_SESSION 16u
#define UPROBE_RING_PART 17u  // with one descriptor (SCM_RIGHTS), for reading
#define UPROBE_RING_EVENT 18u
#define UPROBE_RING_FILLED 19u
#define UPROBE_RING_END 20u
#define UPROBE_RING_REFUSED 21u         // followed by the reason as text; the connection ends
#define UPROBE_RING_MOST_MESSAGE 8192u  // bytes of a message

struct uprobe_ring_message {
  uint32_t kind;
  uint32_t bytes;  // of the whole message
};

struct uprobe_ring_greeting {
  struct uprobe_ring_message head;
  uint32_t magic;
  uint32_t version;
  char pass[32];
};

struct uprobe_ring_wake_at {
  struct uprobe_ring_message head;
  uint32_t fill;  // bytes of one ring
  uint32_t reserved;
};

// The geometry, which is the same for all parts, and the clock: CLOCK_MONOTONIC = ns + ((tsc - this tsc) * tick_rate >> 32), with
// 128 bits in between; it drifts by some microseconds a second.
struct uprobe_ring_session {
  struct uprobe_ring_message head;
  uint32_t version;
  uint32_t ring_count;
  uint32_t cpu_ring_count;
  uint32_t record_most;  // bytes; a multiple of 8
  uint64_t ring_bytes;   // a power of two
  uint64_t file_bytes;   // of a part
  uint64_t counts_offset, rings_offset, data_offset;
  uint64_t tsc, ns, tick_rate;
};

struct uprobe_ring_part {
  struct uprobe_ring_message head;
  uint32_t number;  // from 0 on; each trust domain has one
  uint32_t reserved;
};

// An event's description, in pieces: the format file that ftrace would have for it, with `number` as its ID and offsets in the
// payload. The piece follows this head: head.bytes - sizeof(struct uprobe_ring_event) bytes, without a NUL.
struct uprobe_ring_event {
  struct uprobe_ring_message head;
  uint32_t number;
  uint32_t fixed_bytes;  // the least size of a payload of it
  uint32_t text_bytes;   // of all pieces
  uint32_t offset;       // of this piece
};

// ---- Reading a ring ----

struct uprobe_ring_reader {
  const struct uprobe_ring* ring;
  const uint8_t* data;
  uint64_t ring_bytes;
  uint32_t record_most;
  uint32_t reach;     // units that it may be behind
  uint32_t position;  // of the next record; 0 at the beginning of the session
  uint32_t number;    // of the next record
  uint64_t taken;     // records
  uint64_t lost;      // records, overwritten before they were read
  uint64_t broken;    // times that the ring did not make sense; what was skipped there is part of `lost`
};

// Begins where the session began: what has been overwritten since then is lost. `part`: file_bytes of a part, mapped for reading.
// 0: the session's numbers make no sense.
static inline int uprobe_ring_begin(struct uprobe_ring_reader* reader, const void* part,
                                    const struct uprobe_ring_session* session, uint32_t index) {
  const uint8_t* const begin = (const uint8_t*)part;
  const uint64_t most = session->file_bytes, rings = session->rings_offset, data = session->data_offset;
  memset(reader, 0, sizeof *reader);
  if (index >= session->ring_count || session->ring_count > 65536 || session->ring_bytes > ((uint64_t)1 << 32))
    return 0;
  if (session->ring_bytes == 0 || (session->ring_bytes & (session->ring_bytes - 1)) != 0) return 0;
  if (session->record_most % 8 != 0 || session->record_most >= session->ring_bytes) return 0;
  if (rings % 8 != 0 || rings > most || (most - rings) / sizeof(struct uprobe_ring) < session->ring_count) return 0;
  if (data > most || (most - data) / session->ring_bytes < session->ring_count) return 0;
  reader->ring = (const struct uprobe_ring*)(const void*)(begin + rings) + index;
  reader->data = begin + data + index * session->ring_bytes;
  reader->ring_bytes = session->ring_bytes;
  reader->record_most = session->record_most;
  reader->reach = (uint32_t)((session->ring_bytes - session->record_most) / 8);
  return 1;
}

// Whether no writer has come around to the reader's position, by `tail` and then `commit`, both loaded after what is to be valid.
//
static inline int uprobe_ring_is_valid(const struct uprobe_ring_reader* reader, uint32_t tail, uint64_t commit) {
  const uint32_t end = (uint32_t)(commit >> 32), behind = end - reader->position;
  return behind <= reader->reach || (behind <= reader->ring_bytes / 8 && behind <= (uint32_t)(end - tail));
}

// Goes on at the end of the ring.
static inline size_t uprobe_ring_rejoin(struct uprobe_ring_reader* reader, uint64_t commit) {
  reader->lost += (uint32_t)((uint32_t)commit - reader->number);
  reader->number = (uint32_t)commit;
  reader->position = (uint32_t)(commit >> 32);
  return 0;
}

// Takes the records at the beginning of a copy of `bytes` bytes. `cut`: it may end inside of a record.
static inline size_t uprobe_ring_sift(struct uprobe_ring_reader* reader, const uint8_t* copy, size_t bytes, int cut,
                                      uint64_t commit) {
  const size_t least = sizeof(struct uprobe_ring_record) + sizeof(struct uprobe_ring_payload);
  size_t at = 0;
  while (bytes - at >= least) {
    struct uprobe_ring_record head;
    memcpy(&head, copy + at, sizeof head);
    if (head.length % 8 != 0 || head.length < least || head.length > reader->record_most ||
        head.number != reader->number || head.payload_bytes < sizeof(struct uprobe_ring_payload) ||
        head.payload_bytes > head.length - sizeof head)
      break;
    if (head.length > bytes - at) {
      if (cut) return at;  // the rest is for the next time
      break;
    }
    at += head.length;
    reader->position += head.length / 8;
    ++reader->number;
    ++reader->taken;
  }
  if (at == bytes || (cut && bytes - at < least)) return at;
  ++reader->broken;
  uprobe_ring_rejoin(reader, commit);
  return at;
}

// Copies records that are there, one after the other and each as a whole, and returns their bytes; 0: there are none, or those
// that there were have been lost. `room` is at least record_most. The copy is checked: lengths and payload_bytes of its records
// are possible, and their numbers follow each other. Takes bounded time, whatever is in the ring.
static inline size_t uprobe_ring_take(struct uprobe_ring_reader* reader, void* copy, size_t room) {
  uint32_t tail = __atomic_load_n(&reader->ring->tail, __ATOMIC_ACQUIRE);
  uint64_t commit = __atomic_load_n(&reader->ring->commit, __ATOMIC_ACQUIRE);
  const uint32_t behind = (uint32_t)(commit >> 32) - reader->position;
  const size_t at = (size_t)((uint64_t)reader->position * 8 & (reader->ring_bytes - 1));
  size_t bytes = (size_t)behind * 8, first = (size_t)(reader->ring_bytes - at);
  if (behind == 0 && (uint32_t)commit == reader->number) return 0;
  if (behind == 0 || !uprobe_ring_is_valid(reader, tail, commit)) return uprobe_ring_rejoin(reader, commit);
  if (bytes > room) bytes = room & ~(size_t)7;
  if (first > bytes) first = bytes;
  memcpy(copy, reader->data + at, first);
  memcpy((uint8_t*)copy + first, reader->data, bytes - first);
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  tail = __atomic_load_n(&reader->ring->tail, __ATOMIC_ACQUIRE);
  commit = __atomic_load_n(&reader->ring->commit, __ATOMIC_ACQUIRE);
  if (!uprobe_ring_is_valid(reader, tail, commit)) return uprobe_ring_rejoin(reader, commit);
  return uprobe_ring_sift(reader, (const uint8_t*)copy, bytes, bytes < (size_t)behind * 8, commit);
}

#ifdef __cplusplus
}
#pragma GCC diagnostic pop
#endif
