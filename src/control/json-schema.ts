import { toJsonSchema } from "@valibot/to-json-schema";
import type { GenericSchema } from "valibot";
import * as schemas from "./schemas.ts";

/** The documents of the API by name: those of answers, then those of requests. */
const DOCUMENTS: Readonly<Record<string, GenericSchema>> = {
  Hub: schemas.hubSchema,
  Server: schemas.serverSchema,
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
  Trial: schemas.trialSchema,
  ClientApp: schemas.clientAppSchema,
  Approval: schemas.approvalSchema,
  RememberedApproval: schemas.rememberedApprovalSchema,
  Agent: schemas.agentSchema,
  AgentRun: schemas.runSchema,
  AgentEvent: schemas.agentEventSchema,
  Event: schemas.eventSchema,
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
};

/** The JSON Schema of each document of the API. */
export function makeControlSchema(): object {
  const definitions = Object.entries(DOCUMENTS).map(([name, schema]) => [
    name,
    toJsonSchema(schema, { target: "draft-2020-12", ignoreActions: ["readonly"] }),
  ]);
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "toolmux control API",
    $defs: Object.fromEntries(definitions) as object,
  };
}
