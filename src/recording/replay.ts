import { type Edit, utf8 } from "../base/bytes.ts";
import type { Clock } from "../base/clock.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { lastMember, parseRange, readString, scanObject } from "../base/json.ts";
import {
  buildError,
  buildResult,
  editMessage,
  type Message,
  type Notification,
  type Request,
  type Response,
  withRequestId,
  withResponseId,
} from "../jsonrpc/message.ts";
import { Method } from "../protocol/legacy.ts";
import type { Transport } from "../transport/transport.ts";
import {
  cancelledRequestOf,
  compareValues,
  isInitialization,
  progressTokenOf,
  type RecordedExchange,
  type RecordedStep,
  type ValueDifference,
} from "./exchanges.ts";
import type { ExchangeMatcher, NearestMatch } from "./matcher.ts";

export interface ReplayOptions {
  readonly server: string;
  readonly score: ExchangeMatcher;
  readonly review: ReplayReport;
  readonly clock: Clock;
  /** 1: as recorded; 2: twice as fast; Infinity: without delays. */
  readonly speed: number;
}

/**
 * Replays a recorded server on a transport until that is closed. @returns whether the recorded server ended
 * the connection
 */
export async function replayServer(
  link: Transport,
  parts: ReplayOptions,
  signal: AbortSignal,
): Promise<boolean> {
  const player = new Player(link, parts);
  await link.open(
    {
      frame: (frame) => player.take(frame),
      log: () => {},
      oversized: () => {},
      pressure: () => {},
      closed: () => player.end(),
    },
    signal,
  );
  return player.ended;
}

/** One request being replayed. */
interface Part {
  readonly asked: ReplayedRequest;
  readonly request: Request;
  readonly scene: RecordedExchange;
  readonly token: string | undefined;
  /** Index of the next step. */
  at: number;
  /** Due time of the previous step, on the clock: delays count from there, so that timer errors do not add up. */
  due: number;
  /** Cancels the timer for the next step. */
  disarm: (() => void) | undefined;
  /** The client's responses to requests of the server, by the requests' lines. */
  readonly heard: Map<number, Response>;
}

const EMPTY = utf8("{}");
/** Longest delay of a timer, in ms. */
const LONGEST_WAIT = 2 ** 31 - 1;

class Player {
  readonly #link: Transport;
  readonly #parts: ReplayOptions;
  /** Requests without a response so far, by id. */
  readonly #open = new Map<string | number, Part>();
  readonly #all = new Set<Part>();
  readonly #questions = new Map<number, { readonly part: Part; readonly line: number }>();
  #count = 0;
  #hasDied = false;
  #end: (hasDied: boolean) => void = () => {};
  readonly ended: Promise<boolean>;

