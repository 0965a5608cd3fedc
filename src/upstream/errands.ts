import { applyEdits, type Piece } from "../base/bytes.ts";
import type { Clock } from "../base/clock.ts";
import { HubError } from "../base/errors.ts";
import {
  membersAt,
  readCreatedTask,
  readRelatedTask,
  readTaskStatus,
  readTask,
  TaskMethod,
  type TaskMethodName,
} from "../protocol/tasks.ts";
import { buildResult, editsOf, type EncodedMessage, type Request } from "../jsonrpc/message.ts";
import type { ServerRequestTarget, ServerRequest } from "./ask.ts";
import { type ClientTaskInfo, ClientTask } from "../protocol/errand.ts";
import type { ServerTask } from "./tasks.ts";
import { readProgressTokens } from "../protocol/notifications.ts";
import type { ServerRequestContent } from "./question.ts";
import { exposeTask, taskParams, readTaskPage, isUnknownTaskError } from "./roll.ts";

/** A client's result as it is sent to the server, and the task that it has created, if any. */
export interface ClientTaskResult {
  readonly result: readonly Piece[];
  readonly task?: ClientTask;
}

/** How many tasks are remembered, the latest ones. */
const MAX_CLIENT_TASKS = 256;
/** How many `tasks/list` requests of a server may be in progress at a time. */
const MAX_TASK_LISTS = 4;
/** For how long a `tasks/list` waits for the client's `tasks/get` of each task, in ms. */
const TASK_STATUS_TIMEOUT = 30_000;

export interface ClientTasksOptions {
  readonly server: string;
  readonly clock: Clock;
  send(message: EncodedMessage): void;
}

/** A task and the client that runs it. */
interface ClientTaskEntry {
  readonly task: ClientTask;
  readonly target: ServerRequestTarget;
}

/** The tasks that clients have created of the requests of one session. */
export class ClientTasks {
  readonly #options: ClientTasksOptions;
  /** By the hub's ids. */
  readonly #byOwnId = new Map<string, ClientTaskEntry>();
  #count = 0;
  #lists = 0;

  constructor(options: ClientTasksOptions) {
    this.#options = options;
  }

  /** Reads a request about one task. @throws {HubError} invalidParams if this session knows no task of that id */
  readTaskRequest(
    request: Request,
    method: TaskMethodName,
  ): ServerRequestContent & ClientTaskEntry {
    const { bytes, params } = request;
    const members = membersAt(bytes, params);
    const mention = readTask(bytes, members);
    const entry = mention && this.#byOwnId.get(mention.id);
    if (entry === undefined || params === undefined) {
      throw new HubError("invalidParams", "There is no task of that id.");
    }
    const tokens = readProgressTokens(bytes, members);
    const edits = entry.task.toRemoteId(mention, readRelatedTask(bytes, members));
    const paramsStart = { start: 0, end: params.start, replacement: "" };
    const messageStart = bytes.subarray(0, params.end);
    const last = tokens.at(-1);
    return {
      method,
      isTask: false,
      elicitation: undefined,
      token: last && { bytes, start: last.start, end: last.end },
      params: (token) =>
        applyEdits(messageStart, [paramsStart, ...edits, ...editsOf(tokens, token)]),
      ...entry,
    };
  }

  /** Translates the client's result of such a request. */
  translateTaskResult(
    task: ClientTask,
    method: TaskMethodName,
    body: Uint8Array,
  ): ClientTaskResult {
    const members = membersAt(body, { start: 0, end: body.length });
    task.isOver ||= method === TaskMethod.result || readTaskStatus(body, members).isOver;
    const mention = method === TaskMethod.result ? undefined : readTask(body, members);
    return { result: applyEdits(body, task.toOwnId(mention, readRelatedTask(body, members))) };
  }

  /**
   * Translates the client's result of a request that may have created a task, or that belongs to a task of the
   * server's.
   */
  translateResult(
    body: Uint8Array,
    serverTask: ServerTask | undefined,
    content: Pick<ServerRequestContent, "isTask" | "token">,
    target: ServerRequestTarget,
  ): ClientTaskResult {
    const members = membersAt(body, { start: 0, end: body.length });
    const relatedTask = readRelatedTask(body, members);
    const created = content.isTask ? readCreatedTask(body, members) : undefined;
    const edits = serverTask?.toRemoteId(relatedTask) ?? [];
    if (created === undefined) return { result: applyEdits(body, edits) };
    const { isOver } = readTaskStatus(body, members);
    const clientTask = this.#add({ id: created.id, isOver, token: content.token }, target);
    return {
      result: applyEdits(body, [...edits, ...clientTask.toOwnId(created, relatedTask)]),
      task: clientTask,
    };
  }

  /**
   * Answers `tasks/list`, with the present status of each task, which its client is asked for.
   * @throws {HubError} invalidParams, notAsked
   */
  list(request: Request): void {
    if (this.#lists === MAX_TASK_LISTS) {
      throw new HubError("notAsked", `More than ${MAX_TASK_LISTS} lists are under way.`);
    }
    const all = [...this.#byOwnId.values()];
    const page = readTaskPage(all, ({ task }) => task.sequence, request);
    this.#lists++;
    void Promise.all(page.entries.map((entry) => this.#getStatus(entry))).then((tasks) => {
      this.#lists--;
      this.#options.send(buildResult(request.id, page.write(tasks)));
    });
  }

  /** The session has ended: forgets all tasks. @param mayCancel cancels those that have not ended */
  close(mayCancel: boolean): void {
    for (const { task, target } of this.#byOwnId.values()) {
      task.drop();
      if (mayCancel && !task.isOver) {
        target.sendServerRequest(this.#makeTaskRequest(task, TaskMethod.cancel, () => {}));
      }
    }
  }

  #add(created: ClientTaskInfo, target: ServerRequestTarget): ClientTask {
    const task = new ClientTask(created, ++this.#count, (message) => this.#options.send(message));
    const [oldest] = this.#byOwnId.values();
    if (this.#byOwnId.size === MAX_CLIENT_TASKS) oldest?.task.drop();
    this.#byOwnId.set(task.id, { task, target });
    task.onDropped.push(() => this.#byOwnId.delete(task.id));
    return task;
  }

  #getStatus({ task, target }: ClientTaskEntry): Promise<Uint8Array | undefined> {
    return new Promise((resolve) => {
      const request = this.#makeTaskRequest(task, TaskMethod.get, (outcome, body) => {
        cancelTimer();
        if (outcome === "error" && isUnknownTaskError(body)) task.drop();
        resolve(outcome === "result" ? exposeTask(task, body) : undefined);
      });
      const cancelTimer = this.#options.clock.after(TASK_STATUS_TIMEOUT, () => {
        cancel("It took too long.");
        resolve(undefined);
      });
      const cancel = target.sendServerRequest(request);
    });
  }

  /** A request of the hub's own to a client. */
  #makeTaskRequest(
    task: ClientTask,
    method: TaskMethodName,
    onEnd: (outcome: "result" | "error" | "none", body: Uint8Array) => void,
  ): ServerRequest {
    return {
      server: this.#options.server,
      method,
      params: () => [taskParams(task.remoteId)],
      answer: (outcome, body) => {
        onEnd(outcome, body);
        return undefined;
      },
      fail: () => onEnd("none", NO_BYTES),
      progress: () => {},
    };
  }
}

const NO_BYTES = new Uint8Array();
