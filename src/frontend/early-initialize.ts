import { Buffer } from "node:buffer";
import { utf8 } from "../base/bytes.ts";
import { type CombinedCapabilities, UNKNOWN_CAPABILITIES } from "../catalog/listing.ts";
import { isTable } from "../manifest/table.ts";
import {
  type Implementation,
  initializeResult,
  type LegacyVersion,
  Method,
  negotiateVersion,
} from "../protocol/legacy.ts";
import {
  capabilityClassOf,
  readCapabilities,
  readExtensionSettings,
} from "../protocol/capabilities.ts";
import { ownStdin, ownStdout } from "../base/runtime.ts";
import type { ByteInput, ByteOutput } from "../base/byte-streams.ts";
import { settlesWithin } from "../base/clock.ts";

/** The hub's own stdin and stdout. `EarlyInitialize` may have used them before the hub does. */
export interface StdioStreams {
  readonly input: ByteInput;
  output(onBroken: () => void): ByteOutput;
  /**
   * Whether the first message was an `initialize` that has been answered. Valid only once reading of `input` has begun.
   */
  readonly isInitializeAnswered: boolean;
}

/** The parts of the `initialize` result that come from servers. */
export interface InitializeAnswer {
  /** The servers' instructions for models. */
  readonly instructions?: string | undefined;
  /** The capability class of the client that these instructions are for. */
  readonly capabilities?: string | undefined;
  /** The capabilities that servers declare beside their lists; undefined: unknown. */
  readonly offered?: CombinedCapabilities | undefined;
}

/** Streams that have not been used. */
export function openStreams(): StdioStreams {
  return { input: ownStdin(), output: ownStdout, isInitializeAnswered: false };
}

/**
 * The content of the answer, or a function that finds it for a capability class. If the function's promise rejects, the
 * hub answers `initialize` itself.
 */
export type InitializeAnswers =
  InitializeAnswer | ((capabilities: string) => Promise<InitializeAnswer>);

/** Maximum wait for the content, in ms; enough for a busy machine. */
const MAX_WAIT = 500;

/**
 * Answers a client's `initialize`, as the hub would, while the hub is still being loaded; then passes on everything
 * that was read. Answers only a request of the usual form, and only as the first message.
 */
export class EarlyInitialize implements StdioStreams, ByteInput {
  readonly input: ByteInput = this;
  readonly #serverInfo: Implementation;
  readonly #answers: InitializeAnswers;
  readonly #stdin = ownStdin();
  readonly #stdout: ByteOutput;
  /** Chunks of stdin that came before the hub began to read. */
  readonly #unread: Buffer[] = [];
  #state: "waiting" | "buffering" | "handedOver" = "waiting";
  #isAnswered = false;
  /** Settles when the content for a waiting client is found. */
  #answering: Promise<void> | undefined;
  #isAtEnd = false;
  #isBroken = false;
  #onChunk: ((chunk: Buffer) => void) | undefined;
  #onEnd: (() => void) | undefined;
  #onBroken: (() => void) | undefined;

