import type { Edit, ByteRange } from "../base/bytes.ts";
import {
  lastMember,
  type JsonMember,
  scanObject,
  skipWhitespace,
  readString,
  parseRange,
} from "../base/json.ts";
import { removeMembers } from "../base/object.ts";

/** Methods of legacy tasks (2025-11-25). The results of all but `tasks/result` and `tasks/list` are the task itself. */
export const TaskMethod = {
  get: "tasks/get",
  result: "tasks/result",
  cancel: "tasks/cancel",
  list: "tasks/list",
  status: "notifications/tasks/status",
} as const;

/** Methods about one task, which is given by its id. */
export type TaskMethodName = (typeof TASK_ID_METHODS)[number];

const TASK_ID_METHODS = [TaskMethod.get, TaskMethod.result, TaskMethod.cancel] as const;

export function isTaskMethod(method: string): method is TaskMethodName {
  return TASK_ID_METHODS.some((known) => known === method);
}

/** Edits that remove `task` from a request's params: the other era has no task-augmented requests. */
export function removeTaskParam(
  bytes: Uint8Array,
  params: ByteRange,
  members: readonly JsonMember[],
): readonly Edit[] {
  if (lastMember(members, "task") === undefined) return NO_EDITS;
  return removeMembers(bytes, params, members, (key) => key === "task");
}
const NO_EDITS: readonly Edit[] = [];

/** A task id and all its ranges in a message; of duplicate members, the last one counts, as in parsers. */
export interface TaskMention {
  readonly id: string;
  readonly idRanges: readonly ByteRange[];
}

/** The `_meta` key of the task that a message belongs to. */
const RELATED_TASK_KEY = "io.modelcontextprotocol/related-task";

/** The members of the object in that range; empty if it is not an object. */
export function membersAt(bytes: Uint8Array, range: ByteRange | undefined): readonly JsonMember[] {
  return (range && scanObject(bytes, skipWhitespace(bytes, range.start))?.items) ?? [];
}

/** The `taskId` of an object. */
export function readTask(
  bytes: Uint8Array,
  members: readonly JsonMember[],
): TaskMention | undefined {
  const idRanges = members.filter(({ key }) => key === "taskId");
  const id = readString(bytes, idRanges.at(-1));
  return id === undefined ? undefined : { id, idRanges };
}

/** The task that params or a result belong to, by `_meta`. */
export function readRelatedTask(
  bytes: Uint8Array,
  members: readonly JsonMember[],
): TaskMention | undefined {
  return readTask(
    bytes,
    membersOfAll(bytes, membersOfAll(bytes, members, "_meta"), RELATED_TASK_KEY),
  );
}

/** The created task, if the result announces one. */
export function readCreatedTask(
  bytes: Uint8Array,
  members: readonly JsonMember[],
): TaskMention | undefined {
  return readTask(bytes, membersOfAll(bytes, members, "task"));
}

/** The status of a task, read from the task or from the result that announces it. */
export function readTaskStatus(bytes: Uint8Array, members: readonly JsonMember[]): TaskStatus {
  const task = lastMember(members, "task");
  const taskMembers = task === undefined ? members : membersAt(bytes, task);
  const text = (key: string): string | undefined => readString(bytes, lastMember(taskMembers, key));
  const ttl = lastMember(taskMembers, "ttl");
  const ttlValue = ttl && parseRange(bytes, ttl);
  return {
    isOver: isTerminal(text("status")),
    createdAt: text("createdAt"),
    ttl: typeof ttlValue === "number" ? ttlValue : null,
  };
}

export interface TaskStatus {
  /** The status is terminal. */
  readonly isOver: boolean;
  readonly createdAt: string | undefined;
  /** How long the receiver keeps the task, in ms; null: without limit. */
  readonly ttl: number | null;
}

function isTerminal(status: string | undefined): boolean {
  return status === "completed" || status === "failed" || status === "cancelled";
}

/** The members of every object of that key: parsers differ on which duplicate counts. */
function membersOfAll(
  bytes: Uint8Array,
  members: readonly JsonMember[],
  name: string,
): readonly JsonMember[] {
  return members.filter(({ key }) => key === name).flatMap((it) => membersAt(bytes, it));
}
