// SPDX-License-Identifier: MIT
// Restartable sequences that are found at run time: the descriptors that the tool accepts, and the probes that it removes.
#include <gtest/gtest.h>

#include "engine/arm/armer.h"
#include "engine/patch/sequence_search.h"
#include "tests/arm/fake_target.h"

namespace uprobe::test {
namespace {

using control::AbortPlace;
using control::Armer;
using control::Block;
using control::CodeRange;
using control::ProbeSet;

constexpr Addr kBlock{0x10000000}, kBase{0x100000000000}, kStack{0x7ff000000000}, kHeap{0x20000000};
constexpr std::uint64_t kStackBytes = 1 << 20;

struct Descriptor {
  std::uint32_t version, flags;
  std::uint64_t start, length, abort;
};

class BarringTest : public testing::Test {
 protected:
  void SetUp() override {
    target_.map_anonymous(kBlock, Block::bytes_for({64}));
    target_.map_anonymous(kStack, kStackBytes, "[stack]");
    target_.map_anonymous(kHeap, 1 << 20, "[heap]");
    block_.emplace(Block::create(target_, kBlock, {64}).take());
    code_ = target_.map_code(*subject_, kBase);
    for (const std::string function : {"subject_add", "subject_twice", "subject_sum"})
      probes_.add(site_of(function), {.event = events_++});
    ASSERT_TRUE(armer_.arm(target_, *block_));
  }

  plan::Site site_of(const std::string& function) {
    return plan::site_at(subject_, *subject_->offset_of_address(subject_->find_functions(function).at(0).address))
        .take();
  }
  Addr address_of(const std::string& function) { return code_.begin + (site_of(function).offset - code_.offset); }
  bool is_armed(const std::string& function) { return target_.get<std::uint8_t>(address_of(function)) == 0xcc; }
  std::string armed() {
    std::string all;
    for (const std::string function : {"add", "twice", "sum"})
      if (is_armed("subject_" + function)) all += function + " ";
    return all;
  }

  void put(Addr at, const Descriptor& descriptor) { ASSERT_TRUE(target_.write(at, &descriptor, sizeof descriptor)); }
  // Around the first instruction of a function; its handler is in `handler`.
  Descriptor around(const std::string& function, const std::string& handler) {
    return {0, 0, address_of(function).value, 4, abort_in(handler).value};
  }
  Addr abort_in(const std::string& handler) { return address_of(handler) + 5; }  // after the signature
  std::vector<CodeRange> search(Addr abort) {
    return find_sequences(target_, target_.maps().take(), AbortPlace{abort, kStack + kStackBytes / 2});
  }
  Status bar(Addr abort, std::size_t threads = 1) {
    return armer_.bar(target_, kBlock, AbortPlace{abort, kStack + kStackBytes / 2}, [=] { return threads; });
  }