  /** @param serverInfo name and version that the hub answers with */
  constructor(serverInfo: Implementation, answers: InitializeAnswers) {
    this.#serverInfo = serverInfo;
    this.#answers = answers;
    this.#stdout = ownStdout(() => {
      this.#isBroken = true;
      this.#onBroken?.();
    });
    this.#stdin.read(
      (chunk) => (this.#onChunk === undefined ? this.#onEarlyChunk(chunk) : this.#onChunk(chunk)),
      () => {
        this.#isAtEnd = true;
        this.#onEnd?.();
      },
    );
  }

  /**
   * Waits until the input that has already arrived is read, and answered if possible: on Bun, input is read in the
   * second turn of the event loop.
   */
  async readAvailable(): Promise<void> {
    for (let turn = 0; turn < 2 && this.#state === "waiting"; turn++) {
      await new Promise<void>((resolve) => void setImmediate(resolve));
    }
    if (this.#answering !== undefined) await settlesWithin(MAX_WAIT, this.#answering);
  }

  get isInitializeAnswered(): boolean {
    return this.#isAnswered;
  }

  output(onBroken: () => void): ByteOutput {
    this.#onBroken = onBroken;
    if (this.#isBroken) queueMicrotask(onBroken);
    return this.#stdout;
  }

  read(onChunk: (chunk: Buffer) => void, onEnd: () => void): void {
    this.#state = "handedOver";
    // The reader is ready only after this call has returned.
    queueMicrotask(() => {
      this.#stdin.resume();
      this.#onChunk = onChunk;
      this.#onEnd = onEnd;
      for (const chunk of this.#unread.splice(0)) onChunk(chunk);
      if (this.#isAtEnd) onEnd();
    });
  }

  pause(): void {
    this.#stdin.pause();
  }

  resume(): void {
    this.#stdin.resume();
  }

  #onEarlyChunk(chunk: Buffer): void {
    this.#unread.push(chunk);
    if (this.#state !== "waiting") return;
    const isComplete = chunk.includes(LF);
    if (!isComplete && this.#unread.length < MAX_CHUNKS) return;
    // The stream buffers later input.
    this.#state = "buffering";
    this.#stdin.pause();
    const bytes = Buffer.concat(this.#unread);
    const request = isComplete
      ? readInitializeRequest(bytes.subarray(0, bytes.indexOf(LF)))
      : undefined;
    if (request === undefined) return;
    if (typeof this.#answers === "function") {
      this.#answering = this.#answers(request.capabilityClass).then(
        (answer) => this.#answer(request, answer),
        () => {},
      );
      return;
    }
    const { instructions, offered, capabilities } = this.#answers;
    // The saved answer holds for every client only if it has neither instructions nor capabilities of servers, which
    // may depend on the client's capabilities.
    const isUniversal = instructions === undefined && offered === undefined;
    const isForClient = isUniversal || request.capabilityClass === capabilities;
    if (isForClient) this.#answer(request, this.#answers);
  }

  #answer({ id, version }: InitializeRequest, { instructions, offered }: InitializeAnswer): void {
    // The hub has received the request meanwhile and answers it itself.
    if (this.#state === "handedOver") return;
    const result = initializeResult(
      version,
      this.#serverInfo,
      instructions,
      offered ?? UNKNOWN_CAPABILITIES,
    );
    // The answer is only a few bytes: it is written at once, or queued by the stream in order.
    void this.#stdout.write(utf8(`${JSON.stringify({ jsonrpc: "2.0", result, id })}\n`));
    this.#isAnswered = true;
  }
}

const LF = 10;
/** Maximum length of a request that is answered here, in bytes: too short to exceed the hub's nesting limit. */
const MAX_REQUEST_LENGTH = 4 * 1024;
/** A request that arrives in more chunks than this is left to the hub. */
const MAX_CHUNKS = 8;
/** The members that every client sends; any other member may change the answer. */
const REQUEST_MEMBERS = new Set(["jsonrpc", "id", "method", "params"]);
const INITIALIZE_PARAMS = new Set(["protocolVersion", "capabilities", "clientInfo"]);

/** An `initialize` request: id, negotiated version, and the client's capability class. */
interface InitializeRequest {
  readonly id: string | number;
  readonly version: LegacyVersion;
  readonly capabilityClass: string;
}

/**
 * Reads an `initialize` request; undefined if it is not one, or the hub might answer it differently. Its text must
 * equal `JSON.stringify` of its value: then the id returns unchanged, and no member occurs twice.
 */
function readInitializeRequest(line: Buffer): InitializeRequest | undefined {
  if (line.length > MAX_REQUEST_LENGTH) return undefined;
  const message = parseJson(line);
  if (!isTable(message) || message["method"] !== Method.initialize) return undefined;
  if (!Buffer.from(JSON.stringify(message)).equals(line)) return undefined;
  const { jsonrpc, id, params } = message;
  if (jsonrpc !== "2.0" || !isTable(params)) return undefined;
  if (typeof id !== "string" && !Number.isSafeInteger(id)) return undefined;
  const { protocolVersion, capabilities, clientInfo } = params;
  if (typeof protocolVersion !== "string" || !isTable(capabilities) || !isTable(clientInfo))
    return undefined;
  if (!hasOnlyKeys(message, REQUEST_MEMBERS) || !hasOnlyKeys(params, INITIALIZE_PARAMS))
    return undefined;
  return {
    id: id as string | number,
    version: negotiateVersion(protocolVersion),
    capabilityClass: capabilityClassOf(
      readCapabilities(capabilities),
      Object.keys(readExtensionSettings(capabilities, "extensions")),
    ),
  };
}

function hasOnlyKeys(table: object, keys: ReadonlySet<string>): boolean {
  return Object.keys(table).every((key) => keys.has(key));
}

function parseJson(line: Buffer): unknown {
  try {
    return JSON.parse(line.toString());
  } catch {
    return undefined;
  }
}
