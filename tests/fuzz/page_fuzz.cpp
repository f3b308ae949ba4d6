// SPDX-License-Identifier: MIT
// Fuzzes the helper of a preloaded program that lies in the page which they share: fields, answers to commands, and changes in
// between. The helper is the real one up to the armed probes; the program is a child of this one. Each input ends, and no
// memory of the tool's is changed.
//
// Input: fields of the page, then the actions of the program, at each command or while it waits.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "engine/arm/armer.h"
#include "engine/base/regular_file.h"
#include "engine/flow/flow_cache.h"
#include "engine/inject/preloaded.h"
#include "engine/mailbox/futex.h"
#include "engine/plan/resolve.h"
#include "tests/fuzz/driver.h"
#include "tests/fuzz/liar.h"

using namespace uprobe;
using namespace uprobe::test;
using shared::Bootstrap;

namespace {

constexpr std::uint64_t kCode = 0x200000000000, kAgent = 0x200800000000, kPage = 0x7e8100000000;
constexpr std::size_t kPoints = 16;
constexpr unsigned kMostSeconds = 60;

struct Fields {
  std::uint8_t pid, address, agent, magic;
  std::uint32_t number;
  std::uint64_t value, blocked;
};
static_assert(sizeof(Fields) == 24);

class World {
 public:
  World() : page_(static_cast<int>(::memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING))) {
    require(page_ && ::ftruncate(page_.get(), shared::kBootstrapBytes) == 0, "no page");
    void* const at = ::mmap(nullptr, shared::kBootstrapBytes, PROT_READ | PROT_WRITE, MAP_SHARED, page_.get(), 0);
    require(at != MAP_FAILED, "no page");
    shared_ = static_cast<Bootstrap*>(at), stage_ = share<Stage>();
    subject_ = std::make_shared<const elf::ElfFile>(elf::ElfFile::open(UPROBE_SUBJECT).take());
    for (const char* function : {"subject_add", "subject_twice"}) {
      const std::uint64_t where = subject_->find_functions(function).at(0).address;
      probes_.add(plan::site_at(subject_, *subject_->offset_of_address(where)).take(), {.event = 0});
    }
    program_.layout.fixed_bytes = 16;
    program_.insns = {{.op = shared::Op::end, .size = 0, .count = 0, .offset = 0, .immediate = 0}};
    area_.emplace(trace::Area::create_private({.events = {&program_}, .ring_bytes = shared::kMinRingBytes}).take());
    const auto bytes = read_file(UPROBE_AGENT);
    const std::string magic(reinterpret_cast<const char*>(&shared::kAgentMagic), sizeof shared::kAgentMagic);
    header_ = kAgent + bytes->find(magic);
    start();
  }
  ~World() { ::kill(child_, SIGKILL), ::waitpid(child_, nullptr, 0); }

  void play(const Fields& fields, const std::vector<Action>& actions) {
    fill(fields);
    stage_->count = static_cast<std::uint32_t>(actions.size()), stage_->is_over = 0;
    std::ranges::copy(actions, stage_->actions);
    __atomic_fetch_add(&stage_->round, 1, __ATOMIC_SEQ_CST);
    control::futex_wake(stage_->round);
    help();
    stage_->is_over = 1;
    for (int i = 0; i < 50000 && __atomic_load_n(&stage_->ended, __ATOMIC_ACQUIRE) != stage_->round; ++i) ::usleep(100);
    require(__atomic_load_n(&stage_->ended, __ATOMIC_ACQUIRE) == stage_->round, "the process is held");
  }

