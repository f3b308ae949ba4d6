// SPDX-License-Identifier: MIT
// Fuzzes the tool against a process that lies in its mailbox: requests of every kind with any fields, answers to the tool's
// commands that are false or never come, a mailbox and a process block that change during that time. The tool is the real
// thread that serves requests; the process is a child of this one. Each input ends, a second process with the session stays as
// it was, and the tool's memory does not grow.
//
// Input: the number of requests, and their fields; then the actions of the process, at each command or while it waits.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/mailbox/futex.h"
#include "engine/plan/resolve.h"
#include "engine/service/mail_service.h"
#include "tests/fuzz/driver.h"
#include "tests/fuzz/liar.h"

using namespace uprobe;
using namespace uprobe::test;
using shared::Mailbox;
using shared::MailKind;

namespace {

constexpr std::uint64_t kCode = 0x200000000000, kArea = 0x7e8200000000, kBlock = 0x7e8100000000;
constexpr std::size_t kPoints = 16;
constexpr unsigned kMostSeconds = 60;
constexpr std::uint64_t kMostMemory = std::uint64_t{1} << 30;  // with that of a sanitizer

// ---- a process with the session

struct Process {
  pid_t pid = 0;
  Mailbox* box = nullptr;
  std::uint8_t* block = nullptr;
  Stage* stage = nullptr;
};

std::size_t block_bytes() { return (control::Block::bytes_for({kPoints}) + 4095) / 4096 * 4096; }

[[noreturn]] void lie(const Process& self) {
  const auto& area = *reinterpret_cast<const shared::AreaHeader*>(kArea);
  Liar(*self.stage,
       {.slots = self.box->slots,
        .box = {reinterpret_cast<std::uint8_t*>(self.box), sizeof *self.box},
        .block = {self.block, shared::kToolOwnedBytes + 512},
        .wake = &area.notices[::getpid() % shared::kNotices].wake,
        .places = {kCode, kArea, kBlock, kArea - shared::kMailboxBytes, 8, ~std::uint64_t{0}, kCode + 0x1000}})
      .live();
}

[[noreturn]] void live_as(const Process& self, const trace::Area& area, const elf::ElfFile& subject, bool lies) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const trace::MapStep& step : area.map_steps())
    map_fixed(kArea + step.offset, step.length, step.writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, step.fd,
              step.file_offset);
  show_at(self.box, sizeof *self.box, kArea - shared::kMailboxBytes);
  show_at(self.block, block_bytes(), kBlock);
  map_code(subject, kCode);
  __atomic_store_n(&self.stage->ended, 0, __ATOMIC_SEQ_CST);
  if (lies) lie(self);
  for (;;) ::pause();
}

Process start(const trace::Area& area, const elf::ElfFile& subject, bool lies) {
  Process made{.box = share<Mailbox>(), .block = share<std::uint8_t>(block_bytes()), .stage = share<Stage>()};
  made.stage->ended = ~0u;
  made.pid = ::fork();
  if (made.pid == 0) live_as(made, area, subject, lies);
  for (int i = 0; i < 5000 && __atomic_load_n(&made.stage->ended, __ATOMIC_SEQ_CST) != 0; ++i) ::usleep(1000);
  require(__atomic_load_n(&made.stage->ended, __ATOMIC_SEQ_CST) == 0, "the child does not begin");
  return made;
}

// ---- the session

class World {
 public:
  World() {
    program_.layout.fixed_bytes = 16;
    program_.insns = {{.op = shared::Op::end, .size = 0, .count = 0, .offset = 0, .immediate = 0}};
    area_.emplace(trace::Area::create_private({.events = {&program_}, .ring_bytes = shared::kMinRingBytes}).take());
    area_->set_state(shared::SessionState::recording);
    subject_ = std::make_shared<const elf::ElfFile>(elf::ElfFile::open(UPROBE_SUBJECT).take());
    for (const char* function : {"subject_add", "subject_twice", "subject_sum"}) {
      const std::uint64_t at = subject_->find_functions(function).at(0).address;
      probes_.add(plan::site_at(subject_, *subject_->offset_of_address(at)).take(), {.event = 0});
    }
    beside_ = start(*area_, *subject_, false), liar_ = start(*area_, *subject_, true);
    for (const Process* process : {&beside_, &liar_}) make_block(*process);
    block_.assign(liar_.block, liar_.block + block_bytes());
    text_ = text_of(liar_.pid);
    before_ = state_of(beside_);
    agent_.emplace(control::AgentImage::open(UPROBE_AGENT).take());
    armer_.emplace(probes_, control::ArmOptions{.tier = plan::Tier::automatic, .flows = &flows_, .area = &*area_});
    service_.emplace(*area_, *armer_, probes_, &*agent_, std::map<pid_t, Addr>{{liar_.pid, Addr{kBlock}}}, nullptr,
                     earlier_, true,
                     std::make_unique<control::Heartbeat>(area_->header().tool_heartbeat, &area_->header().tool_life));
  }
  ~World() {
    service_.reset();
    for (const Process* process : {&beside_, &liar_})
      ::kill(process->pid, SIGKILL), ::waitpid(process->pid, nullptr, 0);
  }

