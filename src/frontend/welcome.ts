import { Buffer } from "node:buffer";
import { utf8 } from "../bytes.ts";
import { type Offered, UNKNOWN_OFFERED } from "../catalog/offer.ts";
import { isTable } from "../manifest/table.ts";
import {
  type Implementation,
  initializeResult,
  type LegacyVersion,
  Method,
  negotiate,
} from "../protocol/legacy.ts";
import { readCapabilities, readSettings, writeClass } from "../protocol/capabilities.ts";
import { ownStdin, ownStdout } from "../runtime.ts";
import type { InputStream, OutputStream } from "../streams.ts";
import { within } from "../wire/grace.ts";

/** The hub's own stdin and stdout, which somebody may have used before. */
export interface OwnStreams {
  readonly input: InputStream;
  output(onBroken: () => void): OutputStream;
  /** Whether the first message has been answered: a request of `initialize`. Only to be asked when the input is read. */
  readonly isGreeted: boolean;
}

/** What there is to be said beside that. */
export interface Words {
  /** What servers want models to know. */
  readonly instructions?: string | undefined;
  /** The class of what the client can be asked for to whom they say that. */
  readonly capabilities?: string | undefined;
  /** What the servers declare beside their lists; undefined: not known. */
  readonly offered?: Offered | undefined;
}

/** Those that nobody has used. */
export function openStreams(): OwnStreams {
  return { input: ownStdin(), output: ownStdout, isGreeted: false };
}

/** Words, or what finds them for a client of that class; undefined if there are none for it. */
export type Wording = Words | ((capabilities: string) => Promise<Words>);

/** How long a client, and the hub, wait until words are found, in ms: that of a busy machine. */
const LONGEST_SEARCH = 500;

/**
 * Says to a client's `initialize` what the hub would say, while the hub is put together; then it passes on all that came.
 * Only a request of the usual form is answered, and only if it is the first message.
 */
export class Welcome implements OwnStreams, InputStream {
  readonly input: InputStream = this;
  readonly #serverInfo: Implementation;
  readonly #wording: Wording;
  readonly #stdin = ownStdin();
  readonly #stdout: OutputStream;
  /** What came before anybody read it. */
  readonly #early: Buffer[] = [];
  #state: "listening" | "silent" | "read" = "listening";
  #isGreeted = false;
  /** Settles when words are found that a client waits for. */
  #answering: Promise<void> | undefined;
  #isAtEnd = false;
  #isBroken = false;
  #onChunk: ((chunk: Buffer) => void) | undefined;
  #onEnd: (() => void) | undefined;
  #onBroken: (() => void) | undefined;

