import type { Piece, ByteRange } from "../base/bytes.ts";
import type { Route } from "../catalog/section.ts";
import type { HubError } from "../base/errors.ts";
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
import { applyMessageEdits } from "../jsonrpc/parse.ts";
import {
  buildNotification,
  type Notification,
  type Response,
  bytesOf,
  replaceRanges,
} from "../jsonrpc/message.ts";
import { Alias, Aliases } from "../protocol/alias.ts";
import type { Attendee } from "./audience.ts";
import type { PendingTable } from "./pending.ts";
import { readMade } from "./ticket.ts";

/** The client and the call of which a task was created. */
export interface Origin {
  readonly client: Attendee;
  readonly route: Route;
  /** The client's progress token as it was spelled, if it gave one. */
  readonly token: Piece | undefined;
  /** 1-based sequence number of the task among the client's. */
  readonly number: number;
  /** The server has ended, and with it the task, or the result of one that had ended. */
  lost(job: Job, cause: HubError): void;
}

/** A legacy task of a server, created of a client's call. It ends with the session and belongs to that client alone. */
export class Job extends Alias {
  readonly server: string;
  readonly origin: Origin;
  /** The error that ended the session; undefined while the server is there. */
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

  /** Whether its status is terminal. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Records a status of the server; a result of the task counts as terminal. */
  note(isOver: boolean): void {
    this.#isOver ||= isOver;
  }

  progress(notification: Notification, tokens: readonly ByteRange[]): void {
    const { client, token } = this.origin;
    if (this.#isOver || token === undefined) return;
    client.tell(this.server, replaceRanges(notification, tokens, token));
  }

  /** Passes on `notifications/tasks/status` of the server. */
  tell(notification: Notification): void {
    const { bytes, params } = notification;
    this.note(readStanding(bytes, membersAt(bytes, params)).isOver);
    this.origin.client.tell(this.server, bytesOf(notification));
  }

  /** The server has ended: reports the task as failed. */
  lose(cause: HubError): void {
    this.lost = cause;
    this.origin.lost(this, cause);
    if (this.#isOver) return;
    this.#isOver = true;
    const { client } = this.origin;
    client.tell(this.server, buildNotification(TaskMethod.status, this.describe()));
  }

  /** A lost task as `tasks/get` shows it. */
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

/** How many cancelled calls are remembered, because a task may still be created of them. */
const MOST_GIVEN_UP = 256;

/** The legacy tasks of one session. */
export class Jobs extends Aliases<Job> {
  readonly #server: string;
  readonly #pending: PendingTable;
  readonly #complete: (params: object) => object | undefined;
  /** By the ids of the calls that they were created of, which are their progress tokens. */
  readonly #byCall = new Map<number, Job>();
  /** The ids of calls that were cancelled and may still create a task. */
  readonly #givenUp = new Set<number>();

  /** @param completeParams adds to the params of a request what the server's era requires */
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

  /** Whether some task has not ended. */
  get isBusy(): boolean {
    return !this.isEmpty && this.all.some(({ isOver }) => !isOver);
  }

  /** Records the task that a response says a call has created. @returns undefined if it has created none */
  begin(response: Response, origin: Origin): Begun | undefined {
    const created = readCreation(response);
    if (created === undefined || response.id === undefined) return undefined;
    const { task, members } = created;
    const { bytes } = response;
    const job = new Job(this.#server, task.id, readStanding(bytes, members), origin);
    this.add(job);
    this.#byCall.set(response.id, job);
    const edits = job.expose(task, readRelated(bytes, members));
    return { job, response: applyMessageEdits(response, edits) };
  }

  /** The task that a progress token belongs to. */
  byCall(id: number): Job | undefined {
    return this.#byCall.get(id);
  }

  /** The call was cancelled: a task that it still creates is to be cancelled. */
  giveUp(id: number): void {
    this.#givenUp.add(id);
    const [oldest] = this.#givenUp;
    if (this.#givenUp.size > MOST_GIVEN_UP && oldest !== undefined) this.#givenUp.delete(oldest);
  }

  /** A response came to a call that is not in flight: cancels the task that it has created. */
  late(response: Response, era: Era): void {
    if (response.id === undefined || !this.#givenUp.delete(response.id)) return;
    if (era === "legacy") this.reject(response);
    else if (isMade(response)) this.#cancel(readMade(response)?.task.id);
  }

  /** Cancels the task that a response says it has created. @returns whether there is one */
  reject(response: Response): boolean {
    const created = readCreation(response);
    if (created !== undefined) this.#cancel(created.task.id);
    return created !== undefined;
  }

  /** Cancels a task that has not ended. */
  stop(job: Job): void {
    if (!job.isOver) this.#cancel(job.remoteId);
  }

  /** Forgets and cancels a task whose client has left or has forgotten it. */
  drop(job: Job): void {
    this.delete(job);
    for (const [id, each] of this.#byCall) if (each === job) this.#byCall.delete(id);
    this.stop(job);
  }

  /** The session has ended. */
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

/** A created task, and the response with the hub's task id. */
export interface Begun {
  readonly job: Job;
  readonly response: Response;
}

/** Whether the result of a modern server is a task. */
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
