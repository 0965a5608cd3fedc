import { TASKS } from "./extension.ts";

/** What a client can be asked for, as far as the hub relays it (lifecycle, capability negotiation). */
export interface Capabilities {
  readonly roots?: { readonly listChanged?: true };
  readonly sampling?: { readonly context?: object; readonly tools?: object };
  readonly elicitation?: { readonly form?: object; readonly url?: object };
  /** What it can be asked for as a task. */
  readonly tasks?: {
    readonly list?: object;
    readonly cancel?: object;
    readonly requests: {
      readonly sampling?: { readonly createMessage: object };
      readonly elicitation?: { readonly create: object };
    };
  };
}

/** What the hub can relay of what a client can be asked for; extensions, experimental and unknown capabilities are left out. */
export function readCapabilities(declared: unknown): Capabilities {
  const roots = objectIn(declared, "roots");
  const sampling = objectIn(declared, "sampling");
  const elicitation = objectIn(declared, "elicitation");
  const url = objectIn(elicitation, "url");
  // One without modes is from before there were any: it means forms.
  const isForm = objectIn(elicitation, "form") !== undefined || url === undefined;
  return {
    ...(roots && {
      roots: "listChanged" in roots && roots.listChanged ? { listChanged: true } : {},
    }),
    ...(sampling && { sampling: { ...mark(sampling, "context"), ...mark(sampling, "tools") } }),
    ...(elicitation && { elicitation: { ...(isForm && { form: {} }), ...(url && { url: {} }) } }),
    ...readTasks(objectIn(declared, "tasks")),
  };
}

/** What is left of it in the modern era, whose clients have no tasks. */
export function withoutTasks(capabilities: Capabilities): Omit<Capabilities, "tasks"> {
  const { roots, sampling, elicitation } = capabilities;
  return {
    ...(roots && { roots }),
    ...(sampling && { sampling }),
    ...(elicitation && { elicitation }),
  };
}

/** Tasks of which there can be none are left out. */
function readTasks(tasks: object | undefined): Pick<Capabilities, "tasks"> {
  const requests = objectIn(tasks, "requests");
  const createMessage = objectIn(objectIn(requests, "sampling"), "createMessage");
  const create = objectIn(objectIn(requests, "elicitation"), "create");
  if (tasks === undefined || (createMessage ?? create) === undefined) return {};
  return {
    tasks: {
      ...mark(tasks, "list"),
      ...mark(tasks, "cancel"),
      requests: {
        ...(createMessage && { sampling: { createMessage: {} } }),
        ...(create && { elicitation: { create: {} } }),
      },
    },
  };
}

/** So many extensions, and experimental capabilities, of a peer are read, the first ones; and characters of the name of one. */
const MOST_SETTINGS = 64;
const LONGEST_NAME = 200;

/**
 * The extensions, or experimental capabilities, that a peer declares, with their settings as they are. Tasks are left out: what
 * the hub does with them it declares itself.
 */
export function readSettings(
  declared: unknown,
  key: "extensions" | "experimental",
): Readonly<Record<string, object>> {
  const settings = Object.entries(objectIn(declared, key) ?? {}).filter(
    (entry): entry is [string, object] => isSetting(...entry),
  );
  return Object.fromEntries(settings.slice(0, MOST_SETTINGS));
}

function isSetting(name: string, value: unknown): boolean {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject && name.length <= LONGEST_NAME && name !== TASKS;
}

/** What a client declares beside what it can be asked for, by name. */
export interface Settings {
  readonly extensions: Readonly<Record<string, object>>;
  readonly experimental: Readonly<Record<string, object>>;
}

/** Both of what a client declares. */
export function readAllSettings(declared: unknown): Settings {
  return {
    extensions: readSettings(declared, "extensions"),
    experimental: readSettings(declared, "experimental"),
  };
}

/** Extensions and experimental capabilities as they are declared: what there is none of is left out. */
export function writeSettings(settings: Partial<Settings>): object {
  return Object.fromEntries(
    Object.entries(settings).filter(([, each]) => Object.keys(each).length > 0),
  );
}

/** The same text for the same capabilities and names of extensions; empty if there are none. */
export function writeClass(capabilities: Capabilities, extensions: readonly string[] = []): string {
  const names = extensions.toSorted();
  const text = JSON.stringify({ ...capabilities, ...(names.length > 0 && { extensions: names }) });
  return text === "{}" ? "" : text;
}

/** A class without the extensions that do not count. */
export function narrowClass(text: string, counts: (extension: string) => boolean): string {
  if (!text.includes('"extensions"')) return text;
  const { extensions, ...capabilities } = JSON.parse(text) as Capabilities & {
    readonly extensions?: readonly string[];
  };
  return writeClass(capabilities, extensions?.filter(counts));
}

export function readClass(text: string): Capabilities {
  return readCapabilities(text === "" ? {} : JSON.parse(text));
}

/** A setting without any content. */
function mark(parent: object, key: string): object {
  return objectIn(parent, key) === undefined ? {} : { [key]: {} };
}

function objectIn(parent: unknown, key: string): object | undefined {
  if (typeof parent !== "object" || parent === null) return undefined;
  const value: unknown = Object.getOwnPropertyDescriptor(parent, key)?.value;
  return typeof value === "object" && value !== null ? value : undefined;
}