  constructor(link: Transport, parts: ReplayOptions) {
    this.#link = link;
    this.#parts = parts;
    this.ended = new Promise((resolve) => (this.#end = resolve));
  }

  take(frame: Message): void {
    switch (frame.kind) {
      case "request":
        this.#begin(frame);
        return;
      case "notification":
        if (frame.method === Method.cancelled) this.#cancel(frame);
        return;
      case "response":
        this.#hear(frame);
        return;
      case "batch":
        for (const item of frame.items) this.take(item);
        return;
      case "invalid":
        this.#link.send(buildError(frame.id, new HubError(frame.code, frame.reason).toRpc()));
    }
  }

  end(): void {
    for (const part of this.#all) part.disarm?.();
    this.#all.clear();
    this.#open.clear();
    this.#end(this.#hasDied);
  }

  #begin(request: Request): void {
    const { score, review, server } = this.#parts;
    const { method } = request;
    const asked = {
      server,
      method,
      get what() {
        return subjectOf(request);
      },
    };
    const cue = score.take(request);
    if (cue.kind === "unknown") {
      // Hubs send `ping` and `logging/setLevel` at any time, recorded or not.
      if (method === Method.ping || method === Method.setLevel) {
        this.#link.send(buildResult(request.id, EMPTY));
        return;
      }
      // A client that supports both eras tries one; the error makes it fall back to the other.
      if (isInitialization(method) && score.isGreeted) {
        const error = new HubError("methodNotFound", `${server} was not greeted so.`, { server });
        this.#link.send(buildError(request.id, error.toRpc()));
        return;
      }
      const { nearest } = cue;
      const text = review.unknown(asked, nearest);
      const data = nearest && { line: nearest.scene.line, differences: nearest.differences };
      this.#refuse(request, text, data);
      return;
    }
    const { scene, isRepeated, skipped } = cue;
    if (isRepeated) review.repeated(asked, scene);
    else review.played();
    if (skipped !== undefined) review.disordered(asked, scene, skipped);
    const token = progressTokenOf(request);
    const due = this.#parts.clock.now();
    const part = { asked, request, scene, token, at: 0, due, disarm: undefined, heard: new Map() };
    this.#open.set(request.id.key, part);
    this.#all.add(part);
    this.#next(part);
  }

  /** Runs all due steps, and waits for the next one. */
  #next(part: Part): void {
    const { clock, speed } = this.#parts;
    for (;;) {
      const step = part.scene.steps[part.at];
      if (step === undefined) {
        this.#all.delete(part);
        return;
      }
      if (step.kind === "hear") {
        const answer = part.heard.get(step.question);
        if (answer === undefined) return;
        this.#judge(part, step.question, step.answer, answer);
        part.at++;
        part.due = clock.now();
        continue;
      }
      part.due += step.wait / speed;
      const wait = Math.min(Math.round(part.due - clock.now()), LONGEST_WAIT);
      if (wait > 0) {
        part.disarm = clock.after(wait, () => {
          part.disarm = undefined;
          if (this.#take(part, step)) this.#next(part);
        });
        return;
      }
      if (!this.#take(part, step)) return;
    }
  }

  /** @returns whether the replay goes on */
  #take(part: Part, step: Exclude<RecordedStep, { readonly kind: "hear" }>): boolean {
    part.at++;
    const { request } = part;
    switch (step.kind) {
      case "say":
        this.#say(part, step);
        return true;
      case "ask": {
        const id = ++this.#count;
        this.#questions.set(id, { part, line: step.line });
        this.#link.send(withRequestId(step.frame, id, [], []));
        return true;
      }
      case "answer":
        this.#open.delete(request.id.key);
        this.#link.send(withResponseId(step.response, request.id));
        return true;
      case "fail":
        this.#open.delete(request.id.key);
        this.#refuse(request, `line ${part.scene.line} has no answer to give: ${step.why}`);
        return true;
      case "die":
        this.#hasDied = true;
        void this.#link.close();
        return false;
    }
  }

  #say(part: Part, { frame, marks }: Extract<RecordedStep, { readonly kind: "say" }>): void {
    const edits: Edit[] = [];
    if (marks.token !== undefined) {
      // No progress notification for a request without a progress token.
      if (part.token === undefined) return;
      edits.push({ ...marks.token, replacement: utf8(part.token) });
    }
    if (marks.subscription !== undefined) {
      edits.push({ ...marks.subscription, replacement: part.request.id });
    }
    this.#link.send(editMessage(frame, edits));
  }

  #hear(response: Response): void {
    const question = response.id === undefined ? undefined : this.#questions.get(response.id);
    if (response.id === undefined || question === undefined) return;
    this.#questions.delete(response.id);
    const { part, line } = question;
    part.heard.set(line, response);
    const step = part.scene.steps[part.at];
    if (part.disarm === undefined && step?.kind === "hear" && this.#all.has(part)) this.#next(part);
  }

  #judge({ asked }: Part, line: number, recorded: Response, given: Response): void {
    const differences = compareValues(answerOf(recorded), answerOf(given));
    if (differences.length > 0) this.#parts.review.answered(asked, line, differences);
  }

  #cancel(notification: Notification): void {
    const key = cancelledRequestOf(notification);
    const part = key === undefined ? undefined : this.#open.get(key);
    if (key === undefined || part === undefined) return;
    this.#open.delete(key);
    this.#all.delete(part);
    part.disarm?.();
  }

  #refuse(request: Request, text: string, data?: Readonly<Record<string, unknown>>): void {
    const { server } = this.#parts;
    const error = new HubError("notRecorded", text, { server, data });
    this.#link.send(buildError(request.id, error.toRpc()));
  }
}

/** The name or URI in a request's params. */
function subjectOf({ bytes, params, members }: Request): string | undefined {
  const all = members ?? (params && scanObject(bytes, params.start)?.items) ?? [];
  return readString(bytes, lastMember(all, "name")) ?? readString(bytes, lastMember(all, "uri"));
}

