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
export type TaskQuery = (typeof QUERIES)[number];

const QUERIES = [TaskMethod.get, TaskMethod.result, TaskMethod.cancel] as const;

export function isTaskQuery(method: string): method is TaskQuery {
  return QUERIES.some((known) => known === method);
}

/** Edits that remove `task` from a request's params: the other era has no task-augmented requests. */
export function removeTask(
  bytes: Uint8Array,
  params: ByteRange,
  members: readonly JsonMember[],
): readonly Edit[] {
  if (lastMember(members, "task") === undefined) return NONE;
  return removeMembers(bytes, params, members, (key) => key === "task");
}
const NONE: readonly Edit[] = [];

/** A task id and all its ranges in a message; of duplicate members, the last one counts, as in parsers. */
export interface Mention {
  readonly id: string;
  readonly ids: readonly ByteRange[];
}

/** The `_meta` key of the task that a message belongs to. */
const RELATED = "io.modelcontextprotocol/related-task";

/** The members of the object in that range; empty if it is not an object. */
export function membersAt(bytes: Uint8Array, at: ByteRange | undefined): readonly JsonMember[] {
  return (at && scanObject(bytes, skipWhitespace(bytes, at.start))?.items) ?? [];
}

/** The `taskId` of an object. */
export function readTask(bytes: Uint8Array, members: readonly JsonMember[]): Mention | undefined {
  const ids = members.filter(({ key }) => key === "taskId");
  const id = readString(bytes, ids.at(-1));
  return id === undefined ? undefined : { id, ids };
}

/** The task that params or a result belong to, by `_meta`. */
export function readRelated(
  bytes: Uint8Array,
  members: readonly JsonMember[],
): Mention | undefined {
  return readTask(bytes, inside(bytes, inside(bytes, members, "_meta"), RELATED));
}

/** The created task, if the result announces one. */
export function readCreated(
  bytes: Uint8Array,
  members: readonly JsonMember[],
): Mention | undefined {
  return readTask(bytes, inside(bytes, members, "task"));
}

/** The status of a task, read from the task or from the result that announces it. */
export function readStanding(bytes: Uint8Array, members: readonly JsonMember[]): Standing {
  const task = lastMember(members, "task");
  const own = task === undefined ? members : membersAt(bytes, task);
  const say = (key: string): string | undefined => readString(bytes, lastMember(own, key));
  const ttl = lastMember(own, "ttl");
  const time = ttl && parseRange(bytes, ttl);
  return {
    isOver: isTerminal(say("status")),
    createdAt: say("createdAt"),
    ttl: typeof time === "number" ? time : null,
  };
}

export interface Standing {
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
function inside(
  bytes: Uint8Array,
  members: readonly JsonMember[],
  name: string,
): readonly JsonMember[] {
  return members.filter(({ key }) => key === name).flatMap((it) => membersAt(bytes, it));
}
