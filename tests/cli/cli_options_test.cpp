// SPDX-License-Identifier: MIT
// The command line as data, and its mistakes in words.
#include <gtest/gtest.h>

#include "cli/options.h"

namespace uprobe::cli {
namespace {

using Words = std::vector<std::string>;

Result<Options> parse(Words words) {
  words.insert(words.begin(), "uprobe-run");
  return parse_options(words);
}

// "where: text | help", as far as the error has them.
std::string mistake(const Words& words) {
  const auto options = parse(words);
  const Status checked = options ? check_definitions(*options) : ok();
  if (options && checked) return "accepted";
  const Error& error = options ? checked.error() : options.error();
  EXPECT_EQ(error.code, Code::usage);
  return (error.where.empty() ? "" : error.where + ": ") + error.text + (error.help.empty() ? "" : " | " + error.help);
}

TEST(CliOptions, ASimpleCall) {
  const auto options = parse({"-p", "p:a /bin/zsh:zfree %di", "zsh", "-c", "echo"});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->mode, Mode::trace);
  ASSERT_EQ(options->sources.size(), 1u);
  EXPECT_EQ(options->sources[0].text, "p:a /bin/zsh:zfree %di");
  EXPECT_EQ(options->program, (Words{"zsh", "-c", "echo"}));
}

TEST(CliOptions, TheFirstWordThatIsNoOptionIsTheProgram) {
  const auto options = parse({"-p", "p:a x:y", "ls", "-p", "--help", "--", "-x"});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->program, (Words{"ls", "-p", "--help", "--", "-x"}));
  EXPECT_EQ(options->sources.size(), 1u);
}

TEST(CliOptions, TwoDashesEndTheOptions) {
  const auto options = parse({"-p", "p:a x:y", "--", "-weird", "--", "b"});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->program, (Words{"-weird", "--", "b"}));
}

TEST(CliOptions, EveryOptionInBothForms) {
  for (const Words& words :
       {Words{"-p", "p:a x:y", "-o", "f", "-n", "3", "-d", "2s", "-b", "64K", "-q", "-v", "-f", "--force",
              "--color=never", "ls"},
        Words{"--probe=p:a x:y", "--output=f", "--max-events=3", "--duration", "2", "--buffer-size=65536", "--quiet",
              "--verbose", "--follow-forks", "--force", "--color", "never", "ls"}}) {
    const auto options = parse(words);
    ASSERT_TRUE(options) << options.error().text;
    EXPECT_EQ(options->output, "f");
    EXPECT_EQ(options->max_events, 3u);
    EXPECT_EQ(options->duration, std::chrono::seconds(2));
    EXPECT_EQ(options->ring_bytes, 65536u);
    EXPECT_TRUE(options->quiet && options->force);
    EXPECT_EQ(options->verbosity, 1);
    EXPECT_EQ(options->color, ColorMode::never);
  }
}

