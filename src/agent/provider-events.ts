import { Buffer } from "node:buffer";
import { isTable, type Table } from "../manifest/table.ts";

/* Repairs the event streams of providers before the packages of the AI SDK read them. docs/decisions/models.md */

/**
 * Changes one line of an event stream, in the order of the stream.
 * @param data the text after `data:`
 * @returns the text to read instead; "" leaves the line out
 */
type RepairData = (data: string) => string;

/** Events of the Messages API that need no look at their content block. Its reference asks clients to ignore all unknown events. */
const ANTHROPIC_EVENT =
  /"type"\s*:\s*"(?:message_start|message_delta|message_stop|ping|error|text_delta|input_json_delta|thinking_delta|signature_delta)"/;
/** The blocks of content that agents use. All others are of tools that the provider runs itself, or of later versions. */
const ANTHROPIC_BLOCKS: ReadonlySet<unknown> = new Set([
  "text",
  "thinking",
  "redacted_thinking",
  "tool_use",
]);

/** Leaves out events, blocks and deltas of other types: the package refuses a stream with a type that it does not know. */
function anthropicRepairer(): RepairData {
  const leftOut = new Set<unknown>();
  return (data) => {
    if (leftOut.size === 0 && ANTHROPIC_EVENT.test(data)) return data;
    const event = parseTable(data);
    if (event === undefined || typeof event["type"] !== "string") return data;
    const { type, index, content_block: block } = event;
    switch (type) {
      case "content_block_start": {
        const isUsed = !isTable(block) || ANTHROPIC_BLOCKS.has(block["type"]);
        if (isUsed) leftOut.delete(index);
        else leftOut.add(index);
        return isUsed ? data : "";
      }
      case "content_block_stop":
        return leftOut.has(index) ? "" : data;
      default:
        return leftOut.has(index) || !ANTHROPIC_EVENT.test(data) ? "" : data;
    }
  };
}

/**
 * What needs a repair in a chunk of a compatible API. Most chunks have nothing of it, and are not parsed.
 */
const UNUSUAL_CHUNK =
  /"(?:reasoning_text|thinking|reasoning_details)"\s*:|"arguments"\s*:\s*\{|"error"\s*:\s*"|"choices"\s*:\s*null|"tool_calls"\s*:\s*\[\s*\{/;

function compatibleRepairer(): RepairData {
  const calls = new CallIndexes();
  return (data) => repairCompatible(data, calls);
}

function repairCompatible(data: string, calls: CallIndexes): string {
  if (data.includes('"choices"') && !UNUSUAL_CHUNK.test(data)) return data;
  const chunk = parseTable(data);
  if (chunk === undefined) return data;
  const { error, choices, usage, message } = chunk;
  if (typeof error === "string") return JSON.stringify({ error: { message: error } });
  if (error !== undefined && error !== null) return data;
  const hasNone = choices === undefined || choices === null;
  if (hasNone && isTable(usage)) return JSON.stringify({ ...chunk, choices: [] });
  if (hasNone && typeof message === "string") return JSON.stringify({ error: chunk });
  if (!Array.isArray(choices)) return data;
  return JSON.stringify({
    ...chunk,
    choices: choices.map((choice) => repairChoice(choice, calls)),
  });
}

function repairChoice(choice: unknown, indexes: CallIndexes): unknown {
  const delta = isTable(choice) ? choice["delta"] : undefined;
  if (!isTable(choice) || !isTable(delta)) return choice;
  const { reasoning_content: content, reasoning, tool_calls: calls } = delta;
  const isTold = typeof (content ?? reasoning) === "string";
  const thinking = isTold ? "" : thinkingIn(delta);
  return {
    ...choice,
    delta: {
      ...delta,
      ...(thinking !== "" && { reasoning_content: thinking }),
      ...(Array.isArray(calls) && { tool_calls: calls.map((call) => repairCall(call, indexes)) }),
    },
  };
}

/** The thinking in a delta of an API that calls it neither `reasoning_content` nor `reasoning`. */
function thinkingIn({ reasoning_text, thinking, reasoning_details: details }: Table): string {
  for (const text of [reasoning_text, thinking]) if (typeof text === "string") return text;
  if (!Array.isArray(details)) return "";
  const texts = details.map((detail: unknown) => {
    const { text, summary } = isTable(detail) ? detail : {};
    return typeof text === "string" ? text : typeof summary === "string" ? summary : "";
  });
  return texts.join("");
}

/** The indexes of calls in one stream of an API that sends some deltas without. */
class CallIndexes {
  readonly #byId = new Map<string, number>();
  #last: number | undefined;
  #next = 0;

  /** The index of a delta: its own; that of the call with its id; without an id, that of the last delta. */
  of({ index, id }: Table): number | undefined {
    const found = typeof index === "number" ? index : this.#find(id);
    if (found === undefined) return undefined;
    if (typeof id === "string" && id !== "") this.#byId.set(id, found);
    this.#last = found;
    this.#next = Math.max(this.#next, found + 1);
    return found;
  }

  #find(id: unknown): number | undefined {
    if (typeof id !== "string" || id === "") return this.#last;
    return this.#byId.get(id) ?? this.#next;
  }
}

