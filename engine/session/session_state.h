// SPDX-License-Identifier: MIT
// The members of a Session, internal to the session's files.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "engine/arm/armer.h"
#include "engine/base/fd.h"
#include "engine/ipc/control_server.h"
#include "engine/ipc/peer_client.h"
#include "engine/ipc/peer_server.h"
#include "engine/process/agent_image.h"
#include "engine/service/mail_service.h"
#include "engine/session/event_table.h"
#include "engine/session/late_attacher.h"
#include "engine/session/recipient.h"
#include "engine/session/session.h"
#include "engine/session/survivors.h"
#include "engine/symbolize/symbols.h"
#include "engine/trace/reader.h"

namespace uprobe {

// Whether the process of the pidfd has ended. Waits for that at most `limit`.
bool has_ended(int pidfd, std::chrono::microseconds limit);

// The facts of each probe on which an owner tool and its client tool must agree: the definition as it was parsed, and the file.
std::vector<std::string> describe(const std::vector<Probe>& probes);

struct Session::State {
  explicit State(const SessionOptions& wanted) : options(wanted), table(options) {}

  SessionOptions options;
  EventTable table;
  std::optional<control::AgentImage> agent;
  std::optional<trace::Area> area;
  std::optional<control::Armer> armer;
  trace::ClockSample clock_begin = trace::Clock::sample();
  std::optional<trace::Clock> clock;
  trace::TaskNames names;
  // Where records show names of code addresses.
  std::unique_ptr<control::CodeMaps> code_maps;
  std::unique_ptr<SessionSymbols> symbols;
  std::optional<control::MailService> mail;
  std::optional<LateAttacher> late_attacher;
  bool searches = false;  // finds processes by name or by file
  bool waits = false;     // for further such processes
  std::optional<trace::Reader> reader;
  std::vector<std::string> notes, details;  // as in Summary
  pid_t child = 0;
  bool attaches =
      false;  // to running processes; else `child` is its own child, a waiting process, or has loaded the agent
  // A flush round for which the program may wait has begun, and when to check again whether it does; guarded by `reader_lock`.
  bool is_flushing = false;
  std::chrono::steady_clock::time_point next_end_look{};
  std::vector<pid_t> attached;
  std::optional<Ending> ended_early;
  Fd pidfd;                   // of the child
  std::vector<Fd> processes;  // pidfds of the attached processes
  // Where the session stays until the last process has ended. `first_ended`: see RunOptions; empty after it was called.
  std::optional<Survivors> survivors;
  std::function<void(std::size_t others)> first_ended;
  std::set<pid_t> let_go;  // by stop_tracing()
  std::atomic<bool> recording{false};
  std::vector<std::uint32_t>
      counted_tasks;  // per histogram: its number of entries when their task names were last read
  std::optional<ControlServer> socket;
  mutable std::mutex changing;  // one change at a time; locked before the next one

  // Several tools on one target (session_clients.cpp). In the owner tool:
  std::size_t client_count = 0;  // admitted and not dismissed; this and the next three are guarded by `changing`
  std::uint32_t last_owner = 0;
  bool is_closing = false;             // no further client is admitted
  bool is_leaving = false;             // no further command is accepted
  std::atomic<bool> is_left{false};    // the session's own user has left, its clients have not
  std::optional<Summary> own_summary;  // as of that moment
  Recipient* own_recipient = nullptr;  // null: none
  // While there are clients a reader thread reads, and the session's own records go through a queue as well, so that its slow
  // output delays no client. The holder of `reader_lock` reads the rings, until there is a reader thread; clients' threads only
  // try to lock.
  std::mutex reader_lock;
  std::atomic<bool> wants_reader_thread{false};
  std::thread reader_thread;
  std::optional<RecordQueue> own_queue;
  Ending reader_thread_ending;
  std::mutex settling;
  std::condition_variable settled;
  std::uint64_t settle_wanted = 0, settle_done = 0;
  bool is_over = false;  // the reader thread has ended; guarded by `settling`, as are the two above
  std::optional<PeerServer> peer_server;
  // In a client tool:
  std::optional<PeerClient> connection;
  Tell tell = [](const std::string&) {};  // used while it attaches