  pid_t liar() const { return liar_.pid; }
  pid_t beside() const { return beside_.pid; }

  void play(const std::vector<MailSlot>& requests, const std::vector<Action>& actions) {
    begin_anew();
    Stage& stage = *liar_.stage;
    stage.count = static_cast<std::uint32_t>(actions.size()), stage.is_over = 0;
    std::ranges::copy(actions, stage.actions);
    bool is_exec = false;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      liar_.box->slots[i] = requests[i];
      is_exec = is_exec || requests[i].kind == static_cast<std::uint32_t>(MailKind::exec_begins);
    }
    __atomic_fetch_add(&stage.round, 1, __ATOMIC_SEQ_CST);
    control::futex_wake(stage.round);
    be_served();
    if (is_exec) take_back();
    stage.is_over = 1;
    for (int i = 0; i < 50000 && __atomic_load_n(&stage.ended, __ATOMIC_ACQUIRE) != stage.round; ++i) ::usleep(100);
    require(__atomic_load_n(&stage.ended, __ATOMIC_ACQUIRE) == stage.round, "the process is held");
    static_cast<void>(service_->take_names());
    if (++played_ % 64 == 0) check();
  }

 private:
  static std::vector<std::uint8_t> bytes_of(pid_t pid, std::uint64_t at, std::size_t bytes) {
    std::vector<std::uint8_t> read(bytes);
    require(bool(target::ProcessFiles::open(pid).take().read(Addr{at}, read.data(), bytes)), "a process is gone");
    return read;
  }
  std::vector<std::uint8_t> text_of(pid_t pid) const {
    for (const elf::Segment& s : subject_->segments())
      if (s.executable) return bytes_of(pid, kCode + s.address - s.address % 4096, 4096);
    return {};
  }
  std::vector<std::vector<std::uint8_t>> state_of(const Process& process) const {
    return {text_of(process.pid), bytes_of(process.pid, kBlock, block_bytes()),
            bytes_of(process.pid, kArea - shared::kMailboxBytes, shared::kMailboxBytes)};
  }
  static void make_block(const Process& process) {
    target::RunningTarget target(target::ProcessFiles::open(process.pid).take());
    require(bool(control::Block::create(target, Addr{kBlock}, {kPoints})), "no block");
  }
  void begin_anew() {
    std::memset(liar_.box, 0, sizeof *liar_.box);
    std::memcpy(liar_.block, block_.data(), block_.size());
    for (const elf::Segment& s : subject_->segments())
      if (s.executable)
        static_cast<void>(target::ProcessFiles::open(liar_.pid).take().write(Addr{kCode + s.address - s.address % 4096},
                                                                             text_.data(), text_.size()));
  }
  // Rings, and waits until the tool has examined the request.
  void be_served() {
    shared::LiveHeader& live = area_->live(0).header();
    __atomic_store_n(&live.bells[0], static_cast<std::uint32_t>(liar_.pid), __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&live.mail_requests, 1, __ATOMIC_SEQ_CST);
    control::futex_wake(live.mail_requests);
    for (int i = 0; i < 300000 && __atomic_load_n(&live.bells[0], __ATOMIC_SEQ_CST) != 0; ++i) ::usleep(100);
    require(live.bells[0] == 0, "the tool does not come");
    service_->alone([] {});
  }
  // The announced execve has failed: the tool lets the process go.
  void take_back() {
    for (MailSlot& slot : liar_.box->slots) slot.asked = {};
    MailSlot& slot = liar_.box->slots[shared::kMailSlots - 1];
    slot = {.asked = {},
            .answered = {},
            .kind = static_cast<std::uint32_t>(MailKind::exec_failed),
            .tid = static_cast<std::uint32_t>(liar_.pid),
            .block = kBlock};
    slot.asked.word = slot.asked.check = shared::turn(9, MailState::request);
    be_served();
  }
  void check() {
    require(state_of(beside_) == before_, "another process has been changed");
    const auto status = read_file("/proc/self/status");
    const std::size_t at = status->find("VmRSS:");
    require(std::strtoull(status->c_str() + at + 6, nullptr, 10) * 1024 < kMostMemory, "the tool's memory grows");
  }

  program::EventProgram program_;
  std::optional<trace::Area> area_;
  std::shared_ptr<const elf::ElfFile> subject_;
  control::ProbeSet probes_;
  plan::FlowCache flows_;
  Process liar_, beside_;
  std::vector<std::uint8_t> block_, text_;
  std::vector<std::vector<std::uint8_t>> before_;
  std::optional<control::AgentImage> agent_;
  std::optional<control::Armer> armer_;
  target::EarlierProcesses earlier_;
  std::optional<control::MailService> service_;
  std::uint64_t played_ = 0;
};

