import { applyEdits, joinPieces, utf8 } from "../base/bytes.ts";
import { encodeCursor } from "../catalog/section.ts";
import { lastMember, scanObject, skipWhitespace, parseRange } from "../base/json.ts";
import { readCursorParam } from "../catalog/cursor.ts";
import { membersAt, readRelatedTask, readTask } from "../protocol/tasks.ts";
import type { Request } from "../jsonrpc/message.ts";
import type { TaskAlias } from "../protocol/alias.ts";

/** So many are asked for at a time. */
const PAGE = 50;
const LIST = "tasks";
const INVALID_PARAMS = -32602;

/** A part of the tasks that somebody has begun, each to be shown as it stands now. */
export interface TaskPage<Entry> {
  readonly entries: readonly Entry[];
  /** The answer that shows these; what is undefined is left out. */
  write(tasks: readonly (Uint8Array | undefined)[]): Uint8Array;
}

/** The part of `all` that a request of `tasks/list` is for; `all` in the order of their numbers. @throws {HubError} invalidParams */
export function readTaskPage<Entry>(
  all: readonly Entry[],
  numberOf: (entry: Entry) => number,
  request: Request,
): TaskPage<Entry> {
  const after = Number(readCursorParam(LIST, request) ?? 0);
  const rest = all.filter((entry) => numberOf(entry) > after);
  const entries = rest.slice(0, PAGE);
  const last = rest.length > PAGE ? entries.at(-1) : undefined;
  const end =
    last === undefined ? "]}" : `],"nextCursor":"${encodeCursor(LIST, `${numberOf(last)}`)}"}`;
  return {
    entries,
    write: (tasks) => {
      const shown = tasks.flatMap((task) => task ?? []);
      const list = shown.flatMap((task, i) => (i === 0 ? [task] : [",", task]));
      return joinPieces([`{"tasks":[`, ...list, end]);
    },
  };
}

/** The answer to `tasks/get`, as those know the task who began it; undefined if it is no task. */
export function exposeTask(alias: TaskAlias, body: Uint8Array): Uint8Array | undefined {
  const start = skipWhitespace(body, 0);
  if (scanObject(body, start) === undefined) return undefined;
  const members = membersAt(body, { start, end: body.length });
  const edits = alias.toOwnId(readTask(body, members), readRelatedTask(body, members));
  return joinPieces(applyEdits(body, edits));
}

/** Whether an error says that there is no such task. */
export function isUnknownTaskError(body: Uint8Array): boolean {
  const code = lastMember(scanObject(body, skipWhitespace(body, 0))?.items ?? [], "code");
  return code !== undefined && parseRange(body, code) === INVALID_PARAMS;
}

/** The params that name a task. */
export function taskParams(id: string): Uint8Array {
  return utf8(JSON.stringify({ taskId: id }));
}
