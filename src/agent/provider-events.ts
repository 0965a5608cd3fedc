import { Buffer } from "node:buffer";
import { isTable, type Table } from "../manifest/table.ts";

/* Repairs the event streams of providers before the packages of the AI SDK read them. docs/decisions/models.md */

/**
 * Changes one line of an event stream.
 * @param data the text after `data:`
 * @returns the text to read instead; "" leaves the line out
 */
type RepairData = (data: string) => string;

/** The types of events that the Messages API has today. Its reference asks clients to ignore all others. */
const ANTHROPIC_EVENT =
  /"type"\s*:\s*"(?:message_start|content_block_start|content_block_delta|content_block_stop|message_delta|message_stop|ping|error)"/;

function repairAnthropic(data: string): string {
  if (ANTHROPIC_EVENT.test(data)) return data;
  const event = parseTable(data);
  return event !== undefined && typeof event["type"] === "string" ? "" : data;
}

/**
 * What needs a repair in a chunk of a compatible API. Most chunks have nothing of it, and are not parsed.
 */
const UNUSUAL_CHUNK =
  /"(?:reasoning_text|thinking|reasoning_details)"\s*:|"arguments"\s*:\s*\{|"error"\s*:\s*"/;

function repairCompatible(data: string): string {
  if (data.includes('"choices"') && !UNUSUAL_CHUNK.test(data)) return data;
  const chunk = parseTable(data);
  if (chunk === undefined) return data;
  const { error, choices, usage, message } = chunk;
  if (typeof error === "string") return JSON.stringify({ error: { message: error } });
  if (error !== undefined && error !== null) return data;
  if (choices === undefined && isTable(usage)) return JSON.stringify({ ...chunk, choices: [] });
  if (choices === undefined && typeof message === "string") return JSON.stringify({ error: chunk });
  if (!Array.isArray(choices)) return data;
  return JSON.stringify({ ...chunk, choices: choices.map(repairChoice) });
}

function repairChoice(choice: unknown): unknown {
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
      ...(Array.isArray(calls) && { tool_calls: calls.map(repairCall) }),
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

/** A call whose arguments are a text, although some APIs send them as the object that the text stands for. */
function repairCall(call: unknown): unknown {
  const called = isTable(call) ? call["function"] : undefined;
  if (!isTable(call) || !isTable(called) || !isTable(called["arguments"])) return call;
  return { ...call, function: { ...called, arguments: JSON.stringify(called["arguments"]) } };
}

function parseTable(json: string): Table | undefined {
  try {
    const value: unknown = JSON.parse(json);
    return isTable(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

const REPAIRS: Readonly<Record<string, RepairData>> = {
  anthropic: repairAnthropic,
  openai: repairCompatible,
};

/** Maximum size of a line that is repaired, in bytes. The rest of a stream with a longer one is passed on as it is. */
const MAX_LINE = 4 * 1024 * 1024;
const LINE_FEED = 0x0a;

/**
 * The response with an event stream that the package of this provider understands. Other responses, and those of
 * providers whose streams need no repair, are returned as they are.
 */
export function repairEvents(response: Response, provider: string): Response {
  const repair = REPAIRS[provider];
  const { body, status, statusText, headers } = response;
  const isStream = headers.get("content-type")?.includes("text/event-stream") === true;
  if (repair === undefined || body === null || !isStream) return response;
  const repaired = body.pipeThrough(new TransformStream(lineRepairer(repair)));
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
    return repaired === data ? line : Buffer.from(repaired === "" ? "\n" : `data: ${repaired}\n`);
  };
  return {
    transform(chunk, controller) {
      const end = isOver ? -1 : chunk.lastIndexOf(LINE_FEED);
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
          const next = bytes.indexOf(LINE_FEED, start) + 1;
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
      if (pieces.length > 0) controller.enqueue(repairLine(Buffer.concat(pieces)));
    },
  };
}

const DATA = Buffer.from("data:");
