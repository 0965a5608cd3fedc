import { applyEdits, type ByteRange, type Edit, joinPieces, utf8 } from "../base/bytes.ts";
import { HubError } from "../base/errors.ts";
import {
  appendMembers,
  isJsonObject,
  JsonObject,
  propertyOf,
  removeMembers,
} from "../base/json.ts";
import { editsOf, type Notification, paramsOf, type Request } from "../jsonrpc/message.ts";

/** Methods of tasks in protocol 2025-11-25. All but `tasks/result` and `tasks/list` return the task itself. */
export const LegacyTaskMethod = {
  get: "tasks/get",
  result: "tasks/result",
  cancel: "tasks/cancel",
  list: "tasks/list",
  status: "notifications/tasks/status",
} as const;

/** Methods about one task, which the params identify by its id. */
export type TaskIdMethod = (typeof TASK_ID_METHODS)[number];

const TASK_ID_METHODS = [
  LegacyTaskMethod.get,
  LegacyTaskMethod.result,
  LegacyTaskMethod.cancel,
] as const;

export function isTaskIdMethod(method: string): method is TaskIdMethod {
  return TASK_ID_METHODS.some((known) => known === method);
}

/** Edits that remove `task` from a request's params, for a peer that does not run requests as tasks. */
export function removeTaskParam(range: ByteRange, params: JsonObject): readonly Edit[] {
  if (params.member("task") === undefined) return NO_EDITS;
  return removeMembers(params.bytes, range, params.members, (key) => key === "task");
}
const NO_EDITS: readonly Edit[] = [];

/**
 * A task id, and the ranges of all values of the member that has it. If the member is repeated, the id is the last
 * value, as for JSON.parse.
 */
export interface TaskReference {
  readonly id: string;
  readonly idRanges: readonly ByteRange[];
}

/** The key of `_meta` that names the task to which a message belongs. */
const RELATED_TASK_KEY = "io.modelcontextprotocol/related-task";

/** The `taskId` of an object. */
export function readTaskReference(object: JsonObject): TaskReference | undefined {
  const id = object.string("taskId");
  return id === undefined ? undefined : { id, idRanges: object.all("taskId") };
}

/** The task to which a message belongs, according to the `_meta` of its params or result. */
export function readRelatedTaskReference(object: JsonObject): TaskReference | undefined {
  return readTaskReference(object.everyObject("_meta").everyObject(RELATED_TASK_KEY));
}

/**
 * A request's params as JSON, with the task to which the request belongs in their `_meta` (2025-11-25, tasks, Related
 * Task Metadata). @param params the params as JSON; undefined if the request has none
 */
export function withRelatedTask(params: Uint8Array | undefined, taskId: string): Uint8Array {
  return changeMeta(params ?? utf8("{}"), (meta) => ({ ...meta, [RELATED_TASK_KEY]: { taskId } }));
}

/** A client's result as JSON, without the task that its `_meta` names: the server does not know this task. */
export function withoutRelatedTask(result: Uint8Array): Uint8Array {
  if (readRelatedTaskReference(JsonObject.of(result)) === undefined) return result;
  return changeMeta(result, (meta) =>
    Object.fromEntries(Object.entries(meta).filter(([key]) => key !== RELATED_TASK_KEY)),
  );
}

/** Changes the `_meta` of a JSON object; an empty one is left out. */
function changeMeta(
  bytes: Uint8Array,
  change: (meta: Readonly<Record<string, unknown>>) => Readonly<Record<string, unknown>>,
): Uint8Array {
  const object = JsonObject.of(bytes);
  const before: unknown = object.value("_meta");
  const meta = change(isJsonObject(before) ? before : {});
  const range = { start: 0, end: bytes.length };
  const others = removeMembers(bytes, range, object.members, (key) => key === "_meta");
  const rest = joinPieces(applyEdits(bytes, others));
  if (Object.keys(meta).length === 0) return rest;
  const member = `"_meta":${JSON.stringify(meta)}`;
  return joinPieces(
    applyEdits(rest, [appendMembers(rest, { start: 0, end: rest.length }, member)]),
  );
}

/**
 * Edits that turn the status of a task that works into `input_required`; none if the status is another one.
 * @param range the range of the status in its bytes
 * @param message the new status message
 */
export function requireInput(range: ByteRange, status: JsonObject, message: string): Edit[] {
  if (status.string("status") !== "working") return [];
  const { bytes } = status;
  const text = JSON.stringify(message);
  const messages = status.all("statusMessage");
  return [
    ...editsOf(status.all("status"), utf8('"input_required"')),
    ...(messages.length > 0
      ? editsOf(messages, utf8(text))
      : [appendMembers(bytes, range, `"statusMessage":${text}`)]),
  ];
}

