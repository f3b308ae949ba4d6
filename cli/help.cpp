// SPDX-License-Identifier: MIT
// The text of --help: at most 80 columns. See help.h.
#include "cli/help.h"

namespace uprobe::cli {

std::string help_text() {
  return R"(Usage: uprobe-run [OPTION]... -p DEF [-p DEF]... PROGRAM [ARGUMENT]...
       uprobe-run [OPTION]... -p DEF [-p DEF]... -P PID | --comm=NAME [--wait]
       uprobe-run --dry-run|--check|--list-events|--format-file -p DEF...
       uprobe-run --replay=FILE [OPTION]...
       uprobe-run -l[GLOB] PROGRAM | -x FILE | -P PID [FILE]
Runs PROGRAM and prints a line each time one of its probed instructions is
reached. Needs no root. Options go before PROGRAM; what follows it is its own.

Probes:
  -p, --probe=DEF           define a probe, as in uprobe_events, or by the place
                            alone: malloc, libc:open64, ./prog:work, prog.c:12;
                            what is recorded may follow it (repeatable)
  -r, --returns-of=PLACE    the same for the return of a function
  -i, --probes-from=FILE    read definitions from FILE, one a line (- = standard
                            input)
  -F, --function=PROTO      define a function event: 'zfree(x64 p, s32 sz)'
                            prints caller->zfree(p=..., sz=...)
      --filter=EXPR         record only those hits of the -p before it for which
                            EXPR holds, as in the kernel's filter files:
                            'size > 64 && name ~ "lib*"'; also cpu, comm,
                            common_pid
      --trigger=ACT         action at each hit of the preceding -p: traceon,
                            traceoff, enable_event:G:E, disable_event:G:E,
                            stacktrace; snapshot, which does what SIGUSR1
                            does; each with :COUNT and ' if EXPR';
                            hist:keys=FIELD[,...][:vals=...][:sort=...][:size=N]
                            counts, and prints a table after the trace
                            (repeatable); with --allow-change also
                            return=VALUE[,errno=ENAME], set %REG=VALUE,
                            set $retval=VALUE, delay=TIME, signal=NAME
  -k, --stack               record the stack at every hit, as
                            --trigger=stacktrace after each -p
      --disabled            a trigger has to enable the events of the -p before
                            it; until then they record nothing
  -x, --exec=FILE           the object of later definitions that name none
                            (default: PROGRAM)

Processes:
  -P, --pid=PID[,PID]...    attach to running processes instead of starting one
                            (also --attach); at ^C they go on untraced
      --comm=NAME           attach to all processes of this name (as in
                            /proc/PID/comm; *, ? and [] as in a shell);
                            processes that cannot be attached are reported and
                            skipped (repeatable)
      --object=FILE         attach to all processes that map FILE, a program or
                            a library (repeatable)
      --wait                with --comm and --object: also attach to processes
                            that come later. Polls 25 times a second; earlier
                            activity, and processes already gone, are missed
      --join                with -P: join the session of a tool that traces the
                            process already as another user (root only), or
                            with fewer rights
      --seccomp=MODE        with -P and the like: read (default) attaches beside
                            seccomp filters that can be read, or that the tool
                            is under too; trust also where you know that they
                            allow it: a wrong word may end the process
  -f, --follow-forks        trace child processes too (the default)
      --until=WHICH         first (default): stop when the program has ended
                            (with -P: the processes); last: stop when all traced
                            processes have ended; ^C lets them go on untraced
  -D, --daemonize           the called process becomes PROGRAM: parent, its
                            terminal and job control see no other process; the
                            tool runs in a session of its own and writes to -o
                            FILE alone, with -v its summary too
  -n, --max-events=N        stop after N hits; the program goes on untraced
  -d, --duration=TIME       stop after TIME (5, 500ms, 2m, 1h); the program goes
                            on untraced

Output:
  -o, --output=FILE         the trace goes to FILE (- = standard output, %p =
                            PID); default: standard error, with -P standard
                            output
      --line-buffered       write each line by itself, for readers that must not
                            see a part of one
      --reopen              SIGHUP opens the FILE of -o anew, for logrotate; it
                            does not reach PROGRAM, and with -P ends nothing
      --prometheus=FILE     write the counts of all events to FILE now and then,
                            in Prometheus's text format, each time as a whole;
                            unix:PATH: to each that asks at a socket, by HTTP
      --interval=TIME       how often (default 10s); without --prometheus: how
                            often the tables of -c and of hist triggers are
                            shown; SIGUSR1 shows them at once
      --hist-file=FILE      the tables of hist triggers go to FILE (- = standard
                            output)
      --format=FORMAT       text (default): as ftrace prints; json: an object a
                            line; csv: a column for each name of a field;
                            chrome: calls as slices, for Perfetto; folded:
                            stacks and their counts, for flame graphs; perf:
                            as perf script prints; pprof: a profile for pprof;
                            flamegraph: an SVG; html: a page with functions, a
                            time line, stacks and events, for any browser;
                            trace.dat: for trace-cmd and KernelShark, with -o
                            FILE; ctf: for babeltrace2 and Trace Compass, with
                            -o FOLDER
      --clock=CLOCK         the times: mono (default), mono_raw, boot, tai, wall
                            (since 1970), global (the kernel's scheduler clock)
      --style=STYLE         event (default): as uprobe events print; short:
                            without header and flags; 2009: as the first kprobe
                            tracer did, function: @function+OFFSET; graph: see
                            --graph
      --graph               calls as a tree for each thread, with latencies: of
                            functions with both -p and -r; other hits are leaves
      --counter=E:FIELD     with --format=chrome or html: show the numbers in
                            FIELD of the event E as a curve (repeatable)
      --min-latency=TIME    only calls that last TIME (as in 1ms): of -r, with
                            --graph also what is inside of them
      --sample=1/N          record one of N calls, by chance; its entry and its
                            return stay together
      --rate=N/s            record at most N hits a second of each probe; the
                            others are counted
      --no-header           no names of columns before the trace
  -s, --string-limit=N      show N bytes of a string, 65535 at most (default
                            4096); three dots after it: there is more
  -c, --summary             record nothing, and print a table of the functions
                            of -p and -r after the run: calls, returns, total
                            and own time, mean, percentiles; with --control:
                            print that of a running session as it is now
  -C, --summary-too         the trace, and then the table
      --top                 the table on the terminal, each second; with -P keys
                            choose the column that it is sorted by, and q ends
      --leak=FAMILY         malloc: what was allocated and not freed, by stack;
                            also by calloc, realloc, new and the like. Hits
                            wait for room (--overflow=wait:10s).
                            OBJECT:malloc means those of OBJECT
      --pair=PAIR           the same for 'OPENING:KEY[/SIZE] -> CLOSING:KEY', as
                            in 'open:$retval:s32 -> close:$arg1:s32'; without
                            sizes also how long each key was held (repeatable)
      --summary-by=WHAT     process: a row for each process and function
      --summary-file=FILE   the table goes to FILE (- = standard output); with
                            --json as an array of objects
      --profile             after the trace, one line per probe, as in
                            uprobe_profile: path, event, hits, misses
      --raw-strings         write strings and names byte for byte, as the kernel
                            does; default: bytes that are not text as \n, \t,
                            \r and \x1b
  -q, --quiet               no summary, and no header before the trace
  -v, --verbose             show how each probe is placed; twice: with its
                            instruction; a summary line for every probe
      --color=WHEN          auto (default), always or never

Recordings:
      --record=FILE         write a recording in place of the trace: faster, and
                            to be printed later, on any machine
      --limit=SIZE          end the tracing before the recording has more than
                            SIZE bytes, with K, M or G; the program goes on
      --rotate=N            go on in a new FILE then; the last N files stay, the
                            older ones as FILE.1, FILE.2 and so on
      --replay=FILE         print a recording as the trace would have been, or
                            in another --format; --filter=EXPR chooses among
                            the events that have its fields
      --merge=FILE          print the events of a trace.dat between the hits; it
                            is of the same time (trace-cmd record -C mono)
      --events=GLOB         of a recording: only [GROUP/]EVENT
      --task=TASK           only this process or thread, by id or name (with *)
      --from=TIME           only from this time on, in seconds as printed
      --to=TIME             only up to this time

Look without running:
  -l, --list[=GLOB]         list the functions that can be probed, of -x FILE or
                            of PROGRAM; every line can be passed to -p. With -P
                            FILE is a path of the process
      --lines=FUNC          list the source lines of a function that have code,
                            of -x FILE or of PROGRAM; every line can be given
                            to -p
      --vars=FUNC           print a definition that shows the function's
                            variables, and their types
      --dry-run             show where each probe would go, and how; with -P
                            also its address in the processes, which are only
                            looked at
      --explain=DEF         say in plain words what a definition will do, where,
                            how and at what cost
      --doctor              show what this machine allows; with -P whether the
                            processes can be attached to, and why not
      --check               show how uprobe_events would read the definitions,
                            or what is wrong with them
      --json                print the answer of --check as a JSON object, or
                            the table of -c or the report of --leak and --pair
                            as an array of them
      --list-events         list the defined events, as uprobe_events would
      --format-file         print the events' format files
  -V, --version             print the version, the commit and the libraries
  -h, --help                print this text

Running session:
      --session=NAME        name the session, for --control; its process id is
                            one of its names in any case
      --export-rings=PATH   let other programs read the hits from the memory of
                            the rings, each at its own pace: makes a socket in
                            a folder that only you can write to (uprobe/ring.h)
      --control=SESSION     change a running session: -p and -i add (or, by -:,
                            delete) probes; --list shows them, --list -v how
                            each is placed now, and why not by a jump
      --remove=EVENT        with --control: remove [GROUP/]EVENT or GROUP/
      --disable[=EVENT]     with --control: record nothing of [GROUP/]EVENT, of
                            GROUP/ or of all
      --enable[=EVENT]      with --control: resume recording
      --info[=EVENT]        with --control: of each event whether it is on, its
                            places, counts, and a mark's format
      --stats               with --control: hits and losses so far
      --reset[=EVENT]       with --control: count from 0 again
      --clear               with --control: remove all probes

Expert:
  -b, --buffer-size=SIZE    size of each ring buffer, with K, M or G (default
                            8M, less where memory is limited)
      --overflow=WHAT       a hit that finds the rings full is lost: drop
                            (default); wait[:TIME]: its thread waits until the
                            tool has made room, TIME (default 1s) at most, and
                            not for a tool that is stopped; overwrite[:SIZE]:
                            only the newest SIZE (default 64M) of lines are
                            kept, and written at the end, at SIGUSR1 and at
                            --trigger=snapshot
      --tier=TIER           auto (default): a jump where it is safe, else a
                            breakpoint; int3: breakpoints; jump: refuse
                            probes that need a breakpoint
      --return=MODE         how return probes see the return: auto (default);
                            exits: at every return instruction of the function;
                            stub: by replacing the return address
      --strict              accept exactly the definitions that the kernel
                            accepts
      --force               allow a probe at an offset inside an instruction
      --no-cache            look into each file anew: what was found out about
                            files is kept in ~/.cache/uprobe-run
      --allow-change        triggers may change the program, in processes of the
                            user who calls uprobe-run
      --skip-refused        if some definitions are refused, arm the others and
                            report the refused ones

A definition: [OBJECT:]FUNCTION [[NAME=]FETCH[:TYPE]]... [if FILTER]
              p[:[GROUP/]EVENT] PATH:OFFSET|SYMBOL[+OFFSET]|GLOB
                [[NAME=]FETCH[:TYPE]]... [if FILTER]
              r[:[GROUP/]EVENT] ...   the function's return
              [OBJECT:]sdt:PROVIDER:NAME    a marker (USDT)
              [OBJECT:]mark:GROUP:NAME      a marker with its own format
              FUNCTION(TYPE NAME, ...)
              -:[GROUP/]EVENT         deletes earlier ones
Exit status: the program's own (or its fatal signal), 0 after -P; 125 when
uprobe-run itself fails, 126 when the program cannot be executed, 127 when it is
not found.

Examples:
  uprobe-run -p 'p:free_hit /bin/zsh:zfree %di' zsh -c 'echo hello'
  uprobe-run -p 'r:lines ./demo:count_lines n=$retval:s32' -o trace.txt ./demo
  uprobe-run -p 'p /bin/bash:execute_command' -d 10s --comm=bash
)";
}

}  // namespace uprobe::cli
