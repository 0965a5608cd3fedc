import { isJsonObject, propertyOf } from "../base/json.ts";
import { TASKS_EXTENSION } from "./tasks.ts";

/** The client capabilities that the hub relays to servers (MCP, lifecycle, capability negotiation). */
export interface Capabilities {
  readonly roots?: { readonly listChanged?: true };
  readonly sampling?: { readonly context?: object; readonly tools?: object };
  readonly elicitation?: { readonly form?: object; readonly url?: object };
}

/**
 * Reads the capabilities that the hub relays; extensions, experimental and unknown capabilities are omitted. `tasks` is
 * omitted, too: the hub does not tell servers that clients run their requests as tasks.
 */
export function readCapabilities(declared: unknown): Capabilities {
  const roots = objectIn(declared, "roots");
  const sampling = objectIn(declared, "sampling");
  const elicitation = objectIn(declared, "elicitation");
  const url = objectIn(elicitation, "url");
  // Revisions without elicitation modes declare `elicitation: {}`, which means form mode.
  const isForm = objectIn(elicitation, "form") !== undefined || url === undefined;
  return {
    ...(roots && {
      roots: "listChanged" in roots && roots.listChanged ? { listChanged: true } : {},
    }),
    ...(sampling && {
      sampling: { ...emptyObjectAt(sampling, "context"), ...emptyObjectAt(sampling, "tools") },
    }),
    ...(elicitation && { elicitation: { ...(isForm && { form: {} }), ...(url && { url: {} }) } }),
  };
}

/**
 * The capabilities that the hub declares to all clients, whatever their protocol version. All kinds of lists are
 * declared: a list that no server offers is empty.
 * @param canSubscribe whether some server accepts subscriptions to resources
 */
export function commonCapabilities(canSubscribe: boolean): object {
  return {
    tools: { listChanged: true },
    prompts: { listChanged: true },
    resources: { ...(canSubscribe && { subscribe: true }), listChanged: true },
    completions: {},
    logging: {},
  };
}

/**
 * Limits that hold separately for `extensions` and `experimental` of each peer: only the first `MAX_SETTINGS` are read,
 * and a name that is longer than `MAX_NAME_LENGTH` UTF-16 units is skipped.
 */
const MAX_SETTINGS = 64;
const MAX_NAME_LENGTH = 200;

/**
 * The extensions or experimental capabilities that a peer declares, with unchanged settings. The tasks extension is
 * omitted: the hub declares its own support.
 */
export function readExtensionSettings(
  declared: unknown,
  key: "extensions" | "experimental",
): Readonly<Record<string, object>> {
  const settings = Object.entries(objectIn(declared, key) ?? {}).filter(
    (entry): entry is [string, object] => isSetting(...entry),
  );
  return Object.fromEntries(settings.slice(0, MAX_SETTINGS));
}

function isSetting(name: string, value: unknown): boolean {
  return isJsonObject(value) && name.length <= MAX_NAME_LENGTH && name !== TASKS_EXTENSION;
}

/** The extensions and experimental capabilities of a client, by name. */
export interface ExtensionSettings {
  readonly extensions: Readonly<Record<string, object>>;
  readonly experimental: Readonly<Record<string, object>>;
}

export function readAllExtensionSettings(declared: unknown): ExtensionSettings {
  return {
    extensions: readExtensionSettings(declared, "extensions"),
    experimental: readExtensionSettings(declared, "experimental"),
  };
}

/** The members `extensions` and `experimental` of declared capabilities; empty ones are omitted. */
export function formatExtensionSettings(settings: Partial<ExtensionSettings>): object {
  return Object.fromEntries(
    Object.entries(settings).filter(([, each]) => Object.keys(each).length > 0),
  );
}

/**
 * The capability class of a client: a text that is equal for clients with equal capabilities and extension names; ""
 * for a client with none.
 */
export function capabilityClassOf(
  capabilities: Capabilities,
  extensions: readonly string[] = [],
): string {
  const names = extensions.toSorted();
  const text = JSON.stringify({ ...capabilities, ...(names.length > 0 && { extensions: names }) });
  return text === "{}" ? "" : text;
}

/** Removes from a capability class (see `capabilityClassOf`) the extensions for which `isCounted` is false. */
export function filterCapabilityClass(
  text: string,
  isCounted: (extension: string) => boolean,
): string {
  if (!text.includes('"extensions"')) return text;
  const { extensions, ...capabilities } = JSON.parse(text) as Capabilities & {
    readonly extensions?: readonly string[];
  };
  return capabilityClassOf(capabilities, extensions?.filter(isCounted));
}

export function parseCapabilityClass(text: string): Capabilities {
  return readCapabilities(text === "" ? {} : JSON.parse(text));
}

/** What a capability class consists of: a path for each capability, each of its parts, and each extension. */
function partsOfCapabilityClass(text: string): readonly string[] {
  const partsOf = (value: unknown, path: string): readonly string[] => {
    if (Array.isArray(value)) return value.map((name) => `${path}/${String(name)}`);
    if (typeof value !== "object" || value === null) return [];
    return Object.entries(value).flatMap(([key, inner]) => [
      `${path}/${key}`,
      ...partsOf(inner, `${path}/${key}`),
    ]);
  };
  return text === "" ? [] : partsOf(JSON.parse(text), "");
}

/** Whether a client of the capability class `whole` can do all that one of the class `part` can do. */
export function containsCapabilityClass(whole: string, part: string): boolean {
  const has = new Set(partsOfCapabilityClass(whole));
  return partsOfCapabilityClass(part).every((each) => has.has(each));
}

/** The number of capabilities in a capability class, with their parts and with extensions. */
export function sizeOfCapabilityClass(text: string): number {
  return partsOfCapabilityClass(text).length;
}

/** `{ [key]: {} }` if the parent's member `key` is an object; else `{}`. */
function emptyObjectAt(parent: object, key: string): object {
  return objectIn(parent, key) === undefined ? {} : { [key]: {} };
}

function objectIn(parent: unknown, key: string): object | undefined {
  const value = propertyOf(parent, key);
  return typeof value === "object" && value !== null ? value : undefined;
}

const ASKABLE = ["elicitation", "roots", "sampling"];

/** The kinds of requests that servers may send to a client that has declared these capabilities. */
export function askableOf(declared: object): readonly string[] {
  return ASKABLE.filter((name) => Object.hasOwn(declared, name));
}
