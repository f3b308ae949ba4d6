// SPDX-License-Identifier: MIT
// Counts the hits of a session: cc -O2 ring_reader.c -o ring_reader; uprobe-run --export-rings=PATH ... & ring_reader PATH
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uprobe/ring.h>

enum { kMostParts = 64, kWait = 20 /* milliseconds */ };

static struct uprobe_ring_session session;
static struct uprobe_ring_reader* readers;  // of all rings of all parts
static size_t parts;
static unsigned char* copy;
static size_t room;
static unsigned long long hits, names, hits_of[65536];

static int fail(const char* what) {
  perror(what);
  exit(1);
}

// The tool's pass, which the kernel shows to processes that may inspect the tool.
static void find_pass(int tool, char* pass) {
  struct ucred who;
  socklen_t size = sizeof who;
  char folder[64], path[512], link[256];
  if (getsockopt(tool, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) fail("SO_PEERCRED");
  errno = EPERM;
  if (who.uid != geteuid()) fail("the tool is another user's");
  snprintf(folder, sizeof folder, "/proc/%d/fd", (int)who.pid);
  DIR* files = opendir(folder);
  if (!files) fail(folder);
  for (struct dirent* file; (file = readdir(files)) != NULL;) {
    snprintf(path, sizeof path, "%s/%s", folder, file->d_name);
    const ssize_t got = readlink(path, link, sizeof link);
    if (got >= 51 && memcmp(link, "/memfd:uprobe-pass:", 19) == 0) memcpy(pass, link + 19, 32);
  }
  closedir(files);
}

static int connect_to(const char* path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  struct uprobe_ring_greeting greeting = {
      {UPROBE_RING_GREETING, sizeof greeting}, UPROBE_RING_MAGIC, UPROBE_RING_VERSION, ""};
  const int tool = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  if (tool < 0 || connect(tool, (struct sockaddr*)&address, sizeof address) != 0) fail(path);
  find_pass(tool, greeting.pass);
  if (send(tool, &greeting, sizeof greeting, MSG_NOSIGNAL) < 0) fail("greeting");
  return tool;
}

static void begin_session(const void* message) {
  memcpy(&session, message, sizeof session);
  readers = calloc(kMostParts * (size_t)session.ring_count, sizeof *readers);
  room = session.record_most + (1u << 18);
  copy = malloc(room);
  if (!readers || !copy) fail("memory");
}

static void begin_part(int file) {
  void* part = mmap(NULL, session.file_bytes, PROT_READ, MAP_SHARED, file, 0);
  if (part == MAP_FAILED || parts == kMostParts) fail("part");
  for (uint32_t i = 0; i < session.ring_count; ++i)
    if (!uprobe_ring_begin(&readers[parts * session.ring_count + i], part, &session, i)) fail("geometry");
  close(file);
  ++parts;
}

// Returns the kind of a message; 0: there is none. The end of the connection is an end, too.
static uint32_t hear(int tool) {
  static union {
    struct uprobe_ring_message head;
    char bytes[UPROBE_RING_MOST_MESSAGE];
  } message;
  union {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
  } rights;
  struct iovec place = {&message, sizeof message};
  struct msghdr whole = {.msg_iov = &place, .msg_iovlen = 1, .msg_control = &rights, .msg_controllen = sizeof rights};
  const ssize_t got = recvmsg(tool, &whole, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? 0 : UPROBE_RING_END;
  if (got < (ssize_t)sizeof message.head) return UPROBE_RING_END;
  if (message.head.kind == UPROBE_RING_SESSION) begin_session(&message);
  if (message.head.kind == UPROBE_RING_PART && CMSG_FIRSTHDR(&whole)) {
    int file;
    memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&whole)), sizeof file);
    begin_part(file);
  }
  if (message.head.kind == UPROBE_RING_REFUSED)
    fprintf(stderr, "refused: %.*s\n", (int)(got - sizeof message.head), message.bytes + sizeof message.head);
  return message.head.kind;
}

// What is in the copy has been checked, except for the payload.
static void count(size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    struct uprobe_ring_record record;
    struct uprobe_ring_payload payload;
    memcpy(&record, copy + at, sizeof record);
    memcpy(&payload, copy + at + sizeof record, sizeof payload);
    if (record.flags & UPROBE_RING_TASK_NAME)
      ++names;
    else
      ++hits, ++hits_of[payload.type];
    at += record.length;
  }
}

static void read_rings(void) {
  for (size_t i = 0; i < parts * session.ring_count; ++i)
    for (size_t bytes; (bytes = uprobe_ring_take(&readers[i], copy, room)) != 0;) count(bytes);
}

static void report(void) {
  unsigned long long lost = 0, broken = 0;
  for (size_t i = 0; i < parts * session.ring_count; ++i) lost += readers[i].lost, broken += readers[i].broken;
  for (size_t i = 0; i < sizeof hits_of / sizeof *hits_of; ++i)
    if (hits_of[i] != 0) printf("event %zu: %llu\n", i, hits_of[i]);
  printf("hits %llu names %llu lost %llu broken %llu\n", hits, names, lost, broken);
}

int main(int count, char** words) {
  if (count != 2) return fprintf(stderr, "usage: ring_reader PATH\n"), 2;
  const int tool = connect_to(words[1]);
  struct pollfd wait = {.fd = tool, .events = POLLIN};
  uint32_t kind = 0;
  for (int is_asked = 0; kind != UPROBE_RING_END && kind != UPROBE_RING_REFUSED; read_rings()) {
    if (!is_asked && parts != 0) {
      const struct uprobe_ring_wake_at wish = {
          {UPROBE_RING_WAKE_AT, sizeof wish}, (uint32_t)(session.ring_bytes / 16), 0};
      is_asked = send(tool, &wish, sizeof wish, MSG_NOSIGNAL) > 0;
    }
    poll(&wait, 1, kWait);
    kind = hear(tool);
    if (kind == UPROBE_RING_FILLED) is_asked = 0;
    if (kind == UPROBE_RING_PART && parts == 1) fprintf(stderr, "reading\n");
  }
  report();
  return kind != UPROBE_RING_END;
}
