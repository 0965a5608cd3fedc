/** The documents that the page reads from a hub. */

import type { Answer } from "../../control/endpoints.ts";
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
import type { ClientAppDocument, RegistryDocument } from "../../operations/documents.ts";

export type {
  AgentDocument,
  AlertDocument,
  ApprovalDocument,
  CallDocument,
  ClientDocument,
  EndedCallDocument,
  FleetDocument,
  HubDocument,
  KeptCallDocument,
  LimitDocument,
  LogEntryDocument,
  ModesDocument,
  PinsDocument,
  RememberedApprovalDocument,
  ConversationDocument,
  RunDocument,
  ServerDocument,
  ServerFindingsDocument,
  ToolsDocument,
  UsageDocument,
} from "../../control/schemas.ts";

export type {
  CheckDocument,
  ClientAppDocument,
  InstallationDocument,
  RegistryDocument,
  SecretsDocument,
  SnippetDocument,
  TrialDocument,
} from "../../operations/documents.ts";

/** An event of a conversation with an agent. `gap`: the hub does not keep the earlier events any more. */
export type RunEvent = AgentEventDocument | { readonly kind: "gap" };

/** A server's entry in the manifest, and what a changed one would be. */
export type ServerEntryDocument = Answer<"GET /servers/:name/entry">;
export type EntryPreviewDocument = Answer<"POST /servers/:name/preview">;

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
  /** `stdio`, and the URL of its HTTP server. */
  readonly endpoints: readonly string[];
  readonly startedAt: number;
}

/** What one hub for the clients of a manifest would save, and the command for that. */
export interface SharingOffer {
  readonly figures: string;
  readonly command: string;
}

/** What the dashboard knows of this machine, without a hub. */
export interface MachineDocument {
  /** The MCP clients whose files toolmux knows. */
  readonly clients: readonly ClientAppDocument[];
  /** Whether the dashboard can start a hub. */
  readonly canStart: boolean;
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

/** A call that has ended. It has sizes and waits only if it was read from the hub, not if an event reported it. */
export interface EndedCall extends Omit<
  EndedCallDocument,
  "requestSize" | "resultSize" | "personWait" | "queueWait" | "sent"
> {
  readonly requestSize?: number;
  readonly resultSize?: number;
  readonly personWait?: number;
  readonly queueWait?: number;
  readonly sent?: boolean;
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
  readonly clientName: string;
  readonly decision: string;
  readonly by: string;
}

/** An event of a hub. `gap`: the hub does not keep the earlier events any more. */
export type HubEvent = HubEventDocument | GapEvent;

interface GapEvent extends Pick<HubEventDocument, "seq" | "at" | "level" | "text"> {
  readonly kind: "gap";
}
