// SPDX-License-Identifier: MIT
// A probe by jump in this very program: block, island, body, slot with thunk and copy, and the jump at the site.
#pragma once

#include "arch/abi/processor.h"
#include "arch/code/trampoline.h"
#include "engine/shared/trampoline.h"
#include "preload/ring.h"
#include "preload/stubs.h"
#include "tests/agent/recording.h"

extern "C" __attribute__((visibility("hidden"))) void uprobe_jump_entry();

namespace uprobe::test {

// A process block with one point and up to two consumers.
struct PointBlock {
  shared::ProcessBlock head;
  shared::Point point;
  shared::Consumer consumers[2];
  u32 hash[2];
  shared::ThreadEntry threads[shared::kThreadEntries];
  UnwindTables unwinding;
};

// The process's one, agent::uprobe_block from now on.
inline PointBlock& point_block() {
  static PointBlock block;
  std::memset(&block, 0, sizeof block);
  shared::ProcessBlock& head = block.head;
  head.magic = shared::kBlockMagic;
  head.pid = static_cast<u32>(::getpid());
  head.point_offset = offsetof(PointBlock, point), head.point_count = 1;
  head.consumer_offset = offsetof(PointBlock, consumers), head.consumer_count = 1;
  head.hash_bits = 1, head.hash_offset = offsetof(PointBlock, hash);
  head.thread_offset = offsetof(PointBlock, threads);
  place_unwind_tables(head, block.unwinding);
  block.point.consumer = 1;
  agent::uprobe_block = &head;
  agent::learn_rseq(head);
  static_cast<void>(agent::thread_id(head, true));
  return block;
}

// Executable pages within reach of `near`.
inline u8* pages_near(u64 near, std::size_t bytes) {
  for (u64 distance = 1 << 20; distance < u64{1} << 30; distance += 1 << 20) {
    void* const wanted = reinterpret_cast<void*>((near & ~u64{kPage - 1}) + distance);
    void* const at = ::mmap(wanted, bytes, PROT_READ | PROT_WRITE | PROT_EXEC,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (at == wanted) return static_cast<u8*>(at);
    if (at != MAP_FAILED) ::munmap(at, bytes);
  }
  ADD_FAILURE() << "no room near the probe point";
  return nullptr;
}

// The session's data for a body: a OneEvent, or a class with the same header(), event() and area().
template <class Session>
arch::FastRecord fast_record(Session& session) {
  const shared::AreaHeader& header = *session.header();
  const shared::Event& event = session.event();
  arch::FastRecord fast;
  fast.area = Addr{word_of(&header)};
  fast.data_offset = header.data_offset, fast.ring_bytes = header.ring_bytes;
  fast.ring_offset = header.ring_offset, fast.cpu_ring_count = header.cpu_ring_count;
  fast.events_offset = header.event_offset, fast.counts_offset = header.counts_offset,
  fast.fixed_bytes = event.fixed_bytes, fast.file_bias = 0x7000000;
  fast.filter = session.area().filter(0);
  fast.has_cpu_number = arch::has_cpu_number_instruction();
  fast.claimed_ring_count = header.ring_count - header.cpu_ring_count;
  fast.dropped_offset = header.dropped_offset, fast.dropped_stride = header.dropped_stride;
  fast.program = {agent::at_offset<shared::Insn>(&header, header.insn_offset), event.insn_count};
  return fast;
}

// The island of this process.
inline constexpr std::size_t kIslandBytes = 4 * kPage;
inline u8* island_near(u64 site) {
  static u8* const island = pages_near(site, kIslandBytes);
  return island;
}

// For a return of a function that begins `distance` before it; pops = 0: for any other place.
struct ExitPlace {
  u16 pops = 0, lead = 0;
  shared::i32 distance = 0;
  u32 restored = 0;
};

class JumpProbe {
 public:
  explicit JumpProbe(const char* site) : site_(word_of(site)), block_(point_block()), island_(island_near(site_)) {
    std::memcpy(original_, site, sizeof original_);
    block_.head.islands[0] = {word_of(island_), kIslandBytes, kIslandBytes};
    block_.head.island_count = 1;
    block_.point.address = site_;
    block_.hash[shared::hash_slot(site_, 1)] = 1;
  }
  JumpProbe(const JumpProbe&) = delete;
  JumpProbe& operator=(const JumpProbe&) = delete;
  ~JumpProbe() { patch(original_, sizeof original_); }

  // Over any jump that is there already. `fast`: the body is to record by itself.
  template <class Session>
  void arm(Session& session, bool fast, ExitPlace exit = {}) {
    patch(original_, sizeof original_);
    for (shared::Consumer& consumer : block_.consumers) {
      if (consumer.kind == static_cast<u8>(shared::ConsumerKind::stub)) continue;
      consumer.kind = static_cast<u8>(exit.pops != 0 ? shared::ConsumerKind::exit : shared::ConsumerKind::entry);
      consumer.distance = exit.distance, consumer.pops = exit.pops, consumer.lead = exit.lead,
      consumer.restored = exit.restored;
    }
    block_.head.sessions[0].area = word_of(session.header());
    const Addr at{word_of(island_)}, thunk_at{slot() + shared::kThunkInSlot}, copy_at{copy()};
    const auto copy = arch::make_copy(original_, Addr{site_}, copy_at);
    arch::BodySpec spec;
    spec.at = at, spec.block = Addr{word_of(&block_)}, spec.jump_entry = Addr{word_of(uprobe_jump_entry)};
    block_.point.file_bias = 0x7000000;
    if (fast) spec.fast = fast_record(session), spec.fast->is_return = exit.pops != 0;
    if (fast && has_stubs) spec.fast->agent_text = Addr{word_of(agent::uprobe_return_stubs)};
    if (fast && has_stubs) spec.fast->agent_text_bytes = shared::kReturnStubs * shared::kStubUnit;
    if (fast) spec.fast->is_elsewhere = (block_.head.flags & shared::kBlockElsewhere) != 0;
    if (fast) spec.fast->watches_tool = watches_tool;
    spec.switches = is_switched;
    body_ = arch::make_body(spec);
    std::vector<u8> thunk;
    const Addr entry = at + arch::kBodyEntry;
    ASSERT_TRUE(copy && (is_switched ? arch::append_switched_thunk(thunk, thunk_at, entry)
                                     : arch::append_thunk(thunk, thunk_at, entry)));
    if (is_switched) make_lead_in(thunk_at);
    std::memcpy(island_, body_.bytes.data(), body_.bytes.size());
    exit_head() = {.lead = exit.lead,
                   .moves = u32{exit.lead} + exit.pops,
                   .function = site_ - static_cast<u64>(shared::i64{exit.distance})};
    head() = {.address = site_, .point = 0, .event = body_.records ? session.event().type : shared::kAskAgent};
    std::memcpy(island_ + (thunk_at - at), thunk.data(), thunk.size());
    std::memcpy(island_ + (copy_at - at), copy->bytes.data(), copy->bytes.size());
    block_.point.copy = copy_at.value, block_.point.copy_bytes = static_cast<u32>(copy->bytes.size());
    u8 jump[5] = {0xe9};
    const auto distance = static_cast<u32>((is_switched ? lead_in() : thunk_at.value) - (site_ + 5));
    std::memcpy(jump + 1, &distance, 4);
    patch(jump, sizeof jump);
  }

  bool has_stubs = false;  // to be set before arming
  bool watches_tool = false;
  bool is_switched = false;  // the same; for one thread

  // Where the body then finds the application's stack pointer.
  static u64 stack_word() {
    constexpr std::size_t kBytes = 1 << 16, kTop = 64;
    alignas(64) static u8 stack[kBytes];
    return word_of(stack) + kBytes - kTop;
  }

  PointBlock& block() { return block_; }
  const arch::Body& body() const { return body_; }
  // The places in the island, which begins with the body.
  u64 slot() const { return address() + 3 * kPage; }
  u64 copy() const { return slot() + shared::kCopyAfterThunk; }
  shared::SlotHead& head() { return *reinterpret_cast<shared::SlotHead*>(slot()); }
  shared::ExitHead& exit_head() { return *(reinterpret_cast<shared::ExitHead*>(slot()) - 1); }
  u64 address() const { return word_of(island_); }
  u64 site() const { return site_; }

  // In place of a switch, whose words are libc's in this program: mov %rsp, word ; lea word, %rsp ; jmp to the thunk's call. A real
  // one stands after it.
  u64 lead_in() const { return address() + 2 * kPage; }
  u64 real_switch() const { return lead_in() + 64; }

 private:
  void make_lead_in(Addr thunk) {
    u8* const code = reinterpret_cast<u8*>(lead_in());
    const u8 bytes[] = {0x48, 0x89, 0x25, 0, 0, 0, 0, 0x48, 0x8d, 0x25, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0};
    std::memcpy(code, bytes, sizeof bytes);
    const auto lead = [&](u32 end, u64 to) {
      const auto distance = static_cast<u32>(to - (lead_in() + end));
      std::memcpy(code + end - 4, &distance, 4);
    };
    lead(7, stack_word()), lead(14, stack_word()), lead(19, thunk.value + shared::kSwitchedCall);
    const auto real = arch::make_switch(Addr{real_switch()}, thunk);
    std::memcpy(reinterpret_cast<u8*>(real_switch()), real.data(), real.size());
  }

  void patch(const u8* bytes, std::size_t size) {
    const u64 page = site_ & ~u64{kPage - 1};
    void* const pages = reinterpret_cast<void*>(page);
    ASSERT_EQ(::mprotect(pages, 2 * kPage, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
    std::memcpy(reinterpret_cast<void*>(site_), bytes, size);
    ASSERT_EQ(::mprotect(pages, 2 * kPage, PROT_READ | PROT_EXEC), 0);
  }

  u64 site_;
  PointBlock& block_;
  u8* island_;
  u8 original_[16];
  arch::Body body_;
};

}  // namespace uprobe::test
