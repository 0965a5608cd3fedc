import type { Piece, Range } from "../bytes.ts";
import type { Route } from "../catalog/section.ts";
import type { HubError } from "../errors.ts";
import type { Era } from "../protocol/era.ts";
import { readResultType } from "../protocol/modern.ts";
import {
  membersAt,
  type Mention,
  readRelated,
  readCreated,
  readStanding,
  type Standing,
  TaskMethod,
} from "../protocol/tasks.ts";
import { revise } from "../wire/frame.ts";
import {
  buildNotification,
  type Notification,
  type Response,
  bytesOf,
  substitute,
} from "../wire/jsonrpc.ts";
import { Alias, Aliases } from "./alias.ts";
import type { Attendee } from "./audience.ts";
import type { PendingTable } from "./pending.ts";
import { readMade } from "./ticket.ts";

/** Whose call a task was made of, and of which. */
export interface Origin {
  readonly client: Attendee;
  readonly route: Route;
  /** The client's progress token as it spelled it, if it gave one. */
  readonly token: Piece | undefined;
  /** The how manyth task of the client's it is. */
  readonly number: number;
  /** The server is gone, and with it the task, or the result of one that has ended. */
  lost(job: Job, cause: HubError): void;
}

/** A task of a server's, made of a client's call: lives as long as the session, and is that client's alone. */
export class Job extends Alias {
  readonly server: string;
  readonly origin: Origin;
  /** Why it is lost; undefined as long as its server has it. */
  lost: HubError | undefined;
  readonly #standing: Standing;
  #isOver: boolean;

  constructor(server: string, remoteId: string, standing: Standing, origin: Origin) {
    super(remoteId, origin.number);
    this.server = server;
    this.origin = origin;
    this.#standing = standing;
    this.#isOver = standing.isOver;
  }

  /** It has ended, in whatever way. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Its server has said how it stands, or has given its result. */
  note(isOver: boolean): void {
    this.#isOver ||= isOver;
  }

  progress(notification: Notification, tokens: readonly Range[]): void {
    const { client, token } = this.origin;
    if (this.#isOver || token === undefined) return;
    client.tell(this.server, substitute(notification, tokens, token));
  }

  /** Its server tells of it of its own accord. */
  tell(notification: Notification): void {
    const { bytes, params } = notification;
    this.note(readStanding(bytes, membersAt(bytes, params)).isOver);
    this.origin.client.tell(this.server, bytesOf(notification));
  }

  /** Its server is gone, and with it all that it had. */
  lose(cause: HubError): void {
    this.lost = cause;
    this.origin.lost(this, cause);
    if (this.#isOver) return;
    this.#isOver = true;
    const { client } = this.origin;
    client.tell(this.server, buildNotification(TaskMethod.status, this.describe()));
  }

  /** A lost one, as its server would show it. */
  describe(): object {
    const { createdAt, ttl } = this.#standing;
    const now = new Date().toISOString();
    return {
      taskId: this.id,
      status: "failed",
      statusMessage: `The task has gone with server "${this.server}": ${this.lost?.message}`,
      createdAt: createdAt ?? now,
      lastUpdatedAt: now,
      ttl,
    };
  }
}

/** So many calls that were given up are remembered, for the tasks that may still be made of them. */
const MOST_GIVEN_UP = 256;

/** The tasks of one server's session. */
export class Jobs extends Aliases<Job> {
  readonly #server: string;
  readonly #pending: PendingTable;
  readonly #complete: (params: object) => object | undefined;
  /** By the ids of the calls that they were made of, which are their progress tokens. */
  readonly #byCall = new Map<number, Job>();
  /** Calls that might have become tasks and were given up before they did. */
  readonly #givenUp = new Set<number>();

  /** @param complete makes a request's params what the server expects */
  constructor(
    server: string,
    pending: PendingTable,
    complete: (params: object) => object | undefined,
  ) {
    super();
    this.#server = server;
    this.#pending = pending;
    this.#complete = complete;
  }

  /** Some have not ended. */
  get isBusy(): boolean {
    return !this.isEmpty && this.all.some(({ isOver }) => !isOver);
  }

  /** Takes note of the task that an answer says a call was made into. @returns undefined if it does not */
  begin(response: Response, origin: Origin): Begun | undefined {
    const created = readCreation(response);
    if (created === undefined || response.id === undefined) return undefined;
    const { task, members } = created;
    const { bytes } = response;
    const job = new Job(this.#server, task.id, readStanding(bytes, members), origin);
    this.add(job);
    this.#byCall.set(response.id, job);
    const edits = job.expose(task, readRelated(bytes, members));
    return { job, response: revise(response, edits) };
  }

  /** The task that a progress token belongs to. */
  byCall(id: number): Job | undefined {
    return this.#byCall.get(id);
  }

  /** Nobody waits for what becomes of that call. */
  giveUp(id: number): void {
    this.#givenUp.add(id);
    const [oldest] = this.#givenUp;
    if (this.#givenUp.size > MOST_GIVEN_UP && oldest !== undefined) this.#givenUp.delete(oldest);
  }

  /** An answer came that nobody waits for: what it has begun ends. */
  late(response: Response, era: Era): void {
    if (response.id === undefined || !this.#givenUp.delete(response.id)) return;
    if (era === "legacy") this.reject(response);
    else if (isMade(response)) this.#cancel(readMade(response)?.task.id);
  }

  /** Ends what an answer says to have begun. @returns whether it says so */
  reject(response: Response): boolean {
    const created = readCreation(response);
    if (created !== undefined) this.#cancel(created.task.id);
    return created !== undefined;
  }

  /** Ends one, if it has not ended. */
  stop(job: Job): void {
    if (!job.isOver) this.#cancel(job.remoteId);
  }

  /** Its client is gone, or has forgotten it. */
  drop(job: Job): void {
    this.delete(job);
    for (const [id, each] of this.#byCall) if (each === job) this.#byCall.delete(id);
    this.stop(job);
  }

  /** The server is gone. */
  fail(cause: HubError): void {
    const jobs = this.all;
    this.clear();
    this.#byCall.clear();
    for (const job of jobs) job.lose(cause);
  }

  #cancel(taskId: string | undefined): void {
    if (taskId !== undefined) this.#pending.post(TaskMethod.cancel, this.#complete({ taskId }));
  }
}

/** A task, and the answer that tells of it as its client shall know it. */
export interface Begun {
  readonly job: Job;
  readonly response: Response;
}

/** Whether the answer of a server of the modern era is a task. */
function isMade({ outcome, bytes, body }: Response): boolean {
  return outcome === "result" && readResultType(bytes, membersAt(bytes, body)) === "task";
}

function readCreation({
  outcome,
  bytes,
  body,
}: Response):
  { readonly task: Mention; readonly members: ReturnType<typeof membersAt> } | undefined {
  if (outcome === "error") return undefined;
  const members = membersAt(bytes, body);
  const task = readCreated(bytes, members);
  return task && { task, members };
}
