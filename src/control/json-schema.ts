import { toJsonSchema } from "@valibot/to-json-schema";
import type { GenericSchema } from "valibot";
import * as operations from "../operations/documents.ts";
import * as schemas from "./schemas.ts";

/** The documents of the API by name: those of answers, then those of requests. */
const DOCUMENTS = {
  Hub: schemas.hubSchema,
  Server: schemas.serverSchema,
  ServerEntry: schemas.serverEntrySchema,
  Connection: schemas.connectionSchema,
  Client: schemas.clientSchema,
  Modes: schemas.modesSchema,
  Mode: schemas.modeSchema,
  Call: schemas.callSchema,
  Alert: schemas.alertSchema,
  Log: schemas.logSchema,
  Tools: schemas.toolsSchema,
  Catalog: schemas.catalogSchema,
  Activity: schemas.activitySchema,
  Usage: schemas.usageSchema,
  Tool: schemas.toolDefinitionSchema,
  ToolCallAnswer: schemas.toolCallAnswerSchema,
  Trial: operations.trialSchema,
  ClientApp: operations.clientAppSchema,
  Secrets: operations.secretsSchema,
  Registry: operations.registrySchema,
  Check: operations.checkSchema,
  Login: operations.loginSchema,
  Logout: operations.logoutSchema,
  Snippet: operations.snippetSchema,
  Installation: operations.installationSchema,
  Approval: schemas.approvalSchema,
  RememberedApproval: schemas.rememberedApprovalSchema,
  Agent: schemas.agentSchema,
  AgentRun: schemas.runSchema,
  AgentEvent: schemas.agentEventSchema,
  Event: schemas.anyEventSchema,
  Gap: schemas.gapSchema,
  Error: schemas.errorSchema,
  ApprovalAnswer: schemas.approvalAnswerSchema,
  AcceptTools: schemas.acceptToolsSchema,
  AddServer: schemas.addServerSchema,
  PatchServer: schemas.patchServerSchema,
  ModeChoice: schemas.modeChoiceSchema,
  ToolCall: schemas.toolCallSchema,
  SecretValue: schemas.secretValueSchema,
  TrialRequest: schemas.trialRequestSchema,
  ClientAppRequest: schemas.clientAppRequestSchema,
  AgentRunRequest: schemas.runRequestSchema,
  AgentMessage: schemas.runMessageSchema,
} as const satisfies Readonly<Record<string, GenericSchema>>;

type DocumentName = keyof typeof DOCUMENTS;

/**
 * The body that an endpoint takes, and what it answers with: a document, an object with a list of documents, an object
 * with names, or nothing (status 204, or `{}`).
 */
interface Endpoint {
  readonly body?: DocumentName;
  readonly answer?: DocumentName | { readonly [member: string]: DocumentName | "names" };
}

