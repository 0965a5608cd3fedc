import * as v from "valibot";
import { type Clock, pause } from "../base/clock.ts";
import { decodeUtf8, readFileLimited } from "../base/read-file.ts";
import type { ModelSpec } from "../manifest/agents.ts";
import { delay, flag, nonEmptyText, record, table, text as anyText } from "../manifest/fields.ts";
import { detectFormat, parseText } from "../manifest/syntax/parse.ts";
import { addPositions } from "../manifest/syntax/positions.ts";
import { fileProblem, manifestError } from "../manifest/problems.ts";
import { validate } from "../manifest/validate.ts";
import {
  type Model,
  modelError,
  type ModelMessage,
  type ModelPart,
  type ModelRequest,
} from "./model.ts";

/* The model that reads its answers from a file: for tests, the demo, and work without a network. docs/models.md */

/** Maximum size of the script, in bytes. */
const MAX_FILE = 1024 * 1024;

const COUNT = "a whole number, at least 0";
const countOf = v.pipe(v.number(COUNT), v.integer(COUNT), v.minValue(0, COUNT));
const REASONS = [
  "rateLimit",
  "overloaded",
  "unauthorized",
  "contextTooLong",
  "badRequest",
  "badAnswer",
  "unreachable",
  "timeout",
] as const;
const FINISHES = ["stop", "length", "refused"] as const;

function oneOf<const T extends readonly string[]>(words: T) {
  return v.picklist(words, `one of ${words.join(", ")}`);
}

const turnSchema = table({
  when: v.exactOptional(nonEmptyText),
  after: v.exactOptional(nonEmptyText),
  times: v.exactOptional(countOf),
  delay: v.exactOptional(delay),
  thinking: v.exactOptional(nonEmptyText),
  text: v.exactOptional(v.union([anyText, v.array(anyText)], "a string, or an array of strings")),
  pause: v.exactOptional(delay),
  toolCalls: v.exactOptional(
    v.array(
      table({
        name: nonEmptyText,
        arguments: v.exactOptional(v.union([anyText, record(v.unknown())], "a table or a string")),
      }),
      "an array of tables",
    ),
  ),
  finish: v.exactOptional(oneOf(FINISHES)),
  inputTokens: v.exactOptional(countOf),
  outputTokens: v.exactOptional(countOf),
  error: v.exactOptional(
    table({
      reason: oneOf(REASONS),
      status: v.exactOptional(countOf),
      retryAfter: v.exactOptional(delay),
      message: v.exactOptional(nonEmptyText),
    }),
  ),
  hang: v.exactOptional(flag),
});

const scriptSchema = table({ turns: v.array(turnSchema, "an array of tables ([[turns]])") });

type Turn = v.InferOutput<typeof turnSchema>;

/**
 * Reads the file once. @throws {HubError} manifestInvalid with all problems of the file, with their lines and columns
 */
export async function createScriptModel(
  spec: ModelSpec,
  path: string,
  clock: Clock,
): Promise<Model> {
  const turns = await readTurns(path);
  const { name, contextTokens, images = false } = spec;
  const uses = new Map<Turn, number>();
  return {
    name,
    contextTokens,
    takesImages: images,
    async *stream(request, signal) {
      const last = readLast(request);
      const turn = turns.find(
        (one) => matches(one, last) && (uses.get(one) ?? 0) < (one.times ?? Infinity),
      );
      if (turn === undefined) {
        const text = `The script of model "${name}" (${path}) has no turn for ${JSON.stringify(last.text.slice(0, 100))}.`;
        throw modelError(text, { reason: "badRequest" });
      }
      uses.set(turn, (uses.get(turn) ?? 0) + 1);
      yield* playTurn(turn, last, request, { name, clock, signal });
    },
  };
}

async function readTurns(path: string): Promise<readonly Turn[]> {
  const read = await readFileLimited(path, MAX_FILE);
  if (read.kind !== "read") {
    const reason = read.kind === "absent" ? "does not exist" : read.reason;
    throw manifestError([fileProblem(path, reason)]);
  }
  const text = decodeUtf8(read.bytes);
  if (text === undefined) throw manifestError([fileProblem(path, "is not UTF-8 text")]);
  const parsed = await parseText(text, detectFormat(path, text));
  if (!parsed.ok) throw manifestError([fileProblem(path, parsed.message, parsed.position)]);
  const checked = validate(scriptSchema, parsed.root, { file: path, path: [] });
  if (checked.ok) return checked.value.turns;
  throw manifestError(await addPositions(checked.problems, parsed.preparePositions));
}

/** The last message, as `when` and `after` see it. */
interface LastMessage {
  readonly text: string;
  /** The tool whose result the message is; undefined for other messages. */
  readonly tool: string | undefined;
}

function readLast({ messages }: ModelRequest): LastMessage {
  const last: ModelMessage | undefined = messages.at(-1);
  if (last === undefined) return { text: "", tool: undefined };
  if (last.role === "assistant") return { text: last.text, tool: undefined };
  const texts = last.content.map((part) => (part.type === "text" ? part.text : ""));
  return { text: texts.join("\n"), tool: last.role === "tool" ? last.toolName : undefined };
}

/** Whether a turn answers the last message. A turn with neither `when` nor `after` answers any message. */
function matches({ when, after }: Turn, { text, tool }: LastMessage): boolean {
  if (after !== undefined && after !== tool) return false;
  return when === undefined || text.toLowerCase().includes(when.toLowerCase());
}

async function* playTurn(
  turn: Turn,
  last: LastMessage,
  { messages }: ModelRequest,
  { name, clock, signal }: { name: string; clock: Clock; signal: AbortSignal },
): AsyncGenerator<ModelPart> {
  const { error, hang = false, toolCalls = [], thinking, text = [], finish = "stop" } = turn;
  if (turn.delay !== undefined) await pause(clock, turn.delay, signal);
  if (thinking !== undefined) yield { type: "thinking", text: thinking };
  for (const [at, piece] of (typeof text === "string" ? [text] : text).entries()) {
    if (at > 0 && turn.pause !== undefined) await pause(clock, turn.pause, signal);
    signal.throwIfAborted();
    if (piece !== "") yield { type: "text", text: piece.replaceAll("{message}", () => last.text) };
  }
  if (hang) await untilAborted(signal);
  if (error !== undefined) {
    const { message = `Model "${name}" failed, as its script says.`, ...failure } = error;
    throw modelError(message, failure);
  }
  for (const [at, call] of toolCalls.entries()) {
    const { arguments: given = {} } = call;
    // Unique in a conversation, and the same each time that the script runs.
    const id = `call_${messages.length}_${at + 1}`;
    const argumentsJson = typeof given === "string" ? given : JSON.stringify(given);
    yield { type: "toolCall", id, name: call.name, argumentsJson };
  }
  const { inputTokens, outputTokens } = turn;
  const reason = toolCalls.length > 0 && finish === "stop" ? "toolCalls" : finish;
  yield { type: "finish", reason, usage: { inputTokens, outputTokens } };
}

/** @throws the signal's reason */
function untilAborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const onAbort = (): void => reject(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
  });
}