TEST(CliOptions, UntilWhichProcessHasEnded) {
  EXPECT_TRUE(parse({"--until=last", "-p", "p:a x:y", "ls"})->until_last);
  EXPECT_FALSE(parse({"--until=last", "--until", "first", "-p", "p:a x:y", "ls"})->until_last);
  const auto refused = parse({"--until=never", "-p", "p:a x:y", "ls"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().text, "'never' is not one of first, last");
}

TEST(CliOptions, TheToolBesideTheProgram) {
  EXPECT_TRUE(parse({"-D", "-o", "f", "-p", "p:a x:y", "ls", "-D"})->daemonize);
  EXPECT_TRUE(parse({"--daemonize", "-o", "f", "--hist-file=h", "-p", "p:a x:y", "ls"})->daemonize);
  EXPECT_FALSE(parse({"-o", "f", "-p", "p:a x:y", "ls", "-D"})->daemonize);
  const std::vector<std::vector<std::string>> refused = {
      {"-D", "-p", "p:a x:y", "ls"},
      {"-D", "-o", "-", "-p", "p:a x:y", "ls"},
      {"-D", "-o", "f", "--hist-file=-", "-p", "p:a x:y", "ls"},
      {"-D", "-o", "f", "-p", "p:a x:y", "-P", "1"},
      {"-D", "-o", "f", "-p", "p:a x:y", "--comm=x"},
      {"-D", "-o", "f", "--dry-run", "-p", "p:a x:y"},
      {"-D", "--control=x", "--list"},
  };
  for (const auto& words : refused) EXPECT_FALSE(parse(words)) << words[1];
  EXPECT_EQ(parse(refused[0]).error().text,
            "-D needs -o FILE: standard output and standard error are the program's alone");
}

TEST(CliOptions, Defaults) {
  const auto options = parse({"-p", "p:a x:y", "ls"});
  ASSERT_TRUE(options);
  EXPECT_FALSE(options->ring_bytes);
  EXPECT_EQ(options->max_events, 0u);
  EXPECT_EQ(options->duration.count(), 0);
  EXPECT_FALSE(options->quiet || options->force || options->until_last);
  EXPECT_EQ(options->verbosity, 0);
  EXPECT_EQ(options->color, ColorMode::automatic);
}

TEST(CliOptions, ExecAppliesToTheDefinitionsAfterIt) {
  const auto options = parse({"-p", "one", "-x", "A", "-p", "two", "-i", "file", "-x", "B", "-p", "three", "ls"});
  ASSERT_TRUE(options);
  ASSERT_EQ(options->sources.size(), 4u);
  const std::pair<const char*, const char*> expected[] = {{"one", ""}, {"two", "A"}, {"file", "A"}, {"three", "B"}};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(options->sources[i].text, expected[i].first);
    EXPECT_EQ(options->sources[i].default_object, expected[i].second);
  }
  EXPECT_EQ(options->sources[2].kind, ProbeSource::Kind::file);
}

TEST(CliOptions, ReturnsOfPlaces) {
  const auto options = parse({"-r", "getcwd $retval", "--returns-of=f", "-r", "r:e x:y", "ls"});
  ASSERT_TRUE(options);
  ASSERT_EQ(options->sources.size(), 3u);
  EXPECT_EQ(options->sources[0].text, "getcwd%return $retval");
  EXPECT_EQ(options->sources[1].text, "f%return");
  EXPECT_EQ(options->sources[2].text, "r:e x:y");
  const auto refused = parse({"-r", "p:e x:y", "ls"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().help, "-p 'p:e x:y'");
}

TEST(CliOptions, ADefinitionIsNeverSplit) {
  const auto options = parse({"-p", "p:a x:y %di,%si ; p:b", "ls"});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->sources[0].text, "p:a x:y %di,%si ; p:b");
}