/** The endpoints by method and path. Any of them may answer with `Error`. */
const ENDPOINTS: Readonly<Record<string, Endpoint>> = {
  "GET /hub": { answer: "Hub" },
  "GET /servers": { answer: { servers: "Server" } },
  "POST /servers": { body: "AddServer", answer: "Server" },
  "POST /servers/reconnect-failed": { answer: { servers: "names" } },
  "GET /servers/:name": { answer: "Server" },
  "PATCH /servers/:name": { body: "PatchServer", answer: "Server" },
  "DELETE /servers/:name": {},
  "POST /servers/:name/start": { answer: "Server" },
  "POST /servers/:name/stop": { answer: "Server" },
  "POST /servers/:name/reconnect": { answer: "Server" },
  "POST /servers/:name/cancel": { answer: "Server" },
  "POST /servers/:name/refresh": { answer: "Server" },
  "GET /servers/:name/entry": { answer: "ServerEntry" },
  "GET /servers/:name/log": { answer: "Log" },
  "POST /servers/:name/login": { answer: "Login" },
  "POST /servers/:name/logout": { answer: "Logout" },
  "GET /log": { answer: "Log" },
  "GET /tools": { answer: "Tools" },
  "GET /tools/:name": { answer: "Tool" },
  "POST /tools/:name/call": { body: "ToolCall", answer: "ToolCallAnswer" },
  "GET /catalog": { answer: "Catalog" },
  "GET /activity": { answer: "Activity" },
  "GET /usage": { answer: "Usage" },
  "GET /calls": { answer: { calls: "Call" } },
  "POST /calls/:call/cancel": {},
  "GET /clients": { answer: { clients: "Client" } },
  "GET /alerts": { answer: { alerts: "Alert" } },
  "POST /alerts/dismiss": {},
  "POST /alerts/:id/dismiss": {},
  "GET /events": { answer: "Event" },
  "POST /reload": { answer: "Hub" },
  "POST /stop": {},
  "GET /schema": {},
  "GET /secrets": { answer: "Secrets" },
  "PUT /secrets/:name": { body: "SecretValue" },
  "DELETE /secrets/:name": {},
  "GET /registry": { answer: "Registry" },
  "POST /trial": { body: "TrialRequest", answer: "Trial" },
  "GET /client-apps": { answer: { clients: "ClientApp" } },
  "GET /client-apps/:name/snippet": { answer: "Snippet" },
  "POST /client-apps/:name/install": { body: "ClientAppRequest", answer: "Installation" },
  "POST /client-apps/:name/undo": { answer: "Installation" },
  "GET /approvals": { answer: { approvals: "Approval" } },
  "POST /approvals/:id": { body: "ApprovalAnswer" },
  "POST /approvals/accept": { body: "AcceptTools" },
  "GET /approvals/remembered": { answer: { remembered: "RememberedApproval" } },
  "DELETE /approvals/remembered": { answer: { forgotten: "names" } },
  "DELETE /approvals/remembered/:id": { answer: { forgotten: "names" } },
  "POST /check": { answer: "Check" },
  "GET /mode": { answer: "Modes" },
  "PUT /mode": { body: "ModeChoice", answer: "Modes" },
  "GET /mode/:name": { answer: "Mode" },
  "GET /agents": { answer: { agents: "Agent" } },
  "POST /agents/:name/runs": { body: "AgentRunRequest", answer: "AgentRun" },
  "GET /runs": { answer: { runs: "AgentRun" } },
  "GET /runs/:id": { answer: "AgentRun" },
  "GET /runs/:id/events": { answer: "AgentEvent" },
  "POST /runs/:id/message": { body: "AgentMessage", answer: "AgentRun" },
  "POST /runs/:id/cancel": { answer: "AgentRun" },
  "DELETE /runs/:id": {},
  "PUT /clients/:client/mode": { body: "ModeChoice", answer: "Client" },
};

const referTo = (name: DocumentName): object => ({ $ref: `#/$defs/${name}` });

function schemaOfAnswer(answer: NonNullable<Endpoint["answer"]>): object {
  if (typeof answer === "string") return referTo(answer);
  const properties = Object.entries(answer).map(([member, name]) => {
    const items = name === "names" ? { type: "string" } : referTo(name);
    return [member, { type: "array", items }];
  });
  return {
    type: "object",
    properties: Object.fromEntries(properties) as object,
    required: Object.keys(answer),
  };
}

/**
 * The JSON Schema of each document of the API (`$defs`), and the schemas of each endpoint's body and answer
 * (`endpoints`, by method and path).
 */
export function makeControlSchema(): object {
  const definitions = Object.entries(DOCUMENTS).map(([name, schema]) => [
    name,
    toJsonSchema(schema, {
      target: "draft-2020-12",
      ignoreActions: ["readonly"],
      overrideSchema: ({ valibotSchema }) =>
        valibotSchema.type === "custom" ? { type: "object" } : undefined,
    }),
  ]);
  const endpoints = Object.entries(ENDPOINTS).map(([route, { body, answer }]) => [
    route.replace(" ", ` ${schemas.API_PATH}`),
    {
      ...(body !== undefined && { body: referTo(body) }),
      ...(answer !== undefined && { answer: schemaOfAnswer(answer) }),
    },
  ]);
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "toolmux control API",
    endpoints: Object.fromEntries(endpoints) as object,
    $defs: Object.fromEntries(definitions) as object,
  };
}
