// SPDX-License-Identifier: MIT
#include "engine/export/trace_dat_head.h"

#include <algorithm>

#include "engine/export/ring_page.h"
#include "engine/output/escape.h"
#include "engine/shared/event_program.h"

namespace uprobe::format {

namespace {

using std::string_view_literals::operator""sv;

constexpr std::size_t kMostNames = 1 << 20;  // the ids of threads are what hostile processes write
constexpr std::uint16_t kTraceClock = 4;     // an option
constexpr std::string_view kOwnGroup = "uprobe_run";

constexpr std::string_view kHeaderEvent =
    "# compressed entry header\n\ttype_len    :    5 bits\n\ttime_delta  :   27 bits\n\tarray       :   32 bits\n\n"
    "\tpadding     : type == 29\n\ttime_extend : type == 30\n\ttime_stamp : type == 31\n\tdata max type_len  == 28\n";

constexpr std::string_view kCommonFields =
    "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
    "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
    "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n"
    "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";

struct LostHead {
  std::uint16_t type = TraceDatHead::lost;
  std::uint16_t zero = 0;
  std::int32_t pid = 0;
  std::uint64_t hits = 0, returns = 0;
  std::uint32_t name = 0;
};
constexpr std::uint32_t kLostBytes = 28;

struct TextHead {
  std::uint16_t type = 0;
  std::uint16_t zero = 0;
  std::uint32_t pid = 0;
  std::uint32_t text = 0;
};
static_assert(sizeof(TextHead) == 12);

std::string format_of(std::string_view name, std::uint16_t id, std::string_view fields, std::string_view print) {
  return "name: " + std::string(name) + "\nID: " + std::to_string(id) + "\nformat:\n" + std::string(kCommonFields) +
         std::string(fields) + "\nprint fmt: " + std::string(print) + "\n";
}

std::vector<std::string> own_formats() {
  return {format_of(
              "lost", TraceDatHead::lost,
              "\tfield:u64 hits;\toffset:8;\tsize:8;\tsigned:0;\n\tfield:u64 returns;\toffset:16;\tsize:8;\tsigned:0;\n"
              "\tfield:__data_loc char[] event;\toffset:24;\tsize:4;\tsigned:1;\n",
              "\"event=%s hits=%Lu returns=%Lu\", __get_str(event), REC->hits, REC->returns"),
          format_of("user_stack", TraceDatHead::user_stack,
                    "\tfield:__data_loc char[] frames;\toffset:8;\tsize:4;\tsigned:1;\n", "\"%s\", __get_str(frames)")};
}

std::string header_page() {
  return "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\tfield: local_t "
         "commit;\toffset:8;\tsize:8;\tsigned:1;\n"
         "\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\tfield: char data;\toffset:16;\tsize:" +
         std::to_string(RingPage::kBytes - RingPage::kHeadBytes) + ";\tsigned:0;\n";
}

class Bytes {
 public:
  template <class T>
  Bytes& number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Bytes& raw(std::string_view text) { return bytes_ += text, *this; }
  Bytes& name(std::string_view text) { return bytes_.append(text).push_back('\0'), *this; }
  template <class Size>
  Bytes& sized(std::string_view text) {
    return number(static_cast<Size>(text.size())).raw(text);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

void add_system(Bytes& bytes, const std::string& name, const std::vector<std::string>& formats) {
  bytes.name(name).number(static_cast<std::uint32_t>(formats.size()));
  for (const std::string& format : formats) bytes.sized<std::uint64_t>(format);
}

// The clocks of which the kernel lets choose, the chosen one in brackets.
std::string clock_list(std::string_view chosen) {
  std::string list;
  bool is_listed = false;
  for (const std::string_view clock : {"local"sv, "global"sv, "mono"sv, "mono_raw"sv, "boot"sv, "tai"sv}) {
    const bool is_chosen = clock == chosen;
    is_listed = is_listed || is_chosen;
    list.append(list.empty() ? "" : " ").append(is_chosen ? "[" : "").append(clock).append(is_chosen ? "]" : "");
  }
  return is_listed ? list + "\n" : list + " [" + std::string(chosen) + "]\n";
}

std::string string_record(std::string head, std::size_t locator, std::string_view text) {
  const std::string_view shown = text.substr(0, RingPage::kMostRecord - head.size() - 1);
  const auto word = static_cast<std::uint32_t>((shown.size() + 1) << 16 | head.size());
  head.replace(locator, sizeof word, reinterpret_cast<const char*>(&word), sizeof word);
  return head.append(shown).append(1, '\0');
}

}  // namespace

// In lines a name cannot have a newline, whatever the user wants of strings.
void TraceDatHead::name_task(std::uint32_t tid, std::string_view comm) {
  if (comm.empty() || (names_.size() >= kMostNames && !names_.contains(tid))) return;
  names_.insert_or_assign(tid, std::string(comm));
}

std::string TraceDatHead::bytes(std::string_view clock, std::span<const PageFile::Part> parts) const {
  Bytes bytes;
  bytes.raw("\x17\x08\x44tracing6\0"sv).number(std::uint8_t{0}).number(std::uint8_t{sizeof(long)});
  bytes.number(static_cast<std::uint32_t>(RingPage::kBytes));
  bytes.name("header_page").sized<std::uint64_t>(header_page());
  bytes.name("header_event").sized<std::uint64_t>(kHeaderEvent);
  bytes.number(std::uint32_t{0}).number(static_cast<std::uint32_t>(formats_.size() + 1));
  for (const auto& [group, formats] : formats_) add_system(bytes, group, formats);
  add_system(bytes, std::string(kOwnGroup), own_formats());
  std::string names;
  for (const auto& [tid, comm] : names_) names += std::to_string(tid) + " " + escaped(comm) + "\n";
  bytes.number(std::uint32_t{0}).number(std::uint32_t{0}).sized<std::uint64_t>(names);
  bytes.number(static_cast<std::uint32_t>(parts.size()));
  bytes.name("options  ").number(kTraceClock).sized<std::uint32_t>(clock_list(clock)).number(std::uint16_t{0});
  bytes.name("flyrecord");
  for (const PageFile::Part& part : parts) bytes.number(part.begin).number(part.bytes);
  bytes.sized<std::uint64_t>(clock_list(clock));
  return bytes.take();
}

std::string lost_record(std::string_view event, std::uint64_t hits, std::uint64_t returns) {
  const LostHead head{.hits = hits, .returns = returns};
  return string_record(std::string(reinterpret_cast<const char*>(&head), kLostBytes), kLostBytes - 4, event);
}

std::string text_record(std::uint16_t type, std::uint32_t tid, std::string_view text) {
  const TextHead head{.type = type, .pid = tid};
  return string_record(std::string(reinterpret_cast<const char*>(&head), sizeof head), sizeof head - 4, text);
}

std::string text_event_format(std::string_view name, std::uint16_t id) {
  return format_of(name, id, "\tfield:__data_loc char[] text;\toffset:8;\tsize:4;\tsigned:1;\n",
                   "\"%s\", __get_str(text)");
}

}  // namespace uprobe::format