/** The content of a response, without `_meta`, which differs each time. */
function answerOf({ bytes, outcome, body }: Response): unknown {
  try {
    const value = parseRange(bytes, body);
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      return { [outcome]: value };
    }
    const { _meta, ...rest } = value as Record<string, unknown>;
    return { [outcome]: rest };
  } catch (error) {
    return toHubError(error).message;
  }
}

/** Maximum number of divergences reported individually. */
const MOST_TOLD = 20;
/** Maximum number of differences shown for each. */
const MOST_DIFFERENCES = 3;

/** A request in the report: its method and, evaluated only when reported, the name or URI in it. */
export interface ReplayedRequest {
  readonly server: string;
  readonly method: string;
  readonly what: string | undefined;
}

/** Counts where clients diverged from the recording, and reports each as it happens. */
export class ReplayReport {
  readonly #tell: (text: string) => void;
  readonly #exhausted = new Set<string>();
  #told = 0;
  #played = 0;
  #repeated = 0;
  #unknown = 0;
  #disordered = 0;
  #otherwise = 0;

  /** @param tell receives one line at a time */
  constructor(tell: (text: string) => void) {
    this.#tell = tell;
  }

  get hasDiverged(): boolean {
    return this.#unknown + this.#disordered + this.#otherwise > 0;
  }

  played(): void {
    this.#played++;
  }

  /** Not a divergence: a load test repeats the same request. */
  repeated(asked: ReplayedRequest, scene: RecordedExchange): void {
    this.#repeated++;
    if (this.#exhausted.has(asked.server)) return;
    this.#exhausted.add(asked.server);
    const text = `was made more often than was recorded: the last answer (line ${scene.line}) is given again, to all that are`;
    this.#tell(`${describe(asked)} ${text}`);
  }

  /** @returns the error text for the client */
  unknown(asked: ReplayedRequest, nearest: NearestMatch | undefined): string {
    this.#unknown++;
    const near =
      nearest === undefined
        ? "nothing of that kind was"
        : `the nearest is on line ${nearest.scene.line}, with ${list(nearest.differences)}`;
    const text = `${describe(asked)} was not recorded: ${near}`;
    this.#diverged(text);
    return text;
  }

  disordered(asked: ReplayedRequest, scene: RecordedExchange, skipped: RecordedExchange): void {
    this.#disordered++;
    this.#diverged(
      `${describe(asked)}, line ${scene.line}, comes before what was recorded first: ${skipped.method} of line ${skipped.line}`,
    );
  }

  /** A request of the server was answered differently. */
  answered(asked: ReplayedRequest, line: number, differences: readonly ValueDifference[]): void {
    this.#otherwise++;
    this.#diverged(
      `the question of line ${line}, for ${describe(asked)}, was answered with ${list(differences)}`,
    );
  }

  /** The totals in one line. @param unplayed number of recorded requests that were never made */
  summary(unplayed: number): string {
    const parts = [
      `${count(this.#played, "request")} answered as recorded`,
      `${this.#repeated} again with the last answer`,
      `${this.#unknown} not recorded`,
      `${this.#disordered} out of order`,
      `${count(this.#otherwise, "question")} answered otherwise`,
      `${unplayed} recorded and never made`,
    ];
    return `replayed: ${parts.join(", ")}`;
  }

  #diverged(text: string): void {
    this.#told++;
    if (this.#told <= MOST_TOLD) this.#tell(`diverged: ${text}`);
    if (this.#told === MOST_TOLD) this.#tell("diverged so often that the rest is only counted");
  }
}

function describe({ server, method, what }: ReplayedRequest): string {
  return `${server}: ${method}${what === undefined ? "" : ` of ${what}`}`;
}

function list(differences: readonly ValueDifference[]): string {
  const shown = differences
    .slice(0, MOST_DIFFERENCES)
    .map(({ path, recorded, asked }) => `${path} ${recorded} and not ${asked}`);
  const more = differences.length - shown.length;
  return shown.join("; ") + (more > 0 ? `; and ${more} more differences` : "");
}

function count(number: number, what: string): string {
  return `${number} ${number === 1 ? what : `${what}s`}`;
}