/** The new task that the result of a call announces; undefined if it announces none. */
export function readCreatedTaskReference(result: JsonObject): TaskReference | undefined {
  return readTaskReference(result.everyObject("task"));
}

/** The status of a task of protocol 2025-11-25 (legacy), read from the task or from the result that announces it. */
export function readTaskStatus(object: JsonObject): TaskStatus {
  const task = object.member("task") === undefined ? object : object.object("task");
  return {
    isOver: isTerminal(task.string("status")),
    createdAt: task.string("createdAt"),
    ttl: nonNegative(task.value("ttl")),
  };
}

/** The status of a task, as its server reports it: the fields that all protocol versions with tasks have. */
export interface TaskStatus {
  /** Whether the status is terminal. */
  readonly isOver: boolean;
  /** Time of creation, in ISO 8601; undefined if the server does not report it. */
  readonly createdAt: string | undefined;
  /** Time for which the server keeps the task, in ms; undefined: without limit, or not reported. */
  readonly ttl: number | undefined;
}

function isTerminal(status: string | undefined): boolean {
  return status === "completed" || status === "failed" || status === "cancelled";
}

/** The tasks extension of protocol 2026-07-28 (modern): a call may be answered with a task. */
export const TASKS_EXTENSION = "io.modelcontextprotocol/tasks";

/** The extension's methods, and its notification for subscribed tasks. */
export const ModernTaskMethod = {
  get: "tasks/get",
  update: "tasks/update",
  cancel: "tasks/cancel",
  changed: "notifications/tasks",
} as const;

/** Client capabilities that declare nothing but the tasks extension. */
export const TASKS_CAPABILITY = { extensions: { [TASKS_EXTENSION]: {} } } as const;

/** Whether a client has declared the tasks extension. */
export function declaresTasks(declared: object): boolean {
  return isJsonObject(propertyOf(propertyOf(declared, "extensions"), TASKS_EXTENSION));
}

/**
 * The error for a request that only clients with the tasks extension may send.
 * @param what the request, for the error text
 */
export function tasksUnsupportedError(what: string): HubError {
  const data = { requiredCapabilities: TASKS_CAPABILITY };
  return new HubError(
    "missingCapability",
    `${what} is for clients that declare ${TASKS_EXTENSION}.`,
    {
      data,
    },
  );
}

/**
 * Whether the tasks extension is the only capability that the client lacks.
 * @param required `requiredCapabilities` of the server's error
 */
export function requiresOnlyTasks(required: unknown): boolean {
  const extensions = propertyOf(required, "extensions");
  const named = isJsonObject(required) && isJsonObject(extensions) ? extensions : {};
  const isAll = isJsonObject(required) && Object.keys(required).length === 1;
  return isAll && Object.keys(named).length === 1 && TASKS_EXTENSION in named;
}

/** The status of a task of protocol 2026-07-28 (modern). */
export interface ModernTaskStatus extends TaskStatus {
  readonly status: string | undefined;
  /** The server's minimum polling interval, in ms. */
  readonly interval: number | undefined;
  /** A text that stays equal until the server reports something new. */
  readonly fingerprint: string;
}

/** Reads the status of a task of protocol 2026-07-28 (modern). */
export function readModernTaskStatus(task: JsonObject): ModernTaskStatus {
  const status = task.string("status");
  const details = [status, task.string("statusMessage"), task.string("lastUpdatedAt")];
  return {
    status,
    isOver: isTerminal(status),
    createdAt: task.string("createdAt"),
    ttl: nonNegative(task.value("ttlMs")),
    interval: nonNegative(task.value("pollIntervalMs")),
    fingerprint: JSON.stringify(details),
  };
}

function nonNegative(value: unknown): number | undefined {
  return typeof value === "number" && value >= 0 ? value : undefined;
}

/** The task that a message of protocol 2025-11-25 (legacy) is about, and the one that its `_meta` names. */
export function readTaskReferences(
  message: Notification | Request,
): readonly (TaskReference | undefined)[] {
  const params = paramsOf(message);
  const own = message.method === LegacyTaskMethod.status ? readTaskReference(params) : undefined;
  return [own, readRelatedTaskReference(params)];
}

/** Edits that replace a task id by another id in those references that have it. */
export function replaceTaskId(
  references: readonly (TaskReference | undefined)[],
  id: string,
  replacement: string,
): Edit[] {
  const json = utf8(JSON.stringify(replacement));
  return references.flatMap((reference) =>
    reference?.id === id ? editsOf(reference.idRanges, json) : [],
  );
}