TEST(CliOptions, MistakesInWords) {
  const std::pair<Words, const char*> table[] = {
      {{"-p", "1234", "ls"}, "-p: -p takes a probe definition; use -P 1234 to attach"},
      {{"--probe=12,34", "ls"}, "-p: -p takes a probe definition; use -P 12,34 to attach"},
      {{"-p", " ", "ls"}, "-p: the definition is empty | e.g. -p 'p:free_hit /bin/zsh:zfree %di'"},
      {{"-P", "x"}, "-P: 'x' is not a list of process ids | processes of that name: --comm=x"},
      {{"-pid", "12", "-p", "f"}, "'-pid' begins with one dash, and would be -p with 'id' | did you mean '--pid'?"},
      {{"-l", "./no:*"}, "-l takes a program, or a file with -x, and no './no:*'"},
      {{"-P12,"}, "-P: '12,' is not a list of process ids | e.g. -P 1234 or -P 1234,1235"},
      {{"--pid=0"}, "--pid: '0' is not a list of process ids | e.g. -P 1234 or -P 1234,1235"},
      {{"--attach", "99999999999"},
       "--attach: '99999999999' is not a list of process ids | e.g. -P 1234 or -P 1234,1235"},
      {{"-p", "p a:b", "-P", "12", "ls"},
       "-P attaches to running processes, and 'ls' would be started | drop one of them"},
      {{"-l", "-P", "12", "-x", "a"},
       "with -P a file goes by its path in the process, and 'a' is none | /proc/12/maps has the paths"},
      {{"--vars=f", "-P", "12", "libc.so.6"},
       "with -P a file goes by its path in the process, and 'libc.so.6' is none | /proc/12/maps has the paths"},
      {{"-l", "-P", "12", "--comm=a"}, "a process is looked at by its number, and not by --comm | give it with -P"},
      {{"--dry-run", "-p", "p a:b", "--object=/a"},
       "a process is looked at by its number, and not by --object | give it with -P"},
      {{"-l", "--comm=a", "-x", "a"}, "a process is looked at by its number, and not by --comm | give it with -P"},
      {{"--check", "-p", "p a:b", "-P", "12"},
       "-P does not go with --check, --list-events and --format-file, which run nothing"},
      {{"-p", "p a:b", "--object", "/a", "ls"},
       "--object attaches to running processes, and 'ls' would be started | drop one of them"},
      {{"-p", "p a:b", "--wait"}, "--wait needs a name or a file to wait for | --comm NAME or --object FILE"},
      {{"-p", "p a:b", "--wait", "-P", "12"},
       "--wait needs a name or a file to wait for | --comm NAME or --object FILE"},
      {{"--comm", ""}, "--comm: the name is empty"},
      {{"--object="}, "--object: the file's name is empty"},
      {{"--comm=0123456789abcdef"},
       "--comm: no process can have the name '0123456789abcdef': the kernel keeps 15 bytes of a name | "
       "--comm='0123456789abcde'"},
      {{"--control=1", "--list", "--comm=a"}, "--control changes a session: it attaches to no process"},
      {{"--exce", "f"}, "unknown option '--exce' | did you mean '--exec'?"},
      {{"--exce=f"}, "unknown option '--exce' | did you mean '--exec'?"},
      {{"--nonsense"}, "unknown option '--nonsense' | see uprobe-run --help"},
      {{"-Z"}, "unknown option '-Z' | see uprobe-run --help"},
      {{"-qZ"}, "unknown option '-Z' | see uprobe-run --help"},
      {{"--pro=x"}, "unknown option '--pro' | it could be --probe, --probes-from, --prometheus, --profile"},
      {{"--forma"}, "unknown option '--forma' | it could be --format, --format-file"},
      {{"--format=tex", "-p", "p f:s", "ls"},
       "--format: 'tex' is not one of text, graph, json, csv, chrome, folded, perf, pprof, flamegraph, html, "
       "trace.dat, ctf, pairs, pairs-json"},
      {{"--format=trace.dat", "-p", "p f:s", "ls"},
       "--format=trace.dat: it is a file in which the tool writes at any place | -o FILE"},
      {{"--format=ctf", "-o", "-", "-p", "p f:s", "ls"}, "--format=ctf: it is a folder of files | -o FOLDER"},
      {{"--replay=r", "-c"}, "-c sums up the calls of a program that runs"},
      {{"--control=s", "-C", "--stats"}, "-C sums up the calls of a program that runs"},
      {{"-c", "-k", "-p", "p f:s", "ls"}, "-c records nothing, and -k is for records | -C does both"},
      {{"--replay=r", "-k"},
       "--replay: a recording has the stacks that were recorded, and -k records them | e.g. uprobe-run --replay=FILE"},
      {{"--replay=r", "--format=ctf"}, "--format=ctf: it is a folder of files | -o FOLDER"},
      {{"--clock=utc", "ls"}, "--clock: 'utc' is not one of mono, mono_raw, boot, tai, global, wall"},
      {{"--record=r", "--clock=boot", "-p", "p f:s", "ls"},
       "--record: a recording can be printed with any clock later | --replay=FILE --clock=boot"},
      {{"--merge=t", "-p", "p f:s", "ls"},
       "--merge: a trace of the kernel goes with a recording, when both have ended | "
       "--record=FILE, then --replay=FILE --merge=t"},
      {{"--replay=r", "--merge=t", "--format=json"},
       "--merge: events are merged into text and trace.dat alone | --format=text"},
      {{"--graph", "--format=json", "-p", "p f:s", "ls"}, "--format: a graph is text, and not json"},
      {{"--format=html", "-p", "p f:s", "ls"},
       "--format=html: it is a file, and standard error has other lines | -o FILE"},
      {{"--replay=r", "--min-latency=1ms"}, "--min-latency: it chooses among the calls of a graph | --graph"},
      {{"-c", "--sample=1/5", "-p", "p f:s", "ls"}, "--sample: -c counts all calls, and records none | -C has both"},
      {{"--counter=e", "-p", "p f:s", "ls"}, "--counter: 'e' is not EVENT:FIELD | e.g. --counter=alloc:size"},
      {{"--counter=e:f", "-p", "p f:s", "ls"},
       "--counter: --format=text has no place for curves | --format=html or chrome"},
      {{"--format=json", "--style=short", "-p", "p f:s", "ls"},
       "--format=json: --style is for lines of text | drop one of them"},
      {{"--format=json", "-p", "p f:s", "--trigger=hist:keys=a", "ls"},
       "--format=json: there is no place for the tables of hist triggers | --hist-file=FILE"},
      {{"--format=csv", "-D", "-o", "t", "-p", "p f:s", "ls"},
       "--format=csv: -D leaves no place to report losses | --format=text"},
      {{"--outp", "f"}, "unknown option '--outp' | did you mean '--output'?"},
      {{"--outp"}, "unknown option '--outp' | did you mean '--output'?"},
      {{"--quie=1"}, "unknown option '--quie' | did you mean '--quiet'?"},
      {{"--force", "-Zq"}, "unknown option '-Z' | see uprobe-run --help"},
      {{"./demo", "-p", "greet"}, "options go before the program './demo' | e.g. uprobe-run -p DEF ./demo"},
      {{"-q", "./demo", "-r", "greet"}, "options go before the program './demo' | e.g. uprobe-run -p DEF ./demo"},
      {{"--", "./demo", "--probe=greet"}, "options go before the program './demo' | e.g. uprobe-run -p DEF ./demo"},
      {{"-p"}, "option '-p' needs an argument: DEF | see uprobe-run --help"},
      {{"--output"}, "option '--output' needs an argument: FILE | see uprobe-run --help"},
      {{"--force=yes"}, "option '--force' takes no argument | see uprobe-run --help"},
      {{"-o", "", "ls"}, "-o: the file's name is empty"},
      {{"-i", ""}, "-i: the file's name is empty"},
      {{"-d", "soon", "ls"}, "-d: 'soon' is not a time | a number followed by ms, s, m or h: 5, 500ms, 1.5s, 2m, 1h"},
      {{"--buffer-size", "1", "ls"}, "--buffer-size: '1' is too small a buffer | from 8K to 1G for each ring"},
      {{"-n", "0", "ls"}, "-n: '0' is not a number of events | a whole number from 1 on"},
      {{"--color=maybe"}, "--color: 'maybe' is not one of auto, always, never"},
      {{"-l", "--dry-run", "ls"},
       "--dry-run: -l, --lines, --vars, --dry-run, --explain, --doctor, --replay, --check, --list-events and "
       "--format-file "
       "exclude each other"},
      {{"ls"},
       "no probe is defined: -p or -i is missing | e.g. uprobe-run -p 'p:free_hit /bin/zsh:zfree %di' zsh -c 'echo'"},
      {{},
       "no probe is defined: -p or -i is missing | e.g. uprobe-run -p 'p:free_hit /bin/zsh:zfree %di' zsh -c 'echo'"},
      {{"-p", "p:a x:y"}, "no program to run | e.g. uprobe-run -p 'p:free_hit /bin/zsh:zfree %di' zsh -c 'echo'"},
      {{"--dry-run"},
       "no probe is defined: -p or -i is missing | e.g. uprobe-run -p 'p:free_hit /bin/zsh:zfree %di' zsh -c 'echo'"},
      {{"-l"}, "-l needs a program, or a file with -x | e.g. uprobe-run -l'z*' /bin/zsh"},
      {{"-x", "A", "-lz", "ls"}, "-l lists either -x A or the program 'ls' | drop one of them"},
  };
  for (const auto& [words, expected] : table) EXPECT_EQ(mistake(words), expected);
}