  FakeTarget target_;
  std::shared_ptr<const elf::ElfFile> subject_ =
      std::make_shared<const elf::ElfFile>(elf::ElfFile::open(SUBJECT).take());
  Mapping code_;
  ProbeSet probes_;
  std::uint16_t events_ = 0;
  std::optional<Block> block_;
  Armer armer_{probes_};
};

TEST_F(BarringTest, DescriptorsAreFoundWhereverTheyAre) {
  for (const Addr at : {kStack + kStackBytes / 2 + 64, kStack + 8, kHeap + 0x8000, kHeap + (1 << 20) - 32}) {
    put(at, around("subject_add", "subject_sum"));
    const auto found = search(abort_in("subject_sum"));
    ASSERT_EQ(found.size(), 1U) << std::hex << at.value;
    EXPECT_EQ(found[0].begin, address_of("subject_add"));
    EXPECT_EQ(found[0].end, address_of("subject_add") + 4);
    EXPECT_TRUE(search(abort_in("subject_sum") + 1).empty());
    put(at, {});
  }
}

TEST_F(BarringTest, EachDescriptorCountsOnceAndAFewDo) {
  for (std::uint64_t i = 0; i < 100; ++i) {
    Descriptor descriptor = around("subject_add", "subject_sum");
    descriptor.length = 1 + i / 10;
    put(kHeap + i * sizeof descriptor, descriptor);
  }
  EXPECT_EQ(search(abort_in("subject_sum")).size(), 8U);
}

TEST_F(BarringTest, WhatIsNoDescriptorIsNotBelieved) {
  const Descriptor good = around("subject_add", "subject_sum");
  std::vector<Descriptor> bad(7, good);
  bad[0].version = 1;
  bad[1].length = 0;
  bad[2].length = ~std::uint64_t{0};
  bad[3].start = kHeap.value;
  bad[4].start = 0;
  bad[5].start = ~std::uint64_t{0} - 1;
  bad[6].length = good.abort - good.start + 1;  // it would hold its handler
  if (good.abort < good.start) bad.pop_back();
  for (std::size_t i = 0; i < bad.size(); ++i) put(kHeap + 64 * i, bad[i]);
  EXPECT_TRUE(search(abort_in("subject_sum")).empty());
}

TEST_F(BarringTest, ASearchIsBounded) {
  target_.map_anonymous(Addr{0x40000000}, 64u << 20);
  put(Addr{0x40000000 + (60u << 20)}, around("subject_add", "subject_sum"));
  EXPECT_TRUE(search(abort_in("subject_sum")).empty());
  put(kHeap, around("subject_add", "subject_sum"));
  EXPECT_EQ(search(abort_in("subject_sum")).size(), 1U) << "a large mapping does not hide the others";
}

TEST_F(BarringTest, WhatStandsInTheSequenceGoesForGood) {
  put(kHeap, around("subject_add", "subject_sum"));
  ASSERT_TRUE(bar(abort_in("subject_sum")));
  EXPECT_EQ(armed(), "twice sum ");
  ASSERT_EQ(armer_.report().barred.size(), 1U);
  EXPECT_EQ(armer_.report().barred[0].events, std::set<std::uint16_t>{0});
  EXPECT_EQ(armer_.report().refusals.count(0), 1U);
  // The same mapping again.
  ASSERT_TRUE(armer_.arm(target_, kBlock, control::Changed{code_.begin, code_.end}));
  EXPECT_EQ(armed(), "twice sum ");
  ProbeSet more;
  more.add(site_of("subject_add"), {.event = events_});
  const Status added = armer_.add(target_, kBlock, more);
  ASSERT_FALSE(added);
  EXPECT_NE(added.error().text.find("restartable sequence"), std::string::npos);
}

TEST_F(BarringTest, ThreadsThatHadTrappedBeforeTakeNothingMore) {
  put(kHeap, around("subject_add", "subject_sum"));
  for (int thread = 0; thread < 5; ++thread) {
    ASSERT_TRUE(bar(abort_in("subject_sum"), 4));
    EXPECT_EQ(armed(), "twice sum ");
  }
  // One probe comes back: the breakpoint is elsewhere. There is no other descriptor; the handler's function is next.
  ASSERT_TRUE(bar(abort_in("subject_sum"), 4));
  EXPECT_EQ(armed(), "twice ");
}

TEST_F(BarringTest, WithoutADescriptorTheFunctionsGoThenTheFileThenAll) {
  ASSERT_TRUE(bar(abort_in("subject_sum"), 0));
  EXPECT_EQ(armed(), "add twice ");
  ASSERT_TRUE(bar(abort_in("subject_sum"), 0));
  EXPECT_EQ(armed(), "");
  target_.writes.clear();
  ASSERT_TRUE(bar(abort_in("subject_sum"), 0));
  EXPECT_TRUE(target_.writes.empty()) << "nothing is left to take";
}

TEST_F(BarringTest, AFurtherDescriptorOfAKnownHandlerComesFirst) {
  put(kHeap, around("subject_add", "subject_sum"));
  ASSERT_TRUE(bar(abort_in("subject_sum"), 0));
  put(kHeap, around("subject_twice", "subject_sum"));
  ASSERT_TRUE(bar(abort_in("subject_sum"), 0));
  EXPECT_EQ(armed(), "sum ");
}

TEST_F(BarringTest, ExitsOfAFunctionGoTogether) {
  const control::PlannedConsumer exit{.event = 7, .kind = shared::ConsumerKind::exit, .distance = 4, .pops = 8};
  ProbeSet more;
  more.add(site_of("subject_add"), exit);
  more.add(site_of("subject_twice"), exit);
  ASSERT_TRUE(armer_.add(target_, kBlock, more));
  put(kHeap, around("subject_add", "subject_sum"));
  ASSERT_TRUE(bar(abort_in("subject_sum")));
  EXPECT_EQ(armed(), "twice sum ");
  const Block now = Block::read(target_, kBlock).take();
  for (const shared::Consumer& c : now.list_of(now.find(address_of("subject_twice")).value())) EXPECT_NE(c.event, 7);
}

TEST_F(BarringTest, AHandlerWhereNoCodeIsChangesNothing) {
  target_.writes.clear();
  for (const Addr abort : {Addr{0}, kHeap, Addr{~std::uint64_t{0}}, Addr{1}}) EXPECT_FALSE(bar(abort));
  EXPECT_TRUE(target_.writes.empty());
  EXPECT_EQ(armed(), "add twice sum ");
}

// Each handler removes a probe that comes back by itself: a process that writes its own block can cause that.
TEST_F(BarringTest, ManyHandlersEndWithAllProbes) {
  const std::uint8_t breakpoint = 0xcc;
  const std::uint32_t armed_state = static_cast<std::uint32_t>(shared::PointState::armed), patched = 1;
  const Block first = Block::read(target_, kBlock).take();
  const std::uint32_t index = first.find(address_of("subject_add")).value();
  Descriptor descriptor = around("subject_add", "subject_sum");
  for (std::uint64_t i = 0; i < 2 * shared::kBarredCodes; ++i) {
    const Block now = Block::read(target_, kBlock).take();
    const Addr undo = kBlock + const_cast<Block&>(now).head().undo_offset + index * sizeof(shared::Undo);
    ASSERT_TRUE(target_.write(now.point_at(index) + offsetof(shared::Point, state), &armed_state, sizeof armed_state));
    ASSERT_TRUE(target_.write(undo + offsetof(shared::Undo, state), &patched, sizeof patched));
    ASSERT_TRUE(target_.write(address_of("subject_add"), &breakpoint, 1));
    descriptor.abort = code_.begin.value + 8 * i;
    put(kHeap, descriptor);
    Armer another(probes_);
    another.admit(now);
    ASSERT_TRUE(another.bar(target_, kBlock, AbortPlace{Addr{descriptor.abort}, kStack}, [] { return std::size_t{0}; }))
        << i;
  }
  EXPECT_EQ(armed(), "");
}

}  // namespace
}  // namespace uprobe::test
