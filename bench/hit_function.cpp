// SPDX-License-Identifier: MIT
#include "bench/hit_function.h"

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <ctime>
#include <thread>

#include "bench/hit_driver.h"
#include "cli/output.h"
#include "engine/output/text.h"
#include "engine/program/compile.h"
#include "engine/spec/parse.h"
#include "engine/trace/reader.h"

namespace uprobe::bench {
namespace {

using shared::Reg;

constexpr std::size_t kFlushBytes = 256 * 1024;  // as in the session

// The parts of a process block that the agent needs, tables included.
struct HostedBlock {
  shared::ProcessBlock head{};
  shared::Point point{};
  shared::Consumer consumer{};
};

// The hitting thread takes the last CPU; the reader runs on the others.
void take_last_cpu() {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(::sysconf(_SC_NPROCESSORS_ONLN) - 1), &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

// Of a run: the reader is there before the first hit and goes after the last.
enum class Phase { starting, reading, done };

// The same number as a session makes.
std::uint32_t ring_count() {
  const std::uint32_t cpus = std::max(1u, std::thread::hardware_concurrency());
  return std::min(shared::kMaxRings, cpus + std::max(4u, cpus / 2));
}

// As Session::run prints.
class Printer {
 public:
  Printer(const program::EventLayout& layout, cli::TraceSink& sink, trace::TaskNames& names)
      : formatter_({&layout, 1}), sink_(sink), names_(names) {
    formatter_.header(text_);
  }
  void print(const trace::EventRecord& record, Throughput& result) {
    formatter_.append(record, names_.name(record.task), text_);
    ++result.lines;
    if (text_.size() >= kFlushBytes) flush(result);
  }
  void flush(Throughput& result) {
    result.bytes += text_.size();
    sink_.write(text_.view());
    text_.clear();
  }

 private:
  format::TextFormatter formatter_;
  cli::TraceSink& sink_;
  trace::TaskNames& names_;
  format::Buffer text_;
};

}  // namespace

double thread_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

struct HitFunction::Data {
  program::EventProgram program;
  trace::Area area;
  HostedBlock block;
  shared::Registers registers{};
  alignas(8) char text[16] = "fifteen letters";

  Data(program::EventProgram event, trace::Area made) : program(std::move(event)), area(std::move(made)) {}
  void connect();
  HandHit hit() { return {&block.head, &block.point, &registers, static_cast<shared::u32>(::gettid())}; }
  void print_until_done(std::atomic<Phase>& phase, cli::TraceSink& sink, Throughput& result);
};

void HitFunction::Data::connect() {
  shared::ProcessBlock& head = block.head;
  head.point_offset = offsetof(HostedBlock, point);
  head.consumer_offset = offsetof(HostedBlock, consumer);
  head.point_count = head.consumer_count = 1;
  head.sessions[0].area = reinterpret_cast<std::uint64_t>(area.base());
  block.point.consumer = 1;
  registers[Reg::ip] = block.point.address = 0x401000;
  registers[Reg::di] = reinterpret_cast<std::uint64_t>(text);
  registers[Reg::si] = 2, registers[Reg::dx] = 3;
  area.set_state(shared::SessionState::recording);
}

HitFunction::HitFunction(std::unique_ptr<Data> data) : data_(std::move(data)) {}
HitFunction::HitFunction(HitFunction&&) noexcept = default;
HitFunction::~HitFunction() = default;

Result<HitFunction> HitFunction::make(const std::string& arguments) {
  auto spec = spec::parse_definition("p:hit /none:0x1000 " + arguments, {.file_check = nullptr});
  if (!spec) return spec.error();
  auto program = program::compile(*spec);
  if (!program) return program.error();
  auto area = trace::Area::create_private({.events = {&*program}, .ring_count = ring_count()});
  if (!area) return area.error();
  auto data = std::make_unique<Data>(program.take(), area.take());
  data->connect();
  return HitFunction(std::move(data));
}

HandHit HitFunction::hit() { return data_->hit(); }

void HitFunction::pass(const std::array<std::uint64_t, 3>& values) {
  data_->registers[Reg::di] = values[0], data_->registers[Reg::si] = values[1], data_->registers[Reg::dx] = values[2];
}

trace::Area& HitFunction::area() { return data_->area; }
const program::EventLayout& HitFunction::layout() const { return data_->program.layout; }

double HitFunction::nanoseconds(std::uint64_t count) {
  const HandHit hit = data_->hit();
  const double before = thread_cpu_seconds();
  uprobe_bench_hits(&hit, &data_->area.header(), count);
  return (thread_cpu_seconds() - before) * 1e9 / static_cast<double>(count);
}

// The reader's thread: polls as Session::run does, until everything is printed.
void HitFunction::Data::print_until_done(std::atomic<Phase>& phase, cli::TraceSink& sink, Throughput& result) {
  const double before = thread_cpu_seconds();
  trace::Clock clock = trace::Clock::start();
  trace::TaskNames names;
  trace::Reader reader(area, clock, names);
  Printer printer(program.layout, sink, names);
  const trace::Sink print = [&](const trace::EventRecord& record) { printer.print(record, result); };
  phase = Phase::reading;
  phase.notify_one();
  while (phase != Phase::done) {
    reader.poll(print);
    printer.flush(result);
    std::this_thread::sleep_for(reader.next_poll());
  }
  reader.finish(print);
  printer.flush(result);
  sink.finish();
  result.recorded = reader.counts().recorded[0];
  result.damaged = reader.counts().damaged + reader.counts().missing + reader.counts().order_breaks;
  result.reader_cpu_seconds = thread_cpu_seconds() - before;
}

Result<Throughput> HitFunction::run(std::uint64_t hits_per_second, std::chrono::seconds time, const std::string& file) {
  auto sink = cli::TraceSink::open(file, {});
  if (!sink) return sink.error();
  Throughput result;
  result.hits = hits_per_second * static_cast<std::uint64_t>(time.count());
  const std::uint64_t ticks = trace::Clock::start().ticks(1'000'000'000) / hits_per_second;
  std::atomic<Phase> phase = Phase::starting;
  std::thread reader([&] { data_->print_until_done(phase, *sink, result); });
  std::thread hitter([&] {
    take_last_cpu();
    phase.wait(Phase::starting);
    const HandHit hit = data_->hit();
    const auto started = std::chrono::steady_clock::now();
    uprobe_bench_paced_hits(&hit, result.hits, ticks);
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    phase = Phase::done;
  });
  hitter.join();
  reader.join();
  if (auto failure = sink->take_failure()) return *failure;
  const shared::EventCounts event = data_->area.counts(0);
  result.lost = event.lost_full + event.lost_too_big + event.lost_busy;
  return result;
}

}  // namespace uprobe::bench