// ---- inputs

struct Fields {
  std::uint8_t kind, tid, block, path;
  std::uint32_t number;
  std::uint64_t first, second;
};
constexpr std::size_t kFieldBytes = 24, kActionBytes = 11, kMostRequests = 4;
static_assert(sizeof(Fields) == kFieldBytes);

MailSlot slot_of(const Fields& from, const World& world) {
  const auto id = [&](std::uint8_t which, std::uint64_t otherwise) {
    const pid_t ids[] = {world.liar(), world.liar(), world.beside(), ::getpid(), 1};
    return which % 6 < std::size(ids) ? static_cast<std::uint64_t>(ids[which % 6]) : otherwise;
  };
  MailSlot slot{};
  slot.asked.word = slot.asked.check = shared::turn(from.number, MailState::request);
  slot.kind = from.kind % 12;
  slot.tid = static_cast<std::uint32_t>(id(from.tid, from.first));
  slot.block = from.block % 8 != 7 ? kBlock : from.second;
  slot.path = from.path % 3 == 0 ? from.first : from.path % 3 == 1 ? id(from.tid, from.first) : kCode + from.path;
  slot.folder = from.second;
  slot.command[0] = from.first, slot.result = from.second;
  return slot;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static World world;
  if (size == 0) return 0;
  ::alarm(kMostSeconds);
  std::vector<MailSlot> requests;
  std::vector<Action> actions;
  std::size_t left = 1 + data[0] % kMostRequests;
  for (++data, --size; left != 0 && size >= kFieldBytes; --left, data += kFieldBytes, size -= kFieldBytes) {
    Fields fields;
    std::memcpy(&fields, data, sizeof fields);
    requests.push_back(slot_of(fields, world));
  }
  if (size % kActionBytes != 0) return 0;  // an incomplete action adds nothing
  for (; size != 0 && actions.size() < kMostActions; data += kActionBytes, size -= kActionBytes) {
    Action action{.act = static_cast<Act>(data[0] % kActs)};
    std::memcpy(&action.where, data + 1, 2), std::memcpy(&action.value, data + 3, 8);
    actions.push_back(action);
  }
  world.play(requests, actions);
  return 0;
}

namespace {

std::string request(MailKind kind, std::uint8_t path, std::uint64_t first, std::uint64_t second) {
  const Fields fields{
      .kind = static_cast<std::uint8_t>(kind), .path = path, .number = 2, .first = first, .second = second};
  return {reinterpret_cast<const char*>(&fields), sizeof fields};
}

std::string action(Act act, std::uint16_t where = 0, std::uint64_t value = 0) {
  std::string bytes(1, static_cast<char>(act));
  bytes.append(reinterpret_cast<const char*>(&where), sizeof where);
  return bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

// Each kind of request alone, with a process that obeys; then liars of each kind.
std::vector<std::string> fuzz_seeds() {
  const std::string one(1, '\0'), obey = action(Act::obey), path = request(MailKind::exec_begins, 0, kCode, 0xffffff9c);
  const std::string libraries = request(MailKind::libraries_changed, 0, 0, 0);
  const std::string mapped = request(MailKind::code_mapped, 0, kCode, kCode + 0x10000);
  std::vector<std::string> seeds = {
      one + libraries + obey + obey + obey,
      one + mapped + obey + action(Act::scribble_block, 8, ~std::uint64_t{0}) + obey,
      one + request(MailKind::code_writable, 0, kCode, kCode + 0x10000) + obey,
      one + request(MailKind::leave_me, 1, 0, 0) + action(Act::say, 0, 0) + action(Act::say, 0, 0),
      one + request(MailKind::leave_one, 1, 0, 0),
      one + request(MailKind::credentials_changed, 0, 0, 0),
      one + request(MailKind::exec_failed, 0, 0, 0),
      one + path,
      std::string(1, '\3') + path + path + libraries + mapped + obey + action(Act::say_place, 1, 0x1000)};
  for (const Act lie :
       {Act::say_place, Act::fail, Act::misnumber, Act::scribble_box, Act::scribble_block, Act::abandon})
    seeds.push_back(one + libraries + action(lie, 1, 0x1000) + obey + action(lie, 40, 12) + obey);
  return seeds;
}
