/** The documents that the page reads from a hub. */

import type {
  AgentEventDocument,
  ClientDocument,
  EndedCallDocument,
  HubEventDocument,
  LogEntryDocument,
  ModesDocument,
  ServerDocument,
  ToolDefinitionDocument,
  ToolsDocument,
} from "../../control/schemas.ts";
import type { RegistryDocument } from "../../operations/documents.ts";

export type {
  AgentDocument,
  AlertDocument,
  ApprovalDocument,
  CallDocument,
  ClientDocument,
  EndedCallDocument,
  HubDocument,
  LimitDocument,
  LogEntryDocument,
  ModesDocument,
  RememberedApprovalDocument,
  RunDocument,
  ServerDocument,
  ToolsDocument,
  UsageDocument,
} from "../../control/schemas.ts";

export type {
  CheckDocument,
  ClientAppDocument,
  RegistryDocument,
  SecretsDocument,
  SnippetDocument,
  TrialDocument,
} from "../../operations/documents.ts";

/** An event of a conversation with an agent. `gap`: the hub does not keep the earlier events any more. */
export type RunEvent = AgentEventDocument | { readonly kind: "gap" };

export type ClientDocuments = readonly ClientDocument[];
export type ModeDocument = ModesDocument["modes"][number];
export type ToolDocument = ToolsDocument["tools"][number];
export type ToolNote = ToolsDocument["notes"][number];
export type LogLevel = LogEntryDocument["level"];
export type ServerState = ServerDocument["state"];
/** The state of one connection to a server. */
export type UpstreamState = ServerDocument["connections"][number]["state"];

/** A hub that the dashboard can show. */
export interface HubEntry {
  readonly id: string;
  readonly pid: number;
  readonly name: string;
  readonly version: string;
  readonly cwd: string;
  readonly manifest: readonly string[];
  readonly startedAt: number;
}

/** A server that a directory of servers lists. */
export type DirectoryEntry = RegistryDocument["servers"][number];
export type Offer = DirectoryEntry["offers"][number];

/** The parts of a tool's definition that the page shows; a server may send anything else. */
export interface ToolDefinition extends Omit<ToolDefinitionDocument, "definition"> {
  readonly definition: {
    readonly description?: string;
    readonly inputSchema?: JsonSchema;
    readonly annotations?: Readonly<Record<string, unknown>>;
  };
}

/** The parts of a JSON Schema from which a form is made. */
export interface JsonSchema {
  readonly type?: string | readonly string[];
  readonly title?: string;
  readonly description?: string;
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
  readonly enum?: readonly unknown[];
  readonly default?: unknown;
}

/** A call that has ended. It has sizes only if it was read from the hub, not if an event reported it. */
export interface EndedCall extends Omit<EndedCallDocument, "requestSize" | "resultSize"> {
  readonly requestSize?: number;
  readonly resultSize?: number;
  /** Whether the answer was an error or a result with `isError`; undefined if the hub did not check the answer. */
  readonly isError?: boolean;
}

/** A decision about a call that needed an approval. */
export interface Decision {
  readonly at: number;
  readonly server: string;
  readonly tool: string;
  readonly name: string;
  readonly client: string | undefined;
  readonly decision: string;
  readonly by: string;
}

/** An event of a hub. `gap`: the hub does not keep the earlier events any more. */
export type HubEvent = HubEventDocument | GapEvent;

interface GapEvent extends Pick<HubEventDocument, "seq" | "at" | "level" | "text"> {
  readonly kind: "gap";
}