  /** @param serverInfo what the hub calls itself, and its version */
  constructor(serverInfo: Implementation, wording: Wording) {
    this.#serverInfo = serverInfo;
    this.#wording = wording;
    this.#stdout = ownStdout(() => {
      this.#isBroken = true;
      this.#onBroken?.();
    });
    this.#stdin.read(
      (chunk) => (this.#onChunk === undefined ? this.#take(chunk) : this.#onChunk(chunk)),
      () => {
        this.#isAtEnd = true;
        this.#onEnd?.();
      },
    );
  }

  /** Waits until what has come already is read, and answered if it can be: on Bun that is so when the second turn of its loop begins. */
  async listen(): Promise<void> {
    for (let turn = 0; turn < 2 && this.#state === "listening"; turn++) {
      await new Promise<void>((resolve) => void setImmediate(resolve));
    }
    if (this.#answering !== undefined) await within(LONGEST_SEARCH, this.#answering);
  }

  get isGreeted(): boolean {
    return this.#isGreeted;
  }

  output(onBroken: () => void): OutputStream {
    this.#onBroken = onBroken;
    if (this.#isBroken) queueMicrotask(onBroken);
    return this.#stdout;
  }

  read(onChunk: (chunk: Buffer) => void, onEnd: () => void): void {
    this.#state = "read";
    // Whoever reads is ready only when this call is over.
    queueMicrotask(() => {
      this.#stdin.resume();
      this.#onChunk = onChunk;
      this.#onEnd = onEnd;
      for (const chunk of this.#early.splice(0)) onChunk(chunk);
      if (this.#isAtEnd) onEnd();
    });
  }

  pause(): void {
    this.#stdin.pause();
  }

  resume(): void {
    this.#stdin.resume();
  }

  #take(chunk: Buffer): void {
    this.#early.push(chunk);
    if (this.#state !== "listening") return;
    const isWhole = chunk.includes(LF);
    if (!isWhole && this.#early.length < MOST_CHUNKS) return;
    // What comes meanwhile can wait where it is.
    this.#state = "silent";
    this.#stdin.pause();
    const bytes = Buffer.concat(this.#early);
    const request = isWhole ? readRequest(bytes.subarray(0, bytes.indexOf(LF))) : undefined;
    if (request === undefined) return;
    if (typeof this.#wording === "function") {
      this.#answering = this.#wording(request.capabilities).then(
        (words) => this.#answer(request, words),
        () => {},
      );
      return;
    }
    const { instructions, offered, capabilities } = this.#wording;
    // Servers may have other things to say to a client that can do something else.
    const isForAll = instructions === undefined && offered === undefined;
    const isMeant = isForAll || request.capabilities === capabilities;
    if (isMeant) this.#answer(request, this.#wording);
  }

  #answer({ id, version }: Introduced, { instructions, offered }: Words): void {
    // The hub has the request by now, and answers it itself.
    if (this.#state === "read") return;
    const result = initializeResult(
      version,
      this.#serverInfo,
      instructions,
      offered ?? UNKNOWN_OFFERED,
    );
    // So little is taken at once; else what follows waits in the stream.
    void this.#stdout.write(utf8(`${JSON.stringify({ jsonrpc: "2.0", result, id })}\n`));
    this.#isGreeted = true;
  }
}

const LF = 10;
/** The longest request that is answered here, in bytes: too short to be nested deeper than the hub reads. */
const LONGEST = 4 * 1024;
/** A request that came in more of them is left to the hub. */
const MOST_CHUNKS = 8;
/** What any client says; another member may mean that something else is wanted. */
const MEMBERS = new Set(["jsonrpc", "id", "method", "params"]);
const PARAMS = new Set(["protocolVersion", "capabilities", "clientInfo"]);

/** What a client says of itself, and the class of what it can be asked for. */
interface Introduced {
  readonly id: string | number;
  readonly version: LegacyVersion;
  readonly capabilities: string;
}

/**
 * What is to be known of a request of `initialize`; undefined if it is none that the hub would answer in just one way.
 * It has to be spelled as it would be written here: the id then goes back as it came, and no member is there twice.
 */
function readRequest(line: Buffer): Introduced | undefined {
  if (line.length > LONGEST) return undefined;
  const message = parse(line);
  if (!isTable(message) || message["method"] !== Method.initialize) return undefined;
  if (!Buffer.from(JSON.stringify(message)).equals(line)) return undefined;
  const { jsonrpc, id, params } = message;
  if (jsonrpc !== "2.0" || !isTable(params)) return undefined;
  if (typeof id !== "string" && !Number.isSafeInteger(id)) return undefined;
  const { protocolVersion, capabilities, clientInfo } = params;
  if (typeof protocolVersion !== "string" || !isTable(capabilities) || !isTable(clientInfo))
    return undefined;
  if (!hasOnly(message, MEMBERS) || !hasOnly(params, PARAMS)) return undefined;
  return {
    id: id as string | number,
    version: negotiate(protocolVersion),
    capabilities: writeClass(
      readCapabilities(capabilities),
      Object.keys(readSettings(capabilities, "extensions")),
    ),
  };
}

function hasOnly(table: object, keys: ReadonlySet<string>): boolean {
  return Object.keys(table).every((key) => keys.has(key));
}

function parse(line: Buffer): unknown {
  try {
    return JSON.parse(line.toString());
  } catch {
    return undefined;
  }
}