TEST(CliOptions, TheDoctorAndExplanationsNeedNoProgram) {
  const auto explained = parse({"--explain", "p:a x:y"});
  ASSERT_TRUE(explained);
  EXPECT_EQ(explained->mode, Mode::explain);
  EXPECT_EQ(explained->sources.at(0).text, "p:a x:y");
  const auto examined = parse({"--doctor", "-P", "12,13"});
  ASSERT_TRUE(examined);
  EXPECT_EQ(examined->attach.pids, (std::vector<int>{12, 13}));
  EXPECT_FALSE(parse({"--doctor", "ls"}));
  EXPECT_FALSE(parse({"--doctor", "-p", "p:a x:y"}));
}

TEST(CliOptions, DryRunNeedsNoProgram) {
  const auto options = parse({"--dry-run", "-p", "p:a x:y"});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->mode, Mode::dry_run);
}

TEST(CliOptions, ListTakesItsGlobWhereItCannotBeTheProgram) {
  struct Case {
    Words words;
    const char* glob;
    Words program;
  };
  const Case table[] = {
      {{"-l", "zsh"}, "", {"zsh"}},
      {{"-lz*", "zsh"}, "z*", {"zsh"}},
      {{"--list=zfree", "zsh"}, "zfree", {"zsh"}},
      {{"-l", "z*", "zsh"}, "z*", {"zsh"}},
      {{"-l", "zsh", "-c", "echo"}, "", {"zsh", "-c", "echo"}},
      {{"-x", "A", "-l"}, "", {}},
      {{"-x", "A", "-l", "zfree"}, "zfree", {}},
      {{"-l", "-x", "A"}, "", {}},
  };
  for (const Case& one : table) {
    const auto options = parse(one.words);
    ASSERT_TRUE(options) << options.error().text;
    EXPECT_EQ(options->mode, Mode::list);
    EXPECT_EQ(options->list_glob, one.glob);
    EXPECT_EQ(options->program, one.program);
  }
}

