import { lastMember, type JsonMember, readString, parseRange } from "../base/json.ts";
import { HubError } from "../base/errors.ts";

/** The tasks extension of the modern era: a call may be answered with a task. */
export const TASKS = "io.modelcontextprotocol/tasks";

/** The extension's methods, and its notification for subscribed tasks. */
export const TicketMethod = {
  get: "tasks/get",
  update: "tasks/update",
  cancel: "tasks/cancel",
  changed: "notifications/tasks",
} as const;

/** Client capabilities that declare nothing but the tasks extension. */
export const WITH_TASKS = { extensions: { [TASKS]: {} } } as const;

/** Whether a client has declared the tasks extension. */
export function declaresTasks(declared: object): boolean {
  return isTable(memberOf(memberOf(declared, "extensions"), TASKS));
}

/**
 * The error for a request that only clients with the tasks extension may send.
 * @param what the request
 */
export function lackOfTasks(what: string): HubError {
  const data = { requiredCapabilities: WITH_TASKS };
  return new HubError("missingCapability", `${what} is for clients that declare ${TASKS}.`, {
    data,
  });
}

/**
 * Whether the tasks extension is the only capability that a server misses.
 * @param required `requiredCapabilities` of its error
 */
export function missesTasks(required: unknown): boolean {
  const extensions = memberOf(required, "extensions");
  const named = isTable(required) && isTable(extensions) ? extensions : {};
  const isAll = isTable(required) && Object.keys(required).length === 1;
  return isAll && Object.keys(named).length === 1 && TASKS in named;
}

/** The status of a modern task. */
export interface TicketStanding {
  readonly status: string | undefined;
  /** The status is terminal. */
  readonly isOver: boolean;
  /** How long the server keeps the task, in ms; undefined: without limit, or not given. */
  readonly ttl: number | undefined;
  /** The server's minimum polling interval, in ms. */
  readonly interval: number | undefined;
  /** Equal as long as the server has nothing new to report. */
  readonly mark: string;
}

/** Reads the status of a task from its members. */
export function readTicket(bytes: Uint8Array, members: readonly JsonMember[]): TicketStanding {
  const say = (key: string): string | undefined => readString(bytes, lastMember(members, key));
  const status = say("status");
  return {
    status,
    isOver: status === "completed" || status === "failed" || status === "cancelled",
    ttl: numberOf(bytes, lastMember(members, "ttlMs")),
    interval: numberOf(bytes, lastMember(members, "pollIntervalMs")),
    mark: JSON.stringify([status, say("statusMessage"), say("lastUpdatedAt")]),
  };
}

function numberOf(bytes: Uint8Array, member: JsonMember | undefined): number | undefined {
  const value = member && parseRange(bytes, member);
  return typeof value === "number" && value >= 0 ? value : undefined;
}

function isTable(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function memberOf(value: unknown, key: string): unknown {
  return isTable(value) ? Object.getOwnPropertyDescriptor(value, key)?.value : undefined;
}
