/*
 * The server behind every program: an MCP server that answers each call as fast as possible.
 *    echo SHAPE TOOLS DELAY [MUTE [WORK]]
 * SHAPE: form of the answers: head, tail, spaced, or modern (as head, in the modern protocol era).
 * TOOLS: number of listed tools. The first ones are "echo"; "pid"; "park", which is never answered; and "change",
 * which changes the list.
 * DELAY: time in ms that the server sleeps before it reads.
 * MUTE: a file. If it exists, the server reads but never answers.
 * WORK: time in ms that each call takes, one after the other.
 * The arguments of a call are {"key":"<8 digits>","lines":<number>}. The text of the answer is the key, a space, and
 * LINE as often as `lines` says; for "pid", the text contains the server's process id. With "notes":<number>, that
 * many progress notifications are sent first. echo.ts is the same server for machines without a C compiler.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE "  return read(path, \\\"utf8\\\");\\n"
#define CHUNK (1 << 18)
/* Only this many bytes of a call are searched for its members, because its arguments may be long. */
#define HEAD_SIZE 1024

#define DISCOVERY                                                                                      \
  "{\"supportedVersions\":[\"2026-07-28\"],\"capabilities\":{\"tools\":{}},"                           \
  "\"_meta\":{\"io.modelcontextprotocol/serverInfo\":{\"name\":\"echo\",\"version\":\"1.0.0\"}}"
#define CACHE ",\"ttlMs\":0,\"cacheScope\":\"private\""

static enum { HEAD, TAIL, SPACED } shape;
static int is_modern;
static int changes;
/* Time that each call takes, one after the other, in ms. */
static long work;
static char *out;
static size_t out_size, out_room;

static void write_all(const char *bytes, size_t size) {
  for (size_t at = 0; at < size;) {
    ssize_t written = write(1, bytes + at, size - at);
    if (written <= 0) exit(0);
    at += (size_t)written;
  }
}

static void flush_out(void) {
  write_all(out, out_size);
  out_size = 0;
}

static void emit(const char *bytes, size_t size) {
  if (size >= CHUNK) {
    flush_out();
    write_all(bytes, size);
    return;
  }
  if (out_size + size > out_room) {
    out_room = (out_size + size) * 2;
    out = realloc(out, out_room);
    if (out == NULL) exit(1);
  }
  memcpy(out + out_size, bytes, size);
  out_size += size;
}

static void emit_text(const char *text) { emit(text, strlen(text)); }

static void open_result(const char *id, size_t id_size) {
  if (shape == TAIL) {
    emit_text("{\"result\":");
    return;
  }
  emit_text(shape == HEAD ? "{\"jsonrpc\":\"2.0\",\"id\":" : "{\"jsonrpc\": \"2.0\", \"id\": ");
  emit(id, id_size);
  emit_text(shape == HEAD ? ",\"result\":" : ", \"result\": ");
}

static void close_result(const char *id, size_t id_size) {
  if (shape == TAIL) {
    emit_text(",\"jsonrpc\":\"2.0\",\"id\":");
    emit(id, id_size);
  }
  emit_text("}\n");
}

/* Ends a result object. In the modern era, adds the members that every result must have. */
static void close_object(const char *more) {
  if (is_modern) {
    emit_text(more);
    emit_text(",\"resultType\":\"complete\"");
  }
  emit_text("}");
}

/* Emits the text of `lines` lines. The text is cached for the next call with the same number. */
static void emit_lines(size_t lines) {
  static char *text;
  static size_t made;
  size_t length = strlen(LINE);
  if (lines != made) {
    text = realloc(text, lines * length + 1);
    if (text == NULL) exit(1);
    for (size_t i = 0; i < lines; i++) memcpy(text + i * length, LINE, length);
    made = lines;
  }
  emit(text, lines * length);
}

static void emit_pid(void) {
  char text[24];
  snprintf(text, sizeof text, "%ld", (long)getpid());
  emit_text(text);
}

static void list_tools(int tools) {
  static const char *const first[] = {"echo", "pid", "park", "change"};
  char name[16], tool[512], made[64];
  emit_text("{\"tools\":[");
  for (int i = 0; i < tools; i++) {
    if (i < 4) strcpy(name, first[i]);
    else snprintf(name, sizeof name, "tool_%03d", i);
    snprintf(made, sizeof made, "Makes the list another, %d times so far.", changes);
    snprintf(tool, sizeof tool,
             "%s{\"name\":\"%s\",\"description\":\"%s\","
             "\"inputSchema\":{\"type\":\"object\",\"properties\":{\"key\":{\"type\":\"string\"},"
             "\"lines\":{\"type\":\"integer\"}},\"required\":[\"key\"]}}",
             i > 0 ? "," : "", name, i == 3 ? made : "Returns the key and as many lines of text as it is asked for.");
    emit_text(tool);
  }
  emit_text("]");
  close_object(CACHE);
}

