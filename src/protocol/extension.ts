import { lastMember, type JsonMember, readString, parseRange } from "../base/json.ts";
import { HubError } from "../base/errors.ts";

/** The tasks extension of the modern era: a call may be answered with a task. */
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
 * @param what the request
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
 * Whether the tasks extension is the only capability that a server misses.
 * @param required `requiredCapabilities` of its error
 */
export function isMissingTasks(required: unknown): boolean {
  const extensions = propertyOf(required, "extensions");
  const named = isJsonObject(required) && isJsonObject(extensions) ? extensions : {};
  const isAll = isJsonObject(required) && Object.keys(required).length === 1;
  return isAll && Object.keys(named).length === 1 && TASKS_EXTENSION in named;
}

/** The status of a modern task. */
export interface ModernTaskStatus {
  readonly status: string | undefined;
  /** The status is terminal. */
  readonly isOver: boolean;
  /** How long the server keeps the task, in ms; undefined: without limit, or not given. */
  readonly ttl: number | undefined;
  /** The server's minimum polling interval, in ms. */
  readonly interval: number | undefined;
  /** Equal as long as the server has nothing new to report. */
  readonly fingerprint: string;
}

/** Reads the status of a task from its members. */
export function readModernTask(
  bytes: Uint8Array,
  members: readonly JsonMember[],
): ModernTaskStatus {
  const text = (key: string): string | undefined => readString(bytes, lastMember(members, key));
  const status = text("status");
  return {
    status,
    isOver: status === "completed" || status === "failed" || status === "cancelled",
    ttl: numberOf(bytes, lastMember(members, "ttlMs")),
    interval: numberOf(bytes, lastMember(members, "pollIntervalMs")),
    fingerprint: JSON.stringify([status, text("statusMessage"), text("lastUpdatedAt")]),
  };
}

function numberOf(bytes: Uint8Array, member: JsonMember | undefined): number | undefined {
  const value = member && parseRange(bytes, member);
  return typeof value === "number" && value >= 0 ? value : undefined;
}

function isJsonObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function propertyOf(value: unknown, key: string): unknown {
  return isJsonObject(value) ? Object.getOwnPropertyDescriptor(value, key)?.value : undefined;
}