TEST(CliOptions, HelpAndVersionEndTheReading) {
  EXPECT_EQ(parse({"-h", "--nonsense"})->mode, Mode::help);
  EXPECT_EQ(parse({"-l", "--help"})->mode, Mode::help);
  EXPECT_EQ(parse({"-V"})->mode, Mode::version);
  EXPECT_EQ(parse({"-vv", "--version"})->mode, Mode::version);
}

TEST(CliOptions, ColourIsKnownEvenWhenTheRestIsWrong) {
  EXPECT_EQ(early_color({"uprobe-run", "--color=always", "--nonsense"}), ColorMode::always);
  EXPECT_EQ(early_color({"uprobe-run", "--", "--color=always"}), ColorMode::automatic);
  EXPECT_EQ(early_color({"uprobe-run", "--color=maybe"}), ColorMode::automatic);
}

TEST(CliOptions, RingsAreForHitsThatAreRecorded) {
  const auto options = parse({"--export-rings=here", "-p", "p:a x:y", "ls"});
  ASSERT_TRUE(options) << options.error().text;
  EXPECT_TRUE(options->ring_socket.starts_with("/") && options->ring_socket.ends_with("/here"));
  EXPECT_EQ(mistake({"--export-rings=", "-p", "p:a x:y", "ls"}), "--export-rings: the socket's path is empty");
  const std::string none = "--export-rings is for hits that are recorded, and this call records none";
  EXPECT_EQ(mistake({"--export-rings=s", "--dry-run", "-p", "p:a x:y", "ls"}), none);
  EXPECT_EQ(mistake({"--export-rings=s", "--control=1", "--stats"}), none);
  EXPECT_EQ(mistake({"--export-rings=s", "--replay=f"}), none);
  EXPECT_EQ(mistake({"--export-rings=s", "-c", "-p", "p:a x:y", "ls"}),
            "--export-rings shows the hits that are recorded, and -c and --top record none | -C");
  EXPECT_EQ(mistake({"--export-rings=s", "-C", "-p", "p:a x:y", "ls"}), "accepted");
}

}  // namespace
}  // namespace uprobe::cli
