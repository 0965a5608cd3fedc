/** The same server as echo.c, for machines without a C compiler: see there for what it does. */
import { Buffer } from "node:buffer";
import { existsSync } from "node:fs";
import process from "node:process";
import { answerText, LINE } from "../answer.ts";
import { input, output } from "./streams.ts";

const [shape = "head", tools = "1", delay = "0", mute, work = "0"] = process.argv.slice(2);
const LF = 10;
const WORDS = ["id", "key", "lines", "notes", "progressToken"] as const;
/** Only this many bytes of a call are searched for its members, because its arguments may be long. */
const HEAD_SIZE = 1024;
const NAMES = ["echo", "pid", "park", "change"];
const KEYS = Object.fromEntries(WORDS.map((name) => [name, Buffer.from(`"${name}":`)]));
const ESCAPED_LINE = JSON.stringify(LINE).slice(1, -1);

const OPENINGS: Readonly<Record<string, readonly [string, string]>> = {
  head: ['{"jsonrpc":"2.0","id":', ',"result":'],
  modern: ['{"jsonrpc":"2.0","id":', ',"result":'],
  spaced: ['{"jsonrpc": "2.0", "id": ', ', "result": '],
};

let pieces: string[] = [];
const texts = new Map<number, string>();

const IDENTITY = '{"io.modelcontextprotocol/serverInfo":{"name":"echo","version":"1.0.0"}}';
/** The last members of a result, which every result of the modern era must have. */
const COMPLETE = shape === "modern" ? ',"resultType":"complete"' : "";
const CACHE = shape === "modern" ? ',"ttlMs":0,"cacheScope":"private"' : "";

let changes = 0;

async function answer(whole: Buffer): Promise<void> {
  const line = whole.subarray(0, HEAD_SIZE);
  const id = word(whole, "id");
  const isCall = line.includes('"key":');
  if (id === undefined || (isCall && line.includes('"name":"park"'))) return;
  notify(line);
  const [before, between] = OPENINGS[shape] ?? ["", ""];
  if (isCall && work !== "0") {
    void output.write(pieces.join(""));
    pieces = [];
    await output.flush();
    await new Promise((resolve) => setTimeout(resolve, Number(work)));
  }
  if (shape === "tail") pieces.push('{"result":', result(line), `,"jsonrpc":"2.0","id":${id}}\n`);
  else pieces.push(before, id, between, result(line), "}\n");
  if (!isCall || !line.includes('"name":"change"')) return;
  changes++;
  pieces.push('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n');
}

function notify(line: Buffer): void {
  const notes = Number(word(line, "notes") ?? 0);
  const token = word(line, "progressToken");
  if (token === undefined) return;
  const head = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${token},"progress":`;
  for (let at = 1; at <= notes; at++) pieces.push(`${head}${at}}}\n`);
}

function result(line: Buffer): string {
  const key = word(line, "key");
  if (key !== undefined) {
    const text = line.includes('"name":"pid"') ? process.pid : linesOf(line);
    return `{"content":[{"type":"text","text":"${answerText(key.slice(1, -1), 0)}${text}"}]${COMPLETE}}`;
  }
  if (shape === "modern" && line.includes('"server/discover"')) {
    return `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"_meta":${IDENTITY}${CACHE}${COMPLETE}}`;
  }
  if (line.includes('"initialize"')) {
    return '{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"echo","version":"1.0.0"}}';
  }
  return line.includes('"tools/list"') ? listTools(Number(tools)) : "{}";
}

function linesOf(line: Buffer): string {
  const lines = Number(word(line, "lines") ?? 0);
  const text = texts.get(lines) ?? ESCAPED_LINE.repeat(lines);
  texts.set(lines, text);
  return text;
}

function listTools(count: number): string {
  const returns = "Returns the key and as many lines of text as it is asked for.";
  const makes = `Makes the list another, ${changes} times so far.`;
  const properties = { key: { type: "string" }, lines: { type: "integer" } };
  const inputSchema = { type: "object", properties, required: ["key"] };
  const names = Array.from(
    { length: count },
    (_, at) => NAMES[at] ?? `tool_${String(at).padStart(3, "0")}`,
  );
  const list = JSON.stringify(
    names.map((name, at) => ({ name, description: at === 3 ? makes : returns, inputSchema })),
  );
  return `{"tools":${list}${CACHE}${COMPLETE}}`;
}

/** The JSON text of the scalar after a key. */
function word(line: Buffer, name: (typeof WORDS)[number]): string | undefined {
  const key = KEYS[name];
  const at = key === undefined ? -1 : line.indexOf(key);
  if (key === undefined || at < 0) return undefined;
  const start = at + key.length;
  let end = start;
  while (line[end] !== 0x2c && line[end] !== 0x7d) end++;
  return line.toString("latin1", start, end);
}

if (delay !== "0") await new Promise((resolve) => setTimeout(resolve, Number(delay)));
const isMute = mute !== undefined && existsSync(mute);
let held: Buffer = Buffer.alloc(0);
for await (const piece of input) {
  if (isMute) continue;
  const chunk = held.length === 0 ? Buffer.from(piece) : Buffer.concat([held, piece]);
  let from = 0;
  for (let end = chunk.indexOf(LF); end >= 0; end = chunk.indexOf(LF, from)) {
    // Most servers do not work at their calls.
    if (work === "0") void answer(chunk.subarray(from, end));
    else await answer(chunk.subarray(from, end));
    from = end + 1;
  }
  held = chunk.subarray(from);
  void output.write(pieces.join(""));
  pieces = [];
  await output.flush();
}
