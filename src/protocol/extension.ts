import { lastMember, type Member, stringOf, valueOf } from "../json.ts";
import { HubError } from "../errors.ts";

/** The extension of the modern era by which a call may be answered with a task. */
export const TASKS = "io.modelcontextprotocol/tasks";

/** Its requests, and what servers tell of tasks that are listened for. */
export const TicketMethod = {
  get: "tasks/get",
  update: "tasks/update",
  cancel: "tasks/cancel",
  changed: "notifications/tasks",
} as const;

/** Whoever declares it, and nothing else. */
export const WITH_TASKS = { extensions: { [TASKS]: {} } } as const;

/** Whether a client has said that it knows what to do with a task. */
export function declaresTasks(declared: object): boolean {
  return isTable(memberOf(memberOf(declared, "extensions"), TASKS));
}

/** A client is at something that only those can do who know tasks. */
export function lackOfTasks(what: string): HubError {
  const data = { requiredCapabilities: WITH_TASKS };
  return new HubError("missingCapability", `${what} is for clients that declare ${TASKS}.`, {
    data,
  });
}

/** Whether all that a server misses in a client is that it knows tasks. @param required as its error says */
export function missesTasks(required: unknown): boolean {
  const extensions = memberOf(required, "extensions");
  const named = isTable(required) && isTable(extensions) ? extensions : {};
  const isAll = isTable(required) && Object.keys(required).length === 1;
  return isAll && Object.keys(named).length === 1 && TASKS in named;
}

/** How a task stands. */
export interface TicketStanding {
  readonly status: string | undefined;
  /** Nothing changes it any more. */
  readonly isOver: boolean;
  /** For how long its server keeps it, in ms; undefined: without end, or it does not say. */
  readonly ttl: number | undefined;
  /** How often its server wants to be asked at most, in ms. */
  readonly interval: number | undefined;
  /** The same as long as its server has nothing new to say of it. */
  readonly mark: string;
}

/** Reads what an object says of the task that it is. */
export function readTicket(bytes: Uint8Array, members: readonly Member[]): TicketStanding {
  const say = (key: string): string | undefined => stringOf(bytes, lastMember(members, key));
  const status = say("status");
  return {
    status,
    isOver: status === "completed" || status === "failed" || status === "cancelled",
    ttl: numberOf(bytes, lastMember(members, "ttlMs")),
    interval: numberOf(bytes, lastMember(members, "pollIntervalMs")),
    mark: JSON.stringify([status, say("statusMessage"), say("lastUpdatedAt")]),
  };
}

function numberOf(bytes: Uint8Array, member: Member | undefined): number | undefined {
  const value = member && valueOf(bytes, member);
  return typeof value === "number" && value >= 0 ? value : undefined;
}

function isTable(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function memberOf(value: unknown, key: string): unknown {
  return isTable(value) ? Object.getOwnPropertyDescriptor(value, key)?.value : undefined;
}
