import type { Edit, Range } from "../bytes.ts";
import { lastMember, type Member, scanObject, skipSpace, stringOf, valueOf } from "../json.ts";
import { removeMembers } from "../object.ts";

/** What is asked about a task that there is; the answers to all but `tasks/result` are the task itself. */
export const TaskMethod = {
  get: "tasks/get",
  result: "tasks/result",
  cancel: "tasks/cancel",
  list: "tasks/list",
  status: "notifications/tasks/status",
} as const;

/** Asks about one task that is named. */
export type TaskQuery = (typeof QUERIES)[number];

const QUERIES = [TaskMethod.get, TaskMethod.result, TaskMethod.cancel] as const;

export function isTaskQuery(method: string): method is TaskQuery {
  return QUERIES.some((known) => known === method);
}

/** Takes out of a request's params that it be made a task: between the eras it could be asked for by nobody. */
export function removeTask(
  bytes: Uint8Array,
  params: Range,
  members: readonly Member[],
): readonly Edit[] {
  if (lastMember(members, "task") === undefined) return NONE;
  return removeMembers(bytes, params, members, (key) => key === "task");
}
const NONE: readonly Edit[] = [];

/** A task that is named somewhere, and everywhere its id stands there; the last counts, as in parsers. */
export interface Mention {
  readonly id: string;
  readonly ids: readonly Range[];
}

/** The member of a `_meta` that says to which task a message belongs. */
const RELATED = "io.modelcontextprotocol/related-task";

/** The members of the object there; none if it is no object. */
export function membersAt(bytes: Uint8Array, at: Range | undefined): readonly Member[] {
  return (at && scanObject(bytes, skipSpace(bytes, at.start))?.items) ?? [];
}

/** The task that an object is, or has the id of. */
export function readTask(bytes: Uint8Array, members: readonly Member[]): Mention | undefined {
  const ids = members.filter(({ key }) => key === "taskId");
  const id = stringOf(bytes, ids.at(-1));
  return id === undefined ? undefined : { id, ids };
}

/** The task that params, or a result, belong to. */
export function readRelated(bytes: Uint8Array, members: readonly Member[]): Mention | undefined {
  return readTask(bytes, inside(bytes, inside(bytes, members, "_meta"), RELATED));
}

/** The task that a request was made into, if the result says so. */
export function readCreated(bytes: Uint8Array, members: readonly Member[]): Mention | undefined {
  return readTask(bytes, inside(bytes, members, "task"));
}

/** How a task stands, by what it is itself or by the result that tells of its beginning. */
export function readStanding(bytes: Uint8Array, members: readonly Member[]): Standing {
  const task = lastMember(members, "task");
  const own = task === undefined ? members : membersAt(bytes, task);
  const say = (key: string): string | undefined => stringOf(bytes, lastMember(own, key));
  const ttl = lastMember(own, "ttl");
  const time = ttl && valueOf(bytes, ttl);
  return {
    isOver: isTerminal(say("status")),
    createdAt: say("createdAt"),
    ttl: typeof time === "number" ? time : null,
  };
}

export interface Standing {
  /** Nothing changes it any more. */
  readonly isOver: boolean;
  readonly createdAt: string | undefined;
  /** For how long its receiver keeps it, in ms; null: without end. */
  readonly ttl: number | null;
}

function isTerminal(status: string | undefined): boolean {
  return status === "completed" || status === "failed" || status === "cancelled";
}

/** The members of every member of that key: parsers differ on which of several counts. */
function inside(bytes: Uint8Array, members: readonly Member[], name: string): readonly Member[] {
  return members.filter(({ key }) => key === name).flatMap((it) => membersAt(bytes, it));
}
