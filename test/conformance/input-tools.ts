import {
  type ElicitRequestFormParams,
  fromJsonSchema,
  inputRequired,
  inputResponse,
  type McpServer,
  type ServerContext,
} from "@modelcontextprotocol/server";
import type { ServerOptions } from "./everything.ts";
import { textResult } from "./tools.ts";

export type Form = ElicitRequestFormParams["requestedSchema"];

const USER_FORM: Form = {
  type: "object",
  properties: {
    username: { type: "string", description: "User's response" },
    email: { type: "string", description: "User's email address" },
  },
  required: ["username", "email"],
};

const DEFAULTS_FORM: Form = {
  type: "object",
  properties: {
    name: { type: "string", default: "John Doe" },
    age: { type: "integer", default: 30 },
    score: { type: "number", default: 95.5 },
    status: { type: "string", enum: ["active", "inactive", "pending"], default: "active" },
    verified: { type: "boolean", default: true },
  },
  required: [],
};

/** All forms of enum properties. */
const ENUM_FORM: Form = {
  type: "object",
  properties: {
    untitledSingle: { type: "string", enum: ["option1", "option2", "option3"] },
    titledSingle: {
      type: "string",
      oneOf: [
        { const: "value1", title: "First Option" },
        { const: "value2", title: "Second Option" },
        { const: "value3", title: "Third Option" },
      ],
    },
    legacyEnum: {
      type: "string",
      enum: ["opt1", "opt2", "opt3"],
      enumNames: ["Option One", "Option Two", "Option Three"],
    },
    untitledMulti: {
      type: "array",
      items: { type: "string", enum: ["option1", "option2", "option3"] },
    },
    titledMulti: {
      type: "array",
      items: {
        anyOf: [
          { const: "value1", title: "First Choice" },
          { const: "value2", title: "Second Choice" },
          { const: "value3", title: "Third Choice" },
        ],
      },
    },
  },
  required: [],
};

/** The key of a single input request. */
const ANSWER_KEY = "answer";

/** Tools with one input request: `input_required` in the modern era, a server request in the legacy era. */
export function registerInputTools(server: McpServer, era: ServerOptions["era"]): void {
  server.registerTool(
    "test_sampling",
    { description: "Asks the client's model.", inputSchema: stringSchema<"prompt">("prompt") },
    ({ prompt }, { mcpReq: { inputResponses } }) => {
      const answer = inputResponse(inputResponses, ANSWER_KEY);
      if (answer.kind !== "sampling") {
        return inputRequired({ inputRequests: { [ANSWER_KEY]: samplingRequest(prompt) } });
      }
      const { content } = answer.result;
      const blocks = Array.isArray(content) ? content : [content];
      const texts = blocks.map((block) => (block.type === "text" ? block.text : block.type));
      return textResult(`LLM response: ${texts.join("\n")}`);
    },
  );
  server.registerTool(
    "test_elicitation",
    { description: "Asks the user who he is.", inputSchema: stringSchema<"message">("message") },
    ({ message }, context) => elicitForm(context, message, USER_FORM, "User response"),
  );
  const registerForm = (name: string, description: string, form: Form): void =>
    void server.registerTool(name, { description }, (context) =>
      elicitForm(context, "Please fill this in", form, "Elicitation completed"),
    );
  registerForm(
    "test_elicitation_sep1034_defaults",
    "Asks with an answer to everything.",
    DEFAULTS_FORM,
  );
  registerForm("test_elicitation_sep1330_enums", "Asks to choose, in all ways.", ENUM_FORM);
  registerForm("test_streaming_elicitation", "Asks for a form on the way of the call.", USER_FORM);
  server.registerTool(
    "test_missing_capability",
    { description: "Asks the client's model, whether or not it has said that it has one." },
    async ({ mcpReq: { inputResponses, send } }) => {
      if (era === "legacy") {
        const { model } = await send({
          method: "sampling/createMessage",
          params: samplingParams("Hi"),
        });
        return textResult(`Sampled with ${model}.`);
      }
      if (inputResponse(inputResponses, ANSWER_KEY).kind === "sampling")
        return textResult("Sampled.");
      return inputRequired({ inputRequests: { [ANSWER_KEY]: samplingRequest("Hi") } });
    },
  );
}

function elicitForm({ mcpReq }: ServerContext, message: string, form: Form, outcome: string) {
  const answer = inputResponse(mcpReq.inputResponses, ANSWER_KEY);
  if (answer.kind !== "elicit") {
    return inputRequired({ inputRequests: { [ANSWER_KEY]: formElicitation(message, form) } });
  }
  const { action, content } = answer;
  return textResult(`${outcome}: action=${action}, content=${JSON.stringify(content)}`);
}

/** A form elicitation. */
export function formElicitation(message: string, requestedSchema: Form) {
  return inputRequired.elicit({ message, requestedSchema });
}

/** A sampling request. */
export function samplingRequest(prompt: string) {
  return inputRequired.createMessage(samplingParams(prompt));
}

function samplingParams(text: string) {
  return {
    messages: [{ role: "user" as const, content: { type: "text" as const, text } }],
    maxTokens: 100,
  };
}

/** A schema of one required string argument. */
function stringSchema<Name extends string>(name: Name) {
  return fromJsonSchema<Record<Name, string>>({
    type: "object",
    properties: { [name]: { type: "string" } },
    required: [name],
  });
}