static const char *find(const char *line, size_t size, const char *key) {
  const char *found = memmem(line, size, key, strlen(key));
  return found == NULL ? NULL : found + strlen(key);
}

static void notify(const char *line, size_t size, unsigned long notes) {
  const char *token = find(line, size, "\"progressToken\":");
  if (token == NULL) return;
  size_t token_size = strcspn(token, ",}");
  char count[32];
  for (unsigned long i = 1; i <= notes; i++) {
    emit_text("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":");
    emit(token, token_size);
    snprintf(count, sizeof count, ",\"progress\":%lu}}\n", i);
    emit_text(count);
    if (out_size >= CHUNK) flush_out();
  }
}

static void answer(const char *line, size_t size, int tools) {
  const char *id = find(line, size, "\"id\":");
  if (id == NULL) return;
  size_t id_size = 0;
  while (id[id_size] != ',' && id[id_size] != '}') id_size++;
  size_t head = size < HEAD_SIZE ? size : HEAD_SIZE;
  const char *key = find(line, head, "\"key\":\"");
  if (key != NULL && find(line, head, "\"name\":\"park\"") != NULL) return;
  int is_change = key != NULL && find(line, head, "\"name\":\"change\"") != NULL;
  const char *notes = key == NULL ? NULL : find(line, head, "\"notes\":");
  if (notes != NULL) notify(line, head, strtoul(notes, NULL, 10));
  if (key != NULL && work > 0) {
    flush_out();
    struct timespec pause = {work / 1000, work % 1000 * 1000000};
    nanosleep(&pause, NULL);
  }
  open_result(id, id_size);
  if (key != NULL) {
    const char *lines = find(line, head, "\"lines\":");
    emit_text("{\"content\":[{\"type\":\"text\",\"text\":\"");
    emit(key, 8);
    emit_text(" ");
    if (find(line, head, "\"name\":\"pid\"") != NULL) emit_pid();
    else emit_lines(lines == NULL ? 0 : strtoul(lines, NULL, 10));
    emit_text("\"}]");
    close_object("");
  } else if (is_modern && find(line, size, "\"server/discover\"") != NULL) {
    emit_text(DISCOVERY);
    close_object(CACHE);
  } else if (find(line, size, "\"initialize\"") != NULL) {
    emit_text("{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"tools\":{\"listChanged\":true}},"
              "\"serverInfo\":{\"name\":\"echo\",\"version\":\"1.0.0\"}}");
  } else if (find(line, size, "\"tools/list\"") != NULL) {
    list_tools(tools);
  } else {
    emit_text("{}");
  }
  close_result(id, id_size);
  if (is_change) {
    changes++;
    emit_text("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n");
  }
  if (out_size >= CHUNK) flush_out();
}

int main(int count, char **words) {
  const char *wanted = count > 1 ? words[1] : "head";
  int tools = count > 2 ? atoi(words[2]) : 1;
  long delay = count > 3 ? atol(words[3]) : 0;
  work = count > 5 ? atol(words[5]) : 0;
  is_modern = strcmp(wanted, "modern") == 0;
  shape = strcmp(wanted, "tail") == 0 ? TAIL : strcmp(wanted, "spaced") == 0 ? SPACED : HEAD;
  struct timespec pause = {delay / 1000, delay % 1000 * 1000000};
  nanosleep(&pause, NULL);

  size_t room = 2 * CHUNK;
  char *in = malloc(room);
  if (in == NULL) return 1;
  if (count > 4 && access(words[4], F_OK) == 0) {
    while (read(0, in, room) > 0) continue;
    return 0;
  }
  /* held: number of bytes in the buffer. searched: number of bytes at its start that contain no line end. */
  size_t held = 0, searched = 0;
  for (;;) {
    ssize_t got = read(0, in + held, room - held);
    if (got <= 0) return 0;
    held += (size_t)got;
    char *from = in, *end;
    while ((end = memchr(from + searched, '\n', held - (size_t)(from - in) - searched)) != NULL) {
      answer(from, (size_t)(end - from), tools);
      from = end + 1;
      searched = 0;
    }
    held -= (size_t)(from - in);
    searched = held;
    memmove(in, from, held);
    if (held == room && (in = realloc(in, room *= 2)) == NULL) return 1;
    flush_out();
  }
}