 private:
  void start() {
    stage_->ended = ~0u;
    child_ = ::fork();
    if (child_ == 0) live();
    for (int i = 0; i < 5000 && __atomic_load_n(&stage_->ended, __ATOMIC_SEQ_CST) != 0; ++i) ::usleep(1000);
    require(stage_->ended == 0, "the child does not begin");
  }
  [[noreturn]] void live() {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    auto* const page = static_cast<Bootstrap*>(
        map_fixed(kPage, shared::kBootstrapBytes, PROT_READ | PROT_WRITE, MAP_SHARED, page_.get(), 0));
    map_code(*subject_, kCode);
    const int agent = ::open(UPROBE_AGENT, O_RDONLY | O_CLOEXEC);
    struct stat status {};
    require(::fstat(agent, &status) == 0, "no agent");
    const auto bytes = (static_cast<std::size_t>(status.st_size) + 4095) / 4096 * 4096;
    map_fixed(kAgent, bytes, PROT_READ, MAP_PRIVATE, agent, 0);
    map_fixed(kAgent + bytes, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
              0);  // the other descriptors
    __atomic_store_n(&stage_->ended, 0, __ATOMIC_SEQ_CST);
    Liar(*stage_, {.slots = {&page->slot, 1},
                   .box = {reinterpret_cast<std::uint8_t*>(page), sizeof *page},
                   .block = {reinterpret_cast<std::uint8_t*>(&page->slot), sizeof page->slot},
                   .wake = &page->wake,
                   .bell = &page->bell,
                   .places = {kCode, kAgent, kPage, 8, ~std::uint64_t{0}, kCode + 0x1000}})
        .live();
  }
  void fill(const Fields& f) {
    const std::uint32_t ids[] = {static_cast<std::uint32_t>(child_), static_cast<std::uint32_t>(::getpid()), 1};
    const std::uint64_t places[] = {kPage, header_, kCode, f.value};
    std::memset(shared_, 0, sizeof *shared_);
    shared_->magic = shared::kBootstrapMagic ^ (f.magic % 16 == 15 ? f.value : 0);
    shared_->abi_version = shared::kAbiVersion + (f.magic % 16 == 14 ? 1 : 0);
    shared_->pid = f.pid % 8 < 5 ? ids[0] : f.pid % 8 < 7 ? ids[f.pid % 8 - 4] : static_cast<std::uint32_t>(f.value);
    shared_->address = f.address % 8 < 5 ? kPage : places[f.address % 4];
    shared_->agent = f.agent % 8 < 5 ? header_ : places[f.agent % 4];
    shared_->blocked = f.blocked;
    shared_->slot.asked.word = shared_->slot.asked.check = shared::turn(f.number, MailState::request);
  }
  // In the same way as cli/helper.
  void help() {
    auto program = control::Preloaded::open(Fd(::fcntl(page_.get(), F_DUPFD_CLOEXEC, 0)));
    if (!program) return require(!program.error().text.empty(), "an error without words");
    auto block = (*program)->load(*area_, {kPoints});
    control::Armer armer(probes_, {.tier = plan::Tier::automatic, .flows = &flows_, .area = &*area_});
    const bool is_armed = block && armer.arm((*program)->target(), *block);
    static_cast<void>((*program)->finish(is_armed));
  }

  Fd page_;
  Bootstrap* shared_ = nullptr;
  Stage* stage_ = nullptr;
  std::shared_ptr<const elf::ElfFile> subject_;
  control::ProbeSet probes_;
  plan::FlowCache flows_;
  program::EventProgram program_;
  std::optional<trace::Area> area_;
  std::uint64_t header_ = 0;
  pid_t child_ = 0;
};

constexpr std::size_t kActionBytes = 11;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static World world;
  Fields fields;
  if (size < sizeof fields || (size - sizeof fields) % kActionBytes != 0) return 0;
  ::alarm(kMostSeconds);
  std::memcpy(&fields, data, sizeof fields);
  std::vector<Action> actions;
  for (data += sizeof fields, size -= sizeof fields; size != 0 && actions.size() < kMostActions;
       data += kActionBytes, size -= kActionBytes) {
    Action action{.act = static_cast<Act>(data[0] % kActs)};
    std::memcpy(&action.where, data + 1, 2), std::memcpy(&action.value, data + 3, 8);
    actions.push_back(action);
  }
  world.play(fields, actions);
  return 0;
}

// A program that obeys; then liars at each of its first commands.
std::vector<std::string> fuzz_seeds() {
  const Fields fields{.number = 2, .value = 0x1000};
  const std::string page(reinterpret_cast<const char*>(&fields), sizeof fields);
  const auto action = [](Act act, std::uint64_t value) {
    std::string bytes(1, static_cast<char>(act));
    return bytes.append(2, '\1').append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  std::string obeyed;
  std::vector<std::string> seeds;
  for (int i = 0; i < 40; ++i) obeyed += action(Act::obey, 0);
  seeds.push_back(page + obeyed);
  for (const Act lie : {Act::say, Act::fail, Act::say_place, Act::misnumber, Act::scribble_box, Act::abandon})
    for (std::size_t at = 0; at < 12; at += 3)
      seeds.push_back(page + obeyed.substr(0, at * kActionBytes) + action(lie, 0x11000) +
                      obeyed.substr(0, 22 * kActionBytes));
  return seeds;
}
