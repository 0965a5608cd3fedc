import { HubError } from "../base/errors.ts";
import {
  isTaskQuery,
  membersAt,
  readRelated,
  readTask,
  type TaskQuery,
} from "../protocol/tasks.ts";
import type { ClientChannel } from "../upstream/audience.ts";
import type { CreatedTask, TaskOrigin } from "../upstream/tasks.ts";
import { readTokens } from "../protocol/notifications.ts";
import type { Session } from "../upstream/session.ts";
import { readId } from "../jsonrpc/id.ts";
import type { Response } from "../jsonrpc/message.ts";
import type { Running } from "./call.ts";
import type { Detour } from "./plugin-task-result.ts";
import { type Common, type Entry, Inquiry } from "./inquiry.ts";
import { Muster } from "./muster.ts";

/** Maximum number of remembered tasks per client; ended ones are dropped first. */
const MOST = 256;

/**
 * The tasks at legacy servers that one client has begun, whichever the server. Clients cannot use each other's tasks.
 */
export class Tasks {
  readonly #client: () => ClientChannel;
  /** By the hub's task ids, oldest first. */
  readonly #entries = new Map<string, Entry>();
  #count = 0;

  constructor(client: () => ClientChannel) {
    this.#client = client;
  }

  /**
   * Makes room for one more task.
   * @throws {HubError} invalidRequest if there are too many open tasks
   */
  makeRoom(): void {
    if (this.#entries.size < MOST) return;
    const ended = [...this.#entries.values()].find(({ job }) => job.isOver);
    if (ended === undefined) {
      throw new HubError("invalidRequest", `${MOST} tasks of this client have not ended.`);
    }
    this.#forget(ended);
  }

  /**
   * Registers the task that a response says was created for a call.
   * @returns undefined if it created none
   */
  begin(
    session: Session,
    response: Response,
    call: Pick<TaskOrigin, "route" | "token">,
    detour?: Detour,
  ): CreatedTask | undefined {
    const begun = session.jobs.addCreated(response, {
      client: this.#client(),
      route: call.route,
      token: call.token,
      sequence: ++this.#count,
      onLost: (job, cause) => {
        // An ended task of a closed session cannot be asked for any more: it is treated as expired.
        if (job.isOver) this.#entries.delete(job.id);
        detour?.fail(cause);
      },
    });
    if (begun === undefined) return undefined;
    const { task: job } = begun;
    this.#entries.set(job.id, { job, session, detour });
    return begun;
  }

  /**
   * Handles a `tasks/*` request.
   * @throws {HubError} invalidParams if the client has no such task
   */
  route(common: Common): Running {
    const { method } = common.request;
    return isTaskQuery(method) ? this.#inquire(common, method) : this.#muster(common);
  }

  /** The client has disconnected: drops its tasks and cancels those that are open. */
  close(): void {
    for (const entry of this.#entries.values()) this.#forget(entry);
  }

  #inquire(common: Common, method: TaskQuery): Inquiry {
    const { request } = common;
    const { bytes, params } = request;
    const members = membersAt(bytes, params);
    const task = readTask(bytes, members);
    const entry = task && this.#entries.get(task.id);
    if (entry === undefined) {
      throw new HubError("invalidParams", `${method} needs the id of a task of this client.`);
    }
    const tokens = readTokens(bytes, members);
    const last = tokens.at(-1);
    const token = last && readId(bytes, last);
    const edits = entry.job.toRemoteId(task, readRelated(bytes, members));
    return new Inquiry({ ...common, token, rewrite: { edits, tokens } }, entry, method);
  }

  #muster(common: Common): Muster {
    return new Muster(common, [...this.#entries.values()], (entry) => this.#forget(entry));
  }

  #forget({ job, session, detour }: Entry): void {
    this.#entries.delete(job.id);
    detour?.abandon();
    session.jobs.drop(job);
  }
}