  ~State();
  Status launch(const std::string& program, const std::vector<std::string>& argv);
  void stop_tracing();
  void learn_names();
  void learn(const std::vector<control::SeenTask>& tasks);
  // The names of tasks that occur only in histograms, read while the tasks live.
  void learn_counted_tasks();
  void await_writers();
  Result<Ending> run(const RunOptions& options, Recipient& recipient);
  Status unless_killed(const Error& error);
  // Starts the program and stops it before its first instruction.
  Result<std::unique_ptr<target::PtraceTarget>> start(const std::string& program, const std::vector<std::string>& argv);
  Status make_ready(target::PtraceTarget& target);
  Status give_up(target::PtraceTarget& target, const Error& error);
  // The program was a waiting process, so its parent is another process.
  bool is_daemonized() const { return options.waiting.has_value(); }
  // After the program is released this process still waits for it, and ends as it ends.
  bool awaits_program() const { return !attaches && !is_daemonized(); }
  bool asks_at_end() const { return !agent || is_daemonized(); }
  bool is_program_ending();
  bool has_program_ended(std::chrono::microseconds limit) const;
  void end_flush();
  void print_settled();
  Status open_agent();
  // Makes area, armer, clock and reader; no process has any of them yet.
  Status make_area();
  // Gives an attached process back as it was; from other processes it only removes the probes.
  void let_go_of(pid_t pid);
  // Plans the internal points that a process needs. Does not touch the process.
  Status plan_for(pid_t pid);
  Status attach_all(const GivenUp& given_up);
  Status find_others(const Selection& whom, control::ProcessFinder finder, const GivenUp& given_up);
  void end_search();
  // `load` gets the agent to work in the target. After a failure nothing stays armed.
  Status arm(target::Target& target, const std::function<Result<control::Block>()>& load);
  // `first`: the first programs and their process blocks.
  Status begin(const std::map<pid_t, Addr>& first);
  Status find_any_armed() const;
  void poll();
  void read_all();
  void hand_on(const trace::EventRecord& record);
  void take_turn();
  bool await_end();
  Status stay_with_survivors(const RunOptions& options);
  void tell_survivors();
  void end_session(ClientEnd why);
  Ending end_with_processes();
  // Closes the session to clients if it has none. True: it is closed.
  bool close_if_alone();
  bool is_deserted();
  void run_reader_thread();
  void start_reader_thread();
  Ending run_with_clients(Recipient& recipient, const std::function<bool()>& wants_to_leave);
  void leave_to_clients();
  Status serve_clients();
  Result<std::vector<std::string>> admit(const std::shared_ptr<Client>& client, const Hello& hello);
  bool dismiss(Client& client);
  Status may_be_joined(const Hello& hello) const;
  std::vector<pid_t> roots() const;
  void settle();
  void serve_settling();
  // Counts since the beginning of the session; counts since the event belongs to its present owner.
  EventCounts all_counts_of(std::size_t event) const;
  EventCounts counts_of(std::size_t event) const;
  Summary summary_of(std::uint32_t owner, const Client* client);
  ProbeSummary line_of(std::size_t event, const EventCounts& counts, std::uint64_t behind) const;
  // In a client tool.
  Status become_client(pid_t owner, const GivenUp& given_up);
  Result<Ending> run_as_client(const RunOptions& options, Recipient& recipient);
  Status attach_first(const GivenUp& given_up);
  Status attach_or_join(const GivenUp& given_up);
  Status join_owner(const Error& occupied, const GivenUp& given_up);
  void forget_attempt();
  // Live changes, in session_live.cpp.
  Result<Changes> define(const Definition& definition);
  Result<Changes> remove(const std::string& name);
  Result<std::size_t> switch_events(const std::string& name, bool on);
  std::vector<ProbeState> list() const;
  ProbeState state_of(std::uint16_t event) const;
  Reply answer(const std::vector<Command>& commands);
  Result<std::string> follow_command(const Command& order);
  Result<Changes> define_one(const Definition& definition);
  Status open_sockets();
  Status serve();
  void close_sockets();
  Status may_join(const std::vector<Probe>& more, plan::Tier tier) const;
  Status has_room(const std::vector<Probe>& more);
  Result<std::uint16_t> number_for(Probe probe);
  // The numbers of probes that are being added, and their points.
  struct Entered {
    std::vector<std::uint16_t> events;
    control::ProbeSet points;
  };
  Status enter(const std::vector<Probe>& more, const std::shared_ptr<Client>& client, Entered& entered);
  // `client`: the owner of the probes; null: the session itself.
  Result<std::vector<std::uint16_t>> join(const std::vector<Probe>& more, const std::shared_ptr<Client>& client);
  void leave(const std::vector<std::uint16_t>& events);
  // Why each probe cannot be a jump at all of its places; empty for those that can. Decided by the files alone. Not for
  // --tier=int3.
  std::vector<std::string> reasons_against_jumps();
  Status check_tiers();
};

}  // namespace uprobe