/**
 * A delta of a call with an index where it can be known, and with arguments that are a text, although some APIs send the
 * object that the text stands for.
 */
function repairCall(call: unknown, indexes: CallIndexes): unknown {
  if (!isTable(call)) return call;
  const { function: called } = call;
  const index = indexes.of(call);
  const indexed = index === undefined ? call : { ...call, index };
  if (!isTable(called) || !isTable(called["arguments"])) return indexed;
  return { ...indexed, function: { ...called, arguments: JSON.stringify(called["arguments"]) } };
}

function parseTable(json: string): Table | undefined {
  try {
    const value: unknown = JSON.parse(json);
    return isTable(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Begins to repair a stream of a provider. */
const REPAIRERS: Readonly<Record<string, () => RepairData>> = {
  anthropic: anthropicRepairer,
  openai: compatibleRepairer,
  google: () => (data) => data,
};

/** Maximum size of a line that is repaired, in bytes. The rest of a stream with a longer one is passed on as it is. */
const MAX_LINE = 4 * 1024 * 1024;
const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;

/**
 * The response with an event stream that the package of this provider understands. Other responses, and those of
 * providers whose streams need no repair, are returned as they are.
 */
export function repairEvents(response: Response, provider: string): Response {
  const begin = REPAIRERS[provider];
  const { body, status, statusText, headers } = response;
  const isStream = headers.get("content-type")?.includes("text/event-stream") === true;
  if (begin === undefined || body === null || !isStream) return response;
  const repaired = body.pipeThrough(new TransformStream(lineRepairer(begin())));
  return new Response(repaired, { status, statusText, headers });
}

function lineRepairer(repair: RepairData): Transformer<Uint8Array, Uint8Array> {
  /** The beginning of a line, in pieces. */
  let pieces: Uint8Array[] = [];
  let size = 0;
  let isOver = false;
  const repairLine = (line: Buffer): Uint8Array => {
    if (!line.subarray(0, 5).equals(DATA)) return line;
    const text = line.toString();
    const data = text.slice(5).trim();
    const repaired = repair(data);
    if (repaired === data) return line;
    const end = text.slice(text.trimEnd().length).replace(/^[^\r\n]+/, "");
    return Buffer.from(repaired === "" ? end : `data: ${repaired}${end}`);
  };
  return {
    transform(received, controller) {
      // Only now is it known whether a last CR is followed by LF.
      const isOpen = pieces.at(-1)?.at(-1) === CARRIAGE_RETURN;
      const chunk = isOpen ? Buffer.concat([...pieces.splice(0), received]) : received;
      if (isOpen) size = 0;
      const end = isOver ? -1 : lastLineEnd(chunk);
      if (isOver) controller.enqueue(chunk);
      else if (end < 0) {
        pieces.push(chunk);
        size += chunk.length;
      } else {
        const bytes = Buffer.concat([...pieces, chunk.subarray(0, end + 1)]);
        const rest = chunk.subarray(end + 1);
        pieces = rest.length > 0 ? [rest] : [];
        size = rest.length;
        const lines: Uint8Array[] = [];
        for (let start = 0; start < bytes.length;) {
          const next = lineEnd(bytes, start);
          lines.push(repairLine(bytes.subarray(start, next)));
          start = next;
        }
        controller.enqueue(Buffer.concat(lines));
      }
      if (size <= MAX_LINE) return;
      controller.enqueue(Buffer.concat(pieces));
      pieces = [];
      size = 0;
      isOver = true;
    },
    flush(controller) {
      if (isOver) return;
      const line = Buffer.concat(pieces);
      if (line.length > 0) controller.enqueue(repairLine(line));
      // The last event counts although no empty line ends it, unless it was cut.
      const isWhole = line.length === 0 || isData(line);
      if (isWhole) controller.enqueue(Buffer.from("\n\n"));
    },
  };
}

/** Whether a line has data that is whole. */
function isData(line: Buffer): boolean {
  const text = line.subarray(DATA.length).toString();
  return line.subarray(0, DATA.length).equals(DATA) && parseTable(text) !== undefined;
}

/** The end of the last line that certainly ends in these bytes; -1: none does. A line feed may follow a last CR. */
function lastLineEnd(bytes: Uint8Array): number {
  return Math.max(bytes.lastIndexOf(LINE_FEED), bytes.subarray(0, -1).lastIndexOf(CARRIAGE_RETURN));
}

/** The position behind the line that begins at `start`. Lines end with LF, CR or both. */
function lineEnd(bytes: Buffer, start: number): number {
  const feed = bytes.indexOf(LINE_FEED, start);
  const line = feed < 0 ? bytes : bytes.subarray(0, feed);
  const at = line.indexOf(CARRIAGE_RETURN, start);
  if (at < 0) return feed < 0 ? bytes.length : feed + 1;
  return at + 1 === feed ? feed + 1 : at + 1;
}

const DATA = Buffer.from("data:");
