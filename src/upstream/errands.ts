import { applyEdits, type Piece } from "../base/bytes.ts";
import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import {
  membersAt,
  readCreated,
  readRelated,
  readStanding,
  readTask,
  TaskMethod,
  type TaskQuery,
} from "../protocol/tasks.ts";
import { buildResult, editsOf, type EncodedMessage, type Request } from "../jsonrpc/message.ts";
import type { Ask, Question } from "./ask.ts";
import { type Created, Errand } from "../protocol/errand.ts";
import type { Job } from "./tasks.ts";
import { readTokens } from "../protocol/notifications.ts";
import type { Asked } from "./question.ts";
import { exposeTask, namingTask, readRoll, saysUnknown } from "./roll.ts";

/** A client's result as it is sent to the server, and the task that it has created, if any. */
export interface Receipt {
  readonly result: readonly Piece[];
  readonly errand?: Errand;
}

/** How many tasks are remembered, the latest ones. */
const MOST = 256;
/** How many `tasks/list` requests of a server may be in progress at a time. */
const MOST_LISTS = 4;
/** For how long a `tasks/list` waits for the client's `tasks/get` of each task, in ms. */
const PATIENCE = 30_000;

export interface ErrandsParts {
  readonly server: string;
  readonly clock: Clock;
  send(message: EncodedMessage): void;
}

/** A task and the client that runs it. */
interface Entry {
  readonly errand: Errand;
  readonly client: Ask;
}

/** The tasks that clients have created of the requests of one session. */
export class Errands {
  readonly #parts: ErrandsParts;
  /** By the hub's ids. */
  readonly #entries = new Map<string, Entry>();
  #count = 0;
  #lists = 0;

  constructor(parts: ErrandsParts) {
    this.#parts = parts;
  }

  /** Reads a request about one task. @throws {HubError} invalidParams if this session knows no task of that id */
  inquire(request: Request, method: TaskQuery): Asked & Entry {
    const { bytes, params } = request;
    const members = membersAt(bytes, params);
    const task = readTask(bytes, members);
    const entry = task && this.#entries.get(task.id);
    if (entry === undefined || params === undefined) {
      throw new HubError("invalidParams", "There is no task of that id.");
    }
    const tokens = readTokens(bytes, members);
    const edits = entry.errand.restore(task, readRelated(bytes, members));
    const cut = { start: 0, end: params.start, replacement: "" };
    const inner = bytes.subarray(0, params.end);
    const last = tokens.at(-1);
    return {
      method,
      isTask: false,
      elicitation: undefined,
      token: last && { bytes, start: last.start, end: last.end },
      params: (token) => applyEdits(inner, [cut, ...edits, ...editsOf(tokens, token)]),
      ...entry,
    };
  }

  /** Translates the client's result of such a request. */
  answer(errand: Errand, method: TaskQuery, body: Uint8Array): Receipt {
    const members = membersAt(body, { start: 0, end: body.length });
    errand.isOver ||= method === TaskMethod.result || readStanding(body, members).isOver;
    const own = method === TaskMethod.result ? undefined : readTask(body, members);
    return { result: applyEdits(body, errand.expose(own, readRelated(body, members))) };
  }

  /**
   * Translates the client's result of a request that may have created a task, or that belongs to a task of the
   * server's.
   */
  receive(
    body: Uint8Array,
    job: Job | undefined,
    asked: Pick<Asked, "isTask" | "token">,
    client: Ask,
  ): Receipt {
    const members = membersAt(body, { start: 0, end: body.length });
    const related = readRelated(body, members);
    const task = asked.isTask ? readCreated(body, members) : undefined;
    const edits = job?.restore(related) ?? [];
    if (task === undefined) return { result: applyEdits(body, edits) };
    const { isOver } = readStanding(body, members);
    const errand = this.#add({ id: task.id, isOver, token: asked.token }, client);
    return { result: applyEdits(body, [...edits, ...errand.expose(task, related)]), errand };
  }

  /**
   * Answers `tasks/list`, with the present status of each task, which its client is asked for.
   * @throws {HubError} invalidParams, notAsked
   */
  list(request: Request): void {
    if (this.#lists === MOST_LISTS) {
      throw new HubError("notAsked", `More than ${MOST_LISTS} lists are under way.`);
    }
    const all = [...this.#entries.values()];
    const roll = readRoll(all, ({ errand }) => errand.number, request);
    this.#lists++;
    void Promise.all(roll.entries.map((entry) => this.#refresh(entry))).then((tasks) => {
      this.#lists--;
      this.#parts.send(buildResult(request.id, roll.write(tasks)));
    });
  }

  /** The session has ended: forgets all tasks. @param mayCancel cancels those that have not ended */
  close(mayCancel: boolean): void {
    for (const { errand, client } of this.#entries.values()) {
      errand.drop();
      if (mayCancel && !errand.isOver) {
        client.ask(this.#query(errand, TaskMethod.cancel, () => {}));
      }
    }
  }

  #add(created: Created, client: Ask): Errand {
    const errand = new Errand(created, ++this.#count, (message) => this.#parts.send(message));
    const [oldest] = this.#entries.values();
    if (this.#entries.size === MOST) oldest?.errand.drop();
    this.#entries.set(errand.id, { errand, client });
    errand.dropped.push(() => this.#entries.delete(errand.id));
    return errand;
  }

  #refresh({ errand, client }: Entry): Promise<Uint8Array | undefined> {
    return new Promise((resolve) => {
      const query = this.#query(errand, TaskMethod.get, (outcome, body) => {
        undo();
        if (outcome === "error" && saysUnknown(body)) errand.drop();
        resolve(outcome === "result" ? exposeTask(errand, body) : undefined);
      });
      const undo = this.#parts.clock.after(PATIENCE, () => {
        recall("It took too long.");
        resolve(undefined);
      });
      const recall = client.ask(query);
    });
  }

  /** A request of the hub's own to a client. */
  #query(
    errand: Errand,
    method: TaskQuery,
    take: (outcome: "result" | "error" | "none", body: Uint8Array) => void,
  ): Question {
    return {
      server: this.#parts.server,
      method,
      params: () => [namingTask(errand.remoteId)],
      answer: (outcome, body) => {
        take(outcome, body);
        return undefined;
      },
      fail: () => take("none", NOTHING),
      progress: () => {},
    };
  }
}

const NOTHING = new Uint8Array();
