import { type Capabilities, commonCapabilities, formatExtensionSettings } from "./capabilities.ts";

/**
 * The folder protocol/ has stateless tables and types of the two eras of MCP. This file has the older protocol versions
 * (legacy), 2024-10-07 to 2025-11-25, in which a connection begins with `initialize`; `modern.ts` has protocol
 * 2026-07-28 (modern). `translate.ts` turns responses of one era into those of the other. Start here with `Method`,
 * then read `modern.ts`.
 */

import type { CapabilitySettings, CombinedCapabilities, Kind } from "../catalog/listing.ts";
import { extensionsForLegacyClient, SkillMethod } from "../catalog/skills.ts";

/** The older protocol versions, newest first. */
export const LEGACY_VERSIONS = [
  "2025-11-25",
  "2025-06-18",
  "2025-03-26",
  "2024-11-05",
  "2024-10-07",
] as const;

export type LegacyVersion = (typeof LEGACY_VERSIONS)[number];

export const LATEST_LEGACY: LegacyVersion = LEGACY_VERSIONS[0];

/** The only revision with JSON-RPC batches. */
const VERSION_WITH_BATCHES: LegacyVersion = "2025-03-26";

export function isLegacyVersion(version: unknown): version is LegacyVersion {
  return LEGACY_VERSIONS.some((known) => known === version);
}

/**
 * The version with which the hub answers a client's `protocolVersion`: the same version if it is supported, else the
 * newest one (lifecycle, version negotiation).
 */
export function negotiateVersion(requested: unknown): LegacyVersion {
  return isLegacyVersion(requested) ? requested : LATEST_LEGACY;
}

/** The only revision with tasks. */
const VERSION_WITH_TASKS: LegacyVersion = "2025-11-25";

/** Whether tasks are declared to a client of this version: some server runs calls as tasks, or may do so. */
export function declaresLegacyTasks(
  version: LegacyVersion,
  { tasks }: Pick<CombinedCapabilities, "tasks">,
): boolean {
  return tasks.legacy && version === VERSION_WITH_TASKS;
}

export function allowsBatches(version: LegacyVersion | undefined): boolean {
  return version === VERSION_WITH_BATCHES;
}

/** `serverInfo` or `clientInfo`. */
export interface Implementation {
  readonly name: string;
  readonly version: string;
}

const TASKS_CAPABILITIES = { list: {}, cancel: {}, requests: { tools: { call: {} } } };

/**
 * The result of `initialize`. It declares the hub's own capabilities and the `CombinedCapabilities` of its servers,
 * such as extensions. The skills extension is declared only to clients that declare it, too.
 */
export function initializeResult(
  version: LegacyVersion,
  serverInfo: Implementation,
  instructions: string | undefined,
  { canSubscribe, tasks, extensions, experimental, isComplete }: CombinedCapabilities,
  clientExtensions: CapabilitySettings,
): object {
  const capabilities = {
    ...commonCapabilities(canSubscribe),
    ...(declaresLegacyTasks(version, { tasks }) && { tasks: TASKS_CAPABILITIES }),
    ...formatExtensionSettings({
      extensions: extensionsForLegacyClient(extensions, isComplete, clientExtensions),
      experimental,
    }),
  };
  return {
    protocolVersion: version,
    capabilities,
    serverInfo,
    ...(instructions && { instructions }),
  };
}

/** The params of `initialize` to a server. Only capabilities that the hub relays are declared. */
export function initializeParams(clientInfo: Implementation, capabilities: Capabilities): object {
  return { protocolVersion: LATEST_LEGACY, capabilities, clientInfo };
}

/** Methods of requests from servers to clients. */
export type ServerRequestMethod = (typeof SERVER_REQUEST_METHODS)[number];

export function isServerRequestMethod(method: string): method is ServerRequestMethod {
  return SERVER_REQUEST_METHODS.some((known) => known === method);
}

export const Method = {
  initialize: "initialize",
  initialized: "notifications/initialized",
  ping: "ping",
  cancelled: "notifications/cancelled",
  progress: "notifications/progress",
  message: "notifications/message",
  setLevel: "logging/setLevel",
  createMessage: "sampling/createMessage",
  elicitationCreate: "elicitation/create",
  elicitationComplete: "notifications/elicitation/complete",
  rootsList: "roots/list",
  rootsChanged: "notifications/roots/list_changed",
  toolsList: "tools/list",
  promptsList: "prompts/list",
  resourcesList: "resources/list",
  templatesList: "resources/templates/list",
  toolsCall: "tools/call",
  promptsGet: "prompts/get",
  resourcesRead: "resources/read",
  subscribe: "resources/subscribe",
  unsubscribe: "resources/unsubscribe",
  complete: "completion/complete",
  toolsListChanged: "notifications/tools/list_changed",
  promptsListChanged: "notifications/prompts/list_changed",
  resourcesListChanged: "notifications/resources/list_changed",
  resourceUpdated: "notifications/resources/updated",
} as const;

const SERVER_REQUEST_METHODS = [
  Method.createMessage,
  Method.elicitationCreate,
  Method.rootsList,
] as const;

/** The method that lists the items of each kind. */
export const LIST_METHODS: Readonly<Record<Kind, string>> = {
  tools: Method.toolsList,
  prompts: Method.promptsList,
  resources: Method.resourcesList,
  resourceTemplates: Method.templatesList,
  skills: SkillMethod.list,
};

/** For each kind, the notification that its list has changed; resources, templates and skills share one. */
export const LIST_CHANGED: Readonly<Record<Kind, string>> = {
  tools: Method.toolsListChanged,
  prompts: Method.promptsListChanged,
  resources: Method.resourcesListChanged,
  resourceTemplates: Method.resourcesListChanged,
  skills: Method.resourcesListChanged,
};
